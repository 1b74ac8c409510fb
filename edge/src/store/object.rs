//! One object: a head and sparse bytes, with those who bring bytes and those who wait for them.
//!
//! All of its state is under one lock, held for nanoseconds: bytes are copied outside it, into
//! ranges that exactly one flight has claimed, and published under it. Wakers are called outside it.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use slab::Slab;
use smallvec::SmallVec;

use super::head::Head;
use super::ledger::Charge;
use super::page::{PAGE, Page};
use super::sync::{Mutex, MutexGuard};
use crate::ranges::Ranges;

/// Why a flight ended without all its bytes. What the cache put in comes out again by downcast.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// The failure of a flight that was dropped, and of bytes that nobody will bring.
#[derive(Debug)]
pub struct Abandoned;

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fetch was given up")
    }
}

impl Error for Abandoned {}

/// A cached thing: which bytes of it are there, which are on their way, who waits.
pub struct Object {
    /// The primary key's text, for inspection and purges.
    pub key: Bytes,
    /// Sequence number at which its flight began; a purge with a later one covers it.
    pub born_seq: u64,
    pub(super) state: Mutex<State>,
    _overhead: Charge,
}

/// Which bytes of an object are where.
pub struct Extent {
    /// Ranges stored.
    pub stored: Ranges,
    /// What flights have still to bring; to `u64::MAX` where an end is not known.
    pub flying: Ranges,
    /// Complete length, once known.
    pub length: Option<u64>,
}

/// What an object is, for those who look it up.
#[derive(Clone)]
pub enum Phase {
    /// Its flight has no head yet.
    Awaiting,
    /// The head is known; bytes are there or on their way.
    Open(Arc<Head>),
    /// The response may not be shared: until then (Unix ms) requests go forward on their own.
    Refused {
        /// The named reason.
        word: &'static str,
        /// When the refusal is forgotten.
        until_ms: u64,
    },
    /// The flight failed before there was a head.
    Failed(Failure),
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// Complete length, once known.
    pub(super) length: Option<u64>,
    head_charge: Option<Charge>,
    pub(super) present: Ranges,
    /// By index; pages that hold no byte are not listed.
    pub(super) pages: SmallVec<[Slot; 1]>,
    pub(super) flights: SmallVec<[Claim; 1]>,
    pub(super) riders: Slab<Rider>,
    pub(super) failure: Option<Failure>,
    /// The store has no room: bytes that every rider has passed are dropped.
    pub(super) windowed: bool,
    /// The flight that waits for riders to move on.
    pub(super) stalled: Option<Waker>,
    /// Riders before this place are not waited for any more.
    pub(super) left_behind: u64,
}

pub(super) struct Slot {
    pub(super) index: u64,
    state: PageState,
}

/// Where a page's bytes are. (Write queue and disk join these with the volumes.)
pub(super) enum PageState {
    /// A flight writes into it.
    Filling(Arc<Page>),
    /// All its bytes are there.
    Full(Bytes),
}

/// The bytes that one flight alone may write.
pub(super) struct Claim {
    pub(super) id: u64,
    /// The next byte it brings.
    pub(super) at: u64,
    /// Where it ends; unknown for a body without a length.
    pub(super) end: Option<u64>,
}

impl Claim {
    pub(super) fn brings(&self, at: u64) -> bool {
        at >= self.at && self.end.is_none_or(|end| at < end)
    }
}

/// A reader under way: how far it is, and whom to wake when there is more.
pub(super) struct Rider {
    pub(super) at: u64,
    pub(super) waker: Option<Waker>,
}

