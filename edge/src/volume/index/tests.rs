//! Tests of the index: comparison with a map, and memory use.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn id(space: u64, key: u128, version: u64, kind: Kind) -> Id {
    Id {
        space,
        key,
        version,
        part: u32::from(kind == Kind::Block),
        kind,
    }
}

fn place(segment: u64, offset: u64, length: u64) -> RecordLocation {
    RecordLocation::new(segment, offset, length).expect("within a segment")
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Id, RecordLocation),
    Load(Id, RecordLocation),
    Remove(Id),
    RemoveIf(Id, RecordLocation),
    Move(Id, RecordLocation, RecordLocation),
    Touch(Id, RecordLocation),
    DropSegment(u16),
    Loaded,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![Just(Kind::Head), Just(Kind::Block)];
    let id = (0..2u64, 0..6u128, 0..3u64, kind).prop_map(|(s, k, v, kind)| id(s, k, v, kind));
    let place = (0..3u64, 0..4u64, 1..3u64).prop_map(|(s, o, l)| place(s, o * 64, l * 64));
    let both = (id.clone(), place.clone());
    let step = prop_oneof![
        4 => both.clone().prop_map(|(id, place)| Step::Insert(id, place)),
        4 => both.clone().prop_map(|(id, place)| Step::Load(id, place)),
        3 => id.prop_map(Step::Remove),
        2 => both.clone().prop_map(|(id, place)| Step::RemoveIf(id, place)),
        2 => (both.clone(), place).prop_map(|((id, a), b)| Step::Move(id, a, b)),
        2 => both.prop_map(|(id, place)| Step::Touch(id, place)),
        1 => (0..3u16).prop_map(Step::DropSegment),
        1 => Just(Step::Loaded),
    ];
    prop::collection::vec(step, 0..120)
}

#[derive(Default)]
struct Model {
    entries: HashMap<Id, (RecordLocation, bool)>,
    gone: Vec<Id>,
    is_loaded: bool,
}

impl Model {
    fn at(&mut self, id: &Id, place: RecordLocation) -> Option<&mut (RecordLocation, bool)> {
        self.entries.get_mut(id).filter(|entry| entry.0 == place)
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Insert(id, place) => {
                self.entries.insert(*id, (*place, false));
            }
            Step::Load(id, place) => {
                if !self.gone.contains(id) {
                    self.entries.entry(*id).or_insert((*place, false));
                }
            }
            Step::Remove(id) => {
                self.entries.remove(id);
                self.gone.push(*id);
            }
            Step::RemoveIf(id, place) => {
                if self.at(id, *place).is_some() || !self.entries.contains_key(id) {
                    self.entries.remove(id);
                    self.gone.push(*id);
                }
            }
            Step::Move(id, from, to) => {
                if let Some(entry) = self.at(id, *from) {
                    *entry = (*to, false);
                }
            }
            Step::Touch(id, place) => {
                if let Some(entry) = self.at(id, *place) {
                    entry.1 = true;
                }
            }
            Step::DropSegment(segment) => {
                self.entries.retain(|_, entry| entry.0.segment != *segment);
            }
            Step::Loaded => self.is_loaded = true,
        }
        if self.is_loaded {
            self.gone.clear();
        }
    }
}

fn apply(index: &Index, step: &Step) {
    match step {
        Step::Insert(id, place) => index.insert(id, *place, 1),
        Step::Load(id, place) => _ = index.insert_if_absent(id, *place, 1),
        Step::Remove(id) => _ = index.remove(id),
        Step::RemoveIf(id, place) => _ = index.remove_if(index.key(id), *place),
        Step::Move(id, from, to) => _ = index.move_if(index.key(id), *from, *to),
        Step::Touch(id, place) => index.touch(index.key(id), *place, 2),
        Step::DropSegment(segment) => index.drop_all_of(*segment),
        Step::Loaded => index.set_loaded(),
    }
}

