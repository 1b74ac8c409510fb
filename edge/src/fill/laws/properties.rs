//! Properties that the plans of all fill policies must have, tested with random situations.

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;

use super::{Case, KIB, KINDS, MIB, MS, NEVER, SECOND};
use crate::fill::{Flight, Joinable, Kind, OPEN, Options, Plan, ReadAhead, Unsettled, build};
use crate::ranges::Ranges;
use crate::reason::Reason;

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
        Plan::Restart(why) => {
            prop_assert_eq!(*why, Reason::LockAge);
            prop_assert!(case.begun && !case.leads && coming && options.kind == Kind::Lock);
            prop_assert!(case.joinable == Joinable::Yes && !missing.is_empty());
            prop_assert!(case.flights.iter().any(|f| f.idle >= options.lock_age));
        }
        Plan::Cut => prop_assert!(case.begun && case.joinable == Joinable::No && !coming),
        Plan::Fetch { .. } => prop_assert!(false),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096 * sluice_lab::soak::factor()))]
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
