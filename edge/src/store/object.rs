//! One object: a head and sparse bytes, with the flights that add bytes and the riders that wait for bytes.
//!
//! All state is guarded by one lock, held for nanoseconds. Flights copy bytes without the lock, into ranges that exactly one flight has
//! claimed, and publish them under the lock. Wakers are called after unlocking.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use bytes::Bytes;
use slab::Slab;
use smallvec::SmallVec;

use super::claim::Claim;
use super::decisions::Notes;
use super::disk_tier::disk_copy::DiskCopy;
use super::head::Head;
use super::ledger::Charge;
use super::purges::births::Birth;
use super::rare::Rare;
use super::setbacks::Setbacks;
use super::slots::Slots;
use super::sync::{Mutex, MutexGuard};
use super::watcher::Watcher;
use crate::http::InterimHeads;
use crate::ranges::Ranges;
use crate::reason::Reason;

/// Bytes charged to the ledger for an object's `DiskCopy`, if the disk copy consists of few ranges.
const DISK_COPY_BYTES: u64 = (size_of::<DiskCopy>() + 64) as u64;

/// The error with which a flight ended before it had added all its bytes. The cache turns this value into its own error type by downcast.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// The failure of a flight that was dropped, and of bytes that no flight will add.
#[derive(Debug)]
pub struct Abandoned;

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fetch was given up")
    }
}

impl Error for Abandoned {}

/// A cached response: its stored bytes, the flights that add more, and the riders that wait for them.
pub struct Object {
    /// The text of the primary key, for inspection and purges.
    pub key: Bytes,
    /// Sequence number at which the object's first flight began. Purges with a later number cover the object.
    pub born_seq: u64,
    /// Sequence number of the newest purge that the object was checked against; written only while the shard is locked.
    pub(super) checked: AtomicU64,
    /// Whether the object is written to volumes only if another request for it arrives.
    pub(super) once: AtomicBool,
    /// Whether a request has used the object since it was put into memory.
    pub(super) used: AtomicBool,
    /// Whether the object is a placeholder for an object whose head is being read from a volume.
    recall: AtomicBool,
    pub(super) state: Mutex<State>,
    overhead: Charge,
    /// Bytes charged to the ledger for the object's latest decisions. They are not part of the object's weight in the eviction policy.
    noted: AtomicU64,
}

/// The phase of an object, as a lookup sees it.
#[derive(Clone)]
pub enum Phase {
    /// The first flight has no head yet.
    Awaiting,
    /// The head is known; bytes are stored or can be fetched.
    Open(Arc<Head>),
    /// The response may not be shared: until `until_ms` each request is forwarded to the origin separately.
    Refused {
        /// The reason why the response may not be shared.
        reason: Reason,
        /// Time at which the refusal ends, in milliseconds since the Unix epoch.
        until_ms: u64,
        /// Whether the response concerns only the client whose request caused the fetch, so that other requests are looked up again.
        one_client: bool,
    },
    /// The first flight failed before its response had a head.
    Failed(Failure),
    /// The stored response that this object's fetch revalidated remains in use.
    Revalidated {
        /// The stored response.
        stored: Revalidated,
        /// Whether the origin confirmed the stored response; otherwise the origin failed.
        confirmed: bool,
    },
    /// Another object has replaced this one in the table: a request must look its key up again.
    Retired,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// Complete length of the content in bytes, once known.
    pub(super) length: Option<u64>,
    head_charge: Option<Charge>,
    pub(super) present: Ranges,
    /// Pages in memory, by index; pages without bytes have no entry.
    pub(super) pages: Slots,
    /// Claims of the flights in progress. They are disjoint, and contain no byte that is stored already.
    pub(super) claims: Vec<Claim>,
    /// One entry per request that reads the object; their number is bounded by the number of connections.
    pub(super) riders: Slab<Rider>,
    pub(super) failure: Option<Failure>,
    pub(super) notes: Option<Box<Notes>>,
    /// The ranges whose fetches failed.
    pub(super) setbacks: Option<Box<Setbacks>>,
    /// Waker of a flight that waits until its riders have read more.
    pub(super) stalled: Option<Waker>,
    /// Flights to wake when the riders change that concern them.
    pub(super) watchers: Vec<Watcher>,
    /// Size in bytes of the blocks that are charged and evicted separately; `None` if the object is evicted only as a whole.
    pub(super) block: Option<NonZeroU32>,
    /// Whether bytes of other responses may be added to this object.
    pub(super) joinable: bool,
    /// Whether bytes that every rider has read are dropped, since the store has no room for them.
    pub(super) passes_through: bool,
    /// Links to the object that this one revalidates, or to the one that revalidates this object.
    pub(super) ties: Option<Box<RevalidationLinks>>,
    /// State that most objects never have.
    pub(super) rare: Option<Box<Rare<Object>>>,
    /// Sequence number of a running fetch for another object, if this object is made from the response of that fetch.
    pub(super) birth: Option<Birth>,
    /// The object's records on volumes; `None` if the cache has no volumes.
    pub(super) disk: Option<Box<DiskCopy>>,
}

