//! A volume: a file or block device of fixed size, written as a log of segments of records.
//!
//! The store decides what a record contains. A volume knows only a record's id, the lengths of its metadata and data, and their checksums.

mod batch;
mod checksum;
mod compose;
mod counters;
mod device_io;
mod device_writer;
#[cfg(feature = "test-rigs")]
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
mod types;
mod writer;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::sys::Clock;
use crate::sys::buffer::Buffer;
use crate::sys::disk;
use crate::sys::random::Random;
use counters::Counters;
use mounted::{Bell, Context, LOADED};
use queue::Overrun;
use supervisor::{Inner, Opener, wait_for};

pub use format::{
    SEGMENT_MAX, SEGMENTS_MAX, SEGMENTS_MIN, SIZE_MAX, SIZE_MIN, default_segment, room,
};
pub use mount::{UNUSED_CHECK_BYTES, other_content};
pub use status::{State, Status};
pub use types::{
    Content, Found, HeadRead, Id, Kind, LogError, Logged, Missing, Options, RecordSource, Refused,
    Witness,
};

/// One volume, shared by all workers and by the caches that use it.
pub struct Volume {
    inner: Arc<Inner>,
    supervisor: Mutex<Vec<JoinHandle<()>>>,
}

impl Volume {
    /// Opens a volume, and formats an empty device. The index loads in the background; a device that fails is opened again at intervals.
    ///
    /// # Errors
    ///
    /// The device has content that must not be overwritten, or a configured size is not usable.
    pub fn open(options: Options, clock: Clock) -> Result<Arc<Volume>, Refused> {
        let path = options.path.clone();
        let open = Box::new(move || disk::open_device(&path));
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
        let supervised = Arc::clone(&inner);
        let supervisor = std::thread::Builder::new()
            .name("vol-supervisor".into())
            .spawn(move || supervised.supervise())
            .map_err(|error| Refused(format!("no thread for a volume: {error}")))?;
        Ok(Arc::new(Volume {
            inner,
            supervisor: Mutex::new(vec![supervisor]),
        }))
    }

    /// Returns the volume's name in the configuration.
    pub fn name(&self) -> &str {
        &self.inner.context.options.name
    }

    /// Whether the volume is in service: its device is open and has not failed.
    pub fn is_up(&self) -> bool {
        self.inner.mounted().is_some()
    }

    /// Whether the index is still loading, so that `find` may not find some stored records yet.
    pub fn is_loading(&self) -> bool {
        let mounted = self.inner.mounted();
        mounted.is_some_and(|mounted| mounted.loaded() < LOADED)
    }

    /// Returns the numbers for the status page.
    pub fn status(&self) -> Status {
        status::of(&self.inner)
    }

    /// Returns the location of a record.
    pub fn find(&self, id: &Id) -> Option<Found> {
        self.inner.mounted()?.index.find(id)
    }

    /// Returns the locations of a key's heads, one per variant.
    pub fn heads(&self, space: u64, key: u128) -> SmallVec<[Found; 2]> {
        let mounted = self.inner.mounted();
        mounted.map_or_else(SmallVec::new, |mounted| mounted.index.heads(space, key))
    }

    /// Records a use of a record whose object was requested in memory and not read from the volume.
    pub fn touch(&self, id: &Id) {
        if let Some(mounted) = self.inner.mounted() {
            mounted.index.touch_id(id, mounted.now());
        }
    }

    /// Deletes a record permanently: it does not reappear after a restart. Returns whether there was one.
    pub fn forget(&self, id: &Id) -> bool {
        let Some(mounted) = self.inner.mounted() else {
            return false;
        };
        let is_loading = mounted.loaded() < LOADED;
        let forgotten = mounted.queue.forget(id, &mounted.index, is_loading);
        forgotten.unwrap_or_else(|Overrun| {
            mounted.end("more records are deleted than tombstones can be written");
            true
        })
    }

