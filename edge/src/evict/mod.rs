//! Eviction policies, one file each, behind a trait that knows only ids.

use serde::Deserialize;

#[cfg(test)]
mod laws;
mod list;
mod lru;
pub mod replay;
mod s3_fifo;

/// The values of the option `evict`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// S3-FIFO: three queues; resists scans and entries used only once (Yang et al., SOSP 2023).
    #[default]
    S3Fifo,
    /// Least recently used.
    Lru,
}

impl Kind {
    /// Creates an empty policy of this kind.
    pub fn build(self) -> Box<dyn Policy + Send> {
        match self {
            Kind::S3Fifo => Box::new(s3_fifo::S3Fifo::default()),
            Kind::Lru => Box::new(lru::Lru::default()),
        }
    }
}

/// Decides which entry to evict. A policy knows no keys, takes no locks and has no limit of its
/// own: the caller requests victims while it is over its limit.
///
/// The caller assigns small, reused ids, such as those of a slab, because memory grows with the
/// largest id. `touch`, `resize` and `forget` ignore an id that is not tracked.
pub trait Policy {
    /// Starts tracking an id with this weight (bytes). `hash` identifies the entry's key, so that a
    /// policy can recognise an entry that returns under another id. An id that is already tracked
    /// is forgotten first.
    fn track(&mut self, id: u32, hash: u64, weight: u64);

    /// Records a use. This takes O(1) and a few instructions, because every hit calls it while
    /// holding a lock.
    fn touch(&mut self, id: u32);

    /// Changes the weight of an entry. Its position does not change.
    fn resize(&mut self, id: u32, weight: u64);

    /// Stops tracking an id that was removed for another reason than eviction, without remembering
    /// it.
    fn forget(&mut self, id: u32);

    /// Selects the next victim and stops tracking it; `None` if nothing is tracked. A caller that
    /// can't remove the victim now, because a reader uses it, tracks it again.
    fn evict(&mut self) -> Option<u32>;

    /// Number of tracked ids.
    fn len(&self) -> usize;

    /// Sum of their weights.
    fn weight(&self) -> u64;

    /// Heap memory in bytes.
    #[cfg(test)]
    fn memory(&self) -> usize;

    /// Whether no id is tracked.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