proptest! {
    #[test]
    fn the_index_acts_like_a_map(steps in steps()) {
        let (index, mut model) = (Index::new(3), Model::default());
        for step in &steps {
            apply(&index, step);
            model.apply(step);
            prop_assert_eq!(index.records(), model.entries.len() as u64);
            let bytes: u32 = model.entries.values().map(|entry| entry.0.length()).sum();
            prop_assert_eq!(index.live_bytes(), u64::from(bytes));
        }
        for (id, (place, used)) in &model.entries {
            let found = index.find(id).expect("it is there");
            prop_assert_eq!(RecordLocation::from(&found), *place);
            let atime = if *used { 2 } else { 1 };
            let usage = index.usage(index.key(id), *place).expect("it is there");
            prop_assert_eq!(usage.used, *used);
            prop_assert!(usage.atime >= atime);
        }
        for (space, key) in (0..2).flat_map(|space| (0..6).map(move |key| (space, key))) {
            let mut tags: Vec<u32> = index.heads(space, key).iter().map(|f| f.tag).collect();
            tags.sort_unstable();
            let heads = (0..3).filter(|version| {
                model.entries.contains_key(&id(space, key, *version, Kind::Head))
            });
            prop_assert_eq!(tags, heads.map(|version| version as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_location_is_decoded_from_its_bits(s in 0..65536u64, o in 0..1u64 << 20, l in 0..1u64 << 20) {
        let place = place(s, o * 64, l * 64);
        let mut packed = Packed::new(place, 15, Kind::Head);
        packed.set_used(true);
        prop_assert_eq!((packed.location(), packed.class(), packed.kind()), (place, 15, Kind::Head));
        prop_assert!(packed.used() && packed.is_at(place));
        let unused = Packed::new(place, 0, Kind::Block);
        prop_assert_eq!((unused.location(), unused.class(), unused.kind()), (place, 0, Kind::Block));
    }
}

#[test]
fn locations_outside_a_segment_are_refused() {
    assert!(RecordLocation::new(1 << 16, 0, 64).is_none());
    assert!(RecordLocation::new(0, 64 << 20, 64).is_none());
    assert!(RecordLocation::new(0, 0, 64 << 20).is_none());
    assert!(RecordLocation::new(0, 65, 64).is_none());
    assert_eq!(place(0, 64, 65).length(), 128);
}

/// Returns the maximum number of bytes per record while an index grows to `records` records, including tables that are being replaced.
fn worst(records: u64) -> f64 {
    let index = Index::new(16);
    let mut worst = 0.0f64;
    for n in 0..records {
        let id = id(1, u128::from(n), 0, Kind::Head);
        let hash = index.key(&id).hash;
        let size = || index.shard(hash).lock().entries.allocation_size();
        let before = size();
        index.insert(&id, place(0, 0, 64), 0);
        // Small indexes are left out, since their shards alone use most of the memory.
        if size() != before && n > records / 4 {
            worst = worst.max((index.memory() + before) as f64 / n as f64);
        }
    }
    worst
}

#[test]
fn the_last_shards_get_twice_as_many_as_the_first() {
    let mut counts = [0; SHARDS];
    for even in 0..1u64 << 16 {
        counts[shard_of(even << 40 | 0xff)] += 1;
    }
    let (first, last) = (&counts[..64], &counts[SHARDS - 64..]);
    let ratio = last.iter().sum::<u32>() as f64 / first.iter().sum::<u32>() as f64;
    assert!((1.7..=2.3).contains(&ratio), "{ratio}");
    assert!(counts.iter().all(|count| (40..=110).contains(count)));
    assert_eq!(shard_of(u64::MAX), SHARDS - 1);
}

#[test]
fn a_record_takes_at_most_eighty_bytes_while_tables_grow() {
    assert_eq!(size_of::<Entry>(), 24);
    let worst = worst(400_000);
    assert!((25.0..=50.0).contains(&worst), "{worst} bytes a record");
}

#[test]
fn churn_does_not_make_tables_grow() {
    let index = Index::new(16);
    let at = place(0, 0, 64);
    let new = |n: u64| id(1, u128::from(n), 0, Kind::Head);
    let count = 80_000u64;
    index.set_loaded();
    for n in 0..6 * count {
        index.insert(&new(n), at, 0);
        if n >= count {
            assert!(index.remove(&new(n - count)).is_some());
        }
    }
    assert_eq!(index.records(), count);
    let each = index.memory() as f64 / count as f64;
    assert!(each <= 66.0, "{each} bytes a record");
    for n in 5 * count..6 * count - 100 {
        index.remove(&new(n));
    }
    assert!(
        index.memory() < 700_000,
        "emptied, it gives its memory back"
    );
}

#[test]
fn inactive_entries_are_found() {
    let index = Index::new(16);
    let at = |n: u64| place(0, n * 64, 64);
    for n in 0..10_000 {
        // Inserts records of two caches. Every tenth one is newer, and every tenth one has been read.
        let id = id(n % 2, u128::from(n), 0, Kind::Head);
        index.insert(&id, at(n), if n % 10 == 0 { 50 } else { 0 });
        if n % 10 == 1 {
            index.touch(index.key(&id), at(n), 60);
        }
    }
    let swept = |now| {
        let mut cursor = Cursor::default();
        std::iter::from_fn(|| index.inactive(&mut cursor, now))
            .flatten()
            .count()
    };
    assert_eq!(swept(1_000_000), 0);
    index.set_inactive(0, 100);
    assert_eq!(
        (swept(99), swept(100), swept(149), swept(150)),
        (0, 4000, 4000, 5000)
    );
    index.set_inactive(1, 100);
    assert_eq!(swept(100), 8000);
    index.set_inactive(1, 0);
    assert_eq!(swept(100), 4000);
}

#[test]
fn a_found_record_has_the_lap_of_its_segment() {
    let index = Index::new(4);
    let id = id(1, 2, 3 << 32 | 4, Kind::Block);
    index.set_lap(3, 7);
    index.insert(&id, place(3, 128, 100), 0);
    let found = index.find(&id).expect("it is there");
    let expected = Found {
        tag: 4,
        segment: 3,
        lap: 7,
        offset: 128,
        length: 128,
    };
    assert_eq!(found, expected);
    index.drop_segment([(id, place(3, 0, 64))].into_iter());
    assert!(index.find(&id).is_some(), "it is not at that place");
    index.drop_segment([(id, place(3, 128, 128))].into_iter());
    assert!(index.find(&id).is_none());
}

#[test]
fn a_lost_record_is_remembered_until_the_log_has_a_newer_one() {
    let index = Index::new(3);
    let at = place(0, 0, 64);
    let lose = |key: u128| {
        let id = id(1, key, 0, Kind::Head);
        index.insert(&id, at, 1);
        assert!(index.lose(index.key(&id), at));
        id
    };
    // Loses and forgets records one after the other: their number is not limited.
    for key in 0..LOST_MAX as u128 + 5 {
        let id = lose(key);
        assert!(index.is_lost(&id));
        match key % 2 {
            0 => index.insert(&id, at, 2),
            _ => index.forget_lost(index.key(&id)),
        }
        assert!(!index.is_lost(&id));
    }
    // Loses more records than are remembered, without forgetting any: then every record counts as possibly lost.
    for key in 0..=LOST_MAX as u128 {
        lose(key);
    }
    assert!(index.is_lost(&id(1, u128::MAX, 0, Kind::Head)));
}
