//! Claims: which flight adds which bytes; how claims are made, shortened and released.
//!
//! Claims are disjoint, and no claim contains a byte that is stored already. A flight copies bytes into a page without the lock, always
//! from the claim's `at` and at most one page of them. The bytes being copied therefore lie in `at..at + PAGE`, and a takeover shortens a
//! claim to `at + PAGE` at the least. `publish`, under the lock, returns the new end of the claim to the flight before the flight copies
//! more bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::claim::{CLAIMS_MAX, Claim};
use super::landing::Landing;
use super::object::{Failure, Object, Phase, State, Wakes};
use super::object_store::Store;
use super::page::PAGE;
use super::table_key::TableKey;
use crate::ranges::Ranges;
use crate::reason::Reason;

/// End of a claim that extends to the end of the content, wherever that is.
const OPEN: u64 = u64::MAX;

/// Number of ranges in one page from which on a new claim in this page is widened. Widening keeps the number of ranges per page small,
/// since the ledger's charge for a page covers only a few.
const CROWDED: usize = 16;

/// Number of ranges in one object from which on every new claim is widened. Widened claims add at most one range per page, and the ledger's
/// charge for a page covers that range.
pub(super) const FRAGMENTS_MAX: usize = 4096;

/// The state of an object that `Store::arrange` passes to its decision function, under the object's lock.
pub struct Seen<'a> {
    /// Phase of the object.
    pub phase: &'a Phase,
    /// Complete length of the content in bytes, once known.
    pub length: Option<u64>,
    /// The bytes that are stored, in memory or on volumes.
    pub have: &'a Ranges,
    /// The bytes that are stored in memory.
    pub in_memory: &'a Ranges,
    /// The claims of the flights in progress.
    pub claims: &'a [Claim],
}

impl Seen<'_> {
    /// Whether the stored bytes form so many separate ranges that the next small claim is widened to the free bytes around it.
    pub fn is_shattered(&self) -> bool {
        self.have.len() >= FRAGMENTS_MAX
    }

    /// Whether the byte at this offset is in memory or claimed by a flight.
    pub fn brings(&self, at: u64) -> bool {
        self.in_memory.contains(at) || self.claims.iter().any(|claim| claim.brings(at))
    }

    /// Whether the object has its maximum number of flights.
    pub fn is_full(&self) -> bool {
        self.claims.len() >= CLAIMS_MAX
    }
}