/// A stored response that remains in use after its revalidation.
#[derive(Clone)]
pub struct Revalidated {
    /// The stored object.
    pub object: Arc<Object>,
    /// Head of the stored object.
    pub head: Arc<Head>,
}

/// Links between a stored object and the object whose fetch revalidates it.
#[derive(Default)]
pub(super) struct RevalidationLinks {
    /// The stored response that this object's fetch revalidates.
    pub(super) stored: Option<Revalidated>,
    /// The object whose fetch revalidates this one.
    pub(super) validation: Weak<Object>,
}

/// A reader of the object: its offset, and the waker to call when there are more bytes.
pub(super) struct Rider {
    pub(super) at: u64,
    /// End of the bytes that the reader wants for a client; `u64::MAX` if unknown. A reader that reads ahead wants none.
    pub(super) end: u64,
    /// End of the bytes that the reader will want soon, as an offset.
    pub(super) wanted_until: u64,
    /// Whether no flight had claimed the reader's next byte when it began to wait.
    pub(super) unserved: bool,
    pub(super) waker: Option<Waker>,
    /// The 1xx heads that the reader has still to take.
    pub(super) interim: Option<Box<InterimHeads>>,
}

impl Rider {
    /// Returns the bytes that must stay in memory for this reader: at least the next one.
    pub(super) fn wants(&self) -> Range<u64> {
        self.at..self.wanted_until.max(self.at.saturating_add(1))
    }
}

/// Wakers to call after unlocking.
#[derive(Default)]
#[must_use]
pub(super) struct Wakes(SmallVec<[Waker; 4]>);

