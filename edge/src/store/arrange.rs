//! How claims are made: decides under an object's lock what to fetch, and claims the ranges in the same critical section.
//!
//! Claims are disjoint, and no claim contains a byte that is stored already.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::claim::{CLAIMS_MAX, Claim};
use super::decisions::Decision;
use super::disk_tier::DiskRead;
use super::landing::Landing;
use super::object::{Failure, Object, Phase, State, Wakes};
use super::object_store::Store;
use super::page::PAGE;
use super::purges::births::Birth;
use super::reader::Reader;
use super::table_key::TableKey;
use crate::ranges::Ranges;

/// End of a claim that extends to the end of the content, wherever that is.
const OPEN: u64 = u64::MAX;

/// Number of ranges in one page from which on a new claim in this page is widened. Widening keeps the number of ranges per page small,
/// since the ledger's charge for a page covers only a few.
const WIDEN_FROM: usize = 16;

/// Number of ranges in one object from which on every new claim is widened. Widened claims add at most one range per page, and the ledger's
/// charge for a page covers that range.
pub(super) const FRAGMENTS_MAX: usize = 4096;

/// The state of an object that `Store::arrange` passes to its decision function, under the object's lock.
pub struct ObjectView<'a> {
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
    /// Failure of the last flight, if no flight has landed since.
    pub failure: Option<&'a Failure>,
}

/// A decision about the bytes that one reader still wants.
#[derive(Default)]
pub struct Arrangement {
    /// The ranges to fetch.
    pub ranges: SmallVec<[Range<u64>; 2]>,
    /// End of the bytes that stay in memory because the reader wants them soon, as an offset.
    pub keep_until: u64,
    /// The decision, as it is noted for inspection.
    pub note: Option<Decision>,
}

/// The fetches and reads that a decision for a reader leads to. The caller must run them.
pub struct Arranged {
    /// One landing per claimed range, in order.
    pub landings: SmallVec<[Landing; 2]>,
    /// Reads of wanted bytes from volumes.
    pub reads: SmallVec<[DiskRead; 2]>,
    /// Number of flights of which a landing has taken over a part of the claim.
    pub takeovers: u64,
}

/// New claims, and what follows from them once the object is unlocked.
#[derive(Default)]
struct Claimed {
    claims: SmallVec<[Claim; 2]>,
    takeovers: u64,
    /// The birth of the fetch that the object was created for, if it has begun already.
    birth: Option<Birth>,
    wakes: Wakes,
}

