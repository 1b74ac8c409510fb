//! The pages of an object by index: a sorted list, or a tree if there are many pages.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::page::Page;

/// A page in memory. A page whose bytes are only on a volume has no entry.
pub(super) enum PageState {
    /// A flight writes to the page.
    Filling(Arc<Page>),
    /// All bytes of the page are stored.
    Full(Bytes),
}

/// A page with its index.
pub(super) struct Slot {
    pub(super) index: u64,
    pub(super) state: PageState,
}

/// Pages removed from an object, to be dropped while no lock is held.
pub(super) type Dropped = SmallVec<[Slot; 1]>;

/// Number of pages from which on a tree is used instead of a list.
const FEW: usize = 16;

/// The pages of an object. Each operation takes at most logarithmic time, since it runs under the
/// object's lock.
pub(super) enum Slots {
    /// A list sorted by page index.
    Few(SmallVec<[Slot; 1]>),
    Many(BTreeMap<u64, PageState>),
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots::Few(SmallVec::new())
    }

    #[inline]
    pub(super) fn get(&self, index: u64) -> Option<&PageState> {
        match self {
            Slots::Few(list) => Some(&list[find(list, index).ok()?].state),
            Slots::Many(tree) => tree.get(&index),
        }
    }

    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut PageState> {
        match self {
            Slots::Few(list) => {
                let at = find(list, index).ok()?;
                Some(&mut list[at].state)
            }
            Slots::Many(tree) => tree.get_mut(&index),
        }
    }

    /// Inserts a page, and replaces an existing one with the same index.
    pub(super) fn insert(&mut self, index: u64, state: PageState) {
        match self {
            Slots::Few(list) => match find(list, index) {
                Ok(at) => list[at].state = state,
                Err(at) if list.len() < FEW => list.insert(at, Slot { index, state }),
                Err(_) => {
                    let few = std::mem::take(list).into_iter();
                    let mut tree: BTreeMap<_, _> =
                        few.map(|slot| (slot.index, slot.state)).collect();
                    tree.insert(index, state);
                    *self = Slots::Many(tree);
                }
            },
            Slots::Many(tree) => {
                tree.insert(index, state);
            }
        }
    }

    /// Returns the indices of the pages in memory within a range of indices.
    pub(super) fn within(&self, range: Range<u64>) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let range = range.start..range.end.max(range.start);
        let (few, many) = match self {
            Slots::Few(list) => (Some(&list[span(list, &range)]), None),
            Slots::Many(tree) => (None, Some(tree.range(range))),
        };
        let few = few.into_iter().flatten().map(|slot| slot.index);
        let many = many.into_iter().flatten().map(|(&index, _)| index);
        few.chain(many)
    }

    /// Removes all pages within a range of indices.
    pub(super) fn take(&mut self, range: Range<u64>) -> Dropped {
        if let Slots::Few(list) = self {
            let there = span(list, &range);
            let taken = list.drain(there).collect();
            if list.spilled() && list.len() <= list.capacity() / 4 {
                list.shrink_to_fit();
            }
            return taken;
        }
        let mut taken = Dropped::new();
        loop {
            let first = self.within(range.clone()).next();
            match first.and_then(|index| self.take_one(index)) {
                Some(slot) => taken.push(slot),
                None => return taken,
            }
        }
    }

    /// Removes the last page within a range of indices.
    pub(super) fn take_last(&mut self, range: Range<u64>) -> Option<Slot> {
        let index = self.within(range).next_back()?;
        self.take_one(index)
    }

    fn take_one(&mut self, index: u64) -> Option<Slot> {
        match self {
            Slots::Few(_) => self.take(index..index + 1).pop(),
            Slots::Many(tree) => {
                let state = tree.remove(&index)?;
                if tree.len() <= FEW / 2 {
                    let few = std::mem::take(tree).into_iter();
                    *self = Slots::Few(few.map(|(index, state)| Slot { index, state }).collect());
                }
                Some(Slot { index, state })
            }
        }
    }
}

/// Returns the position of the page with this index in the list, or as an error the position at which to insert it.
#[inline]
fn find(list: &[Slot], index: u64) -> Result<usize, usize> {
    match list.last() {
        Some(last) if last.index < index => Err(list.len()),
        Some(last) if last.index == index => Ok(list.len() - 1),
        _ => list.binary_search_by_key(&index, |slot| slot.index),
    }
}

fn span(list: &[Slot], range: &Range<u64>) -> Range<usize> {
    let at = |index| list.partition_point(|slot| slot.index < index);
    let from = at(range.start);
    from..at(range.end).max(from)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::page::{PAGE, Page};
    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Take(Range<u64>),
        TakeLast(Range<u64>),
    }

    fn a_step() -> impl Strategy<Value = Step> {
        let range = || (0..60u64, 0..20u64).prop_map(|(from, len)| from..from + len);
        prop_oneof![
            6 => (0..60u64).prop_map(Step::Insert),
            1 => range().prop_map(Step::Take),
            2 => range().prop_map(Step::TakeLast),
        ]
    }

    fn page(index: u64) -> PageState {
        PageState::Full(Bytes::copy_from_slice(&index.to_le_bytes()))
    }

    fn is_page(state: Option<&PageState>, index: u64) -> bool {
        matches!(state, Some(PageState::Full(bytes)) if bytes[..] == index.to_le_bytes())
    }

    proptest! {
        #[test]
        fn they_are_a_map_few_or_many(steps in prop::collection::vec(a_step(), 1..120)) {
            let (mut slots, mut model) = (Slots::new(), BTreeSet::new());
            for step in steps {
                let taken = match step {
                    Step::Insert(index) => {
                        slots.insert(index, page(index));
                        model.insert(index);
                        Dropped::new()
                    }
                    Step::Take(range) => {
                        let taken = slots.take(range.clone());
                        let expected: Vec<_> = model.range(range).copied().collect();
                        prop_assert_eq!(taken.iter().map(|s| s.index).collect::<Vec<_>>(), expected);
                        taken
                    }
                    Step::TakeLast(range) => {
                        let taken = slots.take_last(range.clone());
                        let expected = model.range(range).next_back().copied();
                        prop_assert_eq!(taken.as_ref().map(|slot| slot.index), expected);
                        taken.into_iter().collect()
                    }
                };
                for slot in taken {
                    prop_assert!(is_page(Some(&slot.state), slot.index));
                    model.remove(&slot.index);
                }
                for index in 0..60 {
                    let there = model.contains(&index);
                    prop_assert_eq!(is_page(slots.get(index), index), there);
                    prop_assert_eq!(slots.get_mut(index).is_some(), there);
                }
                prop_assert!(slots.within(7..33).eq(model.range(7..33).copied()));
                if let Slots::Few(list) = &slots {
                    prop_assert!(list.capacity() <= 4 * list.len().max(1));
                }
                prop_assert!(matches!(slots, Slots::Few(_)) || model.len() > FEW / 2);
            }
        }
    }

    #[test]
    fn a_slot_is_charged_with_its_page() {
        // A node of the tree has space for 11 entries, of which at least 5 are used. For every 6 leaf nodes there is one inner node, which
        // has twelve pointers in addition.
        let leaf = size_of::<(u64, PageState)>() * 11 + 16;
        let slot = (leaf + (leaf + 12 * 8) / 6) / 5;
        // A page has two allocations: its structure with the reference count of its `Arc`, and its view, 48 bytes including a reference
        // count.
        let page = (size_of::<Page>() + 16).next_multiple_of(16) + 48;
        let charged = Page::footprint(PAGE) - PAGE;
        assert!((page + slot) as u64 <= charged, "{page} + {slot}");
    }
}
