//! A buffer: memory with one owner, not initialised until something is read into it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// What direct reads and writes want their memory, places and lengths to be multiples of.
pub const ALIGNED: usize = 4096;

/// Memory with one owner. Aligned for direct reads and writes if its capacity is.
pub struct Buffer {
    memory: NonNull<u8>,
    capacity: usize,
    filled: usize,
}

// SAFETY: it owns its memory alone, and gives it out only through `&self` and `&mut self`.
unsafe impl Send for Buffer {}
// SAFETY: as above; `&self` only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory for `capacity` bytes, at least one, none of them filled.
    pub fn new(capacity: usize) -> Buffer {
        let layout = layout(capacity);
        // SAFETY: the layout's size is not zero (`layout` takes at least one byte).
        let memory = unsafe { alloc(layout) };
        let Some(memory) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        Buffer {
            memory,
            capacity: layout.size(),
            filled: 0,
        }
    }

    /// How many bytes fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes that are filled.
    pub fn filled(&self) -> &[u8] {
        // SAFETY: within the allocation, and initialised (contract of `set_filled`).
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.filled) }
    }

    /// The same, to be changed.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `filled`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.filled) }
    }

    /// The room behind what is filled.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: within the allocation; uninitialised bytes are what `MaybeUninit` is for.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.memory.as_ptr().add(self.filled).cast(),
                self.capacity - self.filled,
            )
        }
    }

    /// Says that the first `filled` bytes are filled.
    ///
    /// # Safety
    /// They must have been written to.
    ///
    /// # Panics
    /// When there are not so many.
    pub unsafe fn set_filled(&mut self, filled: usize) {
        assert!(filled <= self.capacity, "no more is filled than there is");
        self.filled = filled;
    }

    /// Nothing is filled any more.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Copies as much of `bytes` behind what is filled as there is room for; how much that was.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let take = bytes.len().min(self.capacity - self.filled);
        for (to, from) in self.spare().iter_mut().zip(&bytes[..take]) {
            to.write(*from);
        }
        self.filled += take;
        take
    }

    /// Its memory, which is no longer its own: to be given back by `from_parts`.
    pub fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        let parts = (self.memory, self.capacity, self.filled);
        std::mem::forget(self);
        parts
    }

    /// Memory that is owned again: place, capacity, and how much is filled.
    ///
    /// # Safety
    /// It must be what `into_parts` gave, once, and nobody else may use it any more. So much must
    /// have been written to.
    pub unsafe fn from_parts(memory: NonNull<u8>, capacity: usize, filled: usize) -> Buffer {
        Buffer {
            memory,
            capacity,
            filled,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and not freed before.
        unsafe { dealloc(self.memory.as_ptr(), layout(self.capacity)) }
    }
}

fn layout(capacity: usize) -> Layout {
    let capacity = capacity.max(1);
    let align = if capacity.is_multiple_of(ALIGNED) {
        ALIGNED
    } else {
        16
    };
    #[expect(
        clippy::expect_used,
        reason = "capacities are those of pages and records, far below isize::MAX"
    )]
    Layout::from_size_align(capacity, align).expect("a buffer's layout is valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_put_in() {
        let mut buffer = Buffer::new(5);
        assert_eq!(buffer.append(b"abc"), 3);
        assert_eq!(buffer.append(b"defg"), 2);
        assert_eq!(buffer.filled(), b"abcde");
        let (memory, capacity, filled) = buffer.into_parts();
        // SAFETY: what `into_parts` gave, once.
        let buffer = unsafe { Buffer::from_parts(memory, capacity, filled) };
        assert_eq!(buffer.filled(), b"abcde");
    }

    #[test]
    fn whole_blocks_are_aligned_for_direct_reads() {
        let mut buffer = Buffer::new(2 * ALIGNED);
        assert_eq!(buffer.spare().as_ptr() as usize % ALIGNED, 0);
    }
}
