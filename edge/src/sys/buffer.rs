//! A buffer: memory with one owner, which stays uninitialised until bytes are read into it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Alignment in bytes of memory, offsets and lengths for reads and writes that bypass the page cache.
pub const ALIGNED: usize = 4096;

/// Memory with one owner. If its capacity is a multiple of `ALIGNED`, its address is, too.
pub struct Buffer {
    memory: NonNull<u8>,
    capacity: usize,
    filled: usize,
}

// SAFETY: a `Buffer` is the only owner of its memory, and gives access to it only through `&self` and `&mut self`.
unsafe impl Send for Buffer {}
// SAFETY: `&self` permits only reads of the memory, so several threads may use a `&Buffer` at a time.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates memory for `capacity` bytes, at least one; none of them is filled.
    pub fn new(capacity: usize) -> Buffer {
        let layout = layout(capacity);
        // SAFETY: the layout's size is not zero (`layout` rounds up to at least one byte).
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

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the filled bytes.
    pub fn filled(&self) -> &[u8] {
        // SAFETY: the filled bytes are within the allocation, and initialised (contract of `set_filled`).
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.filled) }
    }

    /// Returns the memory after the filled bytes, to be written to.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the slice is within the allocation; `MaybeUninit` permits bytes that are not initialised.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.memory.as_ptr().add(self.filled).cast(),
                self.capacity - self.filled,
            )
        }
    }

    /// Marks the first `filled` bytes as filled.
    ///
    /// # Safety
    ///
    /// These bytes must have been written to.
    ///
    /// # Panics
    ///
    /// If the capacity is smaller than `filled`.
    pub unsafe fn set_filled(&mut self, filled: usize) {
        assert!(filled <= self.capacity, "no more is filled than there is");
        self.filled = filled;
    }

    /// Marks all bytes as not filled.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Appends as many of `bytes` as the capacity permits. Returns their number.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let take = bytes.len().min(self.capacity - self.filled);
        for (to, from) in self.spare().iter_mut().zip(&bytes[..take]) {
            to.write(*from);
        }
        self.filled += take;
        take
    }

    /// Gives up ownership of the memory. Returns the pointer, the capacity, and the number of filled bytes; `from_parts` takes ownership
    /// again.
    pub fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        let parts = (self.memory, self.capacity, self.filled);
        std::mem::forget(self);
        parts
    }

    /// Takes ownership of memory from `into_parts`: its pointer, its capacity, and the number of filled bytes.
    ///
    /// # Safety
    ///
    /// The memory must come from `into_parts`, must be passed here only once, and nothing else may use it. The first `filled` bytes must
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
        // SAFETY: the memory was allocated in `new` with the same layout, and was not freed before.
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
    fn a_buffer_holds_the_bytes_that_were_appended() {
        let mut buffer = Buffer::new(5);
        assert_eq!(buffer.append(b"abc"), 3);
        assert_eq!(buffer.append(b"defg"), 2);
        assert_eq!(buffer.filled(), b"abcde");
        let (memory, capacity, filled) = buffer.into_parts();
        // SAFETY: these are the values that `into_parts` returned, and they are used only once.
        let buffer = unsafe { Buffer::from_parts(memory, capacity, filled) };
        assert_eq!(buffer.filled(), b"abcde");
    }

    #[test]
    fn whole_blocks_are_aligned_for_direct_reads() {
        let mut buffer = Buffer::new(2 * ALIGNED);
        assert_eq!(buffer.spare().as_ptr() as usize % ALIGNED, 0);
    }
}
