//! Input buffers, which connections borrow from their worker while they hold unused bytes.

use std::cell::RefCell;

/// Bytes of a buffer: the most that one read returns.
const INPUT_BYTES: usize = 16 << 10;
/// Bytes of a small buffer, for the beginning of a head whose rest does not arrive.
const SMALL_BYTES: usize = 1 << 10;
/// Buffers kept for reuse per worker.
const POOLED_MAX: usize = 64;

/// Bytes read and not yet used: `start..end` of the memory.
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

    /// The bytes that have not been used yet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Whether all has been used.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The room to read into; empty only if `is_full`.
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

    /// Whether no byte can be read before some are used.
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

    /// A small buffer with the same bytes, if they fit into half of it.
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

    /// Adds `n` bytes that were read into `spare`.
    #[inline]
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.memory.len());
    }

    /// Removes the first `n` bytes.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }
}

/// One worker's unused buffers. They are boxed, so that an idle connection has only a pointer for one.
#[derive(Default)]
#[allow(
    clippy::vec_box,
    reason = "they move between the pool and connections as they are"
)]
pub struct Pool {
    inputs: RefCell<Vec<Box<Input>>>,
}

impl Pool {
    /// An empty buffer.
    #[inline]
    pub fn get(&self) -> Box<Input> {
        let pooled = self.inputs.borrow_mut().pop();
        pooled.unwrap_or_else(|| Input::new(INPUT_BYTES))
    }

    /// Returns a buffer to the pool; its content is discarded.
    #[inline]
    pub fn put(&self, mut input: Box<Input>) {
        let mut inputs = self.inputs.borrow_mut();
        if input.memory.len() == INPUT_BYTES && inputs.len() < POOLED_MAX {
            (input.start, input.end) = (0, 0);
            inputs.push(input);
        }
    }

    /// Moves input to a small buffer, if it fits.
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
