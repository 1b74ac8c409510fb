//! What all kinds do alike: objects with one flight, objects that keep changing, what is not known.

use std::ops::Range;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::{Flight, Joinable, OPEN, Plan, Policy, Situation, Unsettled};
use crate::reason::Reason;

/// Never ask again sooner than this.
const AGAIN_MIN: Duration = Duration::from_millis(10);

/// What has changed lately is filled whole only up to this many blocks.
const CHANGING_BLOCKS_MAX: u64 = 8;

/// What the kinds differ in. Each is asked only where there is something to decide.
pub(super) trait Filling {
    /// The unit of fetching, bytes.
    fn block(&self) -> u64;

    /// Nothing is known of the object, and nothing on its way: what to begin with.
    fn first(&self, view: &View<'_>) -> Plan;

    /// Bytes of other responses may be put beside what is there.
    fn more(&self, view: &View<'_>) -> Plan;

    /// The next missing byte is on its way in this flight, or nobody knows yet what it brings.
    fn ride(&self, _view: &View<'_>, _flight: &Flight) -> Plan {
        Plan::Wait(None)
    }
}

/// A kind behind what all of them do alike.
pub(super) struct Common<F>(pub(super) F);

impl<F: Filling> Policy for Common<F> {
    fn plan(&self, situation: &Situation<'_>) -> Plan {
        let view = View::new(situation);
        if view.want.is_empty() {
            return Plan::Wait(None);
        }
        if situation.unsettled != Unsettled::No && !situation.begun {
            return unsettled(&view, self.0.block());
        }
        match situation.joinable {
            Joinable::Unknown => match view.flying_for_all_we_know() {
                Some(flight) => self.0.ride(&view, flight),
                None => self.0.first(&view),
            },
            Joinable::No => alone(&self.0, &view),
            Joinable::Yes => self.0.more(&view),
        }
    }
}

/// An object that has one flight and never a second serves what that brings, or nothing.
fn alone(filling: &impl Filling, view: &View<'_>) -> Plan {
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

/// While versions follow each other, parts would be put together in vain: one fetch of all of it,
/// for the one who launched it; others come by themselves, unless what they want is there.
fn unsettled(view: &View<'_>, block: u64) -> Plan {
    let situation = view.situation;
    let changing = situation.unsettled == Unsettled::Changing;
    let why = if changing {
        Reason::Changing
    } else {
        Reason::Flapping
    };
    let length = situation.length.unwrap_or(0);
    // Who wants all of it has it filled whole, whatever its size.
    let large = changing && length > CHANGING_BLOCKS_MAX * block && !view.wants_all();
    let Some(next) = view.next else {
        return Plan::Wait(None);
    };
    let flying = match situation.joinable {
        Joinable::Unknown => view.flying_for_all_we_know(),
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
        // A flight for the rest could meet another version; one for all of it meets itself.
        _ => Plan::Replace(why),
    }
}

/// One flight, and no need to ask again.
pub(super) fn begin(range: Range<u64>) -> Plan {
    Plan::Fetch {
        ranges: smallvec![range],
        again: None,
    }
}

/// These flights; where there are none, patience.
pub(super) fn begin_all(ranges: SmallVec<[Range<u64>; 2]>, again: Option<Duration>) -> Plan {
    match ranges.is_empty() {
        true => Plan::Wait(again.map(at_least)),
        false => Plan::Fetch {
            ranges,
            again: again.map(at_least),
        },
    }
}

/// Patience for this long at the most.
pub(super) fn wait(time: Duration) -> Plan {
    Plan::Wait(Some(at_least(time)))
}

/// A timer that fires at once, again and again, would spin.
fn at_least(time: Duration) -> Duration {
    time.max(AGAIN_MIN)
}

/// A situation with what every kind asks of it.
pub(super) struct View<'a> {
    pub situation: &'a Situation<'a>,
    /// The want, cut at the end of the representation.
    pub want: Range<u64>,
    /// The first wanted byte that is not stored.
    pub next: Option<u64>,
    /// Where the representation ends, `OPEN` if that is not known.
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

    /// What a flight has still to bring, as far as is known.
    pub fn span(&self, flight: &Flight) -> Range<u64> {
        flight.at..flight.end.min(self.end)
    }

    /// The flight that will bring this byte.
    pub fn flight_over(&self, byte: u64) -> Option<&'a Flight> {
        let mut flights = self.situation.flights.iter();
        flights.find(|flight| self.span(flight).contains(&byte))
    }

    /// The flight that brings the next missing byte; else, since a response may bring another part
    /// than it was asked for, any flight.
    fn flying_for_all_we_know(&self) -> Option<&'a Flight> {
        self.next
            .and_then(|next| self.flight_over(next))
            .or(self.situation.flights.first())
    }

    /// Whether every wanted byte is there or on its way.
    fn all_coming(&self) -> bool {
        let mut gaps = self.situation.have.gaps(self.want.clone());
        gaps.all(|gap| self.not_flying(gap).is_empty())
    }

    /// The parts of a range that no flight brings, in order.
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

    /// Whether all of it is wanted, from its beginning on.
    pub fn wants_all(&self) -> bool {
        self.want.start == 0 && self.want.end == self.end
    }

    /// Whether it may not be kept whole.
    pub fn too_large(&self) -> bool {
        self.end != OPEN && self.end > self.situation.whole_max
    }
}
