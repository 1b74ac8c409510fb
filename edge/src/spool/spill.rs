//! The part of one body that is in a temporary file.
//!
//! The order of a body's bytes: first the blocks in the file, then the block that is being written, then the bytes in
//! memory. The block that is being written stays in memory until the write has succeeded, so that no bytes
//! are lost if the write fails.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::chunks::Chunks;
use super::folder::{FileCharge, Folder, Operation, Read, SpillFile, Written, reason_of};
use super::options::DiskOptions;
use super::quota::Charge;
use super::shared::Buffers;
use crate::http::ClientId;
use crate::reason::Reason;

/// Largest block that is written and read at once, in bytes, except for a single larger chunk.
const BLOCK_MAX: u64 = 256 << 10;
/// Memory that is counted for each block in the file.
const BLOCK_MEMORY: u64 = size_of::<Block>() as u64;

/// The means to continue bodies in files.
#[derive(Clone)]
pub(super) struct Disk {
    pub folder: Arc<Folder>,
    pub options: Arc<DiskOptions>,
    pub buffers: Arc<Buffers>,
}

/// The part of one body that is in a temporary file, or on its way there.
pub(super) struct Spill {
    disk: Disk,
    client: ClientId,
    file: Option<Arc<SpillFile>>,
    /// The blocks in the file, from `read_at` to `write_at`.
    blocks: VecDeque<Block>,
    /// Memory of `blocks`.
    blocks_charge: Option<Charge>,
    read_at: u64,
    write_at: u64,
    read: Option<Operation<Read>>,
    /// The block that is being written, or could not be written, as far as it was not taken.
    pending: Pending,
    /// The failure of the disk after which nothing more is written.
    failure: Option<Reason>,
    /// Whether the body found no room on the disk before.
    was_refused: bool,
}

struct Block {
    length: u32,
    checksum: u32,
}

#[derive(Default)]
struct Pending {
    chunks: VecDeque<Bytes>,
    bytes: u64,
    /// The charge of the chunks' memory, which a write under way has.
    charge: Option<Charge>,
    write: Option<Operation<Written>>,
    /// Length of the block that is being written.
    length: u64,
}

impl Spill {
    pub(super) fn new(disk: Disk, client: ClientId) -> Spill {
        Spill {
            disk,
            client,
            file: None,
            blocks: VecDeque::new(),
            blocks_charge: None,
            read_at: 0,
            write_at: 0,
            read: None,
            pending: Pending::default(),
            failure: None,
            was_refused: false,
        }
    }

    /// Returns the most bytes of the body that may be in memory.
    pub(super) fn memory_max(&self) -> u64 {
        self.disk.options.memory_per_body
    }

    /// Returns the most bytes that a whole body may have.
    pub(super) fn body_max(&self) -> u64 {
        let options = &self.disk.options;
        let of_client = self.disk.buffers.disk.of_client();
        let on_disk = options.bytes_per_body.min(of_client);
        on_disk.max(options.memory_per_body)
    }

    /// Whether the body has a file.
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the number of bytes that were not taken.
    pub(super) fn bytes(&self) -> u64 {
        self.write_at - self.read_at + self.pending.bytes
    }

    /// Returns the number of bytes in memory.
    pub(super) fn bytes_in_memory(&self) -> u64 {
        self.pending.bytes
    }

    /// Begins to write a block if `chunks` has a whole one. There must be no write under way.
    pub(super) fn write_block(&mut self, chunks: &mut Chunks) {
        if chunks.bytes() >= self.block_length() {
            // If the disk takes nothing now, the next bytes without room in memory find out.
            let _ = self.write(chunks);
        }
    }

    /// Begins to write the first bytes of `chunks`, or again those that could not be written before. There must be no
    /// write under way.
    ///
    /// # Errors
    ///
    /// `BuffersFull` if there is nothing to write, otherwise the reason for which the disk takes nothing.
    pub(super) fn write(&mut self, chunks: &mut Chunks) -> Result<(), Reason> {
        debug_assert!(self.pending.write.is_none());
        if let Some(reason) = self.failure {
            return Err(reason);
        }
        if self.pending.chunks.is_empty() {
            let before = chunks.bytes();
            let (taken, charge) = chunks.take(self.block_length());
            self.pending.bytes = before - chunks.bytes();
            self.pending.keep(taken, charge);
        }
        let length = self.pending.bytes;
        if length == 0 {
            return Err(Reason::BuffersFull);
        }
        if self.blocks.is_empty() {
            // All of the file was read, so it is written from its start again.
            (self.read_at, self.write_at) = (0, 0);
        }
        let Some(file) = self.room_for(length) else {
            return Err(self.refused());
        };
        let charge = self.pending.charge.take();
        let charge = charge.unwrap_or_else(|| self.disk.buffers.memory_of(self.client));
        let parts = self.pending.chunks.iter().cloned().collect();
        let timeout = self.disk.options.timeout;
        self.pending.length = length;
        self.pending.write = Some(file.write(self.write_at, parts, charge, timeout));
        Ok(())
    }

    fn block_length(&self) -> u64 {
        self.memory_max().div_ceil(2).min(BLOCK_MAX)
    }

