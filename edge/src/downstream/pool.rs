//! Buffers that connections borrow from their worker while bytes are in hand.

use std::cell::RefCell;

use super::http1::outbox::Outbox;

/// Bytes that a read may bring at once.
const INPUT_BYTES: usize = 16 << 10;
/// Bytes of a buffer for what has begun to come and does not go on.
const TUCKED_BYTES: usize = 1 << 10;
/// Buffers of each kind kept for reuse.
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

    /// What has not been used yet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Whether all has been used.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Where to read to. Not empty unless `is_full`.
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

    /// Whether nothing more can be read before some is used.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.end - self.start == self.memory.len()
    }

    /// Makes room for larger heads than usual, up to `most` bytes.
    pub fn grow(&mut self, most: usize) {
        let larger = (self.memory.len() * 2).min(most).max(self.memory.len());
        let mut memory = vec![0; larger].into_boxed_slice();
        let length = self.end - self.start;
        memory[..length].copy_from_slice(self.bytes());
        (self.memory, self.start, self.end) = (memory, 0, length);
    }

    /// Whether it is smaller than most.
    #[inline]
    pub fn is_tucked(&self) -> bool {
        self.memory.len() < INPUT_BYTES
    }

    /// The same bytes in a small buffer, if they are few.
    fn tucked(&self) -> Option<Box<Input>> {
        let length = self.end - self.start;
        if self.is_tucked() || length > TUCKED_BYTES / 2 {
            return None;
        }
        let mut small = Input::new(TUCKED_BYTES);
        small.memory[..length].copy_from_slice(self.bytes());
        small.end = length;
        Some(small)
    }

    /// `n` bytes were read.
    #[inline]
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.memory.len());
    }

    /// `n` bytes were used.
    #[inline]
    pub fn used(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }
}

/// One worker's buffers. Inputs are boxed, for a connection has only a word of room for one.
#[derive(Default)]
#[allow(
    clippy::vec_box,
    reason = "they move between the pool and connections as they are"
)]
pub struct Pool {
    inputs: RefCell<Vec<Box<Input>>>,
    outboxes: RefCell<Vec<Outbox>>,
}

impl Pool {
    /// An empty buffer.
    #[inline]
    pub fn input(&self) -> Box<Input> {
        let pooled = self.inputs.borrow_mut().pop();
        pooled.unwrap_or_else(|| Input::new(INPUT_BYTES))
    }

    /// Takes a buffer back; what was in it is forgotten.
    #[inline]
    pub fn put_input(&self, mut input: Box<Input>) {
        let mut inputs = self.inputs.borrow_mut();
        if input.memory.len() == INPUT_BYTES && inputs.len() < POOLED_MAX {
            (input.start, input.end) = (0, 0);
            inputs.push(input);
        }
    }

    /// The same input in as little memory as will do, for who may keep us waiting.
    pub fn tuck(&self, input: Box<Input>) -> Box<Input> {
        match input.tucked() {
            None => input,
            Some(small) => {
                self.put_input(input);
                small
            }
        }
    }

    /// An empty outbox.
    #[inline]
    pub fn outbox(&self) -> Outbox {
        self.outboxes.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes an outbox back.
    #[inline]
    pub fn put_outbox(&self, mut outbox: Outbox) {
        let mut outboxes = self.outboxes.borrow_mut();
        if outboxes.len() < POOLED_MAX && outbox.clear_for_reuse() {
            outboxes.push(outbox);
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
        input.used(5);
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
    fn few_bytes_need_little_memory() {
        let pool = Pool::default();
        let mut input = pool.input();
        input.spare()[..5].copy_from_slice(b"GET /");
        input.filled(5);
        let mut small = pool.tuck(input);
        assert!(small.is_tucked() && small.bytes() == b"GET /");
        assert_eq!(small.spare().len(), TUCKED_BYTES - 5);
        assert_eq!(pool.inputs.borrow().len(), 1);
        pool.put_input(small);
        assert_eq!(pool.inputs.borrow().len(), 1, "small ones are not kept");
        let mut much = pool.input();
        much.filled(TUCKED_BYTES);
        assert!(!pool.tuck(much).is_tucked());
    }
}
