//! The thread that performs writes, one at a time, while the writer thread assembles the next one.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use super::batch::Batch;
use super::format::superblock::Superblock;
use super::mounted::{Mounted, Position};
use crate::sys::buffer::Buffer;

/// A write to perform.
pub enum Job {
    /// Writes a batch of records.
    Batch(Batch),
    /// Writes the end of a full segment; the log continues in the next segment.
    Seal {
        /// Offset of the table on the device in bytes.
        place: u64,
        /// The encoded table and footer of the segment.
        bytes: Buffer,
        /// The position at which the log continues.
        next: Position,
    },
    /// Marks the volume as properly closed; the last write.
    Clean,
}

/// The result of a write.
pub struct Done {
    /// The write that was performed.
    pub job: Job,
    /// Whether the write succeeded.
    pub written: bool,
}

/// Performs writes until the channel is closed.
pub fn run(mounted: &Arc<Mounted>, jobs: &Receiver<Job>, done: &Sender<Done>) {
    while let Ok(job) = jobs.recv() {
        let write = AssertUnwindSafe(|| write(mounted, &job));
        let written = !mounted.is_ended()
            && std::panic::catch_unwind(write).unwrap_or_else(|_| {
                mounted.end("a thread that writes has panicked");
                false
            });
        if done.send(Done { job, written }).is_err() {
            return;
        }
        mounted.queue.ring();
    }
}

fn write(mounted: &Mounted, job: &Job) -> bool {
    let clock = &mounted.context.clock;
    let begun = clock.monotonic_us();
    let result = try_write(mounted, job);
    let counters = &mounted.context.counters;
    counters
        .write_us
        .add(clock.monotonic_us().saturating_sub(begun));
    match result {
        Ok(bytes) => {
            counters.written.add(bytes);
            true
        }
        Err(error) => {
            mounted.fail("a write failed", &error);
            false
        }
    }
}

/// Performs a write, and returns the number of bytes written.
fn try_write(mounted: &Mounted, job: &Job) -> io::Result<u64> {
    match job {
        Job::Batch(batch) => {
            let pieces: Vec<&[u8]> = batch.pieces.iter().map(|piece| piece.bytes()).collect();
            if !pieces.is_empty() {
                mounted.device.write(batch.place, &pieces)?;
            }
            if batch.sync {
                mounted.device.sync()?;
            }
            Ok(pieces.iter().map(|piece| piece.len() as u64).sum())
        }
        Job::Seal { place, bytes, next } => {
            mounted.device.write(*place, &[bytes.filled()])?;
            // The superblock is written before anything in the next segment is overwritten, so that it is never more than one segment
            // behind the log.
            mounted.write_superblock(|superblock| go_on(superblock, *next))?;
            Ok(bytes.filled().len() as u64)
        }
        Job::Clean => {
            mounted.device.sync()?;
            mounted.write_superblock(|superblock| superblock.clean = true)?;
            Ok(0)
        }
    }
}

fn go_on(superblock: &mut Superblock, next: Position) {
    superblock.open = next.segment;
    superblock.lap = next.lap;
}
