//! How claims change and end: flights publish bytes, their claims are shortened, extended and released.
//!
//! A flight copies bytes into a page without the lock, always from the claim's `at` and at most one page of them. The bytes being copied
//! therefore lie in `at..at + PAGE`, and a takeover shortens a claim to `at + PAGE` at the least. `publish`, under the lock, returns the
//! new end of the claim to the flight before the flight copies more bytes.

use std::ops::Range;

use bytes::Bytes;

use super::claim::Claim;
use super::object::{Failure, Object, Phase, State, Wakes};
use super::page::PAGE;
use crate::ranges::Ranges;
use crate::reason::Reason;

/// End of a claim that extends to the end of the content, wherever that is.
const OPEN: u64 = u64::MAX;

impl State {
    pub(super) fn claim(&self, id: u64) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.id == id)
    }

    fn claim_mut(&mut self, id: u64) -> Option<&mut Claim> {
        self.claims.iter_mut().find(|claim| claim.id == id)
    }

    /// Returns the claim that contains the byte at this offset.
    pub(super) fn claim_at(&self, at: u64) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.contains(at))
    }

    /// Forgets the failures of fetches of a range, because bytes of it have arrived.
    pub(super) fn forget_setbacks(&mut self, range: &Range<u64>) {
        let some_left = self
            .setbacks
            .as_mut()
            .is_some_and(|setbacks| setbacks.forget(range));
        if !some_left {
            self.setbacks = None;
        }
    }

    /// Notes that flight `id` adds no more bytes. Returns whether no other flight does.
    fn ends_as_last(&mut self, id: u64) -> bool {
        if let Some(claim) = self.claim_mut(id) {
            claim.is_ending = true;
        }
        self.claims.iter().all(|claim| claim.is_ending)
    }

    pub(super) fn end_claim(&mut self, id: u64) -> Option<Claim> {
        let ended = self.claims.iter().position(|claim| claim.id == id)?;
        let claim = self.claims.swap_remove(ended);
        self.forget_stoppable(id);
        if self.claims.is_empty() {
            // Most objects have no flight most of the time: the list's memory is freed.
            self.claims = Vec::new();
        }
        Some(claim)
    }
}

impl Object {
    /// Returns the bytes that flight `id` still has to add.
    pub(super) fn claimed(&self, id: u64) -> Range<u64> {
        let state = self.lock();
        state.claim(id).map_or(0..0, |claim| claim.at..claim.end)
    }

    /// Whether a reader's next byte lies in the first two pages that flight `id` still has to add. Two pages are checked, not one, since
    /// fetches begin a little before the wanted byte.
    pub(super) fn awaits(&self, id: u64) -> bool {
        let state = self.lock();
        let Some(claim) = state.claim(id) else {
            return false;
        };
        let two_pages = (claim.at / PAGE * PAGE).saturating_add(2 * PAGE);
        let next = claim.at..claim.end.min(two_pages);
        state
            .riders
            .iter()
            .any(|(_, rider)| next.contains(&rider.at))
    }

    /// Publishes bytes `at..at + len`, which flight `id` has written to their page, to readers. Returns the present end of the flight's
    /// claim, or `None` if the object is retired and has no readers.
    pub(super) fn publish(&self, id: u64, at: u64, len: u64, now_us: u64) -> Option<u64> {
        let mut state = self.lock();
        state.present.insert(at..at + len);
        let end = state.claim_mut(id).map(|claim| {
            claim.at = at + len;
            claim.progress_us = now_us;
            claim.end
        });
        state.seal(at / PAGE);
        let unwanted = matches!(state.phase, Phase::Retired) && state.riders.is_empty();
        end.filter(|_| !unwanted)
    }

    /// Accepts a response with the bytes `content` for flight `id`, and reduces the flight's claim to these bytes. Returns the reduced
    /// claim, or `None` if the response contains nothing of the claim.
    pub(super) fn accept(&self, id: u64, content: Range<u64>, now_us: u64) -> Option<Range<u64>> {
        let mut state = self.lock();
        let first = matches!(state.phase, Phase::Awaiting);
        let claim = state.claim_mut(id)?;
        let before = claim.at..claim.end;
        let met = match first {
            true => content.start..content.end.max(content.start),
            false => before.start.max(content.start)..before.end.min(content.end),
        };
        if met.is_empty() && !first {
            return None;
        }
        claim.start = met.start;
        claim.at = met.start;
        claim.end = met.end;
        claim.head_us = Some(now_us);
        claim.progress_us = now_us;
        // While the object has no head, riders wait for the head, not for bytes: none needs to wake here.
        let wakes = match first {
            true => Wakes::default(),
            false => state.riders_in(&before),
        };
        drop(state);
        wakes.wake();
        Some(met)
    }