impl Wakes {
    pub(super) fn of(wakers: impl Iterator<Item = Waker>) -> Wakes {
        Wakes(wakers.collect())
    }

    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Object {
    pub(super) fn new(key: Bytes, born_seq: u64, overhead: Charge) -> Object {
        Object {
            key,
            born_seq,
            checked: AtomicU64::new(born_seq),
            once: AtomicBool::new(false),
            used: AtomicBool::new(false),
            recall: AtomicBool::new(false),
            state: Mutex::new(State {
                phase: Phase::Awaiting,
                length: None,
                head_charge: None,
                present: Ranges::new(),
                pages: Slots::new(),
                claims: Vec::new(),
                riders: Slab::new(),
                failure: None,
                notes: None,
                setbacks: None,
                stalled: None,
                watchers: Vec::new(),
                block: None,
                joinable: false,
                passes_through: false,
                ties: None,
                rare: None,
                birth: None,
                disk: None,
            }),
            overhead,
            noted: AtomicU64::new(0),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        self.lock().phase.clone()
    }

    /// Returns the head, if the object is open.
    pub fn head(&self) -> Option<Arc<Head>> {
        match &self.lock().phase {
            Phase::Open(head) => Some(head.clone()),
            _ => None,
        }
    }

    /// Marks the object as a placeholder for an object whose head is being read from a volume.
    pub fn mark_recall(&self) {
        self.recall.store(true, Ordering::Relaxed);
    }

    /// Whether the object is a placeholder for an object whose head is being read from a volume. Requests that wait for a placeholder look
    /// their key up again afterwards.
    pub fn is_recall(&self) -> bool {
        self.recall.load(Ordering::Relaxed)
    }

    /// Sets the head and the length, and returns the riders to wake. A retired object stays retired. `disk` describes the object's records
    /// on volumes.
    pub(super) fn open(
        &self,
        head: Arc<Head>,
        charge: Charge,
        block: Option<NonZeroU32>,
        disk: Option<DiskCopy>,
    ) -> Wakes {
        // A second request may have used the object while it had no head: then it is admitted to volumes. The caller locks the shard.
        let again = self.used.load(Ordering::Relaxed);
        let disk = disk.map(|disk| Box::new(disk.asked(again).charged(self.charge_disk_copy())));
        let mut state = self.lock();
        state.change_rare(|rare| rare.interim = None);
        let once = disk.as_ref().is_some_and(|disk| !disk.is_admitted());
        self.once.store(once, Ordering::Relaxed);
        state.disk = disk;
        state.length = head.length;
        state.head_charge = Some(charge);
        state.joinable = head.joinable && head.length.is_some();
        state.block = block.filter(|_| state.joinable);
        if let Some(length) = head.length {
            for claim in &mut state.claims {
                claim.end = claim.end.min(length);
            }
        }
        if !matches!(state.phase, Phase::Retired) {
            state.phase = Phase::Open(head);
        }
        state.all_riders()
    }

    /// Replaces the head by that of a later response. Returns the difference of their sizes in bytes, or `None` if the object has no head.
    pub(super) fn renew(&self, head: Arc<Head>, charge: Charge) -> Option<i64> {
        let mut state = self.lock();
        let Phase::Open(there) = &mut state.phase else {
            return None;
        };
        // The old head is dropped after unlocking.
        let old = std::mem::replace(there, head);
        let more = charge.bytes() as i64;
        let before = state.head_charge.replace(charge);
        drop(state);
        drop(old);
        Some(more - before.map_or(0, |charge| charge.bytes() as i64))
    }

    /// Makes the object stale from `at_ms` (milliseconds since the Unix epoch) at the latest, if its head is still this one.
    pub(super) fn expire(&self, head: &Arc<Head>, at_ms: u64) {
        if head.fresh_until_ms <= at_ms {
            return;
        }
        let mut stale = Arc::new(Head {
            fresh_until_ms: at_ms,
            ..Head::clone(head)
        });
        let mut state = self.lock();
        if let Phase::Open(there) = &mut state.phase
            && Arc::ptr_eq(there, head)
        {
            std::mem::swap(there, &mut stale);
        }
        drop(state);
        drop(stale); // the old head, if it was replaced: dropped after unlocking
    }

    /// Marks the object as replaced. Riders that wait for a head look their key up again, and no further flight begins. Stored bytes stay
    /// available to the readers that the object has now. Returns the riders to wake.
    pub(super) fn retire(&self) -> Wakes {
        let mut state = self.lock();
        state.phase = Phase::Retired;
        state.all_riders()
    }

    /// Whether another object has replaced this one in the table.
    pub(super) fn is_retired(&self) -> bool {
        matches!(self.lock().phase, Phase::Retired)
    }

    /// Whether the object has a flight in progress.
    pub fn in_flight(&self) -> bool {
        !self.lock().claims.is_empty()
    }

    /// Returns the complete length in bytes, if known.
    pub fn length(&self) -> Option<u64> {
        self.lock().length
    }

    /// The complete length of the content with this head, if known: the head's, or the one that the
    /// first flight found.
    pub fn content_length(&self, head: &Head) -> Option<u64> {
        head.length.or_else(|| self.length())
    }

    /// Returns the error of the object's last failed flight.
    pub fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// Whether the object has a reader that may have to wait for more bytes.
    pub fn is_read(&self) -> bool {
        !self.lock().riders.is_empty()
    }

    /// Whether single blocks of the object can be evicted, even while the object is read.
    pub fn is_sparse(&self) -> bool {
        self.lock().block.is_some()
    }

    /// Whether all bytes are in memory.
    pub fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    /// Whether all bytes of this range, up to the end of the object, are in memory and stay there while they are read.
    pub fn covers(&self, range: Range<u64>) -> bool {
        let state = self.lock();
        let range = state.within(range);
        let passes = |disk: &DiskCopy| disk.transient.intersects(&range);
        state.present.covers(&range) && !state.disk.as_deref().is_some_and(passes)
    }

    /// Whether all bytes of this range, up to the end of the object, are in memory or on volumes.
    pub fn has(&self, range: Range<u64>) -> bool {
        let state = self.lock();
        state.have().covers(&state.within(range))
    }

    /// Wakes the riders whose next byte has arrived.
    pub(super) fn announce(&self) {
        let mut state = self.lock();
        let State {
            riders, present, ..
        } = &mut *state;
        let wakes = wakes_of(riders, |rider| present.contains(rider.at));
        drop(state);
        wakes.wake();
    }

    /// Charges `bytes` to the ledger, even beyond its limit, for memory that the object holds for a
    /// short time.
    pub(super) fn charge_beside(&self, bytes: u64) -> Charge {
        self.overhead.beside(bytes)
    }

    /// Charges the memory of the object's decisions to the ledger, even beyond its limit.
    pub(super) fn charge_note(&self, bytes: u64) -> Charge {
        self.noted.fetch_add(bytes, Ordering::Relaxed);
        self.charge_beside(bytes)
    }

    /// Charges the memory of the object's `DiskCopy` to the ledger, even beyond its limit.
    pub(super) fn charge_disk_copy(&self) -> Charge {
        self.charge_note(DISK_COPY_BYTES)
    }

    /// Returns the number of bytes charged by `charge_note`.
    pub(super) fn noted(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }
}

impl State {
    /// Returns the part of a range before the end of the object.
    fn within(&self, range: Range<u64>) -> Range<u64> {
        let end = self
            .length
            .map_or(range.end, |length| length.min(range.end));
        range.start..end
    }

    /// Returns the bytes that are in memory or on volumes.
    pub(super) fn have(&self) -> Cow<'_, Ranges> {
        match &self.disk {
            Some(disk) if !disk.there.is_empty() => {
                let mut all = self.present.clone();
                all.extend(disk.there.iter());
                Cow::Owned(all)
            }
            _ => Cow::Borrowed(&self.present),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.length
            .is_some_and(|length| self.present.covers(&(0..length)))
    }

    pub(super) fn all_riders(&mut self) -> Wakes {
        wakes_of(&mut self.riders, |_| true)
    }

    /// Returns the riders to wake because a flight has ended or a part of its claim was released: those that wait for a byte in `released`,
    /// and those whose next byte no flight had claimed.
    pub(super) fn answerable(&mut self, released: &Ranges) -> Wakes {
        wakes_of(&mut self.riders, |rider| {
            rider.unserved || released.contains(rider.at)
        })
    }

    /// Returns the riders that wait for a byte of this range.
    pub(super) fn riders_in(&mut self, range: &Range<u64>) -> Wakes {
        wakes_of(&mut self.riders, |rider| range.contains(&rider.at))
    }
}

/// Takes the wakers of the waiting riders for which `which` returns true.
pub(super) fn wakes_of(riders: &mut Slab<Rider>, which: impl Fn(&Rider) -> bool) -> Wakes {
    let waiting = riders.iter_mut().map(|(_, rider)| rider);
    let waiting = waiting.filter(|rider| rider.waker.is_some() && which(rider));
    Wakes(waiting.filter_map(|rider| rider.waker.take()).collect())
}
