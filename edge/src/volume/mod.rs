//! A volume: a file or block device of exactly its size, written as a log of segments of records.
//!
//! What a record holds is the store's business: to a volume it has an id, two lengths and checksums.

mod batch;
mod checksum;
mod compose;
mod counters;
mod device_io;
mod device_writer;
pub mod exercise;
mod format;
mod index;
mod mount;
mod mounted;
mod purges;
mod queue;
mod reading;
mod recency;
mod reclaim;
pub mod reclaim_budget;
mod recover;
mod status;
mod supervisor;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::sys::Clock;
use crate::sys::buffer::Buffer;
use crate::sys::disk::device;
use crate::sys::random::Random;
use counters::Counters;
use mounted::{Bell, Context, LOADED};
use queue::Overrun;
use supervisor::{Inner, Opener, wait_for};

pub use format::{
    SEGMENT_MAX, SEGMENTS_MAX, SEGMENTS_MIN, SIZE_MAX, SIZE_MIN, default_segment, room,
};
pub use status::{State, Status};

/// Bytes of a record's data that have a checksum of their own, and that are read together.
pub const PAGE: u64 = 64 << 10;

/// `[volume.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What it is called.
    pub name: String,
    /// The file or block device.
    pub path: PathBuf,
    /// Bytes it takes; 0: all of a block device.
    pub size: u64,
    /// Bytes of a segment; 0: `default_segment`.
    pub segment: u64,
    /// Bytes that may wait to be written.
    pub queue: u64,
    /// Threads that read what is not in the page cache.
    pub readers: usize,
    /// How long a read may take.
    pub read_timeout: Duration,
    /// How long after a failure it is opened again.
    pub retry: Duration,
    /// Whether foreign content, or a volume of another version, is to be overwritten.
    pub overwrite: bool,
}

/// Whether a record is about an object or is some of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A head; of a small object all of its bytes, too.
    Head,
    /// One block of an object.
    Block,
}

/// What a record is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The cache that it belongs to.
    pub space: u64,
    /// The object's primary key.
    pub key: u128,
    /// Head: the variant. Block: what names this version of this variant.
    pub version: u64,
    /// Head: 0. Block: its number.
    pub part: u32,
    /// What it is.
    pub kind: Kind,
}

/// Where a record is, as far as the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The low half of its id's version.
    pub tag: u32,
    /// The segment's number.
    pub segment: u32,
    /// The segment's lap: a later one has overwritten it.
    pub lap: u64,
    /// Where in the segment it begins, in bytes.
    pub offset: u32,
    /// Bytes it takes there.
    pub length: u32,
}

/// What is to be written, once it is its turn. Dropped or told by `done`, never both written and lost.
pub trait Source: Send {
    /// What it will be found by.
    fn id(&self) -> Id;

    /// The number at which the oldest fetch began that brought any of it.
    fn born_seq(&self) -> u64;

    /// About how many bytes wait with it.
    fn bytes(&self) -> u64;

    /// The record, now that there is a place for it; `None` if it is of no use any more. Called by
    /// the thread that writes.
    fn record(&mut self) -> Option<Content>;

    /// It can be read, or it was not written.
    fn done(self: Box<Self>, written: bool);
}

/// A record's content.
pub struct Content {
    /// Meaningful to the store alone.
    pub meta: Vec<u8>,
    /// Pieces of `PAGE` bytes; the last one may be shorter.
    pub data: SmallVec<[Bytes; 16]>,
}

/// A head that was read.
#[derive(Debug)]
pub struct HeadRead {
    /// All of its id.
    pub id: Id,
    /// As it was written with.
    pub born_seq: u64,
    /// As it was written.
    pub meta: Bytes,
    /// As it was written.
    pub data: Bytes,
}

/// Why a record can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is not there any more.
    Gone,
    /// It was damaged.
    Damaged,
    /// Too many reads are waiting.
    Busy,
    /// It took too long.
    Slow,
    /// The volume failed.
    Failed,
}

/// Who knows what is in use in memory.
pub trait Witness: Send + Sync {
    /// Whether what this record belongs to is in memory.
    fn is_in_use(&self, id: &Id) -> bool;

    /// The volume is out now. What was forgotten last may be there again when it is opened next.
    fn is_out(&self) {}
}

/// A purge that was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Its number.
    pub number: u64,
    /// The rule, as the store wrote it.
    pub text: Box<[u8]>,
}

/// Why a purge is not in the log.
#[derive(Debug)]
pub enum LogError {
    /// There is no room for it, also without those that are not needed any more; or it is longer than
    /// any rule may be.
    Full,
    /// The volume is out.
    Out,
    /// Writing it failed; the volume is out now.
    Io(io::Error),
}

