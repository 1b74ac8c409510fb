//! Batches: several records in one write. Small records are copied into a buffer; full pages are written from the memory in which the store
//! has them.

#[cfg(test)]
use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::device_io::pad;
use super::format::BLOCK;
use super::index::RecordLocation;
use super::types::{Id, RecordSource};
use crate::sys::buffer::{ALIGNED, Buffer};

/// Size in bytes of the buffers into which records are copied.
const PACKED: usize = 256 << 10;

/// A part of a write that is contiguous in memory.
pub enum Piece {
    /// Bytes copied into a buffer.
    Packed(Buffer),
    /// A page of the store that is written without a copy.
    Page(Bytes),
}

impl Piece {
    /// Returns the bytes of this part.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Piece::Packed(buffer) => buffer.filled(),
            Piece::Page(bytes) => bytes,
        }
    }
}

/// The record, tombstone or caller to be notified when a write has completed.
pub enum Completion {
    /// A new record was in the write.
    Put {
        /// Number of the record in the order in which items were queued.
        ticket: u64,
        /// Number of bytes charged to the queue for the record.
        weight: u64,
        /// Id of the record.
        id: Id,
        /// Location of the record on the volume.
        place: RecordLocation,
        /// Receives the result of the write.
        source: Box<dyn RecordSource>,
    },
    /// A record that was copied to another segment was in the write.
    Moved {
        /// Id of the record.
        id: Id,
        /// Location of the record before the copy.
        from: RecordLocation,
        /// Location of the copy.
        to: RecordLocation,
    },
    /// The batch contained a tombstone.
    Tombstone {
        /// Number of the tombstone in the order in which items were queued.
        ticket: u64,
        /// Id of the deleted record.
        id: Id,
    },
    /// A caller waits until everything queued earlier is on the device.
    #[cfg(test)]
    Flush(Sender<()>),
    /// The write concerns no record, tombstone or caller.
    None,
}

/// One write to the device, and the notifications after it.
#[derive(Default)]
pub struct Batch {
    /// Offset of the write on the device in bytes.
    pub place: u64,
    /// The parts to write, in order.
    pub pieces: Vec<Piece>,
    /// Records, tombstones and callers to be notified after the write.
    pub completions: Vec<Completion>,
    /// Whether the device is synced after the write.
    pub sync: bool,
}

/// Assembles the parts of a batch.
#[derive(Default)]
pub struct Packer {
    pieces: Vec<Piece>,
    packing: Option<Buffer>,
    spare: Vec<Buffer>,
    /// Number of bytes in all parts before the buffer that is being filled.
    before: u64,
}

impl Packer {
    /// Returns the number of bytes assembled so far.
    pub fn length(&self) -> u64 {
        self.before + self.packing.as_ref().map_or(0, |p| p.filled().len() as u64)
    }

    /// Appends a copy of these bytes.
    pub fn copy(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let packing = match &mut self.packing {
                Some(packing) => packing,
                none => none.insert(self.spare.pop().unwrap_or_else(|| Buffer::new(PACKED))),
            };
            bytes = &bytes[packing.append(bytes)..];
            if packing.filled().len() == PACKED {
                self.end_piece();
            }
        }
    }

    /// Appends zeros up to a multiple of `to`, which is at most a block.
    pub fn align(&mut self, to: u64) {
        const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
        let rest = self.length() % to;
        if rest > 0 {
            self.copy(&ZEROS[..(to - rest) as usize]);
        }
    }

    /// Appends bytes without copying if their alignment and position allow it, otherwise a copy.
    pub fn share(&mut self, bytes: &Bytes) {
        let whole = bytes.len() / ALIGNED * ALIGNED;
        let fits = bytes.as_ptr().addr().is_multiple_of(ALIGNED);
        if whole == 0 || !fits || !self.length().is_multiple_of(BLOCK) {
            self.copy(bytes);
            return;
        }
        self.end_piece();
        self.before += whole as u64;
        self.pieces.push(Piece::Page(bytes.slice(..whole)));
        self.copy(&bytes[whole..]);
    }

    /// Returns the parts, padded with zeros to a whole block. Also returns the bytes in the last block before the padding: the next batch
    /// writes this block again.
    pub fn finish(&mut self) -> (Vec<Piece>, Vec<u8>) {
        let mut tail = Vec::new();
        if let Some(packing) = &mut self.packing {
            let filled = packing.filled();
            tail = filled[filled.len() / ALIGNED * ALIGNED..].to_vec();
            pad(packing);
        }
        self.end_piece();
        self.before = 0;
        (std::mem::take(&mut self.pieces), tail)
    }

    /// Takes back buffers of a completed write for use in later batches.
    pub fn recycle(&mut self, pieces: Vec<Piece>) {
        const SPARE_MAX: usize = 64;
        for piece in pieces {
            if let Piece::Packed(mut buffer) = piece
                && self.spare.len() < SPARE_MAX
            {
                buffer.clear();
                self.spare.push(buffer);
            }
        }
    }

    fn end_piece(&mut self) {
        if let Some(packed) = self.packing.take() {
            self.before += packed.filled().len() as u64;
            self.pieces.push(Piece::Packed(packed));
        }
    }
}
