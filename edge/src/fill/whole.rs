//! Whole: who wants any missing byte has everything missing fetched, and everyone rides that.

use super::{OPEN, Plan, Policy, Situation};

pub(super) struct Whole;

impl Policy for Whole {
    fn plan(&self, situation: &Situation<'_>) -> Plan {
        if situation.missing(situation.want.clone()).is_empty() {
            return Plan::Wait;
        }
        let begun = !situation.have.is_empty() || !situation.flying.is_empty();
        if begun && !situation.joinable {
            // Its one fetch ended early, or will not bring this: a second one could be of another
            // version.
            return Plan::Forward;
        }
        Plan::Fetch(situation.missing(0..OPEN))
    }
}
