//! What an operator may see of an object: its bytes, its flights, what was decided lately.

use smallvec::SmallVec;

use super::claim::Claim;
use super::decisions::Decision;
use super::object::{Object, Phase};
use crate::ranges::Ranges;

/// An object as it is at one moment.
#[derive(Clone, Debug)]
pub struct ObjectSnapshot {
    /// Bytes that are in memory.
    pub stored: Ranges,
    /// Bytes that are known to be on volumes, by name.
    pub on_disk: Vec<(String, Ranges)>,
    /// Bytes that neither are there nor on their way; none where the length is not known.
    pub missing: Ranges,
    /// Complete length, once known.
    pub length: Option<u64>,
    /// When it was looked at, on the clock of the flights' times.
    pub now_us: u64,
    /// The flights under way.
    pub flights: Vec<Claim>,
    /// The last decisions, oldest first.
    pub decisions: Vec<Decision>,
    /// The sequence number at which its first flight began.
    pub born_seq: u64,
    /// The version; 0 without a strong validator.
    pub generation: u64,
    /// Whether its bytes are accounted and evicted by block.
    pub sparse: bool,
}

impl Object {
    /// Bytes that neither are there nor on their way; to `u64::MAX` where the length is not known.
    pub fn missing(&self) -> Ranges {
        let state = self.lock();
        let flying: Ranges = state.claims.iter().map(|c| c.at..c.end).collect();
        let have = state.have();
        let gaps = have.gaps(0..state.length.unwrap_or(u64::MAX));
        gaps.flat_map(|gap| flying.gaps(gap).collect::<SmallVec<[_; 2]>>())
            .collect()
    }

    /// What it is made of at `now_us`, by the clock that `Store::arrange` was given.
    pub fn snapshot(&self, now_us: u64) -> ObjectSnapshot {
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
            now_us,
            flights: state.claims.clone(),
            decisions: state
                .notes
                .as_ref()
                .map_or(Vec::new(), |notes| notes.list().to_vec()),
            born_seq: self.born_seq,
            generation: match &state.phase {
                Phase::Open(head) => head.generation,
                _ => 0,
            },
            sparse: state.block.is_some(),
        }
    }

    /// Remembers a decision among the last few.
    pub fn note(&self, decision: Decision) {
        let mut state = self.lock();
        let notes = state.notes.get_or_insert_default();
        if let Some(bytes) = notes.add(decision) {
            notes.pay(self.charge_note(bytes));
        }
    }
}
