//! A reader of an object: returns stored bytes and waits for bytes that are being fetched.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::head::Head;
use super::object::{Object, Phase, Rider, State};
use super::object_store::Store;
use super::setbacks::Setback;
use super::sync::MutexGuard;

/// Reads an object from an offset on, and waits for bytes that are being fetched.
pub struct Reader {
    pub(super) object: Arc<Object>,
    pub(super) at: u64,
    pub(super) end: u64,
    rider: Option<usize>,
    /// Whether the reader reads ahead, for no client.
    is_ahead: bool,
}

/// The result of one read from an object.
pub enum Next {
    /// The next bytes.
    Bytes(Bytes),
    /// The end: everything has been read.
    End,
    /// The next byte is neither stored nor claimed by a flight, so the caller must arrange a fetch. The reader is woken when bytes arrive
    /// or a flight ends.
    Missing,
}

/// Whether the response to a request can begin with the reader's next byte.
pub enum Opening {
    /// The response can begin: the next byte is stored, or claimed by a flight whose response was accepted.
    Ready(Arc<Head>),
    /// The head is known, but no flight has claimed the next byte.
    Missing,
    /// The object has no response to serve: it is refused, failed or retired.
    Other(Phase),
}

impl Store {
    /// Begins a request's ride: a reader of this range of an object that may have to be fetched.
    pub fn ride(&self, object: &Arc<Object>, range: Range<u64>) -> Reader {
        let mut state = object.lock();
        if state.disk.is_some() {
            state.begin_ride(&self.ledger);
        }
        Reader {
            rider: rider(&mut state, range.clone()),
            object: object.clone(),
            at: range.start,
            end: range.end,
            is_ahead: false,
        }
    }
}

/// Registers a rider that wants these bytes, unless the object is complete and stays so.
fn rider(state: &mut State, wanted: Range<u64>) -> Option<usize> {
    let stays = state.is_complete() && !state.is_passing();
    (!stays).then(|| state.ride(None, wanted))
}

impl Object {
    /// Creates a reader from `start` to the end of the object; `Reader::limit` narrows the range once the head is known.
    pub fn reader(self: &Arc<Object>, start: u64) -> Reader {
        Reader {
            rider: rider(&mut self.lock(), start..u64::MAX),
            object: self.clone(),
            at: start,
            end: u64::MAX,
            is_ahead: false,
        }
    }
}

impl Reader {
    /// Returns the object that is read.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The key of this reader among the object's riders, if it is one.
    pub(super) fn rider(&self) -> Option<usize> {
        self.rider
    }

    /// Returns the range still to be read.
    pub fn wanted(&self) -> Range<u64> {
        self.at..self.end
    }

    /// Makes this a reader that reads ahead: no flight counts as wanted because of it.
    pub fn set_ahead(&mut self) {
        self.is_ahead = true;
        self.limit(self.at, self.end);
    }

    /// Returns the bytes that the reader wants for a client.
    fn wanted_by_client(&self) -> Range<u64> {
        match self.is_ahead {
            true => self.at..self.at,
            false => self.wanted(),
        }
    }

    /// Restricts the reader to `start..end`.
    pub fn limit(&mut self, start: u64, end: u64) {
        self.at = start;
        self.end = end;
        if let Some(rider) = self.rider {
            let mut state = self.object.lock();
            let before = state.riders[rider].at..state.riders[rider].end;
            state.ride(Some(rider), self.wanted_by_client());
            state.riders[rider].wanted_until = 0;
            let wakes = state.watchers_of_leave(&before);
            self.object.moved(state);
            wakes.wake();
        }
    }

    /// Protects the bytes before `at` from eviction, because they are wanted soon. `state` is that of the reader's object.
    pub(super) fn keep_until(&mut self, state: &mut State, at: u64) {
        let rider = state.ride(self.rider, self.wanted_by_client());
        state.riders[rider].wanted_until = at;
        self.rider = Some(rider);
    }

