//! The disk copy: what an object knows of its records on volumes.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::volumes::Volumes;
use crate::ranges::Ranges;
use crate::store::head::Head;
use crate::store::ledger::Charge;
use crate::store::table_key::TableKey;
use crate::volume::{Id, Kind};

/// Number of blocks looked up in the index of a volume when an object is opened.
pub(super) const LOOKUPS_MAX: u64 = 1024;

/// Maximum number of blocks of one object that an inspection looks up.
const INSPECTED_MAX: usize = 16_384;

/// The disk copy of an object: what is known of its records on volumes. Guarded by the object's lock.
pub(in crate::store) struct DiskCopy {
    pub(super) volumes: Arc<Volumes>,
    pub(super) table_key: TableKey,
    /// Hash of the object's version, which is part of the ids of its blocks.
    pub(super) version: u64,
    /// Size of a block in bytes.
    pub(super) block: u64,
    /// Sequence number of the newest purge that covered the object's key when the object was opened. Blocks written before that purge don't
    /// belong to the object.
    pub(super) since: u64,
    /// Bytes of the object whose blocks were looked up in the volumes' indexes.
    pub(super) known: Ranges,
    /// Bytes of the object that were found on volumes.
    pub(in crate::store) there: Ranges,
    /// Bytes of the object that are on volumes, but are not read before `rested_us`, since a volume was too slow.
    pub(super) aside: Ranges,
    /// Time from which the bytes in `aside` may be read again, in microseconds of the clock that the callers of `Store::arrange` use.
    pub(super) rested_us: u64,
    /// Blocks that wait to be written: one entry for each volume that gets the block. The blocks stay in memory meanwhile.
    pub(super) queued: SmallVec<[Range<u64>; 2]>,
    /// Whether the object may be written to volumes.
    pub(super) admitted: bool,
    /// Whether the head is queued or written.
    pub(super) head: bool,
    /// Whether bytes read from volumes are dropped from memory once all readers have passed them.
    pub(super) passing: bool,
    /// Bytes in memory that are dropped once all readers have passed them. The eviction policy does not know these bytes.
    pub(in crate::store) transient: Ranges,
    /// Number of times that a reader has moved since the passed bytes were last dropped.
    pub(super) moves: usize,
    /// The ledger's `turned` when a request last began to read the object.
    pub(super) asked_at: Option<u64>,
    pub(super) _charge: Option<Charge>,
}

