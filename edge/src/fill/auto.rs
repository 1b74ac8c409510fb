//! Auto: a plain fetch of all of it where all is wanted, else and afterwards blocks.

use super::common::{Filling, View, begin};
use super::slice::Slice;
use super::{OPEN, Options, Plan};

pub(super) struct Auto(Slice);

impl Auto {
    pub(super) fn new(options: &Options) -> Auto {
        Auto(Slice::new(options))
    }
}

impl Filling for Auto {
    fn block(&self) -> u64 {
        self.0.block()
    }

    fn first(&self, view: &View<'_>) -> Plan {
        // A plain request costs no more than one for the first block if the object is small or its
        // origin knows no ranges; its far part can be taken over if it is neither. What was too
        // large the last time would be cut.
        let situation = view.situation;
        let large = situation
            .length
            .is_some_and(|length| length > situation.whole_max);
        match view.wants_all() && !large {
            true => begin(0..OPEN),
            false => self.0.first(view),
        }
    }

    fn more(&self, view: &View<'_>) -> Plan {
        self.0.more(view)
    }
}
