//! A snapshot of an object for inspection: its bytes, its flights and recent decisions.

use smallvec::SmallVec;

use super::claim::Claim;
use super::decisions::Decision;
use super::disk_tier::disk_copy::DiskCopy;
use super::object::{Object, Phase, State};
use crate::ranges::Ranges;

/// The state of an object at one moment.
#[derive(Clone, Debug)]
pub struct ObjectSnapshot {
    /// Bytes that are in memory.
    pub stored: Ranges,
    /// Bytes on volumes, by the name of the volume.
    pub on_disk: Vec<(String, Ranges)>,
    /// Bytes that are neither in memory nor on a volume nor claimed by a flight; empty if the length is unknown.
    pub missing: Ranges,
    /// Complete length in bytes, if known.
    pub length: Option<u64>,
    /// Claims of the flights in progress.
    pub flights: Vec<Claim>,
    /// The last decisions, oldest first.
    pub decisions: Vec<Decision>,
    /// Generation of the stored response; 0 without a strong validator.
    pub generation: u64,
}

impl Object {
    /// Returns the bytes that are neither stored nor claimed by a flight; up to `u64::MAX` if the length is unknown.
    pub fn missing(&self) -> Ranges {
        let state = self.lock();
        let flying: Ranges = state.claims.iter().map(|c| c.at..c.end).collect();
        let have = state.have();
        let gaps = have.gaps(0..state.length.unwrap_or(u64::MAX));
        gaps.flat_map(|gap| flying.gaps(gap).collect::<SmallVec<[_; 2]>>())
            .collect()
    }

    /// Takes a snapshot of the object.
    pub fn snapshot(&self) -> ObjectSnapshot {
        let (mut snapshot, disk) = self.snapshot_of_memory();
        // The indexes of the volumes are searched without the object's lock, which readers need.
        if let Some(mut disk) = disk {
            snapshot.on_disk = disk.survey(snapshot.length);
            disk.there
                .iter()
                .for_each(|had| snapshot.missing.remove(had));
        }
        snapshot
    }

    /// Takes a snapshot in which bytes on volumes count as missing. Also returns what is known of the volumes.
    fn snapshot_of_memory(&self) -> (ObjectSnapshot, Option<DiskCopy>) {
        let state = self.lock();
        let flying: Ranges = state.claims.iter().map(|c| c.at..c.end).collect();
        let gaps = state.present.gaps(0..state.length.unwrap_or(0));
        let missing = gaps.flat_map(|gap| flying.gaps(gap).collect::<SmallVec<[_; 2]>>());
        let snapshot = ObjectSnapshot {
            stored: state.present.clone(),
            on_disk: Vec::new(),
            missing: missing.collect(),
            length: state.length,
            flights: state.claims.clone(),
            decisions: state
                .notes
                .as_ref()
                .map_or(Vec::new(), |notes| notes.list().to_vec()),
            generation: match &state.phase {
                Phase::Open(head) => head.generation,
                _ => 0,
            },
        };
        (snapshot, state.disk.as_deref().map(DiskCopy::seen))
    }
}

impl State {
    /// Adds a decision to the latest decisions about `object`, whose state this is; the oldest one is dropped if the list is full.
    pub(super) fn note(&mut self, decision: Decision, object: &Object) {
        let notes = self.notes.get_or_insert_default();
        if let Some(bytes) = notes.add(decision) {
            notes.pay(object.charge_note(bytes));
        }
    }
}
