//! What is kept on volumes: which volumes get an object, what is admitted, and how it is found again.
//!
//! An object on a volume is a head and blocks. Small whole objects are a head with their content
//! in it. Blocks are found by what names their version, so that a head that was lost and fetched
//! again finds them. Bytes come from a volume as they come from an origin: into pages that a claim
//! was made for.

mod admission;
mod durable_purge;
mod known;
mod meta;
pub mod placement;
mod reads;
mod recall;
mod usage;
mod writing;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use admission::RecentKeys;
pub use durable_purge::{DurablePurge, NotDurable};
pub use placement::{Kind as PlacementKind, Placement};
pub use reads::DiskRead;
pub use recall::Recall;

use super::head::Head;
use super::ledger::Charge;
use super::object::Object;
use super::sync::Mutex;
use super::table::{TableKey, VARIANTS_MAX};
use super::{PAGE, Store};
use crate::ranges::Ranges;
use crate::volume::{Found, Id, Kind, Volume};

/// How a cache uses volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Their names; none: everything is in memory alone.
    pub volumes: Vec<String>,
    /// Which of them get an object.
    pub placement: Placement,
    /// What nobody read for so long is dropped; zero: never.
    pub inactive: Duration,
    /// What is written at all.
    pub admit: Admit,
    /// Smallest content that is written, in bytes.
    pub admit_min: u64,
    /// Largest content that is written, in bytes; 0: no limit.
    pub admit_max: u64,
}

/// What is written to volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admit {
    /// Everything.
    #[default]
    All,
    /// What was asked for a second time.
    Second,
}

/// The volumes of one cache.
pub struct Volumes {
    options: Options,
    space: u64,
    volumes: Vec<Arc<Volume>>,
    asked: Option<RecentKeys>,
    /// Which of them are out, as far as the others have noted that.
    absent: Mutex<SmallVec<[bool; 8]>>,
}

/// Blocks that are looked up when an object is opened.
const LOOKED_UP: u64 = 1024;

/// Blocks of one object that inspecting it looks up at most.
const SURVEYED: usize = 16_384;

/// A volume's number and where on it something is.
type At = (usize, Found);

impl Volumes {
    /// These volumes as the options say, for the cache that `space` names.
    pub fn new(options: &Options, volumes: Vec<Arc<Volume>>, space: u64) -> Arc<Volumes> {
        for volume in &volumes {
            volume.set_inactive(space, options.inactive);
        }
        Arc::new(Volumes {
            asked: (options.admit == Admit::Second).then(RecentKeys::new),
            options: options.clone(),
            space,
            volumes,
            absent: Mutex::default(),
        })
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Volume>] {
        &self.volumes
    }

    /// Whether they may have more than they know yet.
    fn is_loading(&self) -> bool {
        self.volumes.iter().any(|volume| volume.is_loading())
    }

    fn head_id(&self, table_key: TableKey) -> Id {
        self.id_of_head(table_key.primary, tag_of(table_key.variant))
    }

    fn id_of_head(&self, key: u128, tag: u32) -> Id {
        Id {
            space: self.space,
            key,
            version: u64::from(tag),
            part: 0,
            kind: Kind::Head,
        }
    }

    /// The volumes that get this record.
    fn homes(&self, id: &Id) -> SmallVec<[usize; 2]> {
        let up: SmallVec<[bool; 8]> = self.volumes.iter().map(|v| v.is_up()).collect();
        let block = (id.kind == Kind::Block).then_some(id.part);
        self.options.placement.choose(spread(id.key), block, &up)
    }

    /// Where this record is: on its own volumes, or on others that it was put on when those were
    /// out, or when the placement was another.
    fn find(&self, id: &Id) -> SmallVec<[At; 2]> {
        let homes = self.homes(id);
        let others = (0..self.volumes.len()).filter(|number| !homes.contains(number));
        let found = homes.iter().copied().chain(others);
        found
            .filter_map(|number| Some((number, self.volumes[number].find(id)?)))
            .collect()
    }

    /// Where the heads of a key are.
    fn heads(&self, key: u128) -> SmallVec<[At; 2]> {
        let all = self.volumes.iter().enumerate();
        all.flat_map(|(number, volume)| {
            let heads = volume.heads(self.space, key).into_iter();
            heads.map(move |found| (number, found))
        })
        .collect()
    }

    /// A record is in use.
    fn touch(&self, id: &Id) {
        for volume in &self.volumes {
            volume.touch(id);
        }
    }

    /// Forgets a record.
    fn forget(&self, id: &Id) {
        for volume in &self.volumes {
            volume.forget(id);
        }
    }

