//! The laws of Space-Saving: its bounds hold for every stream, also after merging.

use std::collections::HashMap;
use std::hash::BuildHasher;

use proptest::prelude::*;

use super::*;

type Stream = Vec<(u8, u32)>;

fn streams() -> impl Strategy<Value = Stream> {
    prop::collection::vec((0..40_u8, 0..1000_u32), 0..400)
}

/// Returns a sketch of a stream and the true sums of its keys.
fn run(stream: &[(u8, u32)], capacity: usize) -> (SpaceSaving, HashMap<String, u64>) {
    let hasher = foldhash::fast::FixedState::default();
    let (mut sketch, mut sums) = (SpaceSaving::new(capacity), HashMap::new());
    for (key, weight) in stream {
        // Some keys share a hash.
        let (key, weight) = (format!("k{key}"), u64::from(*weight));
        let hash = hasher.hash_one(key.len()) ^ (hasher.hash_one(&key) & 0xf0);
        let own = Sums {
            requests: weight,
            ..Sums::default()
        };
        sketch.add((hash, &key), weight, &own, &mut || key.as_str().into());
        *sums.entry(key).or_default() += weight;
    }
    (sketch, sums)
}

/// Checks that each listed key has its true sum within its bounds, and every other key at most
/// `others_max`.
fn check(listed: &[Listed], others_max: u64, sums: &HashMap<String, u64>) {
    for one in listed {
        let truth = sums.get(&*one.key).copied().unwrap_or(0);
        assert!(one.count >= truth && one.count - one.error <= truth);
        assert!(one.sums.requests <= truth);
    }
    for (key, sum) in sums {
        let is_listed = listed.iter().any(|one| *one.key == **key);
        assert!(is_listed || *sum <= others_max);
    }
}

proptest! {
    #[test]
    fn bounds_hold_for_every_stream(stream in streams(), capacity in 1..50_usize, most in 0..50_usize) {
        let (sketch, sums) = run(&stream, capacity);
        let all = sketch.summary(capacity);
        check(&all.listed, all.others_max, &sums);
        let total: u64 = sums.values().sum();
        prop_assert_eq!(all.listed.iter().map(|one| one.count).sum::<u64>(), total);
        prop_assert!(all.others_max <= total / capacity as u64);
        let few = sketch.summary(most);
        prop_assert!(few.listed.len() <= most);
        check(&few.listed, few.others_max, &sums);
        prop_assert!(few.listed.windows(2).all(|two| two[0].count >= two[1].count));
    }

    #[test]
    fn with_room_for_all_keys_every_sum_is_exact(stream in streams()) {
        let (sketch, sums) = run(&stream, 40);
        let all = sketch.summary(40);
        prop_assert_eq!(all.others_max, 0);
        for one in &all.listed {
            prop_assert_eq!((one.count, one.error, one.sums.requests), (sums[&*one.key], 0, one.count));
        }
    }

    #[test]
    fn bounds_hold_after_merging(parts in prop::collection::vec(streams(), 0..4), capacity in 1..30_usize, most in 1..30_usize) {
        let mut sums: HashMap<String, u64> = HashMap::new();
        let mut summaries = Vec::new();
        for part in &parts {
            let (sketch, own) = run(part, capacity);
            summaries.push(sketch.summary(most));
            for (key, sum) in own {
                *sums.entry(key).or_default() += sum;
            }
        }
        let merged = merge(summaries.iter());
        let others_max = summaries.iter().map(|one| one.others_max).sum();
        check(&merged, others_max, &sums);
    }
}

#[test]
fn a_cleared_sketch_is_empty() {
    let (mut sketch, _) = run(&[(1, 1), (2, 2), (3, 3)], 2);
    sketch.clear();
    let summary = sketch.summary(9);
    assert!(summary.listed.is_empty() && summary.others_max == 0);
}
