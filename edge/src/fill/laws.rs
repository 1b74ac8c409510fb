//! Tests of properties that the plans of all fill policies must have, and of the plans of each
//! policy in typical situations.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "lists of one range are meant"
)]

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};

use super::{
    Flight, Joinable, Kind, OPEN, Options, Plan, Policy, ReadAhead, Situation, Unsettled, build,
};
use crate::ranges::Ranges;
use crate::reason::Reason;

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

/// Block size in the property tests: small enough for an object of some dozen blocks, large enough
/// for positions deep inside a block.
const BLOCK: u64 = 256 * KIB;
/// Number of bytes of which all positions in the property tests are multiples.
const STEP: u64 = 16 * KIB;

fn a_flight() -> impl Strategy<Value = (Option<u64>, Duration)> {
    let rates = vec![None, Some(0), Some(100 * KIB), Some(MIB), Some(1 << 30)];
    let idle = vec![Duration::ZERO, 500 * MS, 3 * SECOND, 300 * SECOND];
    (prop::sample::select(rates), prop::sample::select(idle))
}

#[derive(Clone, Debug)]
enum Part {
    Missing,
    Stored,
    Flying(Option<u64>, Duration),
}

/// Generates an object: its stored ranges, its flights and its length. Other ranges are missing.
fn parts() -> impl Strategy<Value = (Ranges, Vec<Flight>, u64)> {
    let part = prop_oneof![
        3 => Just(Part::Missing),
        3 => Just(Part::Stored),
        2 => a_flight().prop_map(|(rate, idle)| Part::Flying(rate, idle)),
    ];
    let row = prop::collection::vec((1..80u64, part), 0..9);
    (row, any::<bool>(), 1..STEP).prop_map(|(row, open, odd)| {
        let (mut have, mut flights, mut at) = (Ranges::new(), Vec::new(), 0);
        for (steps, part) in row {
            let end = at + steps * STEP;
            match part {
                Part::Missing => {}
                Part::Stored => have.insert(at..end),
                Part::Flying(rate, idle) => flights.push(Flight {
                    at,
                    end,
                    rate,
                    idle,
                }),
            }
            at = end;
        }
        if let Some(last) = flights.last_mut().filter(|last| last.end == at && open) {
            last.end = OPEN;
        }
        (have, flights, at + odd)
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let want = (0..600u64, 1..600u64, prop::bool::weighted(0.2), 0..STEP);
    let joinable = prop::sample::select(vec![
        Joinable::Unknown,
        Joinable::Yes,
        Joinable::Yes,
        Joinable::No,
    ]);
    let unsettled = prop_oneof![
        6 => Just(Unsettled::No),
        1 => Just(Unsettled::Changing),
        1 => Just(Unsettled::Flapping),
    ];
    let waited = prop::sample::select(vec![Duration::ZERO, 3 * MS, SECOND, 10 * SECOND]);
    let spare = prop_oneof![Just(0), 0..8 * BLOCK, Just(64 * MIB)];
    let whole_max = prop::sample::select(vec![MIB, 1 << 30]);
    let rest = (waited, spare, 1..17usize, whole_max);
    (
        want,
        parts(),
        joinable,
        unsettled,
        any::<(bool, bool)>(),
        rest,
    )
        .prop_map(
            |(
                (start, size, open, odd),
                (have, flights, end),
                joinable,
                unsettled,
                (leads, begun),
                rest,
            )| {
                let start = (start * STEP + odd) % end;
                let want = start..if open {
                    OPEN
                } else {
                    start + size * STEP - odd
                };
                let (waited, spare, width, whole_max) = rest;
                let mut case = Case {
                    want,
                    have,
                    joinable,
                    unsettled,
                    leads,
                    waited,
                    spare,
                    width,
                    whole_max,
                    begun,
                    flights,
                    length: Some(end),
                };
                match joinable {
                    Joinable::Unknown => {
                        case.have = Ranges::new();
                        case.flights.truncate(1);
                        case.begun = false;
                    }
                    Joinable::No => case.flights.truncate(1),
                    Joinable::Yes => {}
                }
                case
            },
        )
}

fn options() -> impl Strategy<Value = Options> {
    let ahead = prop::sample::select(vec![
        ReadAhead::None,
        ReadAhead::None,
        ReadAhead::Window(3 * BLOCK),
        ReadAhead::Whole,
    ]);
    let timeout = prop::sample::select(vec![Duration::ZERO, 5 * SECOND]);
    (prop::sample::select(KINDS.to_vec()), ahead, timeout).prop_map(
        |(kind, read_ahead, lock_timeout)| Options {
            kind,
            read_ahead,
            lock_timeout,
            block: BLOCK,
            ..Options::default()
        },
    )
}

fn by_blocks(options: &Options) -> bool {
    matches!(options.kind, Kind::Slice | Kind::Auto)
}

/// Returns the ranges in flight after a plan with these ranges. Fails if the plan takes over a
/// range from a flight that it must leave alone.
fn after(case: &Case, ranges: &[Range<u64>], options: &Options) -> Result<Ranges, TestCaseError> {
    let mut flights = case.flights.clone();
    for range in ranges {
        for flight in &mut flights {
            let span = case.span(flight);
            if !span.contains(&range.start) {
                continue;
            }
            let distance = range.start - span.start;
            let slow =
                flight.idle >= SECOND || flight.rate.is_some_and(|rate| distance * 10 > rate);
            prop_assert!(by_blocks(options) && case.joinable == Joinable::Yes);
            let short = span.end - span.start < 2 * BLOCK;
            let very_slow =
                flight.idle >= SECOND || flight.rate.is_some_and(|rate| distance * 2 > rate);
            prop_assert!(
                !short || (very_slow && range.start == case.want.start),
                "a short flight is cut for what is wanted now, if it is very slow"
            );
            prop_assert!(
                distance >= 64 * KIB && slow,
                "it would have brought this soon"
            );
            flight.end = range.start;
        }
    }
    let mut flying: Ranges = flights.iter().map(|flight| case.span(flight)).collect();
    for range in ranges {
        prop_assert!(!flying.intersects(range), "{range:?} is on its way already");
        flying.insert(range.clone());
    }
    Ok(flying)
}

fn ranges_keep_the_laws(
    case: &Case,
    ranges: &[Range<u64>],
    options: &Options,
) -> Result<(), TestCaseError> {
    prop_assert!(!ranges.is_empty());
    for range in ranges {
        prop_assert!(!range.is_empty() && range.end <= case.end(), "{range:?}");
        prop_assert!(!case.have.intersects(range), "{range:?} is there already");
    }
    let flying = after(case, ranges, options)?;
    let next = case.missing().first().map(|gap| gap.start);
    if let Some(next) = next {
        prop_assert!(flying.contains(next), "the next wanted byte comes");
        if !case.flying().contains(next) {
            prop_assert!(
                ranges[0].contains(&next),
                "what is wanted first is fetched first"
            );
        }
    }
    let is_wanted =
        |range: &&Range<u64>| range.start < case.want.end && range.end > case.want.start;
    let wanted: Vec<u64> = ranges
        .iter()
        .filter(is_wanted)
        .map(|range| range.start)
        .collect();
    let ahead = if by_blocks(options) { &wanted[..] } else { &[] };
    prop_assert!(ahead.is_sorted(), "in the order of need: {ranges:?}");
    width_is_kept(case, ranges, options)?;
    spare_is_kept(case, ranges, options, next)?;
    if by_blocks(options) && options.read_ahead == ReadAhead::None && ranges != [0..OPEN] {
        for range in ranges {
            prop_assert_eq!(
                range.start / BLOCK,
                (range.end - 1) / BLOCK,
                "within one block"
            );
        }
    }
    Ok(())
}

/// Checks that a plan does not exceed the permitted number of concurrent flights. Counted are the
/// flights, new ones included, from the want's first block to the end of the plan's ranges.
fn width_is_kept(
    case: &Case,
    ranges: &[Range<u64>],
    options: &Options,
) -> Result<(), TestCaseError> {
    let from = case.want.start - case.want.start % BLOCK;
    let to = ranges.iter().map(|range| range.end).max().unwrap_or(from);
    let region = if by_blocks(options) {
        from..to
    } else {
        0..OPEN
    };
    let flying = case.flights.iter().filter(|flight| {
        let span = case.span(flight);
        span.start < region.end && region.start < span.end
    });
    let busy = flying.count() + ranges.len();
    prop_assert!(busy <= case.width || ranges.len() == 1, "{busy} flights");
    Ok(())
}

fn spare_is_kept(
    case: &Case,
    ranges: &[Range<u64>],
    options: &Options,
    next: Option<u64>,
) -> Result<(), TestCaseError> {
    let size = |range: &Range<u64>| range.end - range.start;
    if case.spare == 0 {
        prop_assert_eq!(ranges.len(), 1);
        prop_assert!(ranges[0].start >= case.want.start && ranges[0].end <= case.want.end);
        let end = ranges[0].end.min(case.length.unwrap_or(OPEN));
        prop_assert!(end <= ranges[0].start + BLOCK, "at most a block");
    }
    if by_blocks(options) && ranges != [0..OPEN] {
        let all: u64 = ranges.iter().map(size).sum();
        let first = &ranges[0];
        let needed = next
            .filter(|next| first.contains(next))
            .map_or(0, |next| first.end.min(case.want.end) - next);
        prop_assert!(all - needed <= case.spare, "no more than the budget allows");
    }
    Ok(())
}

/// Checks the properties of plans other than `Fetch`.
fn no_fetch_keeps_the_laws(
    case: &Case,
    plan: &Plan,
    options: &Options,
) -> Result<(), TestCaseError> {
    let missing = case.missing();
    let flying = case.flying();
    let coming = missing.first().is_none_or(|gap| flying.contains(gap.start));
    let all_coming = missing.iter().all(|gap| flying.covers(gap));
    let unknown = case.joinable == Joinable::Unknown;
    match plan {
        Plan::Wait(_) => {
            prop_assert!(coming || (unknown && !case.flights.is_empty()));
            let begins = !case.begun && case.joinable == Joinable::No;
            prop_assert!(!begins || all_coming, "what can't be ended is not begun");
        }
        Plan::Forward(why) => {
            prop_assert!(!case.begun && !missing.is_empty(), "{why}");
            let said = match *why {
                Reason::LockTimeout => {
                    options.kind == Kind::Lock && !case.leads && case.waited >= options.lock_timeout
                }
                Reason::Budget => {
                    case.spare == 0 && (!by_blocks(options) || case.unsettled != Unsettled::No)
                }
                Reason::TooLarge => case.length.is_some_and(|length| length > case.whole_max),
                Reason::Changing => case.unsettled == Unsettled::Changing,
                Reason::Flapping => case.unsettled == Unsettled::Flapping,
                _ => false,
            };
            prop_assert!(said, "forwarded for {why}");
        }
        Plan::Replace(why) => {
            prop_assert!(!case.begun && !missing.is_empty(), "{why}");
            let said = match *why {
                Reason::LockAge => {
                    options.kind == Kind::Lock
                        && case.flights.iter().any(|f| f.idle >= options.lock_age)
                }
                Reason::Unjoinable => case.joinable == Joinable::No && !all_coming,
                Reason::Changing | Reason::Flapping => {
                    case.unsettled != Unsettled::No && !unknown && !all_coming
                }
                _ => false,
            };
            prop_assert!(said, "replaced for {why}");
        }
        Plan::Cut => prop_assert!(case.begun && case.joinable == Joinable::No && !coming),
        Plan::Fetch { .. } => prop_assert!(false),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn every_plan_keeps_the_laws(case in cases(), options in options()) {
        let plan = case.plan(&*build(&options));
        let again = match &plan {
            Plan::Fetch { again, .. } | Plan::Wait(again) => again.unwrap_or(NEVER),
            _ => NEVER,
        };
        prop_assert!(again >= 10 * MS, "it would spin");
        match &plan {
            Plan::Fetch { ranges, .. } => {
                prop_assert!(case.joinable != Joinable::No, "never a second flight");
                if case.joinable == Joinable::Unknown {
                    prop_assert!(ranges.len() == 1 && case.flights.is_empty());
                }
                ranges_keep_the_laws(&case, ranges, &options)?;
            }
            other => no_fetch_keeps_the_laws(&case, other, &options)?,
        }
    }

    #[test]
    fn blocks_always_serve_objects_whose_parts_may_be_combined(case in cases(), options in options()) {
        let plan = case.plan(&*build(&options));
        let calm = case.unsettled == Unsettled::No && case.joinable == Joinable::Yes;
        if calm && by_blocks(&options) {
            prop_assert!(matches!(plan, Plan::Fetch { .. } | Plan::Wait(_)), "{plan:?}");
        }
    }
}

fn fetch(ranges: &[Range<u64>]) -> Plan {
    fetch_again(ranges, None)
}

fn fetch_again(ranges: &[Range<u64>], again: Option<Duration>) -> Plan {
    Plan::Fetch {
        ranges: ranges.iter().cloned().collect::<SmallVec<_>>(),
        again,
    }
}

const MIDDLE: Range<u64> = 5_000_000..5_000_010;
const LATE: Range<u64> = 9_000_000..9_000_010;
const BLOCK_4: Range<u64> = 4_194_304..5_242_880;

#[test]
fn cold_ranges_begin_at_the_first_wanted_byte() {
    for kind in [Kind::Slice, Kind::Auto] {
        let cold = Case::cold(MIDDLE);
        assert_eq!(cold.by(kind), fetch(&[5_000_000..BLOCK_4.end]));
        let near = Case::cold(BLOCK_4.start + 65_535..BLOCK_4.start + 65_536);
        assert_eq!(near.by(kind), fetch(&[BLOCK_4]));
        let poor = Case {
            spare: 0,
            ..Case::cold(MIDDLE)
        };
        assert_eq!(poor.by(kind), fetch(&[MIDDLE]));
        // Another request has launched a flight for this range, and its response has not begun. The
        // second request waits instead of launching another.
        let second = Case::cold(LATE).flight(5_000_000..BLOCK_4.end, None);
        assert_eq!(second.by(kind), Plan::Wait(None));
    }
    let all = Case::cold(0..OPEN);
    assert_eq!(all.by(Kind::Slice), fetch(&[0..MIB]));
    assert_eq!(all.by(Kind::Auto), fetch(&[0..OPEN]));
    assert_eq!(Case::cold(5..OPEN).by(Kind::Auto), fetch(&[0..MIB]));
    for kind in [Kind::Whole, Kind::Lock] {
        assert_eq!(Case::cold(MIDDLE).by(kind), fetch(&[0..OPEN]));
    }
}

#[test]
fn the_rest_of_the_block_is_fetched_after_the_wanted_bytes() {
    let head = Case::of(MIDDLE).flight(5_000_000..BLOCK_4.end, None);
    let rest = [BLOCK_4.start..5_000_000];
    assert_eq!(head.by(Kind::Slice), fetch(&rest));
    // The plan does not change if wanted bytes arrived together with the response's head.
    let quick = Case::of(MIDDLE)
        .have(5_000_000..5_100_000)
        .flight(5_100_000..BLOCK_4.end, None);
    assert_eq!(quick.by(Kind::Slice), fetch(&rest));
    let poor = Case {
        spare: 500_000,
        ..head.clone()
    };
    assert_eq!(poor.by(Kind::Slice), Plan::Wait(None));
    let busy = Case { width: 1, ..head };
    assert_eq!(busy.by(Kind::Slice), Plan::Wait(None));
    // The rest of a block is also fetched later, if there was no budget for it when the wanted part
    // was fetched.
    let tail = Case::of(MIDDLE).have(BLOCK_4.start..5_000_010);
    assert_eq!(tail.by(Kind::Slice), fetch(&[5_000_010..BLOCK_4.end]));
}

#[test]
fn a_seek_takes_over_the_far_part_of_a_running_fetch() {
    for kind in [Kind::Slice, Kind::Auto] {
        let seek = Case::of(LATE).have(0..MIB).flight(MIB..OPEN, Some(MIB));
        assert_eq!(seek.by(kind), fetch(&[9_000_000..9 * MIB]));
        let young = Case::of(LATE).flight(0..OPEN, None);
        assert_eq!(young.by(kind), Plan::Wait(Some(50 * MS)));
        let fast = Case::of(LATE).flight(0..OPEN, Some(1 << 30));
        assert_eq!(fast.by(kind), Plan::Wait(Some(100 * MS)));
        // A flight that has received no bytes for two seconds is taken over too.
        let mut stuck = young;
        stuck.flights[0].idle = 2 * SECOND;
        assert_eq!(stuck.by(kind), fetch(&[9_000_000..9 * MIB]));
        // Waiting is better than a new flight if a running flight for the block is near the wanted
        // bytes; otherwise its far part is taken over.
        let block = Case::of(LATE).flight(8 * MIB..9 * MIB, Some(10 * MIB));
        assert_eq!(block.by(kind), Plan::Wait(Some(500 * MS)));
        let block = Case::of(LATE).flight(8 * MIB..9 * MIB, Some(100 * KIB));
        assert_eq!(block.by(kind), fetch(&[9_000_000..9 * MIB]));
    }
    let seek = Case::of(LATE).have(0..MIB).flight(MIB..OPEN, Some(MIB));
    assert_eq!(seek.by(Kind::Whole), Plan::Wait(None));
    assert_eq!(seek.by(Kind::Lock), Plan::Forward(Reason::LockTimeout));
}

#[test]
fn several_blocks_are_fetched_ahead_for_a_long_want() {
    let again = Some(100 * MS);
    let mut case = Case::of(0..OPEN).flight(0..MIB, None);
    let three = [MIB..2 * MIB, 2 * MIB..3 * MIB, 3 * MIB..4 * MIB];
    assert_eq!(case.by(Kind::Slice), fetch_again(&three, again));
    // A flight of another request counts towards the limit of flights if it fetches wanted bytes.
    case = case.flight(2 * MIB..3 * MIB, None);
    let two = [MIB..2 * MIB, 3 * MIB..4 * MIB];
    assert_eq!(case.by(Kind::Slice), fetch_again(&two, again));
    // A flight for bytes far from the wanted ones does not count towards the limit of flights.
    case = case.flight(9 * MIB..10 * MIB, None);
    assert_eq!(case.by(Kind::Slice), fetch_again(&two, again));
    // The budget suffices for only one of the two blocks.
    case.spare = MIB + 5;
    assert_eq!(case.by(Kind::Slice), fetch(&two[..1]));
    // At the end of the object no further blocks are missing, so the plan has no time at which to
    // consult the policy again.
    let tail = Case {
        length: Some(10 * MIB - 7),
        ..Case::of(9 * MIB + 5..OPEN)
    };
    assert_eq!(tail.by(Kind::Slice), fetch(&[9 * MIB..10 * MIB - 7]));
}

#[test]
fn an_open_fetch_of_the_whole_is_split_once_it_proves_slow() {
    let young = Case::of(0..OPEN).flight(0..OPEN, None);
    assert_eq!(young.by(Kind::Auto), Plan::Wait(Some(50 * MS)));
    let slow = Case::of(50 * KIB..OPEN)
        .have(0..50 * KIB)
        .flight(50 * KIB..OPEN, Some(MIB));
    let blocks = [2 * MIB..3 * MIB, 3 * MIB..4 * MIB, 4 * MIB..5 * MIB];
    assert_eq!(slow.by(Kind::Auto), fetch_again(&blocks, Some(100 * MS)));
    let fast = Case::of(0..OPEN).flight(0..OPEN, Some(100 * MIB));
    assert_eq!(fast.by(Kind::Auto), Plan::Wait(Some(SECOND)));
}

#[test]
fn an_object_shorter_than_a_block_is_one_fetch() {
    let small = Case {
        length: Some(5000),
        ..Case::of(1000..1010)
    };
    assert_eq!(small.by(Kind::Slice), fetch(&[0..5000]));
    assert_eq!(small.by(Kind::Auto), fetch(&[0..5000]));
    let begun = small.flight(1000..5000, None);
    assert_eq!(begun.by(Kind::Slice), fetch(&[0..1000]));
}

#[test]
fn reading_ahead_is_bounded_by_its_setting_and_the_budget() {
    let ahead = |read_ahead, case: &Case| {
        case.plan(&*build(&Options {
            read_ahead,
            ..Options::default()
        }))
    };
    let case = Case::of(MIDDLE).have(BLOCK_4);
    assert_eq!(ahead(ReadAhead::None, &case), Plan::Wait(None));
    let window = ReadAhead::Window(2 * MIB);
    assert_eq!(ahead(window, &case), fetch(&[5 * MIB..7 * MIB]));
    let whole = [5 * MIB..10 * MIB, 0..4 * MIB];
    assert_eq!(ahead(ReadAhead::Whole, &case), fetch(&whole));
    let poor = Case {
        spare: 3 * MIB - 1,
        ..case.clone()
    };
    assert_eq!(ahead(ReadAhead::Whole, &poor), fetch(&[5 * MIB..7 * MIB]));
    let large = Case {
        whole_max: MIB,
        ..case.clone()
    };
    assert_eq!(ahead(ReadAhead::Whole, &large), Plan::Wait(None));
    let last = Case::of(10 * MIB - 10..10 * MIB).have(9 * MIB..10 * MIB);
    assert_eq!(ahead(window, &last), Plan::Wait(None));
}

#[test]
fn whole_fetches_all_missing_bytes() {
    let case = Case::of(5 * MIB..6 * MIB).have(0..MIB);
    assert_eq!(case.by(Kind::Whole), fetch(&[MIB..10 * MIB]));
    let gaps = case
        .clone()
        .have(4 * MIB..5 * MIB)
        .flight(7 * MIB..8 * MIB, None);
    let all = [5 * MIB..7 * MIB, 8 * MIB..10 * MIB, MIB..4 * MIB];
    assert_eq!(gaps.by(Kind::Whole), fetch(&all));
    let narrow = Case { width: 2, ..gaps };
    assert_eq!(narrow.by(Kind::Whole), fetch(&all[..1]));
    // An object that is too large to be stored is not fetched whole. Nor is any object for a client
    // without budget.
    let large = Case {
        whole_max: MIB,
        ..case.clone()
    };
    assert_eq!(large.by(Kind::Whole), Plan::Forward(Reason::TooLarge));
    let begun = Case {
        begun: true,
        ..large
    };
    assert_eq!(begun.by(Kind::Whole), fetch(&[5 * MIB..6 * MIB]));
    let poor = Case { spare: 0, ..case };
    assert_eq!(poor.by(Kind::Whole), Plan::Forward(Reason::Budget));
}

#[test]
fn lock_bounds_the_wait_for_another_requests_fetch() {
    let by = |case: &Case| {
        case.plan(&*build(&Options {
            kind: Kind::Lock,
            lock_timeout: 5 * SECOND,
            ..Options::default()
        }))
    };
    let mut case = Case::of(LATE).have(0..MIB).flight(MIB..OPEN, Some(MIB));
    assert_eq!(by(&case), Plan::Wait(Some(5 * SECOND)));
    case.waited = 4 * SECOND;
    assert_eq!(by(&case), Plan::Wait(Some(SECOND)));
    case.waited = 5 * SECOND;
    assert_eq!(by(&case), Plan::Forward(Reason::LockTimeout));
    case.leads = true;
    assert_eq!(by(&case), Plan::Wait(Some(200 * SECOND)));
    case.flights[0].idle = 200 * SECOND;
    assert_eq!(by(&case), Plan::Replace(Reason::LockAge));
    case.begun = true;
    assert_eq!(by(&case), Plan::Wait(None));
    // A request whose first bytes are stored reads them and waits for a flight to fetch the others.
    let landed = Case::of(MIB - 5..2 * MIB)
        .have(0..MIB)
        .flight(MIB..OPEN, Some(MIB));
    assert_eq!(landed.by(Kind::Lock), Plan::Wait(None));
}

#[test]
fn an_object_whose_parts_cannot_be_combined_has_one_flight() {
    for kind in KINDS {
        let case = |want| Case {
            joinable: Joinable::No,
            leads: true,
            ..Case::of(want)
        };
        let flying = case(MIDDLE).flight(5_000_000..BLOCK_4.end, None);
        assert!(matches!(flying.by(kind), Plan::Wait(_)));
        let elsewhere = case(LATE).flight(5_000_000..BLOCK_4.end, None);
        assert_eq!(elsewhere.by(kind), Plan::Replace(Reason::Unjoinable));
        let beyond = case(5_000_000..OPEN).flight(5_000_000..BLOCK_4.end, None);
        assert_eq!(beyond.by(kind), Plan::Replace(Reason::Unjoinable));
        let begun = Case {
            begun: true,
            ..elsewhere.clone()
        };
        assert_eq!(begun.by(kind), Plan::Cut);
        let large = Case {
            whole_max: MIB,
            ..elsewhere
        };
        assert_eq!(large.by(kind), Plan::Forward(Reason::TooLarge));
    }
}

#[test]
fn a_changing_object_is_fetched_whole_for_one_request() {
    for kind in KINDS {
        let case = |unsettled, case: Case| Case { unsettled, ..case }.by(kind);
        let first = Case::cold(MIDDLE);
        assert_eq!(case(Unsettled::Changing, first.clone()), fetch(&[0..OPEN]));
        let second = first.clone().flight(0..OPEN, None);
        assert_eq!(
            case(Unsettled::Changing, second.clone()),
            Plan::Forward(Reason::Changing)
        );
        assert_eq!(
            case(Unsettled::Flapping, second.clone()),
            Plan::Forward(Reason::Flapping)
        );
        let leads = Case {
            leads: true,
            ..second
        };
        assert_eq!(case(Unsettled::Flapping, leads), Plan::Wait(None));
        // The previous version had more than eight blocks, so the object is not fetched whole for a
        // request for a part.
        let large = Case {
            length: Some(10 * MIB),
            ..first
        };
        assert_eq!(
            case(Unsettled::Changing, large.clone()),
            Plan::Forward(Reason::Changing)
        );
        assert_eq!(case(Unsettled::Flapping, large), fetch(&[0..OPEN]));
        let there = Case::of(MIDDLE).have(BLOCK_4);
        assert_eq!(case(Unsettled::Changing, there), Plan::Wait(None));
        let part = Case::of(MIDDLE).have(0..MIB);
        assert_eq!(
            case(Unsettled::Flapping, part),
            Plan::Replace(Reason::Flapping)
        );
    }
}

#[test]
fn unusual_situations_have_a_plan() {
    let wants = [0..1, OPEN - 2..OPEN, 0..OPEN, OPEN - 2..OPEN - 1];
    for (kind, want) in KINDS
        .into_iter()
        .flat_map(|kind| wants.clone().map(|want| (kind, want)))
    {
        let cold = Case::cold(want.clone()).by(kind);
        assert!(
            matches!(cold, Plan::Fetch { .. }),
            "{kind:?} {want:?} {cold:?}"
        );
        let empty = Case {
            length: Some(0),
            ..Case::of(want)
        };
        assert_eq!(empty.by(kind), Plan::Wait(None));
    }
    let fetch_all: SmallVec<[Range<u64>; 2]> = smallvec![0..OPEN];
    let unlimited = Case {
        width: usize::MAX,
        spare: OPEN,
        ..Case::cold(0..OPEN)
    };
    let again = None;
    assert_eq!(
        unlimited.by(Kind::Auto),
        Plan::Fetch {
            ranges: fetch_all,
            again
        }
    );
}
