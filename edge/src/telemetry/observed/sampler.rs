//! One worker's end of the queue to the collecting thread.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use super::sample::{RAW_MAX, Sample};
use crate::sys::Random;
use crate::telemetry::table::Counters;

/// One in this many requests that are answered without waiting is sampled, on average.
const PERIOD: u64 = 16;

/// Chooses the requests of one worker that are sampled, and passes them on. Requests that wait or
/// fail are all sampled; of the others, one in sixteen.
pub struct Sampler {
    link: Option<Link>,
    random: Random,
    /// Requests until the next one is sampled.
    left: Cell<u64>,
    /// The request that began last, from which its sample is made if it waits.
    latest: RefCell<Latest>,
}

/// URL and client of a request. Each request is written here, so nothing more is copied than necessary.
struct Latest {
    scheme: &'static str,
    /// Host and port, followed by the target, as far as there is room.
    text: Box<[u8; RAW_MAX]>,
    len: usize,
    /// Whether host and target are longer than that.
    is_cut: bool,
    client: Option<IpAddr>,
}

/// The queues from and to the collecting thread.
pub(super) struct Link {
    pub(super) queue: SyncSender<Box<Sample>>,
    /// Samples whose memory is free.
    pub(super) spare: Receiver<Box<Sample>>,
    pub(super) counters: Arc<Counters>,
}

impl Sampler {
    /// Returns a sampler that samples nothing.
    pub fn off() -> Sampler {
        Sampler::of(None)
    }

    pub(super) fn new(link: Link) -> Sampler {
        Sampler::of(Some(link))
    }

    fn of(link: Option<Link>) -> Sampler {
        Sampler {
            link,
            random: Random::system(),
            left: Cell::new(PERIOD),
            latest: RefCell::new(Latest::none()),
        }
    }

    /// Notes a request that begins, with its scheme, host and target. Returns a sample if it is one of those that are
    /// sampled even if they don't wait.
    #[inline]
    pub fn begin(&self, client: IpAddr, url: (&'static str, &str, &str)) -> Option<Box<Sample>> {
        self.link.as_ref()?;
        self.latest.borrow_mut().set(client, url);
        let left = self.left.get() - 1;
        self.left.set(left);
        match left {
            0 => self.chosen(),
            _ => None,
        }
    }

    #[cold]
    fn chosen(&self) -> Option<Box<Sample>> {
        // Between 1 and 2 * PERIOD - 1, so that no pattern of requests evades.
        self.left.set(1 + self.random.next_u64() % (2 * PERIOD - 1));
        let mut sample = self.keep()?;
        sample.weight = PERIOD;
        Some(sample)
    }

    /// Returns the sample of the request that began last, which waits or has failed.
    pub fn keep(&self) -> Option<Box<Sample>> {
        let latest = self.latest.borrow();
        let mut sample = self.empty()?;
        sample.set_url([latest.scheme.as_bytes(), b"://", &latest.text[..latest.len]]);
        sample.is_cut |= latest.is_cut;
        sample.client = latest.client;
        sample.weight = 1;
        Some(sample)
    }

    /// Returns a sample that counts for no URL: of a refused request, whose target may be anything, or
    /// of a request whose URL is not known any more. `target` is empty then.
    pub fn uncounted(&self, client: Option<IpAddr>, target: &[u8]) -> Option<Box<Sample>> {
        let mut sample = self.empty()?;
        sample.set_url([target]);
        sample.client = client;
        sample.weight = 0;
        Some(sample)
    }

    fn empty(&self) -> Option<Box<Sample>> {
        let link = self.link.as_ref()?;
        Some(link.spare.try_recv().unwrap_or_default())
    }

    /// Makes a sample stand for its own request only, since that waits or has failed.
    pub fn single(sample: &mut Sample) {
        sample.weight = 1;
    }

    /// Passes a sample on. Never blocks: if the collecting thread is too slow, samples are dropped and
    /// counted.
    pub fn send(&self, sample: Box<Sample>) {
        if let Some(link) = &self.link
            && link.queue.try_send(sample).is_err()
        {
            link.counters.samples_dropped.add(1);
        }
    }
}

impl Latest {
    fn none() -> Latest {
        Latest {
            scheme: "",
            text: Box::new([0; RAW_MAX]),
            len: 0,
            is_cut: false,
            client: None,
        }
    }

    #[inline]
    fn set(&mut self, client: IpAddr, (scheme, host, target): (&'static str, &str, &str)) {
        let host_len = host.len().min(RAW_MAX);
        let (first, rest) = self.text.split_at_mut(host_len);
        first.copy_from_slice(&host.as_bytes()[..host_len]);
        let target_len = target.len().min(rest.len());
        rest[..target_len].copy_from_slice(&target.as_bytes()[..target_len]);
        self.scheme = scheme;
        self.len = host_len + target_len;
        self.is_cut = self.len < host.len() + target.len();
        self.client = Some(client);
    }
}