    /// Returns the failures of the fetches of the next byte; none if its last fetch did not fail.
    pub fn setback(&self) -> Setback {
        let state = self.object.lock();
        let setback = state
            .setbacks
            .as_ref()
            .and_then(|setbacks| setbacks.at(self.at));
        setback.cloned().unwrap_or_default()
    }

    /// Returns the number of bytes still to be read, if known.
    pub fn remaining(&self) -> Option<u64> {
        let end = match self.end {
            u64::MAX => self.object.lock().length?,
            end => end,
        };
        Some(end.saturating_sub(self.at))
    }

    /// Waits until it is known whether the response can begin with the next byte. Pending while the object has no head, and while the byte
    /// is claimed by a flight whose response was not accepted yet. With `arrived`, also pending until the byte has arrived.
    pub fn poll_opening(&mut self, arrived: bool, cx: &mut Context<'_>) -> Poll<Opening> {
        let state = self.object.lock();
        let waits = match &state.phase {
            Phase::Awaiting => None,
            Phase::Open(head) => Some(head.clone()),
            other => return Poll::Ready(Opening::Other(other.clone())),
        };
        if let Some(head) = waits {
            if self.at >= self.end(&state) || state.present.contains(self.at) {
                return Poll::Ready(Opening::Ready(head));
            }
            match state.claim_at(self.at) {
                Some(claim) if claim.head_us.is_some() && !arrived => {
                    return Poll::Ready(Opening::Ready(head));
                }
                Some(_) => {}
                None => {
                    self.rider = Some(self.wait(state, true, cx));
                    return Poll::Ready(Opening::Missing);
                }
            }
        }
        self.rider = Some(self.wait(state, false, cx));
        Poll::Pending
    }

    /// Waits for the next bytes, and returns them up to the end of a page at most.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.object.lock();
        let end = self.end(&state);
        if self.at >= end {
            return Poll::Ready(Next::End);
        }
        if let Some(bytes) = state.slice(self.at, end) {
            self.at += bytes.len() as u64;
            if self.rider.is_some() || state.block.is_some() {
                self.rider = Some(state.ride(self.rider, self.wanted_by_client()));
                self.object.moved(state);
            }
            return Poll::Ready(Next::Bytes(bytes));
        }
        let unserved = state.claim_at(self.at).is_none();
        self.rider = Some(self.wait(state, unserved, cx));
        match unserved {
            false => Poll::Pending,
            true => Poll::Ready(Next::Missing),
        }
    }

    /// Registers the reader as a rider that waits for its next byte, and returns the rider's key. `unserved` says that no flight has
    /// claimed the byte.
    fn wait(&self, mut state: MutexGuard<'_, State>, unserved: bool, cx: &Context<'_>) -> usize {
        let wanted = self.wanted_by_client();
        let key = state.ride(self.rider, wanted.clone());
        let rider = &mut state.riders[key];
        rider.unserved = unserved;
        match &mut rider.waker {
            Some(there) => there.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        let wakes = state.watchers_of_wait(&wanted);
        drop(state);
        wakes.wake();
        key
    }

    fn end(&self, state: &State) -> u64 {
        state.length.map_or(self.end, |length| length.min(self.end))
    }
}

impl State {
    /// Registers a rider that wants these bytes, or moves an existing one there, without waiting.
    fn ride(&mut self, rider: Option<usize>, wanted: Range<u64>) -> usize {
        let Range { start: at, end } = wanted;
        if let Some(key) = rider {
            let rider = &mut self.riders[key];
            (rider.at, rider.end) = (at, end);
            return key;
        }
        let interim = self.interim_so_far();
        self.riders.insert(Rider {
            at,
            end,
            wanted_until: 0,
            unserved: false,
            waker: None,
            interim,
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(rider) = self.rider {
            let mut state = self.object.lock();
            let left = state.riders.remove(rider);
            let wakes = state.watchers_of_leave(&(left.at..left.end));
            if state.riders.is_empty() {
                // The list may have grown for many riders: its memory is freed when the last one leaves.
                state.riders.shrink_to_fit();
            }
            self.object.moved(state);
            wakes.wake();
        }
    }
}
