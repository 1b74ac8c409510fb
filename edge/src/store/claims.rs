//! Who brings which bytes: claims, how they are made, cut and given up.
//!
//! Claims are disjoint, and none lies over a byte that is there. A flight copies bytes into a page
//! without the lock, always from the claim's `at` and never more than one page of them, so what it
//! may be copying right now lies in `at..at + PAGE`. A claim that another flight takes over from is
//! therefore cut at `at + PAGE` at the earliest; `publish`, under the lock, tells the flight so
//! before it copies more.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::landing::Landing;
use super::object::{Failure, Object, Phase, State, Wakes};
use super::page::PAGE;
use super::{Store, TableKey};
use crate::ranges::Ranges;
use crate::reason::Reason;

/// The end of a claim that goes on to wherever the content ends.
const OPEN: u64 = u64::MAX;

/// Flights that one object may have at once.
pub const CLAIMS_MAX: usize = 256;

/// Ranges in one page from which on a claim in it is widened: so an object never has more than a
/// few for each page that the ledger pays for.
const CROWDED: usize = 16;

/// Ranges in one object from which on every claim is widened: from there each page, which the
/// ledger pays for, adds one at most.
pub(super) const FRAGMENTS_MAX: usize = 4096;

/// The bytes that one flight alone may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Names the flight.
    pub id: u64,
    /// The next byte it brings.
    pub at: u64,
    /// Where it ends; `u64::MAX` as long as that is not known.
    pub end: u64,
    /// The first byte it brings.
    pub start: u64,
    /// When it was made, in microseconds of the clock that `Store::arrange` was given.
    pub begun_us: u64,
    /// When its response's head was accepted: from then on its bytes are known to belong here.
    pub head_us: Option<u64>,
    /// When its last bytes came, or else when it was made.
    pub progress_us: u64,
}

impl Claim {
    pub(super) fn brings(&self, at: u64) -> bool {
        self.at <= at && at < self.end
    }

    /// Whether it has still to bring any of these bytes.
    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        self.at < range.end && range.start < self.end
    }
}

/// An object as a decision sees it, under its lock.
pub struct Seen<'a> {
    /// What it is.
    pub phase: &'a Phase,
    /// Complete length, once known.
    pub length: Option<u64>,
    /// The bytes that are there, be it on volumes.
    pub have: &'a Ranges,
    /// Those of them that are in memory.
    pub in_memory: &'a Ranges,
    /// The flights under way.
    pub claims: &'a [Claim],
}

impl Seen<'_> {
    /// Whether it is in so many pieces that the next small one is fetched with what is free around
    /// it.
    pub fn is_shattered(&self) -> bool {
        self.have.len() >= FRAGMENTS_MAX
    }

    /// Whether this byte is in memory or on its way.
    pub fn brings(&self, at: u64) -> bool {
        self.in_memory.contains(at) || self.claims.iter().any(|claim| claim.brings(at))
    }

    /// Whether no further flight may begin for now.
    pub fn is_full(&self) -> bool {
        self.claims.len() >= CLAIMS_MAX
    }
}

/// A response that has none of the bytes that its flight was to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs;

impl Store {
    /// Decides under the object's lock what to fetch, and claims it in the same critical section:
    /// one landing per claimed range, in order. `decide` must be short, and may not touch the
    /// object but through what it sees.
    ///
    /// Of the ranges it returns, what is there or claimed by others is left out; what would break an
    /// object in many pieces into more is widened within its pages. But a claim in
    /// whose far part a range begins, a page or more ahead, is cut short to end there. What a cut
    /// claim had beyond the range is nobody's then. Nothing is claimed of an object that bytes
    /// can't be added to: one that is retired, refused, failed, or not joinable, or whose first
    /// flight has no head yet. An object without a head gets one claim.
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
        // Bytes that were on their way may be nobody's now.
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
                let birth = birth.take().unwrap_or_else(|| self.birth());
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

