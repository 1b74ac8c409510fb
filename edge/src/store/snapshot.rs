//! A snapshot of an object for inspection: its bytes, its flights and recent decisions.

use smallvec::SmallVec;

use super::claim::Claim;
use super::decisions::Decision;
use super::object::{Object, Phase, State};
use crate::ranges::Ranges;

/// The state of an object at one moment.
#[derive(Clone, Debug)]
pub struct ObjectSnapshot {
    /// Bytes that are in memory.
    pub stored: Ranges,
    /// Bytes known to be on volumes, by the name of the volume.
    pub on_disk: Vec<(String, Ranges)>,
    /// Bytes that are neither stored nor claimed by a flight; empty if the length is unknown.
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
        let disk = self.lock().disk.as_ref().map(|disk| disk.seen());
        let on_disk = disk.map_or(Vec::new(), |disk| disk.survey(self.length()));
        let state = self.lock();
        let flying: Ranges = state.claims.iter().map(|c| c.at..c.end).collect();
        let have = state.have();
        let gaps = have.gaps(0..state.length.unwrap_or(0));
        let missing = gaps.flat_map(|gap| flying.gaps(gap).collect::<SmallVec<[_; 2]>>());
        ObjectSnapshot {
            stored: state.present.clone(),
            on_disk,
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
        }
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
