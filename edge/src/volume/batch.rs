//! Records put side by side into one write: small ones are copied, full pages go as they are.

use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::device_io::pad;
use super::format::BLOCK;
use super::index::RecordLocation;
use super::{Id, Source};
use crate::sys::buffer::{ALIGNED, Buffer};

/// Bytes of the buffers that records are copied into.
const PACKED: usize = 256 << 10;

/// Part of a write.
pub enum Piece {
    /// Copied.
    Packed(Buffer),
    /// As it came.
    Page(Bytes),
}

impl Piece {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Piece::Packed(buffer) => buffer.filled(),
            Piece::Page(bytes) => bytes,
        }
    }
}

/// What is to be told when a write is done.
pub enum Told {
    /// A record is there.
    Put {
        /// Its place in line.
        ticket: u64,
        /// What it counted for.
        weight: u64,
        /// What it is found by.
        id: Id,
        /// Where it is.
        place: RecordLocation,
        /// Who brought it.
        source: Box<dyn Source>,
    },
    /// A record is at another place.
    Moved {
        /// What it is found by.
        id: Id,
        /// Where it was.
        from: RecordLocation,
        /// Where it is.
        to: RecordLocation,
    },
    /// A record is gone.
    Tombstone {
        /// Its place in line.
        ticket: u64,
        /// Whose it was.
        id: Id,
    },
    /// All before is on the device.
    Flush(Sender<()>),
    /// Nobody is told.
    Nobody,
}

/// One write, and what is told when it is done.
#[derive(Default)]
pub struct Batch {
    /// Where it goes, on the device.
    pub place: u64,
    /// What is written.
    pub pieces: Vec<Piece>,
    /// What is told.
    pub told: Vec<Told>,
    /// Whether the device is synced after it.
    pub sync: bool,
}

/// Puts bytes together, block by block.
#[derive(Default)]
pub struct Packer {
    pieces: Vec<Piece>,
    packing: Option<Buffer>,
    spare: Vec<Buffer>,
    /// Bytes of all pieces that are full.
    before: u64,
}

impl Packer {
    /// How many bytes were put in.
    pub fn length(&self) -> u64 {
        self.before + self.packing.as_ref().map_or(0, |p| p.filled().len() as u64)
    }

    /// Copies bytes in.
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

    /// Zeros up to a multiple of this, which is at most a block.
    pub fn align(&mut self, to: u64) {
        const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
        let rest = self.length() % to;
        if rest > 0 {
            self.copy(&ZEROS[..(to - rest) as usize]);
        }
    }

    /// Puts bytes in as they are where memory and place allow that, and copies the others.
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

    /// The pieces, filled up with zeros to a whole block; and what was in that block before them.
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

    /// Takes buffers back, to be filled again.
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
