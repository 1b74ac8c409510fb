//! The pages of an object: where its bytes are, who fills them, what of them is handed out.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::blocks::BLOCK_OVERHEAD;
use super::object::{Object, Phase, State};
use super::page::{PAGE, Page};
use super::slots::{Slot, Slots};

/// A page in memory. What waits to be written is one, too; what is only on volumes is none.
pub(super) enum PageState {
    /// A flight writes into it.
    Filling(Arc<Page>),
    /// All its bytes are there.
    Full(Bytes),
}

/// What a flight finds where it wants to write.
pub(super) enum ToFill {
    /// A page that some flight has put there.
    There(Arc<Page>),
    /// None yet.
    Lacking(Lacking),
    /// All of its bytes are there: nothing to write.
    Full,
}

/// A page that is not there yet.
pub(super) struct Lacking {
    /// Bytes that it holds at most.
    pub(super) capacity: u64,
    /// What it takes, the bookkeeping for the block included that it is the first page of.
    pub(super) cost: u64,
    /// The block that it belongs to, where bytes are accounted by block.
    pub(super) block: Option<Range<u64>>,
}

impl Object {
    /// All of the content, when it is there and in one piece: the common hit.
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

    /// Bytes `start..end` in one piece, when they lie in one page that is full: the common hit.
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

    /// The published bytes from `at` on, up to `end` and the end of their page.
    pub(super) fn slice(&self, at: u64, end: u64) -> Option<Bytes> {
        self.lock().slice(at, end)
    }

    /// The page of this index for a flight, and where that flight's claim ends now.
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

    /// Puts a new page in place, unless another flight was quicker. Gives back the one to fill, and
    /// whether it is the new one.
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

    /// Puts in a page from a volume, whose bytes are to be published yet; whether it goes again when
    /// readers have passed it. `None`: there is one already.
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

    /// What the pages take that bytes of this range need and that are not there yet. `block`: how
    /// bytes may be accounted, where that is not known yet.
    pub(super) fn need(&self, range: Range<u64>, block: Option<NonZeroU32>) -> u64 {
        self.lock().need(range, block)
    }
}

impl State {
    /// The indices of the pages there are that meet these bytes.
    fn pages_at(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + '_ {
        self.pages.within(span(range))
    }

    /// Whether there is a page that meets these bytes.
    pub(super) fn has_pages(&self, range: &Range<u64>) -> bool {
        self.pages_at(range).next().is_some()
    }

    /// How many bytes a page of this index holds at most.
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
        // Before the head is known, the range is taken for all there is.
        let length = self.length.unwrap_or(range.end);
        let (first, last) = (range.start / PAGE, (range.end - 1) / PAGE);
        let lacking = last - first + 1 - self.pages_at(&range).count() as u64;
        let mut bytes = lacking.saturating_mul(Page::footprint(PAGE));
        if length.div_ceil(PAGE) == last + 1 && self.pages.get(last).is_none() {
            // The object's last page is as small as what it holds.
            bytes -= Page::footprint(PAGE) - Page::footprint(length - last * PAGE);
        }
        let block = match self.phase {
            Phase::Awaiting => block,
            _ => self.block,
        };
        let blocks = block.map_or(0, |block| self.blocks_lacking(&range, block));
        bytes.saturating_add(blocks * BLOCK_OVERHEAD)
    }

    /// How many blocks meet these bytes and have no page yet.
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

    /// A page all of whose bytes are there becomes one shared slice, cheap to hand out.
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

    /// The length became known at the end: seals the last page.
    pub(super) fn seal_last(&mut self, length: u64, tail: Option<Bytes>) {
        let Some(last) = length.checked_sub(1).map(|last| last / PAGE) else {
            return;
        };
        match (tail, self.pages.get_mut(last)) {
            (Some(bytes), Some(state)) => *state = PageState::Full(bytes),
            _ => self.seal(last),
        }
    }

    /// The published bytes from `at` on, up to `end` and the end of the page.
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
