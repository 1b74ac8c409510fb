//! Tests of all fill policies in situations that the tests build.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "lists of one range are meant"
)]

mod plans;
mod properties;

use std::ops::Range;
use std::time::Duration;

use super::{Flight, Joinable, Kind, OPEN, Options, Plan, Policy, Situation, Unsettled, build};
use crate::ranges::Ranges;

const KINDS: [Kind; 4] = [Kind::Whole, Kind::Lock, Kind::Slice, Kind::Auto];
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::MAX;

/// A situation for the tests, which owns the values that [`Situation`] borrows.
#[derive(Clone, Debug)]
struct Case {
    want: Range<u64>,
    length: Option<u64>,
    have: Ranges,
    flights: Vec<Flight>,
    joinable: Joinable,
    unsettled: Unsettled,
    leads: bool,
    begun: bool,
    waited: Duration,
    spare: u64,
    width: usize,
    whole_max: u64,
}
impl Case {
    /// Builds the situation of a request that wants this range of an object of 10 MiB. Bytes of
    /// several responses may be combined in the object.
    fn of(want: Range<u64>) -> Case {
        Case {
            want,
            length: Some(10 * MIB),
            have: Ranges::new(),
            flights: Vec::new(),
            joinable: Joinable::Yes,
            unsettled: Unsettled::No,
            leads: false,
            begun: false,
            waited: Duration::ZERO,
            spare: 64 * MIB,
            width: 4,
            whole_max: 1 << 30,
        }
    }

    /// Builds the situation of a request that wants this range of an object about which nothing is
    /// known.
    fn cold(want: Range<u64>) -> Case {
        Case {
            length: None,
            joinable: Joinable::Unknown,
            ..Case::of(want)
        }
    }

    fn flight(mut self, span: Range<u64>, rate: Option<u64>) -> Case {
        self.flights.push(Flight {
            at: span.start,
            end: span.end,
            rate,
            idle: Duration::ZERO,
        });
        self
    }

    fn have(mut self, range: Range<u64>) -> Case {
        self.have.insert(range);
        self
    }

    fn plan(&self, policy: &dyn Policy) -> Plan {
        policy.plan(&Situation {
            want: self.want.clone(),
            length: self.length,
            have: &self.have,
            flights: &self.flights,
            joinable: self.joinable,
            unsettled: self.unsettled,
            leads: self.leads,
            begun: self.begun,
            waited: self.waited,
            spare: self.spare,
            width: self.width,
            whole_max: self.whole_max,
        })
    }

    fn by(&self, kind: Kind) -> Plan {
        self.plan(&*build(&Options {
            kind,
            ..Options::default()
        }))
    }

    /// Returns the end of the representation, as far as known.
    fn end(&self) -> u64 {
        match self.joinable {
            Joinable::Unknown => OPEN,
            _ => self.length.unwrap_or(OPEN),
        }
    }

    fn span(&self, flight: &Flight) -> Range<u64> {
        flight.at..flight.end.min(self.end())
    }

    fn flying(&self) -> Ranges {
        self.flights
            .iter()
            .map(|flight| self.span(flight))
            .collect()
    }

    /// Returns the ranges of wanted bytes that are not stored.
    fn missing(&self) -> Vec<Range<u64>> {
        let want = self.want.start..self.want.end.min(self.end());
        self.have.gaps(want).collect()
    }
}