    /// Forgets the heads of a key of which `which` is true.
    fn forget_heads(&self, primary: u128, which: impl Fn(u32) -> bool) {
        for (number, found) in self.heads(primary) {
            if which(found.tag) {
                self.volumes[number].forget(&self.id_of_head(primary, found.tag));
            }
        }
    }

    /// Sees that no volume has more heads of a key than memory may have, with one more: all of them are
    /// gone through at each look-up. Those furthest back in the log are forgotten.
    fn bound_heads(&self, primary: u128) {
        for volume in &self.volumes {
            let mut heads = volume.heads(self.space, primary);
            if heads.len() < VARIANTS_MAX {
                continue;
            }
            heads.sort_unstable_by_key(|found| Reverse(written(found)));
            for found in &heads[VARIANTS_MAX - 1..] {
                volume.forget(&self.id_of_head(primary, found.tag));
            }
        }
    }

    /// Whether content of this length may be written; of one that is not known, so much as has come.
    fn admits(&self, length: Option<u64>, come: u64) -> bool {
        let max = match self.options.admit_max {
            0 => u64::MAX,
            max => max,
        };
        match length {
            Some(length) => (self.options.admit_min..=max).contains(&length),
            None => come <= max,
        }
    }

    /// Whether this key may be written from now on: it was asked for before, or need not have been.
    fn admits_key(&self, primary: u128) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.again(primary))
    }
}

impl Store {
    /// What an object that is about to be opened with this head knows of volumes, where there are
    /// any. An older head of it is forgotten, and so are those that its Vary leaves out of reach.
    pub(super) fn disk_copy(
        &self,
        object: &Arc<Object>,
        table_key: TableKey,
        head: &Head,
    ) -> Option<DiskCopy> {
        let volumes = self.volumes()?;
        let varies = head.vary.is_some();
        volumes.forget_heads(table_key.primary, |tag| (tag != 0) != varies);
        // These by name, too: they may not be known yet, as the index still loads.
        if varies {
            volumes.forget(&volumes.id_of_head(table_key.primary, 0));
        }
        volumes.forget(&volumes.head_id(table_key));
        volumes.bound_heads(table_key.primary);
        let since = self.purges.newest_hard(table_key.primary, &object.key);
        let blocks = (u64::from(self.block()?.get()), since);
        let mut disk = DiskCopy::new(volumes.clone(), table_key, head, object.born_seq, blocks);
        disk.admitted = volumes.admits_key(table_key.primary);
        if let Some(length) = head
            .length
            .filter(|&length| head.generation != 0 && length > PAGE)
        {
            disk.consult(0..length, length, LOOKED_UP);
        }
        Some(disk)
    }

    /// Gives up writes that wait for so many bytes, if there are any.
    pub(super) fn shed_writes(&self, bytes: u64) -> bool {
        let volumes = self.volumes();
        let all = volumes.iter().flat_map(|volumes| volumes.all());
        all.map(|volume| volume.shed(bytes)).sum::<u64>() > 0
    }

    /// What volumes have under the head of this place is not found any more.
    pub fn forget_head(&self, table_key: TableKey) {
        if let Some(volumes) = self.volumes() {
            // Also where it is not known yet, as the index still loads.
            volumes.forget(&volumes.head_id(table_key));
        }
    }

    /// Whether volumes may have more than they know yet.
    pub fn is_loading(&self) -> bool {
        self.volumes().is_some_and(|volumes| volumes.is_loading())
    }

    /// What volumes have of this key is not found any more.
    pub fn forget_on_disk(&self, primary: u128) {
        if let Some(volumes) = self.volumes() {
            volumes.forget_heads(primary, |_| true);
        }
    }
}

/// What tells variants apart in a head's id.
fn tag_of(variant: u128) -> u32 {
    let folded = (variant >> 64) as u64 ^ variant as u64;
    (folded >> 32) as u32 ^ folded as u32
}

/// In which order the records of a volume were written.
fn written(found: &Found) -> (u64, u32, u32) {
    (found.lap, found.segment, found.offset)
}

