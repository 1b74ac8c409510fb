//! The bytes of one body that are in memory, in chunks.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::quota::Charge;

/// Size of a chunk that is filled with small pieces, in bytes.
const CHUNK: usize = 16 << 10;
/// Smallest piece that is kept as it is. Smaller ones are copied, since a piece may hold the whole memory of the read
/// buffer that it comes from.
const LARGE: usize = 8 << 10;

/// The bytes of one body that are in memory.
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

    /// Returns the number of bytes.
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

    /// Takes the first chunks that have `least` bytes, or all, with the charge of their memory.
    pub(super) fn take(&mut self, least: u64) -> (VecDeque<Bytes>, Charge) {
        if self.bytes - (self.last.len() as u64) < least {
            self.end_chunk();
        }
        let (mut taken, mut length, mut charged) = (VecDeque::new(), 0, 0);
        while length < least
            && let Some((chunk, its)) = self.full.pop_front()
        {
            length += chunk.len() as u64;
            charged += its;
            taken.push_back(chunk);
        }
        self.bytes -= length;
        (taken, self.charge.split(charged))
    }

    /// Returns a charge of memory for the same client, to which `bytes` were added if there is room.
    pub(super) fn charge_if_free(&mut self, bytes: u64) -> Charge {
        let mut charge = self.charge.split(0);
        charge.grow(bytes);
        charge
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
