//! The thread that writes: one write after another, while the next one is put together.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use super::batch::Batch;
use super::format::superblock::Superblock;
use super::mounted::{Mounted, Position};
use crate::sys::buffer::Buffer;

/// What is to be written.
pub enum Job {
    /// Records.
    Batch(Batch),
    /// The end of a segment; the log goes on in the next one.
    Seal {
        /// Where, on the device.
        place: u64,
        /// Table and footer.
        bytes: Buffer,
        /// Where the log goes on.
        next: Position,
    },
    /// All is in order: the last of all.
    Clean,
}

/// What was written, or not.
pub struct Done {
    /// What was to be written.
    pub job: Job,
    /// Whether it was.
    pub written: bool,
}

/// Writes until nobody has anything to write any more.
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

/// How many bytes were written.
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
            // Before anything of the next segment is overwritten: who reads the superblock finds
            // the log where it is, or one segment before.
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
