//! A reader of an object: hands out what is there, waits for what is on its way.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::head::Head;
use super::object::{Object, Phase, State};

/// Reads an object from one place on, waiting for what is on its way.
pub struct Reader {
    object: Arc<Object>,
    at: u64,
    end: u64,
    rider: Option<usize>,
}

/// What comes next.
pub enum Next {
    /// Bytes.
    Bytes(Bytes),
    /// Nothing: all that was to be read has been.
    End,
    /// A byte that neither is there nor is brought by anyone. Whoever is to bring it has to be
    /// arranged for; the reader is woken when bytes come after all, or a flight ends.
    Missing,
}

/// Whether an object's answer may begin.
pub enum Opening {
    /// It may: the next byte is there, or on a flight whose response was accepted.
    Here(Arc<Head>),
    /// There is a head, but nobody is bringing the next byte.
    Missing(Arc<Head>),
    /// There will be no answer from this object: it is refused, failed or retired.
    Other(Phase),
}

impl Object {
    /// A reader from `start` to the end; `Reader::limit` narrows it once the head is known.
    pub fn reader(self: &Arc<Object>, start: u64) -> Reader {
        let mut state = self.lock();
        let stays = state.is_complete() && !state.is_passing();
        let rider = (!stays).then(|| state.ride(None, start));
        drop(state);
        Reader {
            object: self.clone(),
            at: start,
            end: u64::MAX,
            rider,
        }
    }
}

impl Reader {
    /// The object that is read.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// What is still to be read.
    pub fn wanted(&self) -> Range<u64> {
        self.at..self.end
    }

    /// Reads `start..end` from here on, and nothing else.
    pub fn limit(&mut self, start: u64, end: u64) {
        self.at = start;
        self.end = end;
        if let Some(rider) = self.rider {
            let mut state = self.object.lock();
            state.riders[rider].at = start;
            state.riders[rider].wanted_until = 0;
            self.object.moved(state);
        }
    }

    /// The bytes from here to `at` are wanted soon: they are not evicted meanwhile.
    pub fn keep_until(&mut self, at: u64) {
        let mut state = self.object.lock();
        // While it is read, an object that is not in blocks loses nothing.
        if state.block.is_some() {
            let rider = state.ride(self.rider, self.at);
            state.riders[rider].wanted_until = at;
            self.rider = Some(rider);
        }
    }

    /// Bytes still to come, when known.
    pub fn remaining(&self) -> Option<u64> {
        let end = match self.end {
            u64::MAX => self.object.lock().length?,
            end => end,
        };
        Some(end.saturating_sub(self.at))
    }

    /// Whether an answer may begin with the next byte; pending while there is no head, and while
    /// the flight that brings the byte has no response that was accepted. With `arrived`, also while
    /// the byte is on its way.
    pub fn poll_opening(&mut self, arrived: bool, cx: &mut Context<'_>) -> Poll<Opening> {
        let mut state = self.object.lock();
        let waits = match &state.phase {
            Phase::Awaiting => None,
            Phase::Open(head) => Some(head.clone()),
            other => return Poll::Ready(Opening::Other(other.clone())),
        };
        if let Some(head) = waits {
            if self.at >= self.end(&state) || state.present.contains(self.at) {
                return Poll::Ready(Opening::Here(head));
            }
            match state.bringing(self.at) {
                Some(claim) if claim.head_us.is_some() && !arrived => {
                    return Poll::Ready(Opening::Here(head));
                }
                Some(_) => {}
                None => {
                    self.rider = Some(state.wait(self.rider, self.at, true, cx));
                    return Poll::Ready(Opening::Missing(head));
                }
            }
        }
        self.rider = Some(state.wait(self.rider, self.at, false, cx));
        Poll::Pending
    }

    /// The next bytes, at most to the end of a page.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.object.lock();
        let end = self.end(&state);
        if self.at >= end {
            return Poll::Ready(Next::End);
        }
        if let Some(bytes) = state.slice(self.at, end) {
            self.at += bytes.len() as u64;
            if self.rider.is_some() || state.block.is_some() {
                self.rider = Some(state.ride(self.rider, self.at));
                self.object.moved(state);
            }
            return Poll::Ready(Next::Bytes(bytes));
        }
        let unserved = state.bringing(self.at).is_none();
        self.rider = Some(state.wait(self.rider, self.at, unserved, cx));
        match unserved {
            false => Poll::Pending,
            true => Poll::Ready(Next::Missing),
        }
    }

    fn end(&self, state: &State) -> u64 {
        state.length.map_or(self.end, |length| length.min(self.end))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(rider) = self.rider {
            let mut state = self.object.lock();
            state.riders.remove(rider);
            if state.riders.is_empty() {
                // A crowd is gone: so is the memory for it.
                state.riders.shrink_to_fit();
            }
            self.object.moved(state);
        }
    }
}
