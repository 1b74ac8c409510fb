//! Reads that never block a worker: data in the page cache is read at once, other data by separate threads.

mod pins;
mod record;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

pub use pins::Pins;
pub use record::LogDevice;

use super::index::{Index, Key, RecordLocation};
use super::types::{Found, HeadRead, Id, Missing};
use crate::sys::Clock;
use crate::sys::buffer::Buffer;
use crate::sys::disk::device::ReadMode;
use crate::sys::disk::pool::Pool;
use record::{Read, ReadError, SomePages, WholeHead};

/// Maximum number of queued reads per thread. Further reads would exceed their time limit in any case.
const WAITING_PER_THREAD: usize = 64;

/// Starts the threads that read from the volume of this name.
///
/// # Errors
///
/// The system can't create a thread.
pub fn start_pool(volume: &str, readers: usize) -> io::Result<Pool> {
    let name = format!("read {volume}");
    Pool::start(&name, readers, readers * WAITING_PER_THREAD)
}

/// Counters of reads for the status page.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of reads.
    pub reads: AtomicU64,
    /// Number of reads whose bytes were all in the page cache.
    pub reads_cached: AtomicU64,
    /// Number of bytes read.
    pub read_bytes: AtomicU64,
    /// Time that reader threads spent in reads, in microseconds.
    pub read_us: AtomicU64,
    /// Number of records found damaged.
    pub damaged: AtomicU64,
}

/// Callback that is called when the device fails, and takes the volume out of service.
pub type OnFailure = Box<dyn Fn(&io::Error) + Send + Sync>;

/// Reads the records of one device, while it is open.
pub struct Reader {
    /// The device with the records.
    pub source: LogDevice,
    /// The index of the records.
    pub index: Arc<Index>,
    /// Counts of the reads in progress in each segment.
    pub pins: Arc<Pins>,
    /// The threads that read data that is not in the page cache.
    pub pool: Arc<Pool>,
    /// Counters of reads, which continue when the device is opened again.
    pub tally: Arc<Tally>,
    /// Clock of the volume.
    pub clock: Clock,
    /// Time at which the volume was created, in seconds since the Unix epoch. Times in the index are relative to this time.
    pub made_s: u64,
    /// Longest time that a read may take.
    pub limit: Duration,
    /// Called when the device fails.
    pub on_failure: OnFailure,
}

impl Reader {
    /// Reads the head at this location, if it belongs to this cache and key.
    ///
    /// # Errors
    ///
    /// The reason why the head is not available.
    pub async fn read_head(
        self: &Arc<Reader>,
        found: Found,
        space: u64,
        key: u128,
    ) -> Result<HeadRead, Missing> {
        let entry = self.index.head_key(space, key, found.tag);
        self.run(found, entry, WholeHead::new(found, space, key))
            .await
    }

    /// Reads pages of a record's data, one into each buffer. A buffer has the size of a page; the
    /// last one has the size of the remaining data or more.
    ///
    /// # Errors
    /// The reason why the pages are not available.
    pub async fn read_pages(
        self: &Arc<Reader>,
        found: Found,
        id: &Id,
        first_page: u32,
        buffers: Vec<Buffer>,
    ) -> Result<Vec<Buffer>, Missing> {
        let read = SomePages::new(found, id, first_page, buffers).ok_or(Missing::Failed)?;
        self.run(found, self.index.key(id), read).await
    }

    /// Returns the number of seconds since the volume was created, as used in the index.
    pub fn now(&self) -> u32 {
        let unix_s = self.clock.unix_ms() / 1000;
        u32::try_from(unix_s.saturating_sub(self.made_s)).unwrap_or(u32::MAX)
    }

    /// Performs a read: from the page cache at once if possible, otherwise by a thread of the pool.
    async fn run<R: Read>(
        self: &Arc<Reader>,
        found: Found,
        key: Key,
        mut read: R,
    ) -> Result<R::Output, Missing> {
        // The segment is pinned before its lap (pass over the volume) is checked, so that it is not overwritten in between: see `Pins`.
        let pin = self.pins.pin(found.segment).ok_or(Missing::Gone)?;
        if self.is_over(&found) {
            return Err(Missing::Gone);
        }
        self.tally.reads.fetch_add(1, Ordering::Relaxed);
        let how = match read.attempt(&self.source, ReadMode::Cached) {
            Ok(()) => {
                self.tally.reads_cached.fetch_add(1, Ordering::Relaxed);
                return self.done(&found, key, read);
            }
            Err(ReadError::Bad) => {
                read.restart();
                ReadMode::Direct
            }
            Err(ReadError::Other) => return Err(self.forget(&found, key, Missing::Gone)),
            Err(ReadError::NotCached | ReadError::Io(_)) => ReadMode::Wait,
        };
        let (answer, answered) = oneshot::channel();
        let reader = self.clone();
        let submitted = self.pool.submit(Box::new(move || {
            // The channel is closed if the caller's time limit has passed while the read was queued: then nothing is read.
            if !answer.is_closed() {
                let _ = answer.send(reader.settle(&found, key, read, how));
            }
            drop(pin);
        }));
        if !submitted {
            return Err(Missing::Busy);
        }
        match timeout(self.limit, answered).await {
            Ok(result) => result.unwrap_or(Err(Missing::Failed)),
            Err(_) => Err(Missing::Slow),
        }
    }

    /// Repeats the read in other ways until there is a result. If a check fails, the read is repeated once past the page cache, because
    /// direct writes can leave outdated pages there.
    fn settle<R: Read>(
        &self,
        found: &Found,
        key: Key,
        mut read: R,
        how: ReadMode,
    ) -> Result<R::Output, Missing> {
        let begin = self.clock.monotonic_us();
        let mut result = read.attempt(&self.source, how);
        if how != ReadMode::Direct && matches!(result, Err(ReadError::Bad)) && !self.is_over(found)
        {
            read.restart();
            result = read.attempt(&self.source, ReadMode::Direct);
        }
        let took = self.clock.monotonic_us().saturating_sub(begin);
        self.tally.read_us.fetch_add(took, Ordering::Relaxed);
        match result {
            Ok(()) => self.done(found, key, read),
            // If the segment has been overwritten during the read, the failed check does not mean that the record was damaged.
            Err(ReadError::Bad | ReadError::Other) if self.is_over(found) => Err(Missing::Gone),
            Err(ReadError::Bad) => {
                self.tally.damaged.fetch_add(1, Ordering::Relaxed);
                Err(self.forget(found, key, Missing::Damaged))
            }
            Err(ReadError::Other) => Err(self.forget(found, key, Missing::Gone)),
            Err(ReadError::Io(error)) => {
                (self.on_failure)(&error);
                Err(Missing::Failed)
            }
            Err(ReadError::NotCached) => Err(Missing::Failed),
        }
    }

    fn done<R: Read>(&self, found: &Found, key: Key, read: R) -> Result<R::Output, Missing> {
        let (bytes, output) = read.finish().ok_or(Missing::Failed)?;
        self.tally.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.index
            .touch(key, RecordLocation::from(found), self.now());
        Ok(output)
    }

    /// Whether the segment has been overwritten since `found` was looked up, or is about to be: its lap (pass over the volume) has changed.
    fn is_over(&self, found: &Found) -> bool {
        self.index.lap(found.segment as u16) != found.lap
    }

    /// Removes a record that can't be read from the index.
    fn forget(&self, found: &Found, key: Key, why: Missing) -> Missing {
        self.index.lose(key, RecordLocation::from(found));
        why
    }
}
