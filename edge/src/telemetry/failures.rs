//! Counters of failures by reason.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::counter::Counter;
use super::metric::{Kind, Metric, Scope, Unit};
use crate::reason::Reason;

const REASONS: usize = Reason::ALL.len();

/// Numbers of failures by reason that one worker writes and any thread reads.
pub struct FailureCounters([Counter; REASONS]);

/// Numbers of failures by reason at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures([u64; REASONS]);

impl FailureCounters {
    /// Counts a failure. Only the owning worker may call this, as with `Counter::add`.
    pub fn add(&self, reason: Reason) {
        // A reason's number is its place in `Reason::ALL`.
        if let Some(counter) = self.0.get(reason as usize) {
            counter.add(1);
        }
    }

    /// Returns the current values.
    pub fn values(&self) -> Failures {
        Failures(std::array::from_fn(|i| self.0[i].get()))
    }
}

impl Failures {
    /// Description of the numbers of one server.
    pub const METRIC: Metric = Metric {
        name: "failures_by_reason",
        kind: Kind::Counter,
        unit: Unit::Count,
        scope: Scope::Server,
        help: "Failed requests by reason, including failed attempts to connect and responses with status 500, 502, 503 or 504.",
        summary: None,
    };

    /// Adds another worker's values to these.
    pub fn add(&mut self, other: &Failures) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(n);
        }
    }

    /// Returns each reason for which there were failures, with their number.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> {
        let all = Reason::ALL.iter().copied().zip(self.0);
        all.filter(|(_, n)| *n > 0)
    }
}

impl Default for FailureCounters {
    fn default() -> FailureCounters {
        FailureCounters(std::array::from_fn(|_| Counter::default()))
    }
}

impl Default for Failures {
    fn default() -> Failures {
        Failures([0; REASONS])
    }
}

/// A map from the text of each reason to a number, without reasons that have no failures.
impl Serialize for Failures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (reason, n) in self.iter() {
            map.serialize_entry(reason.text(), &n)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        let counters = FailureCounters::default();
        for reason in Reason::ALL {
            counters.add(*reason);
        }
        counters.add(Reason::HeadTimeout);
        let mut sum = Failures::default();
        sum.add(&counters.values());
        assert_eq!(sum.iter().count(), Reason::ALL.len());
        for (reason, n) in sum.iter() {
            assert_eq!(n, if reason == Reason::HeadTimeout { 2 } else { 1 });
        }
    }
}