/// Why a volume is not used at all: what to do about it is for the operator to say.
#[derive(Debug)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// One volume, shared by all workers and by the caches that use it.
pub struct Volume {
    inner: Arc<Inner>,
    supervisor: Mutex<Vec<JoinHandle<()>>>,
}

impl Volume {
    /// Opens a volume, making it where there is nothing. Its index loads from here on; a device that
    /// fails is tried again and again.
    ///
    /// # Errors
    /// What is there is not to be overwritten, or the sizes don't do.
    pub fn open(options: Options, clock: Clock) -> Result<Arc<Volume>, Refused> {
        let path = options.path.clone();
        let open = Box::new(move || device::open(&path));
        Volume::open_with(options, clock, Random::system(), open)
    }

    fn open_with(
        options: Options,
        clock: Clock,
        random: Random,
        open: Opener,
    ) -> Result<Arc<Volume>, Refused> {
        let context = Arc::new(Context {
            options,
            clock,
            counters: Counters::default(),
            tally: Arc::default(),
            random,
            witnesses: RwLock::default(),
            inactive: Mutex::default(),
            purged: Mutex::default(),
            bell: Bell::default(),
        });
        let inner = Inner::open(context, open).map_err(Refused)?;
        let kept = Arc::clone(&inner);
        let supervisor = std::thread::Builder::new()
            .name("vol-supervisor".into())
            .spawn(move || kept.keep())
            .map_err(|error| Refused(format!("no thread for a volume: {error}")))?;
        Ok(Arc::new(Volume {
            inner,
            supervisor: Mutex::new(vec![supervisor]),
        }))
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.inner.context.options.name
    }

    /// Whether it is used.
    pub fn is_up(&self) -> bool {
        self.inner.mounted().is_some()
    }

    /// Whether it may have records that it does not know yet.
    pub fn is_loading(&self) -> bool {
        let mounted = self.inner.mounted();
        mounted.is_some_and(|mounted| mounted.loaded() < LOADED)
    }

    /// Numbers for the status page.
    pub fn status(&self) -> Status {
        status::of(&self.inner)
    }

    /// Bytes of meta and data that a record may have.
    pub fn record_max(&self) -> u64 {
        let mounted = self.inner.mounted();
        mounted.map_or(0, |mounted| mounted.geometry.segment - compose::OVERHEAD)
    }

    /// Where a record is.
    pub fn find(&self, id: &Id) -> Option<Found> {
        self.inner.mounted()?.index.find(id)
    }

    /// Where the heads of a key are: one for each variant.
    pub fn heads(&self, space: u64, key: u128) -> SmallVec<[Found; 2]> {
        let mounted = self.inner.mounted();
        mounted.map_or_else(SmallVec::new, |mounted| mounted.index.heads(space, key))
    }

    /// A record is in use, though it is not read here.
    pub fn touch(&self, id: &Id) {
        if let Some(mounted) = self.inner.mounted() {
            mounted.index.touch_id(id, mounted.now());
        }
    }

    /// Forgets a record, for good; whether there was one.
    pub fn forget(&self, id: &Id) -> bool {
        let Some(mounted) = self.inner.mounted() else {
            return false;
        };
        let is_loading = mounted.loaded() < LOADED;
        let forgotten = mounted.queue.forget(id, &mounted.index, is_loading);
        forgotten.unwrap_or_else(|Overrun| {
            mounted.end("more is forgotten than can be written");
            true
        })
    }

    /// Has something written, when it is its turn.
    ///
    /// # Errors
    /// Too much waits already, or the volume is out: given back, and counted.
    pub fn put(&self, source: Box<dyn Source>) -> Result<(), Box<dyn Source>> {
        let context = &self.inner.context;
        let result = match self.inner.mounted() {
            Some(mounted) => mounted.queue.put(source, context.options.queue),
            None => Err(source),
        };
        result.inspect_err(|source| {
            context.counters.shed.add(1);
            context.counters.shed_bytes.add(source.bytes());
        })
    }

    /// Reads a head of this cache and key.
    ///
    /// # Errors
    /// Why it can't be had.
    pub async fn read_head(
        &self,
        found: Found,
        space: u64,
        key: u128,
    ) -> Result<HeadRead, Missing> {
        let mounted = self.inner.mounted().ok_or(Missing::Gone)?;
        mounted.reader.read_head(found, space, key).await
    }