    /// The flight that brings the byte at this place.
    pub(super) fn bringing(&self, at: u64) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.brings(at))
    }

    /// Whether another flight may begin.
    fn takes_claims(&self) -> bool {
        let fit = match &self.phase {
            Phase::Awaiting => self.claims.is_empty(),
            Phase::Open(_) => self.joinable,
            _ => false,
        };
        fit && self.claims.len() < CLAIMS_MAX
    }

    /// Claims what of a range may be claimed. What another claim lost for that joins `cut`.
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

    /// Cuts the claim in whose far part `start` lies; what it lost.
    fn take_over(&mut self, start: u64) -> Range<u64> {
        let far = |claim: &&mut Claim| {
            // What its flight may be copying now lies before `at + PAGE`.
            claim.at.saturating_add(PAGE) <= start && start < claim.end
        };
        let taken = self.claims.iter_mut().find(far);
        taken.map_or(0..0, |claim| {
            start..std::mem::replace(&mut claim.end, start)
        })
    }

    /// The parts of a range that neither are there nor are claimed.
    fn free(&self, range: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        self.unclaimed(self.have().gaps(range))
    }

    /// The parts of a range that neither are in memory nor are claimed.
    pub(super) fn lacking_in_memory(&self, range: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        self.unclaimed(self.present.gaps(range))
    }

    fn unclaimed(&self, gaps: impl Iterator<Item = Range<u64>>) -> SmallVec<[Range<u64>; 2]> {
        let taken: Ranges = self.claims.iter().map(|c| c.at..c.end).collect();
        gaps.flat_map(|gap| taken.gaps(gap).collect::<SmallVec<[_; 2]>>())
            .collect()
    }

    /// A free range widened to all that is free around it in the pages where it begins and ends, if
    /// they or the object are in many pieces already.
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
            // Most objects have no flight for most of the time.
            self.claims = Vec::new();
        }
        Some(claim)
    }
}

impl Object {
    /// What flight `id` has still to bring.
    pub(super) fn claimed(&self, id: u64) -> Range<u64> {
        let state = self.lock();
        state.claim(id).map_or(0..0, |claim| claim.at..claim.end)
    }

    /// Whether some rider's next byte lies in the first page of what flight `id` has still to bring,
    /// or in the one behind: fetches begin a little before what is wanted.
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

    /// Bytes `at..at + len` have been written by flight `id` into their page: readers may have them.
    /// Gives back where its claim ends now; `None` when nobody wants any more of them.
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

    /// Flight `id` has a response whose content is `content`. Gives back its claim now, all of
    /// which that response has; `None` if it has nothing of the claim.
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
        // While there is no head, riders wait for that.
        let wakes = match first {
            true => Wakes::default(),
            false => state.riders_in(&before),
        };
        drop(state);
        wakes.wake();
        Some(met)
    }

    /// Lets flight `id` end at `end`, if not before; where its claim ends now.
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

    /// Lets flight `id` go on to the next byte that is there or claimed, or to the end; where its
    /// claim ends now.
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

    /// Ends flight `id`, which brought all there is: a length that was unknown is known now. `tail`
    /// is the last page's content where it was copied to memory of its size.
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

    /// Ends flight `id`: its response is unfit for sharing. Riders wake, and part.
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

    /// Whether others may bring what a failing flight leaves.
    pub(super) fn outlives_flights(&self) -> bool {
        let state = self.lock();
        match state.phase {
            Phase::Open(_) => state.joinable,
            Phase::Retired => true,
            _ => false,
        }
    }

    /// Ends flight `id`, which failed. Riders that waited for
    /// the rest find that nobody brings it.
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

    /// Ends flight `id`, which neither failed nor brought all it could have. Riders that waited for
    /// it find that nobody brings their bytes; where there is no head yet, they look again.
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

/// What a flight that has ended was to bring: what it has brought, which it may not have announced
/// yet, and the rest, which nobody brings now.
fn all_of(claim: Option<Claim>) -> Ranges {
    claim.map_or(Ranges::new(), |claim| (claim.start..claim.end).into())
}
