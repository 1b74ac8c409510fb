//! The thread that collects the samples of all workers.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::events_file::EventsFile;
use super::measure::Measure;
use super::notice::Happened;
use super::notices::{Notices, REQUEST_FAILED};
use super::sample::Sample;
use super::sampler::{Link, Sampler};
use super::tops::{MINUTES_MAX, Top, Tops};
use super::url_mask::UrlMask;
use crate::sys::Clock;
use crate::telemetry::table::Counters;

/// Samples that may wait for the thread, for each worker. Each takes at most 1.2 KiB.
pub(super) const QUEUE: usize = 4096;
/// Time between two rounds of the thread.
const ROUND: Duration = Duration::from_millis(250);
/// Most URLs of one answer.
const URLS_MAX: usize = 500;

/// The collected samples and events.
pub struct Observed(Arc<Inner>);

struct Inner {
    clock: Clock,
    notices: Notices,
    tops: Mutex<Tops>,
    /// The thread's ends of the workers' queues.
    links: Mutex<Vec<Ends>>,
    file: Mutex<Option<EventsFile>>,
    ends: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The thread's ends of one worker's queues.
struct Ends {
    queue: Receiver<Box<Sample>>,
    spare: SyncSender<Box<Sample>>,
}

impl Observed {
    /// Creates this without a thread, so that nothing is sampled.
    pub fn new(clock: Clock, notices: Notices) -> Observed {
        Observed(Arc::new(Inner {
            tops: Mutex::new(Tops::new(clock.monotonic_us())),
            clock,
            notices,
            links: Mutex::default(),
            file: Mutex::default(),
            ends: AtomicBool::new(false),
            thread: Mutex::default(),
        }))
    }

    /// Opens the file of events, if there is one, and starts the thread. Workers that are created later
    /// are sampled.
    ///
    /// # Errors
    ///
    /// The file can't be opened, or a thread can't be started.
    pub fn start(&self, events: Option<&Path>) -> io::Result<()> {
        *self.0.file.lock() = events.map(EventsFile::open).transpose()?;
        let inner = self.0.clone();
        let thread = thread::Builder::new()
            .name("observed".to_owned())
            .spawn(move || {
                while !inner.ends.load(Ordering::Acquire) {
                    thread::park_timeout(ROUND);
                    inner.round();
                }
            })?;
        *self.0.thread.lock() = Some(thread);
        Ok(())
    }

    /// Creates the sampler of one more worker.
    pub fn worker(&self, counters: Arc<Counters>) -> Sampler {
        if self.0.thread.lock().is_none() {
            return Sampler::off();
        }
        let (queue, samples) = sync_channel(QUEUE);
        let (spare_queue, spare) = sync_channel(QUEUE);
        self.0.links.lock().push(Ends {
            queue: samples,
            spare: spare_queue,
        });
        Sampler::new(Link {
            queue,
            spare,
            counters,
        })
    }

    /// Returns the recent errors and events.
    pub fn notices(&self) -> &Notices {
        &self.0.notices
    }

    /// Returns the URLs with the greatest sums of a measure in the last minutes, at most 60.
    pub fn top(&self, by: Measure, minutes: usize, most: usize) -> Top {
        let now_us = self.0.clock.monotonic_us();
        let mut tops = self.0.tops.lock();
        tops.pass(now_us);
        tops.top(
            by,
            minutes.clamp(1, MINUTES_MAX),
            most.min(URLS_MAX),
            now_us,
        )
    }

    /// Reopens the file of events by its name, after log rotation has moved it away.
    pub fn reopen(&self) {
        if let Some(file) = &*self.0.file.lock() {
            file.reopen();
        }
    }

    /// Collects what the workers have passed on, writes the last events, and ends the thread.
    pub fn stop(&self) {
        self.0.ends.store(true, Ordering::Release);
        let Some(thread) = self.0.thread.lock().take() else {
            return;
        };
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("the thread that collects samples had panicked");
        }
        // Samples that came after the thread's last round.
        self.0.round();
        if let Some(file) = self.0.file.lock().take() {
            file.finish(&self.0.notices, self.0.clock.unix_ms());
        }
    }
}

impl Inner {
    /// Takes all samples that wait, and writes new events.
    fn round(&self) {
        let mask = self.notices.mask();
        let mut url = String::new();
        let mut links = self.links.lock();
        links.retain(|link| self.take(link, &mask, &mut url));
        drop(links);
        self.tops.lock().pass(self.clock.monotonic_us());
        if let Some(file) = &mut *self.file.lock() {
            file.write(&self.notices, self.clock.unix_ms(), false);
        }
    }

