//! The fill policy `whole`: if any wanted byte is missing, all missing bytes are fetched, and all
//! requests for the object read from that fetch.

use std::ops::Range;

use smallvec::SmallVec;

use super::common::{FillRules, View, begin, begin_all};
use super::policy::{OPEN, Options, Plan};
use crate::reason::Reason;

pub(super) struct Whole {
    block: u64,
}

impl Whole {
    pub(super) fn new(options: &Options) -> Whole {
        Whole {
            block: options.block,
        }
    }
}

impl FillRules for Whole {
    fn block(&self) -> u64 {
        self.block
    }

    fn first(&self, view: &View<'_>) -> Plan {
        // A request for a part by a client without budget is forwarded, since a fetch of the whole
        // would fetch more than the client may cause.
        match view.situation.spare == 0 && !view.situation.begun && !view.wants_all() {
            true => Plan::Forward(Reason::Budget),
            false => begin(0..OPEN),
        }
    }

    fn more(&self, view: &View<'_>) -> Plan {
        let situation = view.situation;
        let next = match view.next {
            Some(next) if view.flight_over(next).is_none() => next,
            _ => return Plan::Wait(None),
        };
        let why = match (view.too_large(), situation.spare) {
            (true, _) => Reason::TooLarge,
            (false, 0) if !view.wants_all() => Reason::Budget,
            (false, _) => return begin_all(everything(view, next), None),
        };
        if !situation.begun {
            return Plan::Forward(why);
        }
        // A client without budget gets the bytes that it wants, up to the end of a block, and no
        // further bytes are fetched.
        let end = match situation.spare {
            0 => (next / self.block + 1).saturating_mul(self.block),
            _ => OPEN,
        };
        let gap = situation.have.gaps(next..view.want.end.min(end)).next();
        let parts = view.not_flying(gap.unwrap_or(next..next));
        parts.into_iter().next().map_or(Plan::Wait(None), begin)
    }
}

/// Returns all ranges that are neither stored nor being fetched: first the gap that contains
/// `next`, then the gaps after it, then those before it.
fn everything(view: &View<'_>, next: u64) -> SmallVec<[Range<u64>; 2]> {
    let situation = view.situation;
    let mut missing: SmallVec<[Range<u64>; 2]> = situation
        .have
        .gaps(0..view.end)
        .flat_map(|gap| view.not_flying(gap))
        .collect();
    let first = missing.partition_point(|range| range.end <= next);
    missing.rotate_left(first);
    let room = situation.width.saturating_sub(situation.flights.len());
    missing.truncate(room.max(1));
    missing
}
