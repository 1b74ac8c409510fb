//! One object: a head and sparse bytes, with the flights that add bytes and the riders that wait.
//!
//! All state is guarded by one lock, held for nanoseconds. Bytes are copied without the lock, into
//! ranges that exactly one flight has claimed, and published under it. Wakers are called after
//! unlocking.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use bytes::Bytes;
use slab::Slab;
use smallvec::SmallVec;

use super::claim::Claim;
use super::decisions::Notes;
use super::disk_tier::disk_copy::DiskCopy;
use super::head::Head;
use super::ledger::Charge;
use super::purges::births::Birth;
use super::slots::Slots;
use super::sync::{Mutex, MutexGuard};
use crate::ranges::Ranges;
use crate::reason::Reason;

/// Bytes charged for an object's `DiskCopy`, for an object that is not in many pieces.
const DISK_COPY_BYTES: u64 = (size_of::<DiskCopy>() + 64) as u64;

/// Why a flight ended without all its bytes. The cache gets its own error back by downcast.
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

/// A cached response: the bytes that are there, the flights that add more, the riders that wait.
pub struct Object {
    /// The primary key's text, for inspection and purges.
    pub key: Bytes,
    /// Sequence number at which its flight began; a purge with a later one covers it.
    pub born_seq: u64,
    /// The newest purge that the object was checked against; written with its shard locked.
    pub(super) checked: AtomicU64,
    /// Whether the object is written to volumes only after another request for it.
    pub(super) once: AtomicBool,
    /// Whether the object was requested since it is in memory.
    pub(super) used: AtomicBool,
    /// Whether the object is a placeholder for one that is being read from a volume.
    recall: AtomicBool,
    pub(super) state: Mutex<State>,
    overhead: Charge,
    /// Bytes charged for decisions, which the eviction policy does not know.
    noted: AtomicU64,
}

/// The phase of an object, as a lookup sees it.
#[derive(Clone)]
pub enum Phase {
    /// The first flight has no head yet.
    Awaiting,
    /// The head is known; bytes are there or can be had.
    Open(Arc<Head>),
    /// The response may not be shared: until `until_ms` each request is forwarded by itself.
    Refused {
        /// Why the response may not be shared.
        reason: Reason,
        /// Time at which the refusal ends, in Unix milliseconds.
        until_ms: u64,
    },
    /// The flight failed before there was a head.
    Failed(Failure),
    /// The stored response that this object's fetch validated remains in use.
    Revalidated {
        /// The stored response.
        stored: Revalidated,
        /// Whether the origin confirmed the stored response; otherwise the origin failed.
        confirmed: bool,
    },
    /// Another object has replaced this one: look it up again.
    Retired,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// Complete length, once known.
    pub(super) length: Option<u64>,
    head_charge: Option<Charge>,
    pub(super) present: Ranges,
    /// By index; pages without bytes are not listed.
    pub(super) pages: Slots,
    /// Disjoint, and without bytes that are there.
    pub(super) claims: Vec<Claim>,
    /// One per request that reads the object; bounded by the number of connections.
    pub(super) riders: Slab<Rider>,
    pub(super) failure: Option<Failure>,
    pub(super) notes: Option<Box<Notes>>,
    /// A flight that waits for riders to move.
    pub(super) stalled: Option<Waker>,
    /// The flight does not wait for riders before this byte.
    pub(super) left_behind: u64,
    /// Size of the blocks by which bytes are accounted and evicted; `None`: the whole object at once.
    pub(super) block: Option<NonZeroU32>,
    /// Whether bytes of other responses may be added.
    pub(super) joinable: bool,
    /// Whether bytes that every rider has passed are dropped, since the store has no room.
    pub(super) passes_through: bool,
    /// Links to the object that this one revalidates, or that revalidates this one.
    pub(super) ties: Option<Box<Ties>>,
    /// The number of the fetch for another object whose response this object takes over.
    pub(super) birth: Option<Birth>,
    /// What is on volumes; `None` without volumes.
    pub(super) disk: Option<Box<DiskCopy>>,
}

