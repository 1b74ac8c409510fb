//! Eviction of single blocks of an object while its other blocks stay in memory.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::block_index::BLOCK_OVERHEAD;
use super::object::{Object, Phase, Rider, State};
use super::object_store::Store;
use super::page::{PAGE, Page};
use super::pages::span;
use super::slots::{Dropped, Slot};
use super::table_key::TableKey;
use crate::ranges::Ranges;

impl Object {
    /// Evicts a block, and returns its pages. Returns `None` if a reader or a flight uses the block, or if its bytes can't be fetched
    /// again. The caller has locked the shard.
    pub(super) fn drop_block(&self, block: Range<u64>) -> Option<Dropped> {
        let mut state = self.lock();
        if state.is_busy(&block) {
            return None;
        }
        let pages = state.pages.take(span(&block));
        if let Some(disk) = &mut state.disk {
            disk.transient.remove(block.clone());
        }
        state.present.remove(block);
        Some(pages)
    }

    /// Returns an upper bound of the bytes in blocks that readers and flights use.
    pub(super) fn held(&self) -> u64 {
        let state = self.lock();
        let Some(block) = state.block.map(|block| u64::from(block.get())) else {
            return u64::MAX;
        };
        let span = |range: Range<u64>| match range.is_empty() {
            true => 0,
            false => ((range.end - 1) / block - range.start / block + 1).saturating_mul(block),
        };
        let riders = state.riders.iter().map(|(_, rider)| span(rider.wants()));
        let claims = state.claims.iter().map(|claim| span(claim.at..claim.end));
        riders.chain(claims).fold(0, u64::saturating_add)
    }

    /// Removes pages that weigh at least `enough` bytes together, and returns them with their weight by block. Pages that no flight or
    /// reader uses or wants soon are removed first. Unless `soon` is true, pages that a reader only wants soon follow.
    fn shed(&self, enough: u64, soon: bool) -> RemovedPages {
        let mut state = self.lock();
        let mut shed = RemovedPages::default();
        if !state.loses_parts() {
            return shed;
        }
        let claims = state.claims.iter().map(|claim| claim.at..claim.end);
        let mut needed: Ranges = claims.collect();
        let mut wanted = needed.clone();
        for (_, rider) in &state.riders {
            needed.insert(rider.at..rider.at.saturating_add(1));
            wanted.insert(rider.wants());
        }
        let disk = state.disk.iter();
        let held = disk.flat_map(|disk| disk.queued().chain(disk.transient.iter()));
        for queued in held {
            needed.insert(queued.clone());
            wanted.insert(queued);
        }
        state.shed(&wanted, enough, &mut shed);
        if !soon {
            state.shed(&needed, enough, &mut shed);
        }
        shed
    }

    /// Whether any byte of this block is in a page in memory.
    pub(super) fn has_pages(&self, block: &Range<u64>) -> bool {
        self.lock().has_pages(block)
    }
}

/// Pages removed from an object, to be dropped after the object is unlocked.
#[derive(Default)]
struct RemovedPages {
    pages: Vec<Slot>,
    weight: u64,
    /// Bytes that the removed pages took in each block.
    weights: Vec<(Range<u64>, u64)>,
}

impl State {
    /// Removes pages that contain none of the `needed` bytes, until the removed pages weigh `enough`. Pages that all readers have passed
    /// are removed first, then the pages furthest ahead of the readers.
    fn shed(&mut self, needed: &Ranges, enough: u64, shed: &mut RemovedPages) {
        let gaps: SmallVec<[_; 4]> = needed.gaps(0..u64::MAX).collect();
        let passed = usize::from(gaps.first().is_some_and(|gap| gap.start == 0));
        let (passed, others) = gaps.split_at(passed);
        for gap in passed.iter().chain(others.iter().rev()) {
            let whole = gap.start.div_ceil(PAGE)..gap.end / PAGE;
            while shed.weight < enough {
                let Some(slot) = self.pages.take_last(whole.clone()) else {
                    break;
                };
                self.count_shed(slot.index, shed);
                shed.pages.push(slot);
            }
        }
    }

    /// Adds the page with this index, which was just removed, to `shed`.
    fn count_shed(&mut self, index: u64, shed: &mut RemovedPages) {
        let base = index * PAGE;
        self.present.remove(base..base.saturating_add(PAGE));
        let Some(block) = self.block_of(base) else {
            return;
        };
        let bytes = match self.has_pages(&block) {
            true => Page::footprint(self.capacity(index)),
            false => Page::footprint(self.capacity(index)) + BLOCK_OVERHEAD,
        };
        shed.weight += bytes;
        match shed.weights.last_mut() {
            Some((last, sum)) if *last == block => *sum += bytes,
            _ => shed.weights.push((block, bytes)),
        }
    }
}

impl Store {
    /// Removes pages of about `enough` bytes from the object's memory. Pages stay that flights or readers use now. If `soon` is true, pages
    /// that readers want soon stay, too.
    pub(super) fn shed(&self, table_key: TableKey, object: &Arc<Object>, enough: u64, soon: bool) {
        let shed = object.shed(enough, soon);
        drop(shed.pages);
        for (block, bytes) in shed.weights {
            self.weigh(table_key, object, Some(block), -(bytes as i64));
        }
    }

    /// Reports a use of the block that contains the byte `at` to the eviction policy.
    pub fn touch_block(&self, table_key: TableKey, object: &Arc<Object>, at: u64) {
        self.shard(table_key.primary)
            .lock()
            .touch(table_key, object, at);
    }
}

impl State {
    /// Returns the block that contains the byte `at`; `None` if the object is evicted only as a whole.
    pub(super) fn block_of(&self, at: u64) -> Option<Range<u64>> {
        let block = u64::from(self.block?.get());
        let start = at / block * block;
        Some(start..start.saturating_add(block))
    }

    /// Whether bytes removed from memory can be fetched again from the origin.
    pub(super) fn loses_parts(&self) -> bool {
        self.block.is_some() && matches!(self.phase, Phase::Open(_))
    }

    /// Whether the bytes of this block must stay in memory: a reader or flight needs them, or they can't be fetched again.
    fn is_busy(&self, block: &Range<u64>) -> bool {
        let needs = |rider: &Rider| match self.phase {
            // No flight begins for a retired object, so bytes removed now could not be fetched again: the bytes that its readers have not
            // read yet stay.
            Phase::Retired => rider.at < block.end,
            _ => {
                let wants = rider.wants();
                wants.start < block.end && block.start < wants.end
            }
        };
        self.block.is_none()
            || self.claims.iter().any(|claim| claim.meets(block))
            || self.disk.as_ref().is_some_and(|disk| disk.is_queued(block))
            || self.riders.iter().any(|(_, rider)| needs(rider))
    }
}
