//! The interface of an eviction policy.

/// An eviction policy, which decides which entry to evict. A policy knows no keys, takes no locks and has no limit of its own: while the
/// caller is over its limit, it calls `evict`.
///
/// The caller assigns ids. They should be small and reused, such as those of a slab, because a policy's memory grows with the largest id.
/// `touch`, `resize` and `forget` ignore an id that is not tracked.
pub trait Policy {
    /// Starts tracking an id with this weight in bytes. `hash` identifies the entry's key, so that a policy can recognise an entry that
    /// returns under another id. If the id is already tracked, its earlier entry is forgotten first.
    fn track(&mut self, id: u32, hash: u64, weight: u64);

    /// Records a use of an entry. The call takes O(1) and a few instructions, because every hit makes it while holding a lock.
    fn touch(&mut self, id: u32);

    /// Changes the weight of an entry. Its position does not change.
    fn resize(&mut self, id: u32, weight: u64);

    /// Stops tracking an id whose entry was removed for another reason than eviction. The policy does not remember the entry.
    fn forget(&mut self, id: u32);

    /// Selects the next entry to evict, and stops tracking it; returns `None` if nothing is tracked. A caller that can't remove the entry
    /// now, because a reader uses it, tracks it again.
    fn evict(&mut self) -> Option<u32>;

    /// Returns the number of tracked ids.
    fn len(&self) -> usize;

    /// Returns the sum of the weights of all tracked ids in bytes.
    fn weight(&self) -> u64;

    /// Returns the heap memory of the policy in bytes.
    #[cfg(test)]
    fn memory(&self) -> usize;

    /// Whether no id is tracked.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