impl Store {
    /// Decides under the object's lock what to fetch, and claims the ranges in the same critical section. Returns one landing per claimed
    /// range, in order. `decide` must be short, and may access the object only through its argument.
    ///
    /// Bytes that are stored or claimed by other flights are left out of the claimed ranges. If the object's bytes form many separate
    /// ranges, small new ranges are widened within their pages. If a range begins at least a page ahead of the next byte of another flight,
    /// within that flight's claim, the claim is shortened to end where the range begins, and the bytes after the range are free.
    ///
    /// Nothing is claimed if bytes can't be added to the object: if it is retired, refused, failed or not joinable, or if its first flight
    /// has no head yet. An object without a head gets one claim.
    pub fn arrange<T>(
        self: &Arc<Self>,
        object: &Arc<Object>,
        table_key: TableKey,
        now_us: u64,
        decide: impl FnOnce(&Seen<'_>) -> (SmallVec<[Range<u64>; 2]>, T),
    ) -> (T, SmallVec<[Landing; 2]>) {
        let mut state = object.lock();
        let (ranges, result) = decide(&Seen {
            phase: &state.phase,
            length: state.length,
            have: &state.have(),
            in_memory: &state.present,
            claims: &state.claims,
        });
        if ranges.is_empty() {
            return (result, SmallVec::new());
        }
        let mut claimed = SmallVec::<[Claim; 2]>::new();
        let mut cut = Ranges::new();
        for range in ranges {
            state.register(range, &mut claimed, &mut cut, || Claim {
                id: self.next_flight_id(),
                at: 0,
                end: 0,
                start: 0,
                begun_us: now_us,
                head_us: None,
                progress_us: now_us,
            });
        }
        // A takeover may have left bytes that no flight claims now: readers that wait for them must arrange a fetch.
        let wakes = match cut.is_empty() {
            true => Wakes::default(),
            false => {
                let claims = state.claims.iter();
                claims.for_each(|claim| cut.remove(claim.at..claim.end));
                state.answerable(&cut)
            }
        };
        let mut birth = state.birth.take();
        drop(state);
        let block = self.block().filter(|_| self.volumes.read().is_some());
        let landings = claimed
            .into_iter()
            .map(|claim| {
                let birth = birth
                    .take()
                    .unwrap_or_else(|| self.purges.births.begin(&self.sequence));
                Landing::new(self.clone(), object.clone(), table_key, &claim, birth)
                    .with_write_block(block)
            })
            .collect();
        wakes.wake();
        (result, landings)
    }
}

impl State {
    pub(super) fn claim(&self, id: u64) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.id == id)
    }

    fn claim_mut(&mut self, id: u64) -> Option<&mut Claim> {
        self.claims.iter_mut().find(|claim| claim.id == id)
    }

    /// Returns the claim that contains the byte at this offset.
    pub(super) fn bringing(&self, at: u64) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.brings(at))
    }

    /// Whether another flight may begin for the object.
    fn takes_claims(&self) -> bool {
        let fit = match &self.phase {
            Phase::Awaiting => self.claims.is_empty(),
            Phase::Open(_) => self.joinable,
            _ => false,
        };
        fit && self.claims.len() < CLAIMS_MAX
    }

    /// Claims the bytes of a range that are neither stored nor claimed. Bytes that other claims lose to a takeover are added to `cut`.
    fn register(
        &mut self,
        range: Range<u64>,
        claimed: &mut SmallVec<[Claim; 2]>,
        cut: &mut Ranges,
        blank: impl Fn() -> Claim,
    ) {
        let range = range.start..range.end.min(self.length.unwrap_or(OPEN));
        if range.is_empty() || !self.takes_claims() {
            return;
        }
        cut.insert(self.take_over(range.start));
        for free in self.free(range) {
            if !self.takes_claims() {
                break;
            }
            let free = self.widened(free);
            let claim = Claim {
                at: free.start,
                start: free.start,
                end: free.end,
                ..blank()
            };
            self.claims.push(claim.clone());
            claimed.push(claim);
        }
    }

    /// Shortens the claim that contains `start` to end there. A claim whose flight is less than a page before `start` is left as it is.
    /// Returns the bytes that the shortened claim lost.
    fn take_over(&mut self, start: u64) -> Range<u64> {
        let far = |claim: &&mut Claim| {
            // A flight copies at most one page without the lock, so it may be writing bytes before `at + PAGE`.
            claim.at.saturating_add(PAGE) <= start && start < claim.end
        };
        let taken = self.claims.iter_mut().find(far);
        taken.map_or(0..0, |claim| {
            start..std::mem::replace(&mut claim.end, start)
        })
    }

    /// Returns the parts of a range that are neither stored nor claimed.
    fn free(&self, range: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        self.unclaimed(self.have().gaps(range))
    }

    /// Returns the parts of a range that are neither in memory nor claimed.
    pub(super) fn lacking_in_memory(&self, range: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        self.unclaimed(self.present.gaps(range))
    }

    fn unclaimed(&self, gaps: impl Iterator<Item = Range<u64>>) -> SmallVec<[Range<u64>; 2]> {
        let taken: Ranges = self.claims.iter().map(|c| c.at..c.end).collect();
        gaps.flat_map(|gap| taken.gaps(gap).collect::<SmallVec<[_; 2]>>())
            .collect()
    }

    /// Widens a free range to all free bytes around it in its first and last page, if these pages or the whole object contain many separate
    /// ranges already.
    fn widened(&self, free: Range<u64>) -> Range<u64> {
        let broken = self.present.len() >= FRAGMENTS_MAX;
        if free.end - free.start >= PAGE && !broken {
            return free;
        }
        let first = free.start / PAGE * PAGE;
        let end = (free.end - 1) / PAGE * PAGE;
        let hull = first..end.saturating_add(PAGE).min(self.length.unwrap_or(OPEN));
        let crowded = || self.present.within(hull.clone()).nth(CROWDED - 1).is_some();
        if !broken && !crowded() {
            return free;
        }
        let around = self.free(hull);
        let wide = around.into_iter().find(|wide| wide.contains(&free.start));
        wide.unwrap_or(free)
    }

    pub(super) fn end_claim(&mut self, id: u64) -> Option<Claim> {
        let ended = self.claims.iter().position(|claim| claim.id == id)?;
        let claim = self.claims.swap_remove(ended);
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
        if let Some(claim) = &claim
            && claim.end == OPEN
            && state.length.is_none()
        {
            state.length = Some(claim.at);
            state.seal_last(claim.at, tail);
        }
        let wakes = state.answerable(&all_of(claim));
        drop(state);
        wakes.wake();
    }

    /// Ends flight `id`, whose response must not be shared. The object's riders wake, and each forwards its own request to the origin.
    pub(super) fn refuse(&self, id: u64, reason: Reason, until_ms: u64) {
        let mut state = self.lock();
        state.end_claim(id);
        if matches!(state.phase, Phase::Awaiting) {
            state.phase = Phase::Refused { reason, until_ms };
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
