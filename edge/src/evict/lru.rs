//! The LRU policy: one list, in which the entry used last is the newest.

use super::list::Lists;
use super::policy::Policy;

#[derive(Default)]
pub(super) struct Lru(Lists<1>);

impl Policy for Lru {
    fn track(&mut self, id: u32, hash: u64, weight: u64) {
        self.0.remove(id);
        self.0.push(0, id, hash, weight);
    }

    fn touch(&mut self, id: u32) {
        self.0.renew(id);
    }

    fn resize(&mut self, id: u32, weight: u64) {
        self.0.resize(id, weight);
    }

    fn forget(&mut self, id: u32) {
        self.0.remove(id);
    }

    fn evict(&mut self) -> Option<u32> {
        self.0.pop_oldest(0).map(|(id, _)| id)
    }

    fn len(&self) -> usize {
        self.0.len(0)
    }

    fn weight(&self) -> u64 {
        self.0.weight(0)
    }

    #[cfg(test)]
    fn memory(&self) -> usize {
        self.0.memory()
    }
}