impl DiskCopy {
    /// Creates the disk copy of an object that is about to be opened with this head. `block` is the size of a block in bytes; `since` is
    /// the number of the newest purge that covers the object's key.
    pub(super) fn new(
        volumes: Arc<Volumes>,
        table_key: TableKey,
        head: &Head,
        born_seq: u64,
        (block, since): (u64, u64),
    ) -> DiskCopy {
        // A response without a strong validator can't be combined with bytes of other fetches, so the ids of its blocks contain the number
        // of its own fetch.
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

    /// Marks the object as admitted to volumes if `again` is true: a second request for it has arrived.
    pub(in crate::store) fn asked(self, again: bool) -> DiskCopy {
        DiskCopy {
            admitted: self.admitted || again,
            ..self
        }
    }

    /// Attaches the charge for the memory of this value.
    pub(in crate::store) fn charged(self, charge: Charge) -> DiskCopy {
        DiskCopy {
            _charge: Some(charge),
            ..self
        }
    }

    /// Copies what is known to be on volumes, for use without the object's lock.
    pub(in crate::store) fn seen(&self) -> DiskCopy {
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

    /// Looks up which bytes are on which volume. Returns them by the name of the volume. Removes the blocks that a volume has overwritten
    /// since they were last looked up.
    pub(in crate::store) fn survey(&mut self, length: Option<u64>) -> Vec<(String, Ranges)> {
        let mut all: Vec<(String, Ranges)> = Vec::new();
        let believed = self.there.clone();
        let numbers = believed.iter().flat_map(|range| self.blocks(&range));
        let numbers: Vec<u64> = numbers.take(INSPECTED_MAX).collect();
        for number in numbers {
            let length = length.unwrap_or(u64::MAX);
            let found = self.block_id(number).map(|id| self.volumes.find(&id));
            let found = found.unwrap_or_default();
            if found.is_empty() {
                self.lose(number, length);
                continue;
            }
            let bytes = self.range_of(number, length);
            for (volume, _) in found {
                let name = self.volumes.volumes[volume].name();
                match all.iter_mut().find(|(known, _)| known == name) {
                    Some((_, ranges)) => ranges.insert(bytes.clone()),
                    None => all.push((name.to_owned(), bytes.clone().into())),
                }
            }
        }
        all
    }

    pub(super) fn block_id(&self, number: u64) -> Option<Id> {
        Some(Id {
            space: self.volumes.space,
            key: self.table_key.primary,
            version: self.version,
            part: u32::try_from(number).ok()?,
            kind: Kind::Block,
        })
    }

    /// Returns the numbers of the blocks that overlap a range.
    pub(super) fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block..range.end.div_ceil(self.block)
    }

    /// Returns the byte range of block `number` of content with this length.
    pub(super) fn range_of(&self, number: u64, length: u64) -> Range<u64> {
        let start = number.saturating_mul(self.block).min(length);
        start..start.saturating_add(self.block).min(length)
    }

    /// Records that no volume has this block of content with this length any longer.
    pub(super) fn lose(&mut self, number: u64, length: u64) {
        self.there.remove(self.range_of(number, length));
    }

    /// Whether the object may be written to volumes.
    pub(in crate::store) fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Whether any byte of this range waits to be written.
    pub(in crate::store) fn is_queued(&self, range: &Range<u64>) -> bool {
        let meets = |queued: &Range<u64>| queued.start < range.end && range.start < queued.end;
        self.queued.iter().any(meets)
    }

    /// Returns the blocks that wait to be written.
    pub(in crate::store) fn queued(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.queued.iter().cloned()
    }
}

/// Maximum number of separate ranges in `DiskCopy::known`.
const FRAGMENTS_MAX: usize = 4096;

impl DiskCopy {
    /// Looks up in the volumes' indexes which blocks of `range` are on volumes. At most `at_most + 1` blocks are looked up.
    pub(super) fn consult(&mut self, range: Range<u64>, length: u64, at_most: u64) {
        let range = range.start.min(length)..range.end.min(length);
        if range.is_empty() || self.known.covers(&range) {
            return;
        }
        let is_loading = self.volumes.is_loading(); // read first: if loading ends during the lookups, it still counts
        let first = range.start / self.block;
        let last = (range.end - 1) / self.block;
        for number in first..=last.min(first.saturating_add(at_most)) {
            let bytes = self.range_of(number, length);
            if self.known.covers(&bytes) {
                continue;
            }
            let found = self.block_id(number).map(|id| self.volumes.find(&id));
            let is_there = found.is_some_and(|found| !found.is_empty());
            if is_there {
                self.there.insert(bytes.clone());
            }
            // While the index loads, a block that is not found now may still be found later: it does not count as looked up.
            if is_there || !is_loading {
                self.known.insert(bytes);
            }
        }
        if self.known.len() > FRAGMENTS_MAX {
            // Scattered reads of a huge object make the sets large: they are emptied, and blocks are looked up again when needed.
            self.known = Ranges::new();
            self.there = Ranges::new();
            self.aside = Ranges::new();
        }
    }

    /// Suspends reads from volumes until `rested_us`.
    pub(super) fn rest_until(&mut self, rested_us: u64) {
        self.aside.extend(self.there.iter());
        self.there = Ranges::new();
        self.rested_us = rested_us;
    }

    /// Resumes reads from volumes if `now_us` is past the time given to `rest_until`.
    pub(super) fn rested(&mut self, now_us: u64) {
        if !self.aside.is_empty() && now_us >= self.rested_us {
            self.there.extend(self.aside.iter());
            self.aside = Ranges::new();
        }
    }
}
