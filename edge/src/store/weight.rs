//! Estimates of the memory that stored content takes, for the simulation of other cache sizes.

use super::block_index::BLOCK_OVERHEAD;
use super::head::Head;
use super::object::Object;
use super::object_store::OBJECT_OVERHEAD;
use super::page::{PAGE, Page};

impl Object {
    /// Returns the memory that the object takes with this head and without its content, in bytes.
    pub fn weight_without_content(&self, head: &Head) -> u64 {
        OBJECT_OVERHEAD + self.key.len() as u64 + head.memory()
    }
}

/// Returns the memory that this many bytes of content take, in bytes.
pub fn content_weight(bytes: u64) -> u64 {
    let (pages, rest) = (bytes / PAGE, bytes % PAGE);
    let rest = if rest > 0 { Page::footprint(rest) } else { 0 };
    (pages.saturating_mul(Page::footprint(PAGE))).saturating_add(rest)
}

/// Returns the memory that a separately evicted block with this many bytes takes, in bytes.
pub fn block_weight(bytes: u64) -> u64 {
    content_weight(bytes).saturating_add(BLOCK_OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_takes_the_memory_of_its_pages() {
        assert_eq!(content_weight(0), 0);
        assert_eq!(content_weight(100), Page::footprint(100));
        let three = 2 * Page::footprint(PAGE) + Page::footprint(1);
        assert_eq!(content_weight(2 * PAGE + 1), three);
        assert_eq!(block_weight(2 * PAGE + 1), three + BLOCK_OVERHEAD);
    }
}
