//! Whole: who wants any missing byte has everything missing fetched, and everyone rides that.

use smallvec::smallvec;

use super::{OPEN, Plan, Policy, Situation};
use crate::ranges::Ranges;

pub(super) struct Whole;

impl Policy for Whole {
    fn plan(&self, situation: &Situation<'_>) -> Plan {
        let end = situation.want.end.min(situation.length.unwrap_or(OPEN));
        let mut coming: Ranges = situation.have.clone();
        coming.extend(situation.flights.iter().map(|flight| flight.at..flight.end));
        if coming.covers(&(situation.want.start..end)) {
            return Plan::Wait(None);
        }
        if coming.is_empty() {
            return Plan::Fetch {
                ranges: smallvec![0..OPEN],
                again: None,
            };
        }
        Plan::Forward("partial")
    }
}
