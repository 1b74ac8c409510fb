//! Interim (1xx) heads of a running fetch, for the readers that wait for its final head. They are
//! never stored: the object drops them as soon as it has a head.

use super::landing::Landing;
use super::object::{Object, Phase, Rider, State, wakes_of};
use super::rare::{KeptInterim, Rare};
use super::reader::Reader;
use crate::http::{FieldBlock, InterimHeads, Status};

/// Memory charged for a head in addition to its header lines, in bytes.
const HEAD_BYTES: u64 = 128;

impl Landing {
    /// Passes a 1xx head on to the readers that wait for this fetch. While the object has no head,
    /// these are all readers, including those that arrive later.
    pub fn forward_interim(&self, status: Status, fields: &FieldBlock) {
        self.object().forward_interim(self.id(), status, fields);
    }
}

impl Object {
    fn forward_interim(&self, id: u64, status: Status, fields: &FieldBlock) {
        let mut state = self.lock();
        let State {
            phase,
            claims,
            riders,
            rare,
            ..
        } = &mut *state;
        let Some(claim) = claims.iter().find(|claim| claim.id == id) else {
            return;
        };
        let awaiting = matches!(phase, Phase::Awaiting);
        if awaiting {
            let rare: &mut Rare<Object> = rare.get_or_insert_default();
            let kept = rare.interim.get_or_insert_with(|| KeptInterim {
                heads: InterimHeads::default(),
                charge: self.charge_beside(0),
            });
            if kept.heads.push(status, fields.clone()) {
                let bytes = fields.memory() as u64 + HEAD_BYTES;
                kept.charge.absorb(self.charge_beside(bytes));
            }
        }
        let waits = |rider: &Rider| awaiting || claim.contains(rider.at);
        for (_, rider) in riders.iter_mut().filter(|(_, rider)| waits(rider)) {
            let interim: &mut InterimHeads = rider.interim.get_or_insert_default();
            interim.push(status, fields.clone());
        }
        let wakes = wakes_of(riders, waits);
        drop(state);
        wakes.wake();
    }
}

impl State {
    /// Returns the 1xx heads for a reader that begins to wait.
    pub(super) fn interim_so_far(&self) -> Option<Box<InterimHeads>> {
        match self.phase {
            Phase::Awaiting => {
                let kept = self.rare.as_ref()?.interim.as_ref()?;
                Some(Box::new(kept.heads.clone()))
            }
            _ => None,
        }
    }
}

impl Reader {
    /// Removes and returns the 1xx heads that were received for this reader.
    pub fn take_interim(&mut self) -> Option<Box<InterimHeads>> {
        let mut state = self.object().lock();
        state.riders[self.rider()?].interim.take()
    }
}
