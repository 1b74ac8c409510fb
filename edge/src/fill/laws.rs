//! The laws that every fill policy keeps.

use std::ops::Range;

use proptest::prelude::*;
use smallvec::smallvec;

use super::{Kind, OPEN, Plan, Situation};
use crate::ranges::Ranges;

const KINDS: [Kind; 1] = [Kind::Whole];
const SPAN: u64 = 64;

fn a_range() -> impl Strategy<Value = Range<u64>> {
    (0..SPAN, 1..SPAN, prop::bool::weighted(0.2)).prop_map(|(start, size, open)| {
        let end = if open { OPEN } else { start + size };
        start..end
    })
}

fn some_ranges() -> impl Strategy<Value = Ranges> {
    prop::collection::vec(a_range(), 0..4).prop_map(Ranges::from_iter)
}

proptest! {
    #[test]
    fn wanted_bytes_are_covered_and_nothing_twice(
        want in a_range(), length in prop::option::of(1..2 * SPAN), have in some_ranges(),
        flying in some_ranges(), joinable in any::<bool>(),
    ) {
        // What is stored has an end, and lies before that of the representation.
        let end = length.unwrap_or(2 * SPAN);
        let have: Ranges = have.within(0..end).collect();
        let mut flying = flying;
        have.iter().for_each(|range| flying.remove(range));
        let situation = Situation {
            want: &want, length, have: &have, flying: &flying, joinable,
        };
        let wanted = situation.clip(want.clone());
        let mut coming = have.clone();
        coming.extend(flying.iter());
        for kind in KINDS {
            match kind.build().plan(&situation) {
                Plan::Wait => prop_assert!(coming.covers(&wanted)),
                Plan::Forward => {
                    prop_assert!(!coming.covers(&wanted), "what comes need not be forwarded");
                    prop_assert!(!joinable, "{:?} has no reason to forward", kind);
                }
                Plan::Fetch(ranges) => {
                    prop_assert!(!ranges.is_empty());
                    prop_assert!(joinable || coming.is_empty());
                    for range in ranges {
                        prop_assert!(!range.is_empty() && !coming.intersects(&range));
                        prop_assert!(range.end <= length.unwrap_or(OPEN));
                        coming.insert(range);
                    }
                    prop_assert!(coming.covers(&wanted));
                }
            }
        }
    }
}

/// The plan of `whole` for a want in a joinable object of 100 bytes.
fn whole(want: Range<u64>, have: &[Range<u64>], flying: &[Range<u64>]) -> Plan {
    let situation = Situation {
        want: &want,
        length: Some(100),
        have: &have.iter().cloned().collect(),
        flying: &flying.iter().cloned().collect(),
        joinable: true,
    };
    Kind::Whole.build().plan(&situation)
}

#[test]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "lists of one range are meant"
)]
fn whole_fetches_everything_once() {
    assert_eq!(whole(50..60, &[], &[]), Plan::Fetch(smallvec![0..100]));
    assert_eq!(whole(50..60, &[], &[0..OPEN]), Plan::Wait);
    assert_eq!(whole(50..60, &[0..55], &[55..OPEN]), Plan::Wait);
    assert_eq!(whole(50..60, &[50..60], &[]), Plan::Wait);
    assert_eq!(whole(0..OPEN, &[0..100], &[]), Plan::Wait);
    assert_eq!(
        whole(50..60, &[0..55], &[]),
        Plan::Fetch(smallvec![55..100])
    );
    let gaps = Plan::Fetch(smallvec![0..10, 20..40, 60..100]);
    assert_eq!(whole(0..OPEN, &[10..20], &[40..60]), gaps);
}

#[test]
fn whole_begins_open_where_the_length_is_unknown() {
    let (want, none, some) = (5..6, Ranges::new(), Ranges::from(0..3));
    let mut situation = Situation {
        want: &want,
        length: None,
        have: &none,
        flying: &none,
        joinable: false,
    };
    let policy = Kind::Whole.build();
    assert_eq!(policy.plan(&situation), Plan::Fetch(smallvec![0..OPEN]));
    situation.have = &some;
    assert_eq!(policy.plan(&situation), Plan::Forward);
    situation.joinable = true;
    assert_eq!(policy.plan(&situation), Plan::Fetch(smallvec![3..OPEN]));
}