    /// Queues a record to be written.
    ///
    /// # Errors
    ///
    /// The queue is full or the volume is out of service. The record is returned to the caller, and counted in `shed`.
    pub fn put(&self, source: Box<dyn RecordSource>) -> Result<(), Box<dyn RecordSource>> {
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

    /// Reads the head at this location, if it belongs to this cache and key.
    ///
    /// # Errors
    ///
    /// The reason why the head can't be read.
    pub async fn read_head(
        &self,
        found: Found,
        space: u64,
        key: u128,
    ) -> Result<HeadRead, Missing> {
        let mounted = self.inner.mounted().ok_or(Missing::Gone)?;
        mounted.reader.read_head(found, space, key).await
    }

    /// Reads pages of a record's data, one into each buffer.
    ///
    /// # Errors
    ///
    /// The reason why the pages can't be read.
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

    /// Drops queued writes, the oldest first, until `bytes` are freed. Returns the number of bytes that were freed.
    pub fn shed(&self, bytes: u64) -> u64 {
        let Some(mounted) = self.inner.mounted() else {
            return 0;
        };
        let (dropped, freed) = mounted.queue.shed(bytes);
        let counters = &self.inner.context.counters;
        counters.shed.add(dropped.len() as u64);
        counters.shed_bytes.add(freed);
        for source in dropped {
            source.done(false);
        }
        freed
    }

    /// Returns the logged purges of a cache, oldest first.
    pub fn purges(&self, space: u64) -> Vec<Logged> {
        let mounted = self.inner.mounted();
        mounted.map_or_else(Vec::new, |mounted| mounted.purges.lock().rules(space))
    }

    /// Returns the number of the newest purge or mark that is logged for a cache. `None` if there was never one: the cache has never
    /// written a record to this volume.
    pub fn purged_upto(&self, space: u64) -> Option<u64> {
        self.inner.mounted()?.purges.lock().upto(space)
    }

    /// Logs a purge, and syncs the device before it returns.
    ///
    /// # Errors
    ///
    /// The reason why the purge is not logged.
    pub fn log_purge(&self, space: u64, number: u64, text: &[u8]) -> Result<(), LogError> {
        self.inner.context.note_purge(space, number);
        let mounted = self.inner.mounted().ok_or(LogError::Out)?;
        mounted.log_number(number)?;
        mounted.with_purges(|log, device, nonce| log.log_rule(device, space, number, text, nonce))
    }

    /// Logs a mark, which states that no purge of this cache up to the number `upto` covers any record on this volume.
    ///
    /// # Errors
    ///
    /// The reason why the mark is not logged.
    pub fn mark_purged(&self, space: u64, upto: u64) -> Result<(), LogError> {
        self.inner.context.note_purge(space, upto);
        let mounted = self.inner.mounted().ok_or(LogError::Out)?;
        mounted.log_number(upto)?;
        mounted.with_purges(|log, device, nonce| log.log_mark(device, space, upto, nonce))
    }

    /// Allows the volume to drop logged purges of a cache up to this number.
    pub fn drop_purges(&self, space: u64, upto: u64) {
        if let Some(mounted) = self.inner.mounted() {
            mounted.purges.lock().drop_upto(space, upto);
        }
    }

    /// Returns a lower bound for the `born_seq` of all records on the volume and in its write queue.
    pub fn oldest_born(&self) -> u64 {
        let mounted = self.inner.mounted();
        mounted.map_or(u64::MAX, |mounted| mounted.oldest_born())
    }

    /// Returns the sequence number with which fetches and purges of this run of the program begin: greater than all numbers of earlier
    /// runs.
    pub fn sequence(&self) -> u64 {
        self.inner.sequence()
    }

    /// Deletes all records. The number of each cache's newest purge stays in the log.
    pub fn wipe(&self, why: &str) {
        self.inner.wipe(why);
    }

    /// Sets the store of a cache: the volume asks it whether records are in use before it overwrites a segment.
    pub fn set_witness(&self, space: u64, witness: std::sync::Weak<dyn Witness>) {
        let mut witnesses = self.inner.context.witnesses.write();
        witnesses.insert(space, witness);
    }

    /// Sets the time without a read after which a cache's records are dropped; zero: never.
    pub fn set_inactive(&self, space: u64, after: Duration) {
        self.inner.context.inactive.lock().insert(space, after);
        if let Some(mounted) = self.inner.mounted() {
            mounted.index.set_inactive(space, mounted::seconds(after));
        }
    }

    /// Waits until every record queued before this call is on the device or was dropped.
    #[cfg(test)]
    pub fn flush(&self) {
        if let Some(mounted) = self.inner.mounted() {
            let (sender, flushed) = std::sync::mpsc::channel();
            mounted.queue.flush(sender);
            drop(mounted);
            // An error means that the queue was ended: its records were dropped.
            let _ = flushed.recv();
        }
    }

    /// Closes the volume. Queued records are written for at most `within`, then the recency of all records. New records are refused.
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
