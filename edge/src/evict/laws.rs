//! Tests of properties that hold for every eviction policy, and tests of the individual policies.

use proptest::prelude::*;

use super::replay::Places;
use super::{Kind, Policy};

const KINDS: [Kind; 2] = [Kind::S3Fifo, Kind::Lru];

#[derive(Clone, Debug)]
enum Step {
    Track(u32, u64),
    Touch(u32),
    Resize(u32, u64),
    Forget(u32),
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0..24u32;
    let weight = 0..1000u64;
    let step = prop_oneof![
        4 => (id.clone(), weight.clone()).prop_map(|(id, weight)| Step::Track(id, weight)),
        4 => id.clone().prop_map(Step::Touch),
        1 => (id.clone(), weight).prop_map(|(id, weight)| Step::Resize(id, weight)),
        1 => id.prop_map(Step::Forget),
        2 => Just(Step::Evict),
    ];
    prop::collection::vec(step, 0..200)
}

/// The model that policies are compared with, an exact LRU: ids and weights in the order of their last use.
#[derive(Default)]
struct Model(Vec<(u32, u64)>);

impl Model {
    fn take(&mut self, id: u32) -> Option<u64> {
        let at = self.0.iter().position(|(i, _)| *i == id)?;
        Some(self.0.remove(at).1)
    }

    fn weight(&self) -> u64 {
        self.0.iter().map(|(_, weight)| weight).sum()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Track(id, weight) => {
                self.take(id);
                self.0.push((id, weight));
            }
            Step::Touch(id) => {
                if let Some(weight) = self.take(id) {
                    self.0.push((id, weight));
                }
            }
            Step::Resize(id, weight) => {
                if let Some(entry) = self.0.iter_mut().find(|(i, _)| *i == id) {
                    entry.1 = weight;
                }
            }
            Step::Forget(id) => {
                self.take(id);
            }
            Step::Evict => {}
        }
    }
}

/// Applies a step to a policy. Returns the id that was evicted, if any.
fn apply(policy: &mut dyn Policy, step: &Step) -> Option<u32> {
    match *step {
        Step::Track(id, weight) => policy.track(id, u64::from(id), weight),
        Step::Touch(id) => policy.touch(id),
        Step::Resize(id, weight) => policy.resize(id, weight),
        Step::Forget(id) => policy.forget(id),
        Step::Evict => return policy.evict(),
    }
    None
}

proptest! {
    #[test]
    fn victims_are_tracked_and_weights_add_up(steps in steps()) {
        for kind in KINDS {
            let (mut policy, mut model) = (kind.build(), Model::default());
            for step in &steps {
                let victim = apply(&mut *policy, step);
                if let Step::Evict = step {
                    prop_assert_eq!(victim.is_none(), model.0.is_empty());
                }
                if let Some(id) = victim {
                    prop_assert!(model.take(id).is_some(), "{:?} gave untracked {}", kind, id);
                }
                model.apply(step);
                prop_assert_eq!(policy.len(), model.0.len());
                prop_assert_eq!(policy.is_empty(), model.0.is_empty());
                prop_assert_eq!(policy.weight(), model.weight());
            }
            while let Some(id) = policy.evict() {
                prop_assert!(model.take(id).is_some(), "{:?} gave {} twice", kind, id);
            }
            prop_assert!(model.0.is_empty(), "{:?} lost {:?}", kind, model.0);
            prop_assert_eq!((policy.len(), policy.weight()), (0, 0));
        }
    }

    #[test]
    fn lru_evicts_in_the_order_of_last_use(steps in steps()) {
        let (mut policy, mut model) = (Kind::Lru.build(), Model::default());
        for step in &steps {
            let oldest = model.0.first().map(|(id, _)| *id);
            if let Step::Evict = step {
                prop_assert_eq!(policy.evict(), oldest);
                oldest.and_then(|id| model.take(id));
            } else {
                apply(&mut *policy, step);
                model.apply(step);
            }
        }
    }
}

#[test]
fn memory_is_bounded_by_the_ids_in_use() {
    for kind in KINDS {
        let mut policy = kind.build();
        for round in 0..100_000u64 {
            let id = (round % 1000) as u32;
            policy.track(id, round, 1);
            if policy.len() > 900 {
                policy.evict();
            }
        }
        let each = policy.memory() / 1000;
        assert!(each <= 160, "{kind:?} holds {each} bytes an id");
    }
}

#[test]
fn weights_near_the_largest_do_not_overflow() {
    for kind in KINDS {
        let mut policy = kind.build();
        for id in 0..4 {
            policy.track(id, u64::from(id), u64::MAX);
            policy.resize(id, u64::MAX - 1);
        }
        assert_eq!(std::iter::from_fn(|| policy.evict()).count(), 4);
    }
}

#[test]
fn a_scan_of_keys_used_once_does_not_evict_hot_keys() {
    let kept = |kind| {
        let mut cache = Places::new(kind, 1000);
        for _ in 0..4 {
            (0..500).for_each(|key| {
                cache.ask(key);
            });
        }
        for key in 1_000_000..1_020_000 {
            cache.ask(key);
        }
        (0..500).filter(|key| cache.has(*key)).count()
    };
    // S3-FIFO may evict a few often used keys, while all of them are still moving from the small queue to the main queue.
    assert!(kept(Kind::S3Fifo) >= 490);
    assert_eq!(kept(Kind::Lru), 0);
}

#[test]
fn keys_that_return_soon_are_kept_in_main() {
    let mut cache = Places::new(Kind::S3Fifo, 100);
    (0..200).for_each(|key| {
        cache.ask(key);
    });
    // Keys from about 100 on are still cached. Key 95 was evicted recently, so its ghost is remembered when it returns.
    assert!(!cache.ask(95));
    for key in 1000..1500 {
        cache.ask(key);
    }
    assert!(cache.ask(95));
}

/// A generator of Zipf-distributed numbers with a fixed seed.
struct Zipf {
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        Zipf {
            sums,
            state: 0x2545_f491_4f6c_dd1d,
        }
    }

    fn next(&mut self) -> u32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let unit = (self.state >> 11) as f64 / (1u64 << 53) as f64;
        let at = unit * self.sums.last().copied().unwrap_or_default();
        self.sums.partition_point(|sum| *sum < at) as u32
    }
}

#[test]
fn s3_fifo_hits_more_often_than_lru_on_zipf() {
    let hits = |kind| {
        let (mut cache, mut zipf) = (Places::new(kind, 1000), Zipf::new(20_000, 0.9));
        (0..200_000).filter(|_| cache.ask(zipf.next())).count()
    };
    let (s3_fifo, lru) = (hits(Kind::S3Fifo), hits(Kind::Lru));
    assert!(s3_fifo as f64 > 1.1 * lru as f64, "{s3_fifo} to {lru}");
}
