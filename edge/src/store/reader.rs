//! A reader of an object: hands out what is there, waits for what is on its way.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::object::{Abandoned, Failure, Object, Phase, Rider};

/// Reads an object from one place on, waiting for what is on its way.
pub struct Reader {
    object: Arc<Object>,
    at: u64,
    end: u64,
    rider: Option<usize>,
}

impl Object {
    /// A reader from `start` to the end; `Reader::limit` narrows it once the head is known.
    pub fn reader(self: &Arc<Object>, start: u64) -> Reader {
        let mut state = self.lock();
        let rider = (!state.is_complete()).then(|| {
            state.riders.insert(Rider {
                at: start,
                waker: None,
            })
        });
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

    /// Reads `start..end` from here on, and nothing else.
    pub fn limit(&mut self, start: u64, end: u64) {
        self.at = start;
        self.end = end;
        if let Some(rider) = self.rider {
            let mut state = self.object.lock();
            state.riders[rider].at = start;
            self.object.moved(state);
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

    /// The head, or what became of it; pending while the flight has none.
    pub fn poll_phase(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        let mut state = self.object.lock();
        match &state.phase {
            Phase::Awaiting => {
                self.rider = Some(state.wait(self.rider, self.at, cx));
                Poll::Pending
            }
            phase => Poll::Ready(phase.clone()),
        }
    }

    /// The next bytes, at most to the end of a page; `None` at the end of what is read.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let mut state = self.object.lock();
        let end = state.length.map_or(self.end, |length| length.min(self.end));
        if self.at >= end {
            return Poll::Ready(None);
        }
        if let Some(bytes) = state.slice(self.at, end) {
            self.at += bytes.len() as u64;
            if let Some(rider) = self.rider {
                state.riders[rider].at = self.at;
                self.object.moved(state);
            }
            return Poll::Ready(Some(Ok(bytes)));
        }
        if state.flights.iter().any(|claim| claim.brings(self.at)) {
            self.rider = Some(state.wait(self.rider, self.at, cx));
            return Poll::Pending;
        }
        let failure = state.failure.clone();
        Poll::Ready(Some(Err(failure.unwrap_or_else(|| Arc::new(Abandoned)))))
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