/// Wakers to call once the lock is free.
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
            state: Mutex::new(State {
                phase: Phase::Awaiting,
                length: None,
                head_charge: None,
                present: Ranges::new(),
                pages: SmallVec::new(),
                flights: SmallVec::new(),
                riders: Slab::new(),
                failure: None,
                windowed: false,
                stalled: None,
                left_behind: 0,
            }),
            _overhead: overhead,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What it is now.
    pub fn phase(&self) -> Phase {
        self.lock().phase.clone()
    }

    /// Makes the head known, and the length with it. Riders wake.
    pub fn open(&self, head: Arc<Head>, charge: Charge) {
        let mut state = self.lock();
        state.length = head.length;
        state.head_charge = Some(charge);
        state.phase = Phase::Open(head);
        let wakes = state.all_riders();
        drop(state);
        wakes.wake();
    }

    /// Ends flight `id`: its response is unfit for sharing. Riders wake, and part.
    pub(super) fn refuse(&self, id: u64, word: &'static str, until_ms: u64) {
        let mut state = self.lock();
        state.end_flight(id);
        state.phase = Phase::Refused { word, until_ms };
        let wakes = state.all_riders();
        drop(state);
        wakes.wake();
    }

    /// Whether a flight is bringing bytes or a head.
    pub fn in_flight(&self) -> bool {
        !self.lock().flights.is_empty()
    }

    /// The complete length, once known.
    pub fn length(&self) -> Option<u64> {
        self.lock().length
    }

    /// All of the content, when it is there and in one piece: the common hit.
    #[inline]
    pub fn whole(&self) -> Option<Bytes> {
        let state = self.lock();
        match (state.length?, &state.pages[..]) {
            (
                length @ 1..=PAGE,
                [
                    Slot {
                        index: 0,
                        state: PageState::Full(bytes),
                    },
                ],
            ) if bytes.len() as u64 == length => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Whether every byte is there.
    pub fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    /// Whether all of these bytes, as far as the object goes, are there.
    pub fn covers(&self, range: Range<u64>) -> bool {
        let state = self.lock();
        let end = state
            .length
            .map_or(range.end, |length| length.min(range.end));
        state.present.covers(&(range.start..end))
    }

    /// Which bytes are where.
    pub fn extent(&self) -> Extent {
        let state = self.lock();
        Extent {
            stored: state.present.clone(),
            flying: state
                .flights
                .iter()
                .map(|claim| claim.at..claim.end.or(state.length).unwrap_or(u64::MAX))
                .filter(|flying| !flying.is_empty())
                .collect(),
            length: state.length,
        }
    }

    /// Bytes `start..end` in one piece, when they lie in one page that is full: the common hit.
    #[inline]
    pub fn piece(&self, start: u64, end: u64) -> Option<Bytes> {
        let index = start / PAGE;
        if start >= end || (end - 1) / PAGE != index {
            return None;
        }
        let state = self.lock();
        match &state.pages[state.slot(index).ok()?].state {
            PageState::Full(bytes) => {
                let base = index * PAGE;
                let (from, to) = ((start - base) as usize, (end - base) as usize);
                (to <= bytes.len()).then(|| bytes.slice(from..to))
            }
            PageState::Filling(_) => None,
        }
    }

    pub(super) fn claim(&self, id: u64, at: u64, end: Option<u64>) {
        self.lock().flights.push(Claim { id, at, end });
    }

    /// The published bytes from `at` on, up to `end` and the end of their page.
    pub(super) fn slice(&self, at: u64, end: u64) -> Option<Bytes> {
        self.lock().slice(at, end)
    }

    /// The page of this index, if a flight is filling it.
    pub(super) fn filling(&self, index: u64) -> Option<Arc<Page>> {
        let state = self.lock();
        match &state.pages[state.slot(index).ok()?].state {
            PageState::Filling(page) => Some(page.clone()),
            PageState::Full(_) => None,
        }
    }

    /// Puts a new page in place, unless another flight was quicker; gives back the one to fill.
    pub(super) fn add_page(&self, index: u64, page: Arc<Page>) -> Arc<Page> {
        let mut state = self.lock();
        match state.slot(index) {
            Ok(found) => match &state.pages[found].state {
                PageState::Filling(there) => there.clone(),
                PageState::Full(_) => page,
            },
            Err(place) => {
                let state_of = PageState::Filling(page.clone());
                state.pages.insert(
                    place,
                    Slot {
                        index,
                        state: state_of,
                    },
                );
                page
            }
        }
    }

    /// Bytes `at..at + len` have been written by flight `id` into their page: readers may have them.
    pub(super) fn publish(&self, id: u64, at: u64, len: u64) {
        let mut state = self.lock();
        state.present.insert(at..at + len);
        if let Some(claim) = state.flights.iter_mut().find(|c| c.id == id) {
            claim.at = at + len;
        }
        state.seal(at / PAGE);
    }

    /// Wakes those who wait for a byte that is there now.
    pub(super) fn announce(&self) {
        let mut state = self.lock();
        let State {
            riders, present, ..
        } = &mut *state;
        let wakes = Wakes(
            riders
                .iter_mut()
                .filter(|(_, rider)| rider.waker.is_some() && present.contains(rider.at))
                .filter_map(|(_, rider)| rider.waker.take())
                .collect(),
        );
        drop(state);
        wakes.wake();
    }

    /// Ends flight `id`, which brought all there is: a length that was unknown is known now. `tail`
    /// is the last page's content where it was copied to memory of its size.
    pub(super) fn land(&self, id: u64, tail: Option<Bytes>) {
        let mut state = self.lock();
        if let Some(claim) = state.end_flight(id)
            && state.length.is_none()
        {
            state.length = Some(claim.at);
            state.seal_last(claim.at, tail);
        }
        let wakes = state.all_riders();
        drop(state);
        wakes.wake();
    }

    /// Ends flight `id`, which failed: readers get the failure where the bytes end.
    pub(super) fn fail(&self, id: u64, failure: Failure) {
        let mut state = self.lock();
        if state.end_flight(id).is_some() {
            if matches!(state.phase, Phase::Awaiting) {
                state.phase = Phase::Failed(failure.clone());
            }
            state.failure = Some(failure);
        }
        let wakes = state.all_riders();
        drop(state);
        wakes.wake();
    }
}

impl State {
    fn slot(&self, index: u64) -> Result<usize, usize> {
        match self.pages.last() {
            Some(last) if last.index < index => Err(self.pages.len()),
            Some(last) if last.index == index => Ok(self.pages.len() - 1),
            _ => self.pages.binary_search_by_key(&index, |slot| slot.index),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.length
            .is_some_and(|length| self.present.covers(&(0..length)))
    }

    /// A page all of whose bytes are there becomes one shared slice, cheap to hand out.
    fn seal(&mut self, index: u64) {
        let base = index * PAGE;
        let end = self.length.unwrap_or(u64::MAX).min(base + PAGE);
        if !self.present.covers(&(base..end)) {
            return;
        }
        if let Ok(at) = self.slot(index)
            && let PageState::Filling(page) = &self.pages[at].state
        {
            // SAFETY: all of `base..end` is published: written, never to be written again, and
            // this thread holds the lock under which it was published.
            let bytes = unsafe { page.slice(0, (end - base) as usize) };
            self.pages[at].state = PageState::Full(bytes);
        }
    }

    /// The length became known at the end: seals the last page.
    fn seal_last(&mut self, length: u64, tail: Option<Bytes>) {
        let Some(last) = length.checked_sub(1).map(|last| last / PAGE) else {
            return;
        };
        match (tail, self.slot(last)) {
            (Some(bytes), Ok(at)) => self.pages[at].state = PageState::Full(bytes),
            _ => self.seal(last),
        }
    }

    fn end_flight(&mut self, id: u64) -> Option<Claim> {
        let ended = self.flights.iter().position(|claim| claim.id == id)?;
        Some(self.flights.remove(ended))
    }

    pub(super) fn all_riders(&mut self) -> Wakes {
        Wakes(
            self.riders
                .iter_mut()
                .filter_map(|(_, rider)| rider.waker.take())
                .collect(),
        )
    }

    /// The published bytes from `at` on, up to `end` and the end of the page.
    pub(super) fn slice(&self, at: u64, end: u64) -> Option<Bytes> {
        let index = at / PAGE;
        let base = index * PAGE;
        let there = self.present.contiguous_from(at).min(end).min(base + PAGE);
        if there <= at {
            return None;
        }
        let (from, to) = ((at - base) as usize, (there - base) as usize);
        Some(match &self.pages[self.slot(index).ok()?].state {
            PageState::Full(bytes) => bytes.slice(from..to),
            // SAFETY: `at..there` is published, and this thread holds the lock it was published under.
            PageState::Filling(page) => unsafe { page.slice(from, to) },
        })
    }
}

impl State {
    /// Registers a rider at `at`, or moves the one it has.
    pub(super) fn wait(&mut self, rider: Option<usize>, at: u64, cx: &Context<'_>) -> usize {
        let waker = Some(cx.waker().clone());
        match rider {
            Some(key) => {
                self.riders[key] = Rider { at, waker };
                key
            }
            None => self.riders.insert(Rider { at, waker }),
        }
    }
}
