//! The counters and latencies of a load, which several threads and periods can add up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Errors, Latency};

/// Longest recorded time in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Counters and latencies of the requests of one thread or of one period.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    pub(super) done: u64,
    pub(super) errors: Errors,
    pub(super) bytes: u64,
    /// Good responses, and bytes in them, that were complete after the end of the load.
    pub(super) late: u64,
    pub(super) late_bytes: u64,
    pub(super) sent_again: u64,
    /// The error of the first connection that could not be made.
    pub(super) connect_error: Option<Errno>,
    pub(super) connects: u64,
    pub(super) slow: u64,
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Latencies of good responses, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// Times in nanoseconds from the start of a connection to its first request.
    pub(super) connect: Histogram<u64>,
}

impl Counts {
    pub(super) fn new() -> anyhow::Result<Counts> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST, 3).context("bounds");
        Ok(Counts {
            done: 0,
            errors: Errors::default(),
            bytes: 0,
            late: 0,
            late_bytes: 0,
            sent_again: 0,
            connect_error: None,
            connects: 0,
            slow: 0,
            statuses: BTreeMap::new(),
            latency: histogram()?,
            connect: histogram()?,
        })
    }

    /// Counts a connection that was made within this time.
    pub(super) fn connected(&mut self, took: Duration) {
        self.connects += 1;
        record(&mut self.connect, took);
    }

    /// Adds the counters and latencies of `other`.
    pub(super) fn add(&mut self, other: &Counts) {
        self.done += other.done;
        self.errors.add(&other.errors);
        self.bytes += other.bytes;
        self.late += other.late;
        self.late_bytes += other.late_bytes;
        self.sent_again += other.sent_again;
        self.connect_error = self.connect_error.or(other.connect_error);
        self.connects += other.connects;
        self.slow += other.slow;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        // All histograms have the same bounds, so that adding them can't fail.
        let _ = self.latency.add(&other.latency);
        let _ = self.connect.add(&other.connect);
    }

    /// Sets everything to zero and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.done = 0;
        self.errors = Errors::default();
        self.bytes = 0;
        self.late = 0;
        self.late_bytes = 0;
        self.sent_again = 0;
        self.connect_error = None;
        self.connects = 0;
        self.slow = 0;
        self.statuses.clear();
        self.latency.reset();
        self.connect.reset();
    }
}

/// Records a time in a histogram of nanoseconds.
pub(super) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// The link between a running load and its owner, who can watch and stop it.
#[derive(Debug)]
pub struct Live {
    stop: AtomicBool,
    /// Whether a thread has found the server saturated.
    is_saturated: AtomicBool,
    published: Mutex<Published>,
    /// Empty counters, which are exchanged for the published ones, so that threads don't wait while results are computed.
    spare: Mutex<Counts>,
}

/// Counters that threads have published and nobody has read.
#[derive(Debug)]
struct Published {
    counts: Counts,
    /// The time that the publications of each thread cover.
    covered: Vec<Duration>,
}

/// Results of the requests that ended since the last reading.
#[derive(Debug, Clone, Copy)]
pub struct Recent {
    /// Time in seconds in which these requests ended, as the mean of all threads. Threads publish their results ten times
    /// per second at most, so this is seldom the time between two readings. 0 if nothing was published.
    pub seconds: f64,
    /// Number of good responses.
    pub requests: u64,
    /// Number of failed requests.
    pub errors: u64,
    /// Number of body bytes in good responses.
    pub bytes: u64,
    /// Number of connections that were made.
    pub connects: u64,
    /// Latencies of good responses.
    pub latency: Latency,
}

impl Recent {
    /// Returns a number of these results as a rate per second.
    pub fn per_second(&self, count: u64) -> f64 {
        match self.seconds > 0.0 {
            true => count as f64 / self.seconds,
            false => 0.0,
        }
    }
}

impl Live {
    /// Creates a link for one load.
    pub fn new() -> anyhow::Result<Live> {
        Ok(Live {
            stop: AtomicBool::new(false),
            is_saturated: AtomicBool::new(false),
            published: Mutex::new(Published {
                counts: Counts::new()?,
                covered: Vec::new(),
            }),
            spare: Mutex::new(Counts::new()?),
        })
    }

    /// Ends the load. Requests in progress are given up and not counted.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the load was ended by `stop`, or by a thread that has failed.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Lets no more requests begin, because the server is saturated. Requests in progress end.
    pub(super) fn saturate(&self) {
        self.is_saturated.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_saturated(&self) -> bool {
        self.is_saturated.load(Ordering::Relaxed)
    }

    /// Returns the results since the last call. After the load has ended, these are the results of the last, partial
    /// period.
    pub fn take(&self) -> Recent {
        let mut counts = self.spare.lock();
        let covered = {
            let mut published = self.published.lock();
            std::mem::swap(&mut published.counts, &mut *counts);
            std::mem::take(&mut published.covered)
        };
        let some = covered.iter().filter(|time| !time.is_zero());
        let threads = some.clone().count().max(1);
        let recent = Recent {
            seconds: some.sum::<Duration>().as_secs_f64() / threads as f64,
            requests: counts.done,
            errors: counts.errors.total(),
            bytes: counts.bytes,
            connects: counts.connects,
            latency: Latency::of(&counts.latency),
        };
        counts.clear();
        recent
    }

    /// Adds what a thread has counted within this time since its last publication.
    pub(super) fn publish(&self, thread: usize, counts: &Counts, covered: Duration) {
        let mut published = self.published.lock();
        published.counts.add(counts);
        if published.covered.len() <= thread {
            published.covered.resize(thread + 1, Duration::ZERO);
        }
        published.covered[thread] += covered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_threads_add_up() {
        let mut one = Counts::new().expect("bounds");
        let mut two = one.clone();
        one.done = 99;
        for _ in 0..99 {
            record(&mut one.latency, Duration::from_millis(1));
        }
        two.done = 1;
        two.errors.timeout = 3;
        two.statuses.insert(200, 1);
        record(&mut two.latency, Duration::from_secs(2));
        one.add(&two);
        assert_eq!((one.done, one.errors.total()), (100, 3));
        let latency = Latency::of(&one.latency);
        assert!((latency.p99_us - 1000.0).abs() < 2.0, "{latency:?}");
        assert!(latency.p9999_us > 1_990_000.0, "{latency:?}");
        assert_eq!(latency.max_us, latency.p9999_us);
        one.clear();
        assert_eq!((one.done, one.latency.len()), (0, 0));
    }

    #[test]
    fn recent_results_are_read_once() {
        let live = Live::new().expect("bounds");
        let mut counts = Counts::new().expect("bounds");
        counts.done = 5;
        // Two threads publish at different times.
        let ms = Duration::from_millis;
        live.publish(0, &counts, ms(110));
        live.publish(2, &counts, ms(60));
        live.publish(2, &counts, ms(80));
        let recent = live.take();
        assert_eq!((recent.requests, recent.seconds), (15, 0.125));
        assert_eq!(recent.per_second(recent.requests), 120.0);
        let nothing = live.take();
        assert_eq!((nothing.requests, nothing.seconds), (0, 0.0));
        assert_eq!(nothing.per_second(0), 0.0);
    }
}