/// A stored response, which may serve on.
#[derive(Clone)]
pub struct Revalidated {
    /// The stored object.
    pub object: Arc<Object>,
    /// Head of the stored object.
    pub head: Arc<Head>,
}

/// Links between a stored object and the object whose fetch validates it.
#[derive(Default)]
pub(super) struct Ties {
    /// The stored response that this object's fetch validates.
    pub(super) stored: Option<Revalidated>,
    /// The object whose fetch validates this one.
    pub(super) validation: Weak<Object>,
}

/// A reader of the object: its position, and the waker to call when there are more bytes.
pub(super) struct Rider {
    pub(super) at: u64,
    /// The reader will soon want the bytes up to here.
    pub(super) wanted_until: u64,
    /// Whether no flight had claimed the reader's next byte when it began to wait.
    pub(super) unserved: bool,
    pub(super) waker: Option<Waker>,
}

impl Rider {
    /// The bytes that must stay for this reader: at least the next one.
    pub(super) fn wants(&self) -> Range<u64> {
        self.at..self.wanted_until.max(self.at.saturating_add(1))
    }
}

/// Wakers to call after unlocking.
#[derive(Default)]
#[must_use]
pub(super) struct Wakes(SmallVec<[Waker; 4]>);

impl Wakes {
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
                stalled: None,
                left_behind: 0,
                block: None,
                joinable: false,
                passes_through: false,
                ties: None,
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

    /// The current phase.
    pub fn phase(&self) -> Phase {
        self.lock().phase.clone()
    }

    /// The head, if the object is open.
    pub fn head(&self) -> Option<Arc<Head>> {
        match &self.lock().phase {
            Phase::Open(head) => Some(head.clone()),
            _ => None,
        }
    }

    /// Marks the object as a placeholder for one that is being read from a volume.
    pub fn mark_recall(&self) {
        self.recall.store(true, Ordering::Relaxed);
    }

    /// Whether the object is a placeholder for one that is being read from a volume: requests that
    /// wait for it look it up again afterwards.
    pub fn is_recall(&self) -> bool {
        self.recall.load(Ordering::Relaxed)
    }

    /// Makes the head and the length known. Returns the riders to wake. A retired object stays retired.
    /// `disk`: what is on volumes.
    pub(super) fn open(
        &self,
        head: Arc<Head>,
        charge: Charge,
        block: Option<NonZeroU32>,
        disk: Option<DiskCopy>,
    ) -> Wakes {
        // A request meanwhile was the second one. The shard is locked, so that none can come now.
        let again = self.used.load(Ordering::Relaxed);
        let disk = disk.map(|disk| Box::new(disk.asked(again).charged(self.charge_disk_copy())));
        let mut state = self.lock();
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

    /// Replaces the head by that of a later response. Returns the difference in bytes; `None` if
    /// there is no head to replace.
    pub(super) fn renew(&self, head: Arc<Head>, charge: Charge) -> Option<i64> {
        let mut state = self.lock();
        let Phase::Open(there) = &mut state.phase else {
            return None;
        };
        // Dropped after unlocking.
        let old = std::mem::replace(there, head);
        let more = charge.bytes() as i64;
        let before = state.head_charge.replace(charge);
        drop(state);
        drop(old);
        Some(more - before.map_or(0, |charge| charge.bytes() as i64))
    }

    /// Makes this head, if it is still the object's, stale from this time on (Unix milliseconds) at
    /// the latest.
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
        drop(stale); // the old one, by now: after the lock
    }

    /// Marks the object as replaced: riders without a head are looked up again, and no further
    /// fetch begins. Stored bytes stay available to present readers.
    pub(super) fn retire(&self) {
        let mut state = self.lock();
        state.phase = Phase::Retired;
        let wakes = state.all_riders();
        drop(state);
        wakes.wake();
    }

    /// Whether another object has replaced this one.
    pub(super) fn is_retired(&self) -> bool {
        matches!(self.lock().phase, Phase::Retired)
    }

