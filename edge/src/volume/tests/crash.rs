//! Tests with a power failure at every write of a workload, and again in the run after it. No deleted record may reappear, no older version
//! and no wrong bytes may be read, and no purge may be lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::*;
use super::rig::{Rig, block, content, head};
use super::{LONG, SIZE};
use crate::sys::disk::simulated::Simulated;
use sluice_lab::soak;

const SPACE: u64 = 7;

/// The records that may be found after a power failure, and the purges that must be found.
#[derive(Clone, Default)]
struct Model {
    /// The possible states of each id after a power failure, oldest first. A state is the length of the record, or `None` if there is no
    /// record.
    ids: BTreeMap<u128, Vec<Option<usize>>>,
    /// Numbers of the records written or deleted since the last flush.
    unflushed: Vec<u128>,
    /// Numbers of the records flushed lately, oldest first, which the log does not overwrite soon.
    recent: Vec<u128>,
    /// Numbers of the acknowledged purges.
    purges: Vec<u64>,
    /// Numbers of the purges that were not acknowledged.
    tried: Vec<u64>,
    sequence: u64,
    number: u64,
}

/// Returns the id of a record: every seventh one is a block of several pages, the others are heads.
fn id(number: u128) -> Id {
    match number % 7 {
        0 => block(number, 3),
        _ => head(number, 1),
    }
}

fn length(number: u128, version: usize) -> usize {
    match number % 7 {
        0 => [100_000, 150_000, 300_000][version % 3],
        _ => 20_000 + 100 * version,
    }
}

impl Model {
    fn put(&mut self, rig: &Rig, volume: &Volume, number: u128, version: usize) {
        let length = length(number, version);
        rig.put(volume, id(number), length);
        self.ids.entry(number).or_default().push(Some(length));
        self.unflushed.push(number);
    }

    fn forget(&mut self, volume: &Volume, number: u128) {
        volume.forget(&id(number));
        assert_eq!(volume.find(&id(number)), None);
        self.ids.entry(number).or_default().push(None);
        self.unflushed.push(number);
    }

    /// Flushes the volume. The states before the flush are then final, unless the power has failed.
    fn flush(&mut self, rig: &Rig, volume: &Volume) {
        volume.flush();
        if rig.device.is_dead() {
            return;
        }
        for number in self.unflushed.drain(..) {
            if let Some(states) = self.ids.get_mut(&number) {
                states.drain(..states.len() - 1);
            }
            self.recent.retain(|other| *other != number);
            self.recent.push(number);
        }
        let old = self.recent.len().saturating_sub(10);
        self.recent.drain(..old);
    }

    fn purge(&mut self, volume: &Volume) {
        self.number = self.number.max(volume.sequence()) + 1;
        let text = self.number.to_le_bytes().repeat(40);
        match volume.log_purge(SPACE, self.number, &text) {
            Ok(()) => self.purges.push(self.number),
            Err(_) => self.tried.push(self.number),
        }
    }

    fn drop_some_purges(&mut self, volume: &Volume) {
        let Some(upto) = self.purges.iter().rev().nth(20).copied() else {
            return;
        };
        volume.drop_purges(SPACE, upto);
        // Dropped purges may be found after a power failure, which is harmless, so they move to the unacknowledged ones.
        let dropped = self.purges.iter().filter(|number| **number <= upto);
        self.tried.extend(dropped);
        self.purges.retain(|number| *number > upto);
    }

    /// Checks that the content after a power failure is possible, and makes it the model's state.
    /// `sample` selects the old records that are read.
    fn check(&mut self, rig: &Rig, volume: &Volume, sample: u64) {
        let reads_all = soak::factor() > 1;
        rig.wait_loaded(volume);
        assert!(volume.is_up(), "{:?}", volume.status());
        assert!(volume.sequence() > self.sequence, "numbers come twice");
        self.sequence = volume.sequence();
        self.check_purges(volume);
        self.unflushed.clear();
        for (number, states) in &mut self.ids {
            let is_there = volume.find(&id(*number)).is_some();
            // Only one in 16 of the records with a single possible state is read, to save time; in a
            // soak, all are.
            if let [Some(length)] = states[..]
                && !reads_all
                && number % 16 != u128::from(sample % 16)
                && !self.recent.contains(number)
            {
                *states = vec![is_there.then_some(length)];
                continue;
            }
            let found = rig.read(volume, id(*number)).ok();
            let length = found.as_ref().map(|(_, data)| data.len());
            if let Some(found) = found {
                assert!(
                    states.contains(&length),
                    "{number} is {length:?} and can only be {states:?}"
                );
                assert!(found == content(id(*number), found.1.len()), "other bytes");
            }
            let is_recent = self.recent.contains(number) && states.len() == 1;
            assert!(!is_recent || states[0] == length, "{number} is lost");
            *states = vec![length];
        }
    }

