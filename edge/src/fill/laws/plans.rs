//! Tests of the plans of each fill policy in typical situations.

use std::ops::Range;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::{Case, KIB, KINDS, MIB, MS, SECOND};
use crate::fill::{Joinable, Kind, OPEN, Options, Plan, ReadAhead, Unsettled, build};
use crate::reason::Reason;

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
    assert_eq!(by(&case), Plan::Wait(Some(200 * SECOND)));
    // A request whose first bytes are stored reads them and waits for a flight to fetch the others.
    let landed = Case::of(MIB - 5..2 * MIB)
        .have(0..MIB)
        .flight(MIB..OPEN, Some(MIB));
    assert_eq!(landed.by(Kind::Lock), Plan::Wait(None));
}

#[test]
fn lock_begins_another_fetch_once_the_running_one_is_old() {
    const AGE: Duration = Duration::from_secs(200);
    // The request's first bytes are stored, and the flight that is to deliver the others is idle.
    let mut case = Case::of(MIB - 5..2 * MIB)
        .have(0..MIB)
        .flight(MIB..OPEN, Some(MIB));
    case.flights[0].idle = AGE;
    assert_eq!(case.by(Kind::Lock), Plan::Replace(Reason::LockAge));
    // The response has begun: the rest is fetched when the client waits for it.
    case.begun = true;
    assert!(matches!(case.by(Kind::Lock), Plan::Wait(Some(_))));
    case.want.start = MIB;
    assert_eq!(case.by(Kind::Lock), Plan::Restart(Reason::LockAge));
    case.flights[0].idle = AGE / 4;
    assert_eq!(case.by(Kind::Lock), Plan::Wait(Some(AGE * 3 / 4)));
    let unjoinable = Case {
        joinable: Joinable::No,
        ..case
    };
    assert_eq!(unjoinable.by(Kind::Lock), Plan::Wait(None));
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
