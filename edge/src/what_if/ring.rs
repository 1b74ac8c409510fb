//! A queue of references between one worker, which adds them, and one thread, which takes them. Neither waits for the other.

use std::array;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::reference::{Reference, WORDS};

/// Number of references that a queue holds; a power of two. Further ones are dropped and counted.
pub(super) const RING_LEN: usize = 4096;

/// A reference in the queue. The words are atomic so that no unsafe code is needed. The order of accesses follows from `Ring::added` and
/// `Ring::taken`.
type Slot = [AtomicU64; WORDS];

/// Memory of a queue, in bytes.
pub(super) const RING_BYTES: usize = RING_LEN * size_of::<Slot>();

/// A queue of at most `RING_LEN` references, with one writer and one reader.
pub(super) struct Ring {
    slots: Box<[Slot]>,
    /// Number of references ever added; only the writer changes it.
    added: AtomicUsize,
    /// Number of references ever taken; only the reader changes it.
    taken: AtomicUsize,
}

impl Ring {
    /// Creates an empty queue.
    pub(super) fn new() -> Ring {
        let slot = |_| array::from_fn(|_| AtomicU64::new(0));
        Ring {
            slots: (0..RING_LEN).map(slot).collect(),
            added: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// Adds a reference. Only one thread may call this. Returns false if the queue is full.
    pub(super) fn push(&self, reference: &Reference) -> bool {
        let added = self.added.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Acquire);
        if added.wrapping_sub(taken) >= RING_LEN {
            return false;
        }
        let slot = &self.slots[added & (RING_LEN - 1)];
        for (there, word) in slot.iter().zip(reference.pack()) {
            there.store(word, Ordering::Relaxed);
        }
        self.added.store(added.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest reference. Only one thread may call this.
    pub(super) fn pop(&self) -> Option<Reference> {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.added.load(Ordering::Acquire) == taken {
            return None;
        }
        let slot = &self.slots[taken & (RING_LEN - 1)];
        let words = array::from_fn(|at| slot[at].load(Ordering::Relaxed));
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(Reference::unpack(words))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::reference::Outcome;
    use super::*;

    fn numbered(n: u64) -> Reference {
        Reference {
            hash: n,
            cache: n as u16,
            now_ms: n,
            fresh_until_ms: n,
            weight: n,
            bytes: n,
            outcome: Outcome::Hit,
            first: n.is_multiple_of(2),
        }
    }

    #[test]
    fn a_full_queue_refuses_more_and_keeps_the_order() {
        let ring = Ring::new();
        assert!((0..RING_LEN as u64).all(|n| ring.push(&numbered(n))));
        assert!(!ring.push(&numbered(0)));
        assert_eq!(ring.pop(), Some(numbered(0)));
        assert!(ring.push(&numbered(RING_LEN as u64)));
        let rest: Vec<Reference> = std::iter::from_fn(|| ring.pop()).collect();
        let expected: Vec<Reference> = (1..=RING_LEN as u64).map(numbered).collect();
        assert!(rest == expected);
    }

    #[test]
    fn what_one_thread_adds_another_one_takes_unchanged() {
        const COUNT: u64 = 50_000;
        let ring = Ring::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..COUNT {
                    while !ring.push(&numbered(n)) {
                        thread::yield_now();
                    }
                }
            });
            for n in 0..COUNT {
                let taken = loop {
                    match ring.pop() {
                        Some(taken) => break taken,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(taken, numbered(n));
            }
        });
    }
}