    fn check_purges(&mut self, volume: &Volume) {
        let logged: Vec<u64> = volume.purges(SPACE).iter().map(|p| p.number).collect();
        for number in &self.purges {
            assert!(logged.contains(number), "a purge is lost");
            assert!(volume.purged_upto(SPACE) >= Some(*number));
        }
        for rule in volume.purges(SPACE) {
            let known = self.purges.contains(&rule.number) || self.tried.contains(&rule.number);
            assert!(known, "a purge that never was");
            assert_eq!(*rule.text, *rule.number.to_le_bytes().repeat(40));
            if !self.purges.contains(&rule.number) {
                self.purges.push(rule.number);
            }
        }
        self.purges.sort_unstable();
        self.tried.clear();
    }
}

/// Returns a device whose volume was written for slightly more than one pass over all segments, and its model.
fn filled() -> (Arc<Simulated>, Model) {
    let rig = Rig::new(SIZE);
    let mut model = Model::default();
    let volume = rig.open();
    for number in 0..500 {
        model.put(&rig, &volume, number, 0);
        if number % 20 == 19 {
            model.flush(&rig, &volume);
        }
    }
    for _ in 0..300 {
        model.purge(&volume);
        model.drop_some_purges(&volume);
    }
    assert!(volume.status().numbers.laps >= 1);
    model.sequence = volume.sequence();
    volume.close(LONG);
    (rig.device.kill(), model)
}

/// Writes two and a half segments, with new records, new versions, tombstones, reads and purges.
fn work(rig: &Rig, volume: &Volume, model: &mut Model, life: u128) {
    for step in 0..14u128 {
        if rig.device.is_dead() {
            return;
        }
        for n in 0..4 {
            model.put(rig, volume, 1_000 * life + 4 * step + n, 0);
        }
        // Writes new versions of old records, deletes records, and writes one of these again.
        model.put(rig, volume, 400 + step, 1 + life as usize);
        model.forget(volume, 430 + 3 * step + life);
        if step % 3 == 0 {
            model.flush(rig, volume);
            model.put(rig, volume, 430 + 3 * step + life, 2);
            model.forget(volume, 1_000 * life + 4 * step);
        }
        // Reads the records that are about to be overwritten, so that they are copied.
        for old in (step..400).step_by(40) {
            let _ = rig.read(volume, id(old));
        }
        if step % 2 == 1 {
            model.flush(rig, volume);
        }
        (0..3).for_each(|_| model.purge(volume));
        model.drop_some_purges(volume);
    }
    model.flush(rig, volume);
}

#[test]
fn power_failures_at_every_write_lose_nothing_acknowledged() {
    let (image, model) = filled();
    let image = image.content();
    let total = {
        let rig = Rig::on(Simulated::of(image.clone()), SIZE);
        let volume = rig.open();
        let mut model = model.clone();
        model.check(&rig, &volume, 0);
        work(&rig, &volume, &mut model, 1);
        assert!(
            volume.status().numbers.rewritten_bytes > 0,
            "nothing was reclaimed"
        );
        drop(volume);
        rig.device.counts().writes
    };
    assert!(total > 50, "{total} writes");
    // In a soak, each power failure has several outcomes: each sector keeps another of its writes.
    let outcomes = u64::from(soak::factor());
    for (cut, outcome) in (0..total).flat_map(|cut| (0..outcomes).map(move |n| (cut, n))) {
        let seed = cut + outcome * 1_000_003;
        let mut model = model.clone();
        let mut device = Simulated::of(image.clone());
        // In a third of the cases, or in all cases of a soak, the second run ends with a power failure, too. The last run only checks
        // the content.
        let twice = cut % 3 == 0 || outcomes > 1;
        let lives = [(1, cut), (2, cut * 7 % total)];
        for (life, writes) in lives.into_iter().take(1 + twice as usize) {
            device.crash_after(writes);
            let rig = Rig::on(Arc::clone(&device), SIZE);
            if let Ok(volume) = rig.try_open() {
                if volume.is_up() {
                    model.sequence = model.sequence.max(volume.sequence());
                    work(&rig, &volume, &mut model, life);
                }
                drop(volume);
            }
            device = rig.device.crash(seed * 31 + life as u64);
            let after = Rig::on(device.kill(), SIZE);
            let volume = after.open();
            model.check(&after, &volume, cut);
            drop(volume);
            device = after.device.crash(seed);
        }
    }
}

#[test]
fn power_failures_during_creation_are_survived() {
    for before in [Vec::new(), filled().0.content()] {
        let size = if before.is_empty() { SIZE } else { 2 * SIZE };
        for (cut, seed) in (0..6).flat_map(|cut| (0..2).map(move |seed| (cut, seed))) {
            let rig = Rig::on(Simulated::of(before.clone()), size);
            rig.device.crash_after(cut);
            drop(rig.try_open());
            let again = Rig::on(rig.device.crash(seed), size);
            let volume = again.open();
            assert!(volume.is_up());
            again.wait_loaded(&volume);
            assert_eq!(volume.status().numbers.records, 0);
            assert!(volume.purges(SPACE).is_empty());
        }
    }
}