    /// Moves the end of flight `id`'s claim to `end`, if the claim ends later. Returns the end of the claim.
    pub(super) fn shorten(&self, id: u64, end: u64) -> u64 {
        let mut state = self.lock();
        let Some(claim) = state.claim_mut(id) else {
            return 0;
        };
        let end = claim.end.min(end.max(claim.at));
        let cut = end..std::mem::replace(&mut claim.end, end);
        let wakes = match cut.is_empty() {
            true => Wakes::default(),
            false => state.answerable(&cut.into()),
        };
        drop(state);
        wakes.wake();
        end
    }

    /// Extends the claim of flight `id` up to the next byte that is stored or claimed, or to the end of the content. Returns the end of the
    /// claim.
    pub(super) fn extend(&self, id: u64) -> u64 {
        let mut state = self.lock();
        let Some(end) = state.claim(id).map(|claim| claim.end) else {
            return 0;
        };
        let free = state.free(end..state.length.unwrap_or(OPEN));
        let end = match free.first() {
            Some(free) if free.start == end => free.end,
            _ => end,
        };
        if let Some(claim) = state.claim_mut(id) {
            claim.end = end;
        }
        end
    }

    /// Ends flight `id`, which has added all bytes of its claim. A length that was unknown is known from now on. `tail` is the content of
    /// the object's last page, if the content was copied to a smaller page.
    pub(super) fn land(&self, id: u64, tail: Option<Bytes>) {
        let mut state = self.lock();
        let claim = state.end_claim(id);
        if let Some(claim) = &claim {
            state.forget_setbacks(&(claim.start..claim.at));
        }
        if let Some(claim) = &claim
            && claim.end == OPEN
            && state.length.is_none()
        {
            state.length = Some(claim.at);
            state.seal_last(claim.at, tail);
        }
        if state.claims.is_empty() {
            state.failure = None;
        }
        let wakes = state.answerable(&all_of(claim));
        drop(state);
        wakes.wake();
    }

    /// Ends flight `id`, whose response must not be shared. The object's riders wake, and each forwards its own request to the origin.
    /// If the response concerns `one_client` only, the requests of other clients are looked up again.
    pub(super) fn refuse(&self, id: u64, reason: Reason, until_ms: u64, one_client: bool) {
        let mut state = self.lock();
        state.end_claim(id);
        if matches!(state.phase, Phase::Awaiting) {
            state.phase = Phase::Refused {
                reason,
                until_ms,
                one_client,
            };
        }
        let wakes = state.all_riders();
        drop(state);
        self.untie();
        wakes.wake();
    }

    /// Whether other flights may add the bytes that a failed flight leaves missing.
    pub(super) fn outlives_flights(&self) -> bool {
        let state = self.lock();
        match state.phase {
            Phase::Open(_) => state.joinable,
            Phase::Retired => true,
            _ => false,
        }
    }

    /// Notes that flight `id` adds no more bytes. Returns whether no other flight does: of several flights that end at the same time, this
    /// is true for the last one.
    pub(super) fn ends_as_last(&self, id: u64) -> bool {
        self.lock().ends_as_last(id)
    }

    /// Whether a reader waits for any byte that flight `id` still has to add.
    pub(super) fn has_rider_in(&self, id: u64) -> bool {
        let state = self.lock();
        state.claim(id).is_some_and(|claim| {
            let mut riders = state.riders.iter();
            riders.any(|(_, rider)| claim.contains(rider.at))
        })
    }

    /// Ends flight `id`, which failed. Riders that wait for the flight's remaining bytes wake.
    pub(super) fn fail(&self, id: u64, failure: Failure) {
        let mut state = self.lock();
        let claim = state.end_claim(id);
        if claim.is_some() {
            state.failure = Some(failure.clone());
        }
        let wakes = match state.phase {
            Phase::Awaiting => {
                state.phase = Phase::Failed(failure);
                state.all_riders()
            }
            _ => state.answerable(&all_of(claim)),
        };
        drop(state);
        self.untie();
        wakes.wake();
    }

    /// Ends flight `id`, which did not fail, but did not add all bytes of its claim either. Riders that wait for the remaining bytes wake.
    /// If the object has no head, its riders look the object up again.
    pub(super) fn give_back(&self, id: u64) {
        let mut state = self.lock();
        let claim = state.end_claim(id);
        let wakes = match state.phase {
            Phase::Awaiting => {
                state.phase = Phase::Retired;
                state.all_riders()
            }
            _ => state.answerable(&all_of(claim)),
        };
        drop(state);
        self.untie();
        wakes.wake();
    }
}

/// Returns the range of a claim whose flight has ended, in which riders have to be woken: the
/// flight may have added bytes there without waking them, and another flight can claim the rest.
fn all_of(claim: Option<Claim>) -> Ranges {
    claim.map_or(Ranges::new(), |claim| (claim.start..claim.end).into())
}