impl<'a> ObjectView<'a> {
    fn of(state: &'a State, have: &'a Ranges) -> ObjectView<'a> {
        ObjectView {
            phase: &state.phase,
            length: state.length,
            have,
            in_memory: &state.present,
            claims: &state.claims,
            failure: state.failure.as_ref(),
        }
    }

    /// Whether the stored bytes form so many separate ranges that the next small claim is widened to the free bytes around it.
    pub fn is_shattered(&self) -> bool {
        self.have.len() >= FRAGMENTS_MAX
    }

    /// Whether the byte at this offset has arrived in memory, or is claimed by a flight.
    pub fn is_arriving(&self, at: u64) -> bool {
        self.in_memory.contains(at) || self.claims.iter().any(|claim| claim.contains(at))
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
        decide: impl FnOnce(&ObjectView<'_>) -> (SmallVec<[Range<u64>; 2]>, T),
    ) -> (T, SmallVec<[Landing; 2]>) {
        let mut state = object.lock();
        let (ranges, result) = decide(&ObjectView::of(&state, &state.have()));
        let claimed = self.claim(&mut state, ranges, now_us);
        drop(state);
        (result, self.landings(claimed, object, table_key))
    }

    /// Decides about the bytes that `reader` still wants, in one critical section: claims those that volumes have, asks `decide` which
    /// ranges to fetch, and claims these as `arrange` does. `decide` gets the wanted range.
    pub fn arrange_for<T>(
        self: &Arc<Self>,
        reader: &mut Reader,
        table_key: TableKey,
        now_us: u64,
        decide: impl FnOnce(&ObjectView<'_>, Range<u64>) -> (Arrangement, T),
    ) -> (T, Arranged) {
        let (object, want) = (reader.object.clone(), reader.at..reader.end);
        // Declared before `state`: if `decide` panics, the object is unlocked before `reads` releases its claims.
        let mut reads = None;
        let mut state = object.lock();
        if state.disk.is_some() {
            reads = self.claim_disk_reads(&object, &mut state, want.clone(), now_us);
        }
        let (arrangement, result) = decide(&ObjectView::of(&state, &state.have()), want);
        // An object that is evicted only as a whole loses no bytes while it is read.
        if state.block.is_some() {
            reader.keep_until(&mut state, arrangement.keep_until);
        }
        if let Some(note) = arrangement.note {
            state.note(note, &object);
        }
        let claimed = self.claim(&mut state, arrangement.ranges, now_us);
        drop(state);
        let reads = reads.map_or(SmallVec::new(), |reads| reads.begin(self, table_key));
        let takeovers = claimed.takeovers;
        let landings = self.landings(claimed, &object, table_key);
        let arranged = Arranged {
            landings,
            reads,
            takeovers,
        };
        (result, arranged)
    }

    /// Claims ranges of an object.
    fn claim(&self, state: &mut State, ranges: SmallVec<[Range<u64>; 2]>, now_us: u64) -> Claimed {
        if ranges.is_empty() {
            return Claimed::default();
        }
        let mut claims = SmallVec::<[Claim; 2]>::new();
        let (mut cut, mut takeovers) = (Ranges::new(), 0);
        for range in ranges {
            takeovers += state.register(range, &mut claims, &mut cut, || Claim {
                id: self.next_flight_id(),
                at: 0,
                end: 0,
                start: 0,
                begun_us: now_us,
                head_us: None,
                progress_us: now_us,
                is_ending: false,
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
        let birth = state.birth.take();
        Claimed {
            claims,
            takeovers,
            birth,
            wakes,
        }
    }

    /// Creates one landing per claim, and wakes the readers whose bytes no flight claims any more. Called after unlocking.
    fn landings(
        self: &Arc<Self>,
        claimed: Claimed,
        object: &Arc<Object>,
        table_key: TableKey,
    ) -> SmallVec<[Landing; 2]> {
        if claimed.claims.is_empty() {
            claimed.wakes.wake();
            return SmallVec::new();
        }
        let mut birth = claimed.birth;
        let block = self.block().filter(|_| self.volumes.read().is_some());
        let claims = claimed.claims.into_iter();
        let landings = claims
            .map(|claim| {
                let birth = birth
                    .take()
                    .unwrap_or_else(|| self.purges.births.begin(&self.sequence));
                Landing::new(self.clone(), object.clone(), table_key, &claim, birth)
                    .with_write_block(block)
            })
            .collect();
        claimed.wakes.wake();
        landings
    }
}

impl State {
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
    /// Returns the number of takeovers.
    fn register(
        &mut self,
        range: Range<u64>,
        claimed: &mut SmallVec<[Claim; 2]>,
        cut: &mut Ranges,
        blank: impl Fn() -> Claim,
    ) -> u64 {
        let range = range.start..range.end.min(self.length.unwrap_or(OPEN));
        if range.is_empty() || !self.takes_claims() {
            return 0;
        }
        let taken = self.take_over(range.start);
        let takeovers = u64::from(!taken.is_empty());
        cut.insert(taken);
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
        takeovers
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
    pub(super) fn free(&self, range: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
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
        let crowded = || {
            self.present
                .within(hull.clone())
                .nth(WIDEN_FROM - 1)
                .is_some()
        };
        if !broken && !crowded() {
            return free;
        }
        let around = self.free(hull);
        let wide = around.into_iter().find(|wide| wide.contains(&free.start));
        wide.unwrap_or(free)
    }
}