/// A hash of a key for placement, which the index and the table don't go by.
fn spread(key: u128) -> u64 {
    ((key >> 64) as u64 ^ (key as u64).rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// What an object knows of what is kept of it; under its lock.
pub(super) struct DiskCopy {
    pub(super) volumes: Arc<Volumes>,
    table_key: TableKey,
    /// Names the version of its blocks.
    version: u64,
    /// Bytes of a block.
    block: u64,
    /// The newest purge that covered it when it was opened: blocks from before are not its own.
    since: u64,
    /// What was looked up.
    known: Ranges,
    /// What can be read from volumes, as far as is known.
    pub(super) there: Ranges,
    /// What is there, too, and is not asked for before `rested_us`: its volume did not keep up.
    aside: Ranges,
    /// In microseconds of the clock that reads are claimed by.
    rested_us: u64,
    /// Blocks that wait to be written, once for each copy: they stay in memory.
    queued: SmallVec<[Range<u64>; 2]>,
    /// Whether it may be written.
    admitted: bool,
    /// Whether its head was handed over for writing, or is there.
    head: bool,
    /// What comes from volumes goes again when its readers have passed it.
    passing: bool,
    /// Such bytes, which the eviction policy knows nothing of.
    pub(super) transient: Ranges,
    /// Moves of readers since it was seen which of those are passed.
    moves: usize,
    /// How far memory had turned over when it was asked for last.
    asked_at: Option<u64>,
    _charge: Option<Charge>,
}

impl DiskCopy {
    /// For an object that is about to be opened with this head. `block`: bytes of one; `since`: the
    /// newest purge that took out what there was of it.
    pub(super) fn new(
        volumes: Arc<Volumes>,
        table_key: TableKey,
        head: &Head,
        born_seq: u64,
        (block, since): (u64, u64),
    ) -> DiskCopy {
        // Without a strong validator no other fetch brings bytes of this version.
        let own = if head.generation == 0 { born_seq } else { 0 };
        let mut hasher = blake3::Hasher::new();
        hasher.update(&table_key.variant.to_le_bytes());
        for number in [head.generation, own, block, since] {
            hasher.update(&number.to_le_bytes());
        }
        let mut version = [0; 8];
        hasher.finalize_xof().fill(&mut version);
        DiskCopy {
            volumes,
            table_key,
            version: u64::from_le_bytes(version),
            block,
            since,
            known: Ranges::new(),
            there: Ranges::new(),
            aside: Ranges::new(),
            rested_us: 0,
            queued: SmallVec::new(),
            admitted: true,
            head: false,
            passing: false,
            transient: Ranges::new(),
            moves: 0,
            asked_at: None,
            _charge: None,
        }
    }

    /// It was asked for by another request, or was not.
    pub(super) fn asked(self, again: bool) -> DiskCopy {
        DiskCopy {
            admitted: self.admitted || again,
            ..self
        }
    }

    /// It is paid for.
    pub(super) fn charged(self, charge: Charge) -> DiskCopy {
        DiskCopy {
            _charge: Some(charge),
            ..self
        }
    }

    /// What is known to be there, to be surveyed when no lock is held.
    pub(super) fn seen(&self) -> DiskCopy {
        DiskCopy {
            volumes: self.volumes.clone(),
            there: self.there.clone(),
            known: Ranges::new(),
            aside: Ranges::new(),
            transient: Ranges::new(),
            queued: SmallVec::new(),
            _charge: None,
            ..*self
        }
    }

    /// What is known to be on volumes, by their names.
    pub(super) fn survey(&self, length: Option<u64>) -> Vec<(String, Ranges)> {
        let mut all: Vec<(String, Ranges)> = Vec::new();
        let blocks = |range: Range<u64>| self.blocks(&range);
        for number in self.there.iter().flat_map(blocks).take(SURVEYED) {
            let Some(id) = self.block_id(number) else {
                break;
            };
            for (volume, _) in self.volumes.find(&id) {
                let name = self.volumes.volumes[volume].name();
                let bytes = self.range_of(number, length.unwrap_or(u64::MAX));
                match all.iter_mut().find(|(known, _)| known == name) {
                    Some((_, ranges)) => ranges.insert(bytes),
                    None => all.push((name.to_owned(), bytes.into())),
                }
            }
        }
        all
    }

    fn block_id(&self, number: u64) -> Option<Id> {
        Some(Id {
            space: self.volumes.space,
            key: self.table_key.primary,
            version: self.version,
            part: u32::try_from(number).ok()?,
            kind: Kind::Block,
        })
    }

    /// The numbers of the blocks that have bytes of a range.
    fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block..range.end.div_ceil(self.block)
    }

    /// The bytes of a block, as far as content of this length goes.
    fn range_of(&self, number: u64, length: u64) -> Range<u64> {
        let start = number.saturating_mul(self.block).min(length);
        start..start.saturating_add(self.block).min(length)
    }

    /// Whether it may be written without being asked for again.
    pub(super) fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Whether any of these bytes waits to be written.
    pub(super) fn is_queued(&self, range: &Range<u64>) -> bool {
        let meets = |queued: &Range<u64>| queued.start < range.end && range.start < queued.end;
        self.queued.iter().any(meets)
    }

    /// What waits to be written.
    pub(super) fn queued(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.queued.iter().cloned()
    }
}
