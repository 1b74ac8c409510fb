//! S3-FIFO (Yang et al., SOSP 2023): a small queue for new entries, a main queue, and a ghost queue with the hashes of entries evicted from
//! the small queue.
//!
//! Uses are counted up to three. Entries move between queues only during evictions. An entry that was used twice in the small queue moves
//! to the main queue. An entry that returns while its ghost is remembered is inserted into the main queue. Whenever an entry reaches the
//! end of the main queue with uses left, it loses one use and goes back to the beginning.

use std::collections::{HashMap, VecDeque};

use super::list::Lists;
use super::policy::Policy;

const SMALL: usize = 0;
const MAIN: usize = 1;

/// Divisor of the total weight: the quotient is the weight for the small queue.
const SMALL_SHARE: u64 = 10;
const USES_MAX: u8 = 3;
/// Number of uses in the small queue from which on an entry moves to the main queue.
const USES_TO_STAY: u8 = 2;
/// Maximum number of entries that one eviction may keep before it evicts one, which bounds the time that a lock is held. After that, the
/// next entry in the main queue is evicted even if it was used. If all entries are used often, this evicts a few of them.
const PASSED_OVER_MAX: usize = 128;

#[derive(Default)]
pub(super) struct S3Fifo {
    queues: Lists<2>,
    ghosts: Ghosts,
}

impl S3Fifo {
    fn small_is_over(&self) -> bool {
        let small = self.queues.weight(SMALL);
        self.queues.len(MAIN) == 0 || small > self.weight() / SMALL_SHARE
    }

    /// Processes the oldest entry of the small queue: evicts it and leaves a ghost, or moves it to the main queue.
    fn evict_small(&mut self) -> Option<u32> {
        let (id, node) = self.queues.pop_oldest(SMALL)?;
        if node.uses >= USES_TO_STAY {
            self.queues.push(MAIN, id, node.hash, node.weight);
            return None;
        }
        // The paper keeps as many ghosts as the main queue has entries. While the main queue is small, the number of entries in the small
        // queue is used instead.
        let most = self.queues.len(MAIN).max(self.queues.len(SMALL));
        self.ghosts.add(node.hash, most);
        Some(id)
    }

    /// Processes the oldest entry of the main queue: evicts it, or, if it has been used, takes one use and puts it back as the newest
    /// entry.
    fn evict_main(&mut self, spare: bool) -> Option<u32> {
        let (id, node) = self.queues.pop_oldest(MAIN)?;
        if node.uses == 0 || !spare {
            return Some(id);
        }
        self.queues.push(MAIN, id, node.hash, node.weight);
        if let Some(again) = self.queues.get_mut(id) {
            again.uses = node.uses - 1;
        }
        None
    }
}

impl Policy for S3Fifo {
    fn track(&mut self, id: u32, hash: u64, weight: u64) {
        self.queues.remove(id);
        let queue = if self.ghosts.take(hash) { MAIN } else { SMALL };
        self.queues.push(queue, id, hash, weight);
    }

    #[inline]
    fn touch(&mut self, id: u32) {
        if let Some(node) = self.queues.get_mut(id)
            && node.uses < USES_MAX
        {
            node.uses += 1;
        }
    }

    fn resize(&mut self, id: u32, weight: u64) {
        self.queues.resize(id, weight);
    }

    fn forget(&mut self, id: u32) {
        self.queues.remove(id);
    }

    fn evict(&mut self) -> Option<u32> {
        let mut passed_over = 0;
        while !self.is_empty() {
            let spare = passed_over < PASSED_OVER_MAX;
            let from_small = self.queues.len(SMALL) > 0 && self.small_is_over();
            let victim = if from_small && (spare || self.queues.len(MAIN) == 0) {
                self.evict_small()
            } else {
                self.evict_main(spare)
            };
            if victim.is_some() {
                return victim;
            }
            passed_over += 1;
        }
        None
    }

    fn len(&self) -> usize {
        self.queues.len(SMALL) + self.queues.len(MAIN)
    }

    fn weight(&self) -> u64 {
        let small = self.queues.weight(SMALL);
        small.saturating_add(self.queues.weight(MAIN))
    }

    #[cfg(test)]
    fn memory(&self) -> usize {
        self.queues.memory() + self.ghosts.memory()
    }
}

/// Hashes of recently evicted entries, each with the number of its eviction. A hash that was taken and evicted again is in `order` twice,
/// and only the later number counts.
#[derive(Default)]
struct Ghosts {
    turns: HashMap<u64, u64, foldhash::fast::RandomState>,
    order: VecDeque<(u64, u64)>,
    turn: u64,
}

impl Ghosts {
    /// Remembers a hash, and forgets the oldest ones so that at most `most` (at least one) remain.
    fn add(&mut self, hash: u64, most: usize) {
        self.turn += 1;
        self.turns.insert(hash, self.turn);
        self.order.push_back((hash, self.turn));
        while self.order.len() > most.max(1) {
            let Some((oldest, turn)) = self.order.pop_front() else {
                break;
            };
            if self.turns.get(&oldest) == Some(&turn) {
                self.turns.remove(&oldest);
            }
        }
        self.give_back(most.max(64));
    }

    /// Forgets a hash. Returns whether it was remembered.
    fn take(&mut self, hash: u64) -> bool {
        self.turns.remove(&hash).is_some()
    }

    /// Releases memory if far more is allocated than needed.
    fn give_back(&mut self, needed: usize) {
        if self.order.capacity() > 8 * needed {
            self.order.shrink_to(2 * needed);
            self.turns.shrink_to(2 * needed);
        }
    }

    #[cfg(test)]
    fn memory(&self) -> usize {
        let pair = size_of::<(u64, u64)>();
        // A row of the hash table consists of a key with its value, and a control byte.
        self.order.capacity() * pair + self.turns.capacity() * (pair + 1)
    }
}
