//! The buffered bytes of one body: the first ones in a file if there are many, the others in memory.

use std::task::{Context, Poll};

use bytes::Bytes;

use super::chunks::Chunks;
use super::quota::Charge;
use super::spill::{Disk, Spill};
use crate::http::ClientId;
use crate::reason::Reason;

/// The buffered bytes of one body.
pub(super) struct Buffer {
    chunks: Chunks,
    /// The part in a file. `None` if bodies are only in memory.
    spill: Option<Spill>,
    /// The most bytes that fit into memory.
    memory_max: u64,
}

impl Buffer {
    /// Creates an empty buffer for a body of this client. `memory_max` is the most memory that the client may use.
    pub(super) fn new(
        charge: Charge,
        memory_max: u64,
        disk: Option<Disk>,
        client: ClientId,
    ) -> Buffer {
        Buffer {
            chunks: Chunks::new(charge),
            spill: disk.map(|disk| Spill::new(disk, client)),
            memory_max,
        }
    }

    /// Returns the most bytes that a whole body may have.
    pub(super) fn body_max(&self) -> u64 {
        self.spill.as_ref().map_or(self.memory_max, Spill::body_max)
    }

    /// Whether the body may go on in a file.
    pub(super) fn has_disk(&self) -> bool {
        self.spill.is_some()
    }

    /// Returns the number of buffered bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.bytes() + self.spill.as_ref().map_or(0, Spill::bytes)
    }

    /// Adds bytes. Waits while bytes are written to the file to make room for them. An empty buffer takes them in any
    /// case if `force` is set.
    ///
    /// # Errors
    ///
    /// The reason for which there is no room; nothing is added then.
    pub(super) fn poll_push(
        &mut self,
        cx: &mut Context<'_>,
        piece: &Bytes,
        force: bool,
    ) -> Poll<Result<(), Reason>> {
        let force = force && self.bytes() == 0;
        let Some(spill) = &mut self.spill else {
            let pushed = self.chunks.push(piece, force);
            return Poll::Ready(pushed.then_some(()).ok_or(Reason::BuffersFull));
        };
        loop {
            let is_writing = spill.poll_written(cx).is_pending();
            let in_memory = self.chunks.bytes() + spill.bytes_in_memory();
            let fits = in_memory == 0 || in_memory + piece.len() as u64 <= spill.memory_max();
            // A body with a file may have one piece in memory in any case, since its file would be of no use otherwise.
            let force = force || spill.has_file() && in_memory == 0;
            if fits && self.chunks.push(piece, force) {
                if spill.has_file() && !is_writing {
                    spill.write_block(&mut self.chunks);
                }
                return Poll::Ready(Ok(()));
            }
            if is_writing {
                return Poll::Pending;
            }
            if let Err(reason) = spill.write(&mut self.chunks) {
                return Poll::Ready(Err(reason));
            }
        }
    }

    /// Takes the first bytes. `None` if the buffer is empty.
    ///
    /// # Errors
    ///
    /// The bytes can't be read from the file.
    pub(super) fn poll_pop(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Reason>>> {
        if let Some(spill) = &mut self.spill
            && spill.bytes() > 0
        {
            return spill.poll_pop(cx, &mut self.chunks);
        }
        Poll::Ready(self.chunks.pop().map(Ok))
    }
}
