//! The buffered bytes of one body, in chunks.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::memory::Charge;

/// Size of a chunk that is filled with small pieces, in bytes.
const CHUNK: usize = 16 << 10;
/// Smallest piece that is kept as it is. Smaller ones are copied, since a piece may hold the whole memory of the read
/// buffer that it comes from.
const LARGE: usize = 8 << 10;

/// The buffered bytes of one body.
pub(super) struct Chunks {
    /// Complete chunks, each with the bytes that are counted for it.
    full: VecDeque<(Bytes, u64)>,
    /// The chunk that is being filled.
    last: BytesMut,
    /// Bytes that are counted for `last`.
    last_charge: u64,
    bytes: u64,
    charge: Charge,
}

impl Chunks {
    pub(super) fn new(charge: Charge) -> Chunks {
        Chunks {
            full: VecDeque::new(),
            last: BytesMut::new(),
            last_charge: 0,
            bytes: 0,
            charge,
        }
    }

    /// Returns the number of buffered bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds bytes. Returns false if there is no memory for them; nothing is added then. An empty buffer takes them in any
    /// case if `force` is set.
    pub(super) fn push(&mut self, piece: &Bytes, force: bool) -> bool {
        if piece.len() <= self.last.capacity() - self.last.len() {
            self.last.extend_from_slice(piece);
            self.bytes += piece.len() as u64;
            return true;
        }
        let size = piece.len().max(CHUNK) as u64;
        let counted = self.charge.grow(size);
        if !counted && (!force || self.bytes > 0) {
            return false;
        }
        let charged = if counted { size } else { 0 };
        self.end_chunk();
        if piece.len() >= LARGE {
            self.full.push_back((piece.clone(), charged));
        } else {
            self.last = BytesMut::with_capacity(CHUNK);
            self.last.extend_from_slice(piece);
            self.last_charge = charged;
        }
        self.bytes += piece.len() as u64;
        true
    }

    /// Takes the first bytes.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        if self.full.is_empty() {
            self.end_chunk();
        }
        let (chunk, charged) = self.full.pop_front()?;
        self.bytes -= chunk.len() as u64;
        self.charge.shrink(charged);
        Some(chunk)
    }

    fn end_chunk(&mut self) {
        let last = std::mem::take(&mut self.last);
        let charged = std::mem::take(&mut self.last_charge);
        match last.is_empty() {
            true => self.charge.shrink(charged),
            false => self.full.push_back((last.freeze(), charged)),
        }
    }
}
