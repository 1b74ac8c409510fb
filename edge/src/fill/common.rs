//! The decisions that all fill policies have in common: for objects with a single flight, for
//! objects that keep changing, and for objects about which nothing is known.

use std::ops::Range;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::policy::{Flight, Joinable, OPEN, Plan, Policy, Situation, Unsettled};
use crate::reason::Reason;

/// Minimum time until a policy is consulted again.
const AGAIN_MIN: Duration = Duration::from_millis(10);

/// A representation that has changed lately is fetched whole only if it has at most this many
/// blocks.
const CHANGING_BLOCKS_MAX: u64 = 8;

/// The decisions that differ between the fill policies.
pub(super) trait FillRules {
    /// Returns the size of a block in bytes.
    fn block(&self) -> u64;

    /// Returns the plan for an object about which nothing is known, while no fetch is in progress.
    fn first(&self, view: &View<'_>) -> Plan;

    /// Returns the plan for an object in which bytes of several responses may be combined.
    fn more(&self, view: &View<'_>) -> Plan;

    /// Returns the plan for a request whose next missing byte this flight will or may receive. By
    /// default the request waits.
    fn ride(&self, _view: &View<'_>, _flight: &Flight) -> Plan {
        Plan::Wait(None)
    }
}

/// A fill policy: the decisions specific to one kind, combined with those common to all kinds.
pub(super) struct Common<F>(pub(super) F);

impl<F: FillRules> Policy for Common<F> {
    fn plan(&self, situation: &Situation<'_>) -> Plan {
        let view = View::new(situation);
        if view.want.is_empty() {
            return Plan::Wait(None);
        }
        if situation.unsettled != Unsettled::No && !situation.begun {
            return unsettled(&view, self.0.block());
        }
        match situation.joinable {
            Joinable::Unknown => match view.may_be_in_flight() {
                Some(flight) => self.0.ride(&view, flight),
                None => self.0.first(&view),
            },
            Joinable::No => alone(&self.0, &view),
            Joinable::Yes => self.0.more(&view),
        }
    }
}

/// Returns the plan for an object in which bytes of several responses can't be combined, and which
/// therefore has a single flight.
fn alone(filling: &impl FillRules, view: &View<'_>) -> Plan {
    let Some(next) = view.next else {
        return Plan::Wait(None);
    };
    let flight = view.flight_over(next);
    if view.situation.begun {
        return flight.map_or(Plan::Cut, |flight| filling.ride(view, flight));
    }
    match flight {
        Some(flight) if view.all_coming() => filling.ride(view, flight),
        _ if view.too_large() => Plan::Forward(Reason::TooLarge),
        _ => Plan::Replace(Reason::Unjoinable),
    }
}

/// Returns the plan while the representation keeps changing, so that combining parts would fail.
/// The request that launched a fetch gets one fetch of the whole. Other requests are forwarded
/// unless their bytes are stored.
fn unsettled(view: &View<'_>, block: u64) -> Plan {
    let situation = view.situation;
    let changing = situation.unsettled == Unsettled::Changing;
    let why = if changing {
        Reason::Changing
    } else {
        Reason::Flapping
    };
    let length = situation.length.unwrap_or(0);
    // A large object is fetched whole only for a request that wants all of it.
    let large = changing && length > CHANGING_BLOCKS_MAX * block && !view.wants_all();
    let Some(next) = view.next else {
        return Plan::Wait(None);
    };
    let flying = match situation.joinable {
        Joinable::Unknown => view.may_be_in_flight(),
        Joinable::No if !view.all_coming() => None,
        _ => view.flight_over(next),
    };
    if flying.is_some() {
        let rides = situation.leads || (next > view.want.start && !large);
        return match rides {
            true => Plan::Wait(None),
            false => Plan::Forward(why),
        };
    }
    if large || length > situation.whole_max {
        return Plan::Forward(why);
    }
    match situation.joinable {
        Joinable::Unknown if situation.spare == 0 => Plan::Forward(Reason::Budget),
        Joinable::Unknown => begin(0..OPEN),
        // A flight for the remaining bytes could receive another version than those already stored.
        // All bytes of one flight for the whole are of one version.
        _ => Plan::Replace(why),
    }
}

/// Returns a plan with one flight, with no time at which to consult the policy again.
pub(super) fn begin(range: Range<u64>) -> Plan {
    Plan::Fetch {
        ranges: smallvec![range],
        again: None,
    }
}

/// Returns a plan with a flight for each of these ranges, or a plan to wait if there are none.
pub(super) fn begin_all(ranges: SmallVec<[Range<u64>; 2]>, again: Option<Duration>) -> Plan {
    match ranges.is_empty() {
        true => Plan::Wait(again.map(at_least)),
        false => Plan::Fetch {
            ranges,
            again: again.map(at_least),
        },
    }
}

/// Returns a plan to wait for at most this time before the policy is consulted again.
pub(super) fn wait(time: Duration) -> Plan {
    Plan::Wait(Some(at_least(time)))
}

/// Raises a time to `AGAIN_MIN`: a shorter timer would fire at once, and the policy would be
/// consulted in a busy loop.
fn at_least(time: Duration) -> Duration {
    time.max(AGAIN_MIN)
}

/// A situation with values derived from it that all fill policies need.
pub(super) struct View<'a> {
    pub situation: &'a Situation<'a>,
    /// The range of bytes that the request wants, cut at the end of the representation.
    pub want: Range<u64>,
    /// Position of the first wanted byte that is not stored; `None` if all are.
    pub next: Option<u64>,
    /// Position of the end of the representation; `OPEN` if it is not known.
    pub end: u64,
}

impl<'a> View<'a> {
    fn new(situation: &'a Situation<'a>) -> View<'a> {
        let end = match situation.joinable {
            Joinable::Unknown => OPEN,
            Joinable::Yes | Joinable::No => situation.length.unwrap_or(OPEN),
        };
        let want = situation.want.start..situation.want.end.min(end);
        let next = situation.have.contiguous_from(want.start);
        View {
            next: Some(next).filter(|next| *next < want.end),
            situation,
            want,
            end,
        }
    }