    /// Returns the file if there is room for this many further bytes.
    fn room_for(&mut self, length: u64) -> Option<Arc<SpillFile>> {
        let end = self.write_at + length;
        if end > self.disk.options.bytes_per_body || u32::try_from(length).is_err() {
            return None;
        }
        if let Some(file) = &self.file {
            return file.reserve(end).then(|| file.clone());
        }
        let buffers = &self.disk.buffers;
        let mut charge = FileCharge {
            bytes: Charge::new(&buffers.disk, self.client),
            count: Charge::new(&buffers.files, self.client),
        };
        if !charge.count.grow(1) || !charge.bytes.grow(end) {
            return None;
        }
        let file = SpillFile::new(&self.disk.folder, charge);
        self.file = Some(file.clone());
        buffers.counts.spilled.fetch_add(1, Ordering::Relaxed);
        Some(file)
    }

    fn refused(&mut self) -> Reason {
        let reason = Reason::BufferDiskFull;
        if !std::mem::replace(&mut self.was_refused, true) {
            self.disk.buffers.counts.failure(reason);
        }
        reason
    }

    /// Waits for the end of a write under way, successful or not.
    pub(super) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(write) = &mut self.pending.write else {
            return Poll::Ready(());
        };
        let result = ready!(write.poll(cx));
        self.pending.write = None;
        match result {
            // The reader has taken a part of the block meanwhile. The rest stays in memory, where the reader wants it next.
            Ok((Ok(_), charge)) if self.pending.bytes < self.pending.length => {
                self.pending.keep_charge(charge);
            }
            Ok((Ok(checksum), charge)) => self.stored(checksum, charge),
            Ok((Err(error), charge)) => {
                self.pending.keep_charge(charge);
                let folder = self.disk.folder.path().display();
                tracing::warn!(%error, "a body can't be written to a file in {folder}");
                self.fail(reason_of(&error));
            }
            Err(reason) => {
                self.fail(reason);
            }
        }
        Poll::Ready(())
    }

    /// Notes that the block that was being written is in the file.
    fn stored(&mut self, checksum: u32, mut charge: Charge) {
        let length = self.pending.length;
        let own = charge.split(BLOCK_MEMORY);
        match &mut self.blocks_charge {
            Some(all) => all.join(own),
            None => self.blocks_charge = Some(own),
        }
        self.write_at += length;
        // The conversion can't fail: `room_for` has checked the length.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.blocks.push_back(Block { length, checksum });
        self.pending = Pending::default();
        let written = &self.disk.buffers.counts.written;
        written.fetch_add(u64::from(length), Ordering::Relaxed);
    }

    fn fail(&mut self, reason: Reason) -> Reason {
        self.disk.buffers.counts.failure(reason);
        self.failure = Some(reason);
        reason
    }

    /// Takes the first bytes: from the file, or of the block that is being written. `None` if there are none.
    ///
    /// # Errors
    ///
    /// The bytes can't be read from the file.
    pub(super) fn poll_pop(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut Chunks,
    ) -> Poll<Option<Result<Bytes, Reason>>> {
        if !self.blocks.is_empty() {
            return self.poll_read(cx, chunks).map(Some);
        }
        let Some(chunk) = self.pending.chunks.pop_front() else {
            return Poll::Ready(None);
        };
        self.pending.bytes -= chunk.len() as u64;
        if self.pending.chunks.is_empty() {
            self.pending.charge = None;
        }
        Poll::Ready(Some(Ok(chunk)))
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut Chunks,
    ) -> Poll<Result<Bytes, Reason>> {
        let (Some(block), Some(file)) = (self.blocks.front(), &self.file) else {
            return Poll::Ready(Err(Reason::BufferDiskFailed));
        };
        let (length, checksum) = (block.length, block.checksum);
        let (at, timeout) = (self.read_at, self.disk.options.timeout);
        let read = self.read.get_or_insert_with(|| {
            // Without memory for the block it is read nevertheless, since reading is what makes room.
            let charge = chunks.charge_if_free(length.into());
            file.read(at, length as usize, checksum, charge, timeout)
        });
        let result = ready!(read.poll(cx));
        self.read = None;
        Poll::Ready(match result {
            Ok((Ok(bytes), _)) => {
                self.blocks.pop_front();
                self.read_at += u64::from(length);
                if let Some(charge) = &mut self.blocks_charge {
                    charge.shrink(BLOCK_MEMORY);
                }
                Ok(bytes)
            }
            Ok((Err(error), _)) => {
                let folder = self.disk.folder.path().display();
                tracing::warn!(%error, "a body can't be read from its file in {folder}");
                Err(self.fail(Reason::BufferDiskFailed))
            }
            Err(reason) => Err(self.fail(reason)),
        })
    }
}

impl Pending {
    fn keep(&mut self, chunks: VecDeque<Bytes>, charge: Charge) {
        self.chunks = chunks;
        self.keep_charge(charge);
    }

    /// Keeps the charge of the chunks that are still in memory.
    fn keep_charge(&mut self, charge: Charge) {
        self.charge = (!self.chunks.is_empty()).then_some(charge);
    }
}
