//! Input buffers, which connections borrow from their worker while they hold unused bytes.

use std::cell::RefCell;

/// Size of a buffer in bytes, and thus the most that one read returns.
const INPUT_BYTES: usize = 16 << 10;
/// Size in bytes of a small buffer, which holds the beginning of a head whose rest does not arrive.
const SMALL_BYTES: usize = 1 << 10;
/// Most unused buffers kept per worker.
const POOLED_MAX: usize = 64;

/// A buffer whose bytes `start..end` have been read and not used yet.
pub struct Input {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn new(bytes: usize) -> Box<Input> {
        Box::new(Input {
            memory: vec![0; bytes].into_boxed_slice(),
            start: 0,
            end: 0,
        })
    }

    /// Returns the bytes that have not been used yet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Whether all bytes have been used.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the free part of the buffer, to read into. Empty only if `is_full`.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.memory.len() && self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.memory[self.end..]
    }

    /// Whether the buffer has no free part until some bytes are used.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.end - self.start == self.memory.len()
    }

    /// Doubles the buffer, up to `most` bytes.
    pub fn grow(&mut self, most: usize) {
        let larger = (self.memory.len() * 2).min(most).max(self.memory.len());
        let mut memory = vec![0; larger].into_boxed_slice();
        let length = self.end - self.start;
        memory[..length].copy_from_slice(self.bytes());
        (self.memory, self.start, self.end) = (memory, 0, length);
    }

    /// Whether this is a small buffer.
    #[inline]
    pub fn is_small(&self) -> bool {
        self.memory.len() < INPUT_BYTES
    }

    /// Returns a small buffer with the same bytes, if they fit into half of a small buffer.
    fn shrunk(&self) -> Option<Box<Input>> {
        let length = self.end - self.start;
        if self.is_small() || length > SMALL_BYTES / 2 {
            return None;
        }
        let mut small = Input::new(SMALL_BYTES);
        small.memory[..length].copy_from_slice(self.bytes());
        small.end = length;
        Some(small)
    }

    /// Marks the first `n` bytes of `spare` as read.
    #[inline]
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.memory.len());
    }

    /// Removes the first `n` unused bytes.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }
}

/// One worker's unused buffers. They are boxed, so that an idle connection stores only a pointer.
#[derive(Default)]
#[allow(
    clippy::vec_box,
    reason = "they move between the pool and connections as they are"
)]
pub struct Pool {
    inputs: RefCell<Vec<Box<Input>>>,
}

impl Pool {
    /// Returns an empty buffer.
    #[inline]
    pub fn get(&self) -> Box<Input> {
        let pooled = self.inputs.borrow_mut().pop();
        pooled.unwrap_or_else(|| Input::new(INPUT_BYTES))
    }

    /// Returns a buffer to the pool and discards the buffer's bytes.
    #[inline]
    pub fn put(&self, mut input: Box<Input>) {
        let mut inputs = self.inputs.borrow_mut();
        if input.memory.len() == INPUT_BYTES && inputs.len() < POOLED_MAX {
            (input.start, input.end) = (0, 0);
            inputs.push(input);
        }
    }

    /// Moves the bytes of `input` to a small buffer, if they fit into half of one.
    pub fn shrink(&self, input: Box<Input>) -> Box<Input> {
        match input.shrunk() {
            None => input,
            Some(small) => {
                self.put(input);
                small
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_compaction_and_growth() {
        let mut input = Input::new(8);
        input.spare()[..8].copy_from_slice(b"abcdefgh");
        input.filled(8);
        assert!(input.is_full());
        input.consume(5);
        let spare = input.spare();
        assert_eq!(spare.len(), 5);
        spare[..2].copy_from_slice(b"ij");
        input.filled(2);
        assert_eq!(input.bytes(), b"fghij");
        input.grow(12);
        assert_eq!(input.bytes(), b"fghij");
        assert_eq!(input.spare().len(), 7);
    }

    #[test]
    fn a_few_bytes_move_to_a_small_buffer() {
        let pool = Pool::default();
        let mut input = pool.get();
        input.spare()[..5].copy_from_slice(b"GET /");
        input.filled(5);
        let mut small = pool.shrink(input);
        assert!(small.is_small() && small.bytes() == b"GET /");
        assert_eq!(small.spare().len(), SMALL_BYTES - 5);
        assert_eq!(pool.inputs.borrow().len(), 1);
        pool.put(small);
        assert_eq!(pool.inputs.borrow().len(), 1, "small ones are not kept");
        let mut much = pool.get();
        much.filled(SMALL_BYTES);
        assert!(!pool.shrink(much).is_small());
    }
}
