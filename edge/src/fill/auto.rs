//! The fill policy `auto`: one fetch of the whole object if all of it is wanted; otherwise fetches
//! of blocks.

use super::common::{FillRules, View, begin};
use super::policy::{OPEN, Options, Plan};
use super::slice::Slice;

pub(super) struct Auto(Slice);

impl Auto {
    pub(super) fn new(options: &Options) -> Auto {
        Auto(Slice::new(options))
    }
}

impl FillRules for Auto {
    fn block(&self) -> u64 {
        self.0.block()
    }

    fn first(&self, view: &View<'_>) -> Plan {
        // For a small object, or if the origin does not support ranges, requesting the whole costs
        // no more than requesting the first block. For a large object, other flights can later take
        // over the far part of the fetch. If the previous version was too large to be stored, a
        // fetch of the whole would be aborted.
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
