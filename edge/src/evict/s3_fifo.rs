//! S3-FIFO (Yang et al., SOSP 2023): a small queue that new entries must survive, a main queue, and
//! a ghost queue of fingerprints that remembers who was dropped from the small one.
//!
//! A use only counts up to three; queues move when something is evicted. Entries used twice in the
//! small queue, or back while their ghost is remembered, go to main; in main each round costs a use.

use std::collections::{HashMap, VecDeque};

use super::Policy;
use super::list::Lists;

const SMALL: usize = 0;
const MAIN: usize = 1;

/// The small queue's share of all weight: a tenth.
const SMALL_SHARE: u64 = 10;
const USES_MAX: u8 = 3;
/// Uses in the small queue that earn a place in main.
const USES_TO_STAY: u8 = 2;
/// How many entries one eviction may pass over, so that a lock is never held long. Then the next in
/// main goes, used or not: it costs a few entries where everything is hot at once.
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

    /// Judges the oldest in the small queue: it goes and leaves its ghost, or moves to main.
    fn evict_small(&mut self) -> Option<u32> {
        let (id, node) = self.queues.pop_oldest(SMALL)?;
        if node.uses >= USES_TO_STAY {
            self.queues.push(MAIN, id, node.hash, node.weight);
            return None;
        }
        // As many ghosts as main has entries, as in the paper; while main is small, as all.
        let most = self.queues.len(MAIN).max(self.queues.len(SMALL));
        self.ghosts.add(node.hash, most);
        Some(id)
    }

    /// Judges the oldest in main: it goes, or pays a use for another round.
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

    fn memory(&self) -> usize {
        self.queues.memory() + self.ghosts.memory()
    }
}

/// Hashes of what was dropped lately, each with the turn at which it was: a hash that is taken out
/// and dropped again stands twice in the order, and only the later turn counts. The hashes are cut
/// from cryptographic ones, so that the table needs no secret.
#[derive(Default)]
struct Ghosts {
    turns: HashMap<u64, u64, foldhash::fast::FixedState>,
    order: VecDeque<(u64, u64)>,
    turn: u64,
}

impl Ghosts {
    /// Remembers a hash, and no more than `most` (at least one) in all.
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

    /// Whether the hash was remembered; it no longer is.
    fn take(&mut self, hash: u64) -> bool {
        self.turns.remove(&hash).is_some()
    }

    /// Gives memory back once far less is needed than before.
    fn give_back(&mut self, needed: usize) {
        if self.order.capacity() > 8 * needed {
            self.order.shrink_to(2 * needed);
            self.turns.shrink_to(2 * needed);
        }
    }

    fn memory(&self) -> usize {
        let pair = size_of::<(u64, u64)>();
        // A table row is a pair and a control byte.
        self.order.capacity() * pair + self.turns.capacity() * (pair + 1)
    }
}
