//! Setbacks: ranges of an object whose fetches failed. Each range has its own count of failures, so that failures of one part of an
//! object say nothing about the others.

use std::ops::Range;

use super::ledger::Charge;

/// Maximum number of ranges that are remembered per object; the oldest one is dropped for a new one.
const SETBACKS_MAX: usize = 16;

/// The consecutive failures of fetches for one range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setback {
    range: Range<u64>,
    /// Number of failures.
    pub failures: u8,
    /// End of the pause before the next fetch, in milliseconds since the Unix epoch.
    pub retry_ms: u64,
}

/// The setbacks of one object, oldest first, and the charge for their memory.
pub(super) struct Setbacks {
    list: Vec<Setback>,
    _charge: Charge,
}

impl Setbacks {
    /// Bytes to charge for one object's setbacks.
    pub(super) const BYTES: u64 =
        (SETBACKS_MAX * size_of::<Setback>() + size_of::<Setbacks>()) as u64;

    /// Creates an empty list with the charge for it.
    pub(super) fn new(charge: Charge) -> Setbacks {
        Setbacks {
            list: Vec::with_capacity(SETBACKS_MAX),
            _charge: charge,
        }
    }

    /// Returns the setback of the range that contains this byte.
    pub(super) fn at(&self, at: u64) -> Option<&Setback> {
        self.list.iter().find(|setback| setback.range.contains(&at))
    }

    /// Notes a failure for a range: `change` counts it.
    pub(super) fn note(&mut self, range: Range<u64>, change: impl FnOnce(&mut Setback)) {
        let list = &mut self.list;
        let known = list
            .iter()
            .position(|known| known.range.contains(&range.start));
        let mut setback = known.map_or_else(Setback::default, |known| list.remove(known));
        if list.len() >= SETBACKS_MAX {
            list.remove(0);
        }
        setback.range = range;
        change(&mut setback);
        list.push(setback);
    }

    /// Forgets the setbacks of a range. Returns whether any setback is left.
    pub(super) fn forget(&mut self, range: &Range<u64>) -> bool {
        let met = |of: &Range<u64>| of.start < range.end && range.start < of.end;
        self.list.retain(|setback| !met(&setback.range));
        !self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{begin, store};

    #[test]
    fn failures_count_for_the_bytes_that_the_flight_has_not_added() {
        let store = store(1 << 20);
        let landing = begin(&store, 1, Some(1000)).expect("room");
        let mut reader = landing.object().reader(0);
        for failures in 1..=2 {
            landing.set_back(|setback| setback.failures += 1);
            assert_eq!(reader.setback().failures, failures);
        }
        reader.limit(1000, 1001);
        assert_eq!(reader.setback().failures, 0);
        reader.limit(0, 1);
        landing.object().lock().forget_setbacks(&(0..1));
        assert_eq!(reader.setback().failures, 0);
    }
}
