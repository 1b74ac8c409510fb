//! Counters of requests by reason: why they were refused, failed or were forwarded.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::counter::Counter;
use super::metric::{Kind, Metric, Scope, Unit};
use crate::http::Fwd;
use crate::reason::Reason;

/// Number of reasons: each `Reason`, followed by each `Fwd`.
const REASONS: usize = Reason::ALL.len() + Fwd::ALL.len();

/// Names of the reasons for which caches forward requests, in the order of `Fwd::ALL`. Without `fwd=`, two of them would
/// have the name of a `Reason`.
const FORWARDED: [&str; Fwd::ALL.len()] = [
    "fwd=bypass",
    "fwd=method",
    "fwd=uri-miss",
    "fwd=vary-miss",
    "fwd=miss",
    "fwd=request",
    "fwd=stale",
    "fwd=partial",
];

/// Numbers of requests by reason that one worker writes and any thread reads.
pub struct ReasonCounters([Counter; REASONS]);

/// Numbers of requests by reason at one moment. A request may have a reason, and another one for which a cache forwarded
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reasons([u64; REASONS]);

impl ReasonCounters {
    /// Counts a request that was refused, failed, was forwarded or served a stale response for this reason. Only the
    /// owning worker may call this, as with `Counter::add`.
    #[inline]
    pub fn add(&self, reason: Reason) {
        // A reason's number is its place in `Reason::ALL`.
        if let Some(counter) = self.0.get(reason as usize) {
            counter.add(1);
        }
    }

    /// Counts a request that a cache forwarded for this reason.
    #[inline]
    pub fn add_forwarded(&self, fwd: Fwd) {
        if let Some(counter) = self.0.get(Reason::ALL.len() + fwd as usize) {
            counter.add(1);
        }
    }

    /// Returns the current values.
    pub fn values(&self) -> Reasons {
        Reasons(std::array::from_fn(|i| self.0[i].get()))
    }
}

impl Reasons {
    /// Description of the numbers.
    pub const METRIC: Metric = Metric {
        name: "requests_by_reason",
        kind: Kind::Counter,
        unit: Unit::Count,
        scope: Scope::Reason,
        help: "Requests by the reason for which they were refused, failed, were forwarded or got a stale response, as in the access \
               log, and by the reason for which a cache forwarded them (`fwd=`).",
        summary: None,
    };

    /// Returns the name of every reason, in the order of `values`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let reasons = Reason::ALL.iter().map(|reason| reason.text());
        reasons.chain(FORWARDED)
    }

    /// Returns the number of requests of every reason, in the order of `names`.
    pub fn values(&self) -> &[u64] {
        &self.0
    }

    /// Returns each reason that requests had, with their number.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = Reasons::names().zip(self.0);
        all.filter(|(_, n)| *n > 0)
    }

    /// Adds another worker's values to these.
    pub fn add(&mut self, other: &Reasons) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(n);
        }
    }
}

impl Default for ReasonCounters {
    fn default() -> ReasonCounters {
        ReasonCounters(std::array::from_fn(|_| Counter::default()))
    }
}

impl Default for Reasons {
    fn default() -> Reasons {
        Reasons([0; REASONS])
    }
}

/// A map from each reason to a number, without reasons that no request had.
impl Serialize for Reasons {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, n) in self.iter() {
            map.serialize_entry(name, &n)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_name() {
        let counters = ReasonCounters::default();
        Reason::ALL.iter().for_each(|reason| counters.add(*reason));
        Fwd::ALL.iter().for_each(|fwd| counters.add_forwarded(*fwd));
        counters.add_forwarded(Fwd::Partial);
        let values = counters.values();
        let names: BTreeSet<&str> = values.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), REASONS);
        for (name, n) in values.iter() {
            assert_eq!(n, if name == "fwd=partial" { 2 } else { 1 });
        }
        for (fwd, name) in Fwd::ALL.iter().zip(FORWARDED) {
            assert_eq!(name.strip_prefix("fwd="), Some(fwd.as_str()));
        }
    }
}
