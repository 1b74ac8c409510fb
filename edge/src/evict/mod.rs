//! One file per eviction policy, behind one trait that speaks only ids.

use serde::Deserialize;

#[cfg(test)]
mod laws;
mod list;
mod lru;
pub mod replay;
mod s3_fifo;

/// `evict = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Three queues; resists scans and one-hit wonders (Yang et al., SOSP 2023).
    #[default]
    S3Fifo,
    /// Least recently used.
    Lru,
}

impl Kind {
    /// An empty policy of this kind.
    pub fn build(self) -> Box<dyn Policy + Send> {
        match self {
            Kind::S3Fifo => Box::new(s3_fifo::S3Fifo::default()),
            Kind::Lru => Box::new(lru::Lru::default()),
        }
    }
}

/// Decides who goes when there is no room. It knows no keys, holds no locks and has no capacity of
/// its own: the caller asks for victims for as long as it is over its limit.
///
/// Ids are the caller's, small and reused, as a slab gives them: memory grows with the largest one.
/// An id that is not tracked is passed over by `touch`, `resize` and `forget`.
pub trait Policy {
    /// Begins to track an id of this weight (bytes). `hash` names the key beyond the life of the
    /// id: by it a policy may know an entry that comes back. Where the id is tracked already, it
    /// is as if it had been forgotten before.
    fn track(&mut self, id: u32, hash: u64, weight: u64);

    /// Notes a use. O(1), a few instructions: this runs under a lock on every hit.
    fn touch(&mut self, id: u32);

    /// Changes the weight of what grew or shrank. Its place does not change.
    fn resize(&mut self, id: u32, weight: u64);

    /// Ends tracking of what went for another reason; it leaves no trace.
    fn forget(&mut self, id: u32);

    /// The next victim, which is no longer tracked; `None` when nothing is. A caller that can't
    /// drop it now (someone reads it) tracks it again.
    fn evict(&mut self) -> Option<u32>;

    /// How many ids are tracked.
    fn len(&self) -> usize;

    /// The sum of their weights.
    fn weight(&self) -> u64;

    /// Bytes of memory held.
    fn memory(&self) -> usize;

    /// Whether nothing is tracked.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