    /// Takes the samples of one worker. Returns false if the worker has ended.
    fn take(&self, link: &Ends, mask: &UrlMask, url: &mut String) -> bool {
        // No more than the queue holds, so that a fast worker does not keep the thread from the others.
        for _ in 0..QUEUE {
            match link.queue.try_recv() {
                Ok(sample) => {
                    self.collect(&sample, mask, url);
                    // If there are enough spare samples, this one is freed.
                    let _ = link.spare.try_send(sample);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn collect(&self, sample: &Sample, mask: &UrlMask, url: &mut String) {
        url.clear();
        mask.write(&sample.url, sample.is_cut, url);
        if sample.weight > 0 {
            self.tops.lock().add(url, &sample.sums());
        }
        let result = &sample.result;
        let Some(reason) = result.reason else { return };
        let server = result.server.map(|server| format!(" (server {server})"));
        let server = server.unwrap_or_default();
        let message = match (result.is_cut, result.status) {
            (true, status @ 200..) => format!("a response with status {status} was cut{server}"),
            (_, 0) => format!("a request ended without a response{server}"),
            (_, status) => format!("a request got status {status}{server}"),
        };
        self.notices.add(Happened {
            kind: REQUEST_FAILED,
            reason: reason.text(),
            message,
            url: (!url.is_empty()).then(|| url.clone()),
            client: sample.client,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::reason::Reason;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn started() -> (Observed, Sampler, Arc<Counters>) {
        let clock = Clock::manual(1000);
        let observed = Observed::new(clock.clone(), Notices::new(clock));
        let counters = Arc::new(Counters::default());
        // Without the thread, so that the test decides when a round begins.
        *observed.0.thread.lock() = Some(thread::spawn(|| {}));
        let sampler = observed.worker(counters.clone());
        (observed, sampler, counters)
    }

    fn begin(sampler: &Sampler, target: &str) -> Option<Box<Sample>> {
        sampler.begin(CLIENT, ("http", "a.example", target))
    }

    #[test]
    fn samples_stand_for_all_requests() {
        let (observed, sampler, counters) = started();
        for n in 0..16_000 {
            if let Some(mut sample) = begin(&sampler, &format!("/{}", n % 2)) {
                sample.result.body_bytes = 10;
                sampler.send(sample);
            }
        }
        observed.0.round();
        let top = observed.top(Measure::Requests, 1, 10);
        let sum: u64 = top.urls.iter().map(|url| url.requests).sum();
        assert!((13_000..19_000).contains(&sum), "{sum}");
        assert_eq!(top.urls.len(), 2);
        assert_eq!(top.urls[0].bytes, 10 * top.urls[0].requests);
        assert_eq!(counters.samples_dropped.get(), 0);
        assert!(observed.notices().after(0, 10).is_empty());
    }

    #[test]
    fn a_failure_becomes_a_notice_with_a_masked_url() {
        let (observed, sampler, _) = started();
        drop(begin(&sampler, "/x?token=secret"));
        let mut sample = sampler.keep().expect("a sample");
        sample.result.status = 502;
        sample.result.reason = Some(Reason::ConnectFailed);
        sampler.send(sample);
        let mut refused = sampler.uncounted(None, b"\x1b[2J").expect("a sample");
        refused.result.reason = Some(Reason::TargetByte);
        sampler.send(refused);
        observed.0.round();
        let all = observed.notices().after(0, 10);
        assert_eq!(all[0].reason, "connect-failed");
        assert_eq!(all[0].url.as_deref(), Some("http://a.example/x?token=***"));
        assert_eq!(all[0].client, Some(CLIENT));
        assert_eq!(&*all[0].message, "a request got status 502");
        assert_eq!(all[1].url.as_deref(), Some("%1B[2J"));
        let top = observed.top(Measure::Requests, 1, 10);
        assert_eq!(top.urls.len(), 1);
        assert_eq!(&*top.urls[0].url, "http://a.example/x?token=***");
    }

    #[test]
    fn a_full_queue_drops_and_counts_samples() {
        let (observed, sampler, counters) = started();
        for _ in 0..QUEUE + 5 {
            drop(begin(&sampler, "/"));
            sampler.send(sampler.keep().expect("a sample"));
        }
        assert_eq!(counters.samples_dropped.get(), 5);
        observed.0.round();
        assert_eq!(
            observed.top(Measure::Requests, 1, 1).urls[0].requests,
            QUEUE as u64
        );
        drop(sampler);
        observed.0.round();
        assert!(observed.0.links.lock().is_empty());
    }

    #[test]
    fn nothing_is_sampled_without_the_thread() {
        let clock = Clock::manual(1000);
        let observed = Observed::new(clock.clone(), Notices::new(clock));
        let sampler = observed.worker(Arc::default());
        assert!((0..100).all(|_| begin(&sampler, "/").is_none()));
        assert!(sampler.keep().is_none() && sampler.uncounted(None, b"").is_none());
    }
}