    /// Whether a flight of this object is in progress.
    pub fn in_flight(&self) -> bool {
        !self.lock().claims.is_empty()
    }

    /// The complete length, if known.
    pub fn length(&self) -> Option<u64> {
        self.lock().length
    }

    /// The complete length of the content with this head, if known: the head's, or the one that the
    /// first flight found.
    pub fn content_length(&self, head: &Head) -> Option<u64> {
        head.length.or_else(|| self.length())
    }

    /// The failure of the flight that failed last.
    pub fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// Whether the object has a reader that may have to wait for more bytes.
    pub fn is_read(&self) -> bool {
        !self.lock().riders.is_empty()
    }

    /// Whether bytes are evicted by block, also while the object is read.
    pub fn is_sparse(&self) -> bool {
        self.lock().block.is_some()
    }

    /// Whether all bytes are in memory.
    #[cfg(test)]
    pub fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    /// Whether all of these bytes, up to the end of the object, are in memory and stay there while
    /// they are read.
    pub fn covers(&self, range: Range<u64>) -> bool {
        let state = self.lock();
        let range = state.within(range);
        let passes = |disk: &DiskCopy| disk.transient.intersects(&range);
        state.present.covers(&range) && !state.disk.as_deref().is_some_and(passes)
    }

    /// Like `covers`, but the bytes may also be on volumes.
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

    /// Charges bytes of notes to the ledger, even beyond its limit.
    pub(super) fn charge_note(&self, bytes: u64) -> Charge {
        self.noted.fetch_add(bytes, Ordering::Relaxed);
        self.overhead.beside(bytes)
    }

    /// Charges the `DiskCopy` in the same way as notes.
    pub(super) fn charge_disk_copy(&self) -> Charge {
        self.charge_note(DISK_COPY_BYTES)
    }

    /// Number of bytes charged for notes.
    pub(super) fn noted(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }
}

impl State {
    /// The part of a range up to the end of the object.
    fn within(&self, range: Range<u64>) -> Range<u64> {
        let end = self
            .length
            .map_or(range.end, |length| length.min(range.end));
        range.start..end
    }

    /// The bytes that are in memory or on volumes.
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

    /// The riders to wake because a flight has ended or part of its claim has been released: those
    /// that wait for a byte in `given_up`, and those whose next byte no flight had claimed.
    pub(super) fn answerable(&mut self, given_up: &Ranges) -> Wakes {
        wakes_of(&mut self.riders, |rider| {
            rider.unserved || given_up.contains(rider.at)
        })
    }

    /// The riders that wait for one of these bytes.
    pub(super) fn riders_in(&mut self, range: &Range<u64>) -> Wakes {
        wakes_of(&mut self.riders, |rider| range.contains(&rider.at))
    }

    /// Registers a rider at `at`, or moves an existing one. `unserved`: no flight has claimed that
    /// byte.
    pub(super) fn wait(
        &mut self,
        rider: Option<usize>,
        at: u64,
        unserved: bool,
        cx: &Context<'_>,
    ) -> usize {
        let key = self.ride(rider, at);
        let rider = &mut self.riders[key];
        rider.unserved = unserved;
        let waker = &mut rider.waker;
        match waker {
            Some(there) => there.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        key
    }

    /// Like `wait`, for a rider that does not wait.
    pub(super) fn ride(&mut self, rider: Option<usize>, at: u64) -> usize {
        match rider {
            Some(key) => {
                self.riders[key].at = at;
                key
            }
            None => self.riders.insert(Rider {
                at,
                wanted_until: 0,
                unserved: false,
                waker: None,
            }),
        }
    }
}

/// Takes the wakers of the waiting riders for which `which` is true.
fn wakes_of(riders: &mut Slab<Rider>, which: impl Fn(&Rider) -> bool) -> Wakes {
    let waiting = riders.iter_mut().map(|(_, rider)| rider);
    let waiting = waiting.filter(|rider| rider.waker.is_some() && which(rider));
    Wakes(waiting.filter_map(|rider| rider.waker.take()).collect())
}
