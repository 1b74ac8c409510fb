//! The pages of an object in memory: adding, filling and reading them.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::block_index::BLOCK_OVERHEAD;
use super::object::{Object, Phase, State};
use super::page::{PAGE, Page};
use super::slots::{PageState, Slot, Slots};

/// The page into which a flight is to write its next bytes.
pub(super) enum ToFill {
    /// A page that exists already.
    Existing(Arc<Page>),
    /// A page that does not exist yet.
    Missing(MissingPage),
    /// All bytes of the page are stored already: there is nothing to write.
    Full,
}

/// A page that does not exist yet.
pub(super) struct MissingPage {
    /// Maximum number of bytes that the page can hold.
    pub(super) capacity: u64,
    /// Bytes to charge for the page, including the bookkeeping of a block of which it is the first
    /// page.
    pub(super) cost: u64,
    /// The block that contains the page; `None` if the object is evicted only as a whole.
    pub(super) block: Option<Range<u64>>,
}

/// The part of a claim that has no memory yet, as `Landing::reserve` needs it.
pub(super) struct Unfilled {
    /// The end of the claim; 0 if it has ended.
    pub(super) end: u64,
    /// The bytes to charge for its missing pages.
    pub(super) need: u64,
    /// Whether the object can give up pages.
    pub(super) loses_parts: bool,
}

impl Object {
    /// Returns the whole content, if it lies in one full page: the fast path of a hit.
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

    /// Returns bytes `start..end`, if they lie in one full page: the fast path of a hit for a range.
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

    /// Returns the published bytes from `at`, at most up to `end` and up to the end of their page.
    pub(super) fn slice(&self, at: u64, end: u64) -> Option<Bytes> {
        self.lock().slice(at, end)
    }

    /// Returns the page with this index, for flight `id` to write to, and the end of the flight's claim.
    pub(super) fn to_fill(&self, id: u64, index: u64) -> (ToFill, u64) {
        let state = self.lock();
        let end = state.claim(id).map_or(0, |claim| claim.end);
        let found = match state.pages.get(index) {
            Some(PageState::Filling(page)) => ToFill::Existing(page.clone()),
            Some(PageState::Full(_)) => ToFill::Full,
            None => ToFill::Missing(state.lacking(index)),
        };
        (found, end)
    }

    /// Adds a page, unless another flight has added the same page meanwhile. Returns the page to write to, and whether it is the one just
    /// added.
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

    /// Adds a page read from a volume; the caller publishes its bytes afterwards. Returns whether the page is to be dropped once all
    /// readers have passed it, or `None` if the object has this page already.
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

    /// Returns the bytes to charge to the ledger for the missing pages of this range. `block` is the block size to assume while the head is
    /// unknown.
    pub(super) fn need(&self, range: Range<u64>, block: Option<NonZeroU32>) -> u64 {
        self.lock().need(range, block)
    }

    /// Returns the part of flight `id`'s claim that has no page yet, from offset `at` on. `block` is the block size, as for `need`.
    pub(super) fn unfilled(&self, id: u64, at: u64, block: Option<NonZeroU32>) -> Unfilled {
        let state = self.lock();
        let end = state.claim(id).map_or(0, |claim| claim.end);
        Unfilled {
            end,
            need: state.need(at..end, block),
            loses_parts: state.loses_parts(),
        }
    }
}

impl State {
    /// Returns the indices of the pages in memory that overlap this range.
    fn pages_at(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + '_ {
        self.pages.within(span(range))
    }

    /// Whether any page in memory overlaps this range.
    pub(super) fn has_pages(&self, range: &Range<u64>) -> bool {
        self.pages_at(range).next().is_some()
    }

    /// Returns the maximum number of bytes that the page with this index can hold.
    pub(super) fn capacity(&self, index: u64) -> u64 {
        let length = self.length.unwrap_or(u64::MAX);
        length.saturating_sub(index * PAGE).clamp(1, PAGE)
    }

    fn lacking(&self, index: u64) -> MissingPage {
        let capacity = self.capacity(index);
        let block = self.block_of(index * PAGE);
        let first = block.as_ref().is_some_and(|block| !self.has_pages(block));
        let bookkeeping = if first { BLOCK_OVERHEAD } else { 0 };
        MissingPage {
            capacity,
            cost: Page::footprint(capacity) + bookkeeping,
            block,
        }
    }

    fn need(&self, range: Range<u64>, block: Option<NonZeroU32>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        // Before the head is known, the range is assumed to be the whole object.
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

    /// Returns the number of blocks that overlap this range and have no page in memory.
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

    /// Turns a page into one shared slice, which is cheap to clone, once all its bytes are stored.
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
            // SAFETY: all bytes in `base..end` are published: they were written, will never be written again, and this thread holds the
            // lock under which they were published.
            let bytes = unsafe { page.slice(0, (end - base) as usize) };
            *state = PageState::Full(bytes);
        }
    }

    /// Seals the last page after the flight has ended and the length is known.
    pub(super) fn seal_last(&mut self, length: u64, tail: Option<Bytes>) {
        let Some(last) = length.checked_sub(1).map(|last| last / PAGE) else {
            return;
        };
        match (tail, self.pages.get_mut(last)) {
            (Some(bytes), Some(state)) => *state = PageState::Full(bytes),
            _ => self.seal(last),
        }
    }

    /// Returns the published bytes from `at`, at most up to `end` and up to the end of the page.
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

/// Returns the range of page indices that covers these bytes.
pub(super) fn span(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}