    /// Reads some pages of a record's data, one into each buffer.
    ///
    /// # Errors
    /// Why they can't be had.
    pub async fn read_pages(
        &self,
        found: Found,
        id: &Id,
        first_page: u32,
        buffers: Vec<Buffer>,
    ) -> Result<Vec<Buffer>, Missing> {
        let mounted = self.inner.mounted().ok_or(Missing::Gone)?;
        let reader = &mounted.reader;
        reader.read_pages(found, id, first_page, buffers).await
    }

    /// Gives up writes that wait, the oldest first, until so many bytes wait less; how many do.
    pub fn shed(&self, bytes: u64) -> u64 {
        let Some(mounted) = self.inner.mounted() else {
            return 0;
        };
        let (given_up, freed) = mounted.queue.shed(bytes);
        let counters = &self.inner.context.counters;
        counters.shed.add(given_up.len() as u64);
        counters.shed_bytes.add(freed);
        for source in given_up {
            source.done(false);
        }
        freed
    }

    /// The purges in the log of a cache, oldest first.
    pub fn purges(&self, space: u64) -> Vec<Logged> {
        let mounted = self.inner.mounted();
        mounted.map_or_else(Vec::new, |mounted| mounted.purges.lock().rules(space))
    }

    /// The newest purge of a cache that was ever logged here; `None` if nothing was, and no mark: that
    /// cache has never had a record here.
    pub fn purged_upto(&self, space: u64) -> Option<u64> {
        self.inner.mounted()?.purges.lock().upto(space)
    }

    /// Logs a purge: it outlasts a loss of power when this returns.
    ///
    /// # Errors
    /// Why it is not logged.
    pub fn log_purge(&self, space: u64, number: u64, text: &[u8]) -> Result<(), LogError> {
        self.inner.context.note_purge(space, number);
        let mounted = self.inner.mounted().ok_or(LogError::Out)?;
        mounted.log_number(number)?;
        mounted.with_purges(|log, device, nonce| log.log_rule(device, space, number, text, nonce))
    }

    /// Whatever was purged from a cache up to this number, nothing here is older than that.
    ///
    /// # Errors
    /// Why that could not be logged.
    pub fn mark_purged(&self, space: u64, upto: u64) -> Result<(), LogError> {
        self.inner.context.note_purge(space, upto);
        let mounted = self.inner.mounted().ok_or(LogError::Out)?;
        mounted.log_number(upto)?;
        mounted.with_purges(|log, device, nonce| log.log_mark(device, space, upto, nonce))
    }

    /// The purges of a cache up to this number are not needed any more.
    pub fn drop_purges(&self, space: u64, upto: u64) {
        if let Some(mounted) = self.inner.mounted() {
            mounted.purges.lock().drop_upto(space, upto);
        }
    }

    /// Nothing here, or waiting to be written, was born before this number.
    pub fn oldest_born(&self) -> u64 {
        let mounted = self.inner.mounted();
        mounted.map_or(u64::MAX, |mounted| mounted.oldest_born())
    }

    /// From which number on fetches and purges of this run may be counted: greater than all before.
    pub fn sequence(&self) -> u64 {
        self.inner.sequence()
    }

    /// Drops everything; of the purges it is still known which one was the newest.
    pub fn wipe(&self, why: &str) {
        self.inner.wipe(why);
    }

    /// Asks this one at reclaiming whether a record is in use.
    pub fn set_witness(&self, space: u64, witness: std::sync::Weak<dyn Witness>) {
        let mut witnesses = self.inner.context.witnesses.write();
        witnesses.insert(space, witness);
    }

    /// Records of a cache that nobody read for so long are dropped; zero: never.
    pub fn set_inactive(&self, space: u64, after: Duration) {
        self.inner.context.inactive.lock().insert(space, after);
        if let Some(mounted) = self.inner.mounted() {
            mounted.index.set_inactive(space, mounted::seconds(after));
        }
    }

    /// Returns when all that was put before is on the device, or was given up.
    pub fn flush(&self) {
        if let Some(mounted) = self.inner.mounted() {
            let (sender, flushed) = std::sync::mpsc::channel();
            mounted.queue.flush(sender);
            drop(mounted);
            // An error says that it was given up.
            let _ = flushed.recv();
        }
    }

    /// Writes what waits, within this time, and how lately each record was read; no more is taken.
    pub fn close(&self, within: Duration) {
        self.end(Some(within));
    }

    fn end(&self, drain: Option<Duration>) {
        self.inner.close(drain);
        wait_for(&mut self.supervisor.lock(), Duration::from_secs(1));
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.end(None);
    }
}
