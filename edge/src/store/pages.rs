//! The pages of an object, which hold its bytes.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::block_index::BLOCK_OVERHEAD;
use super::object::{Object, Phase, State};
use super::page::{PAGE, Page};
use super::slots::{PageState, Slot, Slots};

/// The page that a flight wants to write to.
pub(super) enum ToFill {
    /// A page that exists already.
    There(Arc<Page>),
    /// A page that does not exist yet.
    Lacking(Lacking),
    /// All bytes of the page are there: nothing to write.
    Full,
}

/// A page that does not exist yet.
pub(super) struct Lacking {
    /// The most bytes that the page can hold.
    pub(super) capacity: u64,
    /// Bytes to charge for the page, including the bookkeeping of a block of which it is the first
    /// page.
    pub(super) cost: u64,
    /// The page's block, if bytes are accounted by block.
    pub(super) block: Option<Range<u64>>,
}

impl Object {
    /// All content, if it is there in one piece: the common hit.
    #[inline]
    pub fn whole(&self) -> Option<Bytes> {
        let state = self.lock();
        let (length @ 1..=PAGE, Slots::Few(pages)) = (state.length?, &state.pages) else {
            return None;
        };
        match &pages[..] {
            [
                Slot {
                    index: 0,
                    state: PageState::Full(bytes),
                },
            ] if bytes.len() as u64 == length => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Bytes `start..end`, if they lie in one full page: the common hit on a part.
    #[inline]
    pub fn piece(&self, start: u64, end: u64) -> Option<Bytes> {
        let index = start / PAGE;
        if start >= end || (end - 1) / PAGE != index {
            return None;
        }
        let state = self.lock();
        match state.pages.get(index)? {
            PageState::Full(bytes) => {
                let base = index * PAGE;
                let (from, to) = ((start - base) as usize, (end - base) as usize);
                (to <= bytes.len()).then(|| bytes.slice(from..to))
            }
            PageState::Filling(_) => None,
        }
    }

    /// The published bytes from `at`, up to `end` and the end of their page.
    pub(super) fn slice(&self, at: u64, end: u64) -> Option<Bytes> {
        self.lock().slice(at, end)
    }

    /// The page with this index for a flight, and the end of the flight's claim.
    pub(super) fn to_fill(&self, id: u64, index: u64) -> (ToFill, u64) {
        let state = self.lock();
        let end = state.claim(id).map_or(0, |claim| claim.end);
        let found = match state.pages.get(index) {
            Some(PageState::Filling(page)) => ToFill::There(page.clone()),
            Some(PageState::Full(_)) => ToFill::Full,
            None => ToFill::Lacking(state.lacking(index)),
        };
        (found, end)
    }

    /// Adds a page, unless another flight was faster. Returns the page to fill, and whether it is
    /// the new one.
    pub(super) fn add_page(&self, index: u64, page: Arc<Page>) -> Option<(Arc<Page>, bool)> {
        let mut state = self.lock();
        match state.pages.get(index) {
            Some(PageState::Filling(there)) => Some((there.clone(), false)),
            Some(PageState::Full(_)) => None,
            None => {
                let filling = PageState::Filling(page.clone());
                state.pages.insert(index, filling);
                Some((page, true))
            }
        }
    }

    /// Adds a page read from a volume; its bytes are published afterwards. Returns whether it is
    /// dropped when all readers have passed it; `None` if the page exists already.
    pub(super) fn put_page(&self, index: u64, bytes: Bytes) -> Option<bool> {
        let mut state = self.lock();
        if state.pages.get(index).is_some() {
            return None;
        }
        let passing = state.is_passing();
        if let Some(disk) = state.disk.as_mut().filter(|_| passing) {
            let start = index * PAGE;
            disk.transient.insert(start..start + bytes.len() as u64);
        }
        state.pages.insert(index, PageState::Full(bytes));
        Some(passing)
    }

    /// The bytes to charge for the missing pages of this range. `block`: the block size to assume
    /// while the head is unknown.
    pub(super) fn need(&self, range: Range<u64>, block: Option<NonZeroU32>) -> u64 {
        self.lock().need(range, block)
    }
}

impl State {
    /// The indices of the pages that overlap these bytes.
    fn pages_at(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + '_ {
        self.pages.within(span(range))
    }

    /// Whether any page overlaps these bytes.
    pub(super) fn has_pages(&self, range: &Range<u64>) -> bool {
        self.pages_at(range).next().is_some()
    }

    /// The most bytes that the page with this index can hold.
    pub(super) fn capacity(&self, index: u64) -> u64 {
        let length = self.length.unwrap_or(u64::MAX);
        length.saturating_sub(index * PAGE).clamp(1, PAGE)
    }

    fn lacking(&self, index: u64) -> Lacking {
        let capacity = self.capacity(index);
        let block = self.block_of(index * PAGE);
        let first = block.as_ref().is_some_and(|block| !self.has_pages(block));
        let bookkeeping = if first { BLOCK_OVERHEAD } else { 0 };
        Lacking {
            capacity,
            cost: Page::footprint(capacity) + bookkeeping,
            block,
        }
    }

    fn need(&self, range: Range<u64>, block: Option<NonZeroU32>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        // Before the head is known, the range is taken for the whole object.
        let length = self.length.unwrap_or(range.end);
        let (first, last) = (range.start / PAGE, (range.end - 1) / PAGE);
        let lacking = last - first + 1 - self.pages_at(&range).count() as u64;
        let mut bytes = lacking.saturating_mul(Page::footprint(PAGE));
        if length.div_ceil(PAGE) == last + 1 && self.pages.get(last).is_none() {
            // The object's last page is only as large as its content.
            bytes -= Page::footprint(PAGE) - Page::footprint(length - last * PAGE);
        }
        let block = match self.phase {
            Phase::Awaiting => block,
            _ => self.block,
        };
        let blocks = block.map_or(0, |block| self.blocks_lacking(&range, block));
        bytes.saturating_add(blocks * BLOCK_OVERHEAD)
    }

    /// The number of blocks that overlap these bytes and have no page yet.
    fn blocks_lacking(&self, range: &Range<u64>, block: NonZeroU32) -> u64 {
        let block = u64::from(block.get());
        let (first, last) = (range.start / block, (range.end - 1) / block);
        let hull = first * block..(last + 1).saturating_mul(block);
        let mut there: u64 = 0;
        let mut before = None;
        for index in self.pages_at(&hull) {
            let of = Some(index * PAGE / block);
            there += u64::from(of != before);
            before = of;
        }
        (last - first + 1).saturating_sub(there)
    }

    /// Turns a page into one shared slice, cheap to hand out, once all its bytes are there.
    pub(super) fn seal(&mut self, index: u64) {
        let base = index * PAGE;
        let end = self
            .length
            .unwrap_or(u64::MAX)
            .min(base.saturating_add(PAGE));
        if !self.present.covers(&(base..end)) {
            return;
        }
        if let Some(state) = self.pages.get_mut(index)
            && let PageState::Filling(page) = state
        {
            // SAFETY: all of `base..end` is published: written, never to be written again, and
            // this thread holds the lock under which it was published.
            let bytes = unsafe { page.slice(0, (end - base) as usize) };
            *state = PageState::Full(bytes);
        }
    }

    /// Seals the last page when the length has become known at the end.
    pub(super) fn seal_last(&mut self, length: u64, tail: Option<Bytes>) {
        let Some(last) = length.checked_sub(1).map(|last| last / PAGE) else {
            return;
        };
        match (tail, self.pages.get_mut(last)) {
            (Some(bytes), Some(state)) => *state = PageState::Full(bytes),
            _ => self.seal(last),
        }
    }

    /// The published bytes from `at`, up to `end` and the end of the page.
    pub(super) fn slice(&self, at: u64, end: u64) -> Option<Bytes> {
        let index = at / PAGE;
        let base = index * PAGE;
        let there = self
            .present
            .contiguous_from(at)
            .min(end)
            .min(base.saturating_add(PAGE));
        if there <= at {
            return None;
        }
        let (from, to) = ((at - base) as usize, (there - base) as usize);
        Some(match self.pages.get(index)? {
            PageState::Full(bytes) => bytes.slice(from..to),
            // SAFETY: `at..there` is published, and this thread holds the lock it was published under.
            PageState::Filling(page) => unsafe { page.slice(from, to) },
        })
    }
}

/// The indices of the pages that these bytes need.
pub(super) fn span(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}