    /// Returns the range that a flight has still to receive, as far as known.
    pub fn span(&self, flight: &Flight) -> Range<u64> {
        flight.at..flight.end.min(self.end)
    }

    /// Returns the flight that will receive the byte at this position.
    pub fn flight_over(&self, byte: u64) -> Option<&'a Flight> {
        let mut flights = self.situation.flights.iter();
        flights.find(|flight| self.span(flight).contains(&byte))
    }

    /// Returns the flight that will receive the next missing byte. If there is none, returns any
    /// flight, since a response may contain another range than was requested.
    fn may_be_in_flight(&self) -> Option<&'a Flight> {
        self.next
            .and_then(|next| self.flight_over(next))
            .or(self.situation.flights.first())
    }

    /// Whether every wanted byte is stored or being fetched.
    fn all_coming(&self) -> bool {
        let mut gaps = self.situation.have.gaps(self.want.clone());
        gaps.all(|gap| self.not_flying(gap).is_empty())
    }

    /// Returns the parts of a range that no flight will receive, in order.
    pub fn not_flying(&self, range: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        let mut rest: SmallVec<[Range<u64>; 2]> = smallvec![range];
        for flight in self.situation.flights {
            let span = self.span(flight);
            if span.is_empty() {
                continue;
            }
            rest = rest
                .into_iter()
                .flat_map(|part| {
                    let before = part.start..part.end.min(span.start);
                    let after = part.start.max(span.end)..part.end;
                    [before, after]
                })
                .filter(|part| !part.is_empty())
                .collect();
        }
        rest
    }

    /// Whether the request wants the whole representation, from its first byte to its end.
    pub fn wants_all(&self) -> bool {
        self.want.start == 0 && self.want.end == self.end
    }

    /// Whether the representation is known to be too large to be stored as a whole.
    pub fn too_large(&self) -> bool {
        self.end != OPEN && self.end > self.situation.whole_max
    }
}
