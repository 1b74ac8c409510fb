//! A mounted volume: an open device with its index, queue and purge log, until the device is closed or fails.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::{Condvar, Mutex, RwLock};

use super::checksum::Salt;
use super::counters::Counters;
use super::device_io::write_aligned;
use super::format::superblock::Superblock;
use super::format::{Geometry, NUMBER_MAX};
use super::index::{Index, RecordLocation};
use super::purges::PurgeLog;
use super::queue::Queue;
use super::reading::{LogDevice, Pins, Reader, Tally, start_pool};
use super::types::{Id, LogError, Options, Witness};
use crate::sys::Clock;
use crate::sys::disk::device::Device;
use crate::sys::disk::pool::Pool;
use crate::sys::random::Random;

/// Difference between the first sequence numbers of two consecutive runs of the program.
pub const SEQUENCE_STEP: u64 = 1 << 44;

/// Value of `loaded` for a complete index, in thousandths.
pub const LOADED: u32 = 1000;

/// State of a volume that stays when its device is closed and opened again.
pub struct Context {
    /// The volume's options from the configuration.
    pub options: Options,
    /// Clock of the volume.
    pub clock: Clock,
    /// Counters of the volume.
    pub counters: Counters,
    /// Counters of reads from the volume.
    pub tally: Arc<Tally>,
    /// Source of random numbers for identifiers that must be unique.
    pub random: Random,
    /// For each cache, the store that knows which records are in use.
    pub witnesses: RwLock<HashMap<u64, Weak<dyn Witness>>>,
    /// For each cache, the time without a read after which its records are dropped.
    pub inactive: Mutex<HashMap<u64, Duration>>,
    /// For each cache, the greatest number of a purge that was logged here or should have been.
    pub purged: Mutex<BTreeMap<u64, u64>>,
    /// Wakes the supervisor thread.
    pub bell: Bell,
}

impl Context {
    /// Remembers the number of a purge, whether the purge was logged or not. A volume created later gets this number as a mark, since it
    /// contains nothing older.
    pub fn note_purge(&self, space: u64, number: u64) {
        if number <= NUMBER_MAX {
            let mut purged = self.purged.lock();
            let newest = purged.entry(space).or_default();
            *newest = number.max(*newest);
        }
    }

    /// Notifies the stores of the caches with records on this volume that the volume is out of service.
    pub fn notify_out(&self) {
        let witnesses: Vec<_> = self.witnesses.read().values().cloned().collect();
        for witness in witnesses.iter().filter_map(Weak::upgrade) {
            witness.is_out();
        }
    }
}

/// A flag for which one thread waits, and which others set.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the waiting thread.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until `ring` has been called since the last wait, but at most for the time `most`.
    pub fn wait(&self, most: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.changed.wait_while_for(&mut rung, |rung| !*rung, most);
        }
        *rung = false;
    }
}

/// A position of the log: a segment, and the number of the pass over the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Number of the open segment.
    pub segment: u32,
    /// Lap of the open segment: the number of the pass over all segments in which it is written.
    pub lap: u64,
}

impl Position {
    /// Returns the position of the segment that is written after this one.
    pub fn next(self, segments: u32) -> Position {
        match self.segment + 1 {
            behind if behind == segments => Position {
                segment: 0,
                lap: self.lap + 1,
            },
            segment => Position { segment, ..self },
        }
    }

    /// Returns the position of the segment that was written before this one. If there is none, the position's lap (number of the pass over
    /// the volume) is 0.
    pub fn before(self, segments: u32) -> Position {
        match self.segment {
            0 => Position {
                segment: segments - 1,
                lap: self.lap - 1,
            },
            segment => Position {
                segment: segment - 1,
                ..self
            },
        }
    }

    /// Returns the lap (pass over the volume) in which a segment was last written when the log is at this position.
    pub fn lap_of(self, segment: u32) -> u64 {
        match segment <= self.segment {
            true => self.lap,
            false => self.lap - 1,
        }
    }
}

/// An open volume.
pub struct Mounted {
    /// State that stays when the device is closed and opened again.
    pub context: Arc<Context>,
    /// The device, which contains the volume's bytes.
    pub device: Arc<dyn Device>,
    /// Layout of the volume on the device.
    pub geometry: Geometry,
    /// Salt of the volume's checksums.
    pub salt: Salt,
    /// The index: the location of each record.
    pub index: Arc<Index>,
    /// Counts of the reads in progress in each segment.
    pub pins: Arc<Pins>,
    /// Reads records from the device.
    pub reader: Arc<Reader>,
    /// The write queue.
    pub queue: Queue,
    /// The purge log.
    pub purges: Mutex<PurgeLog>,
    /// Position of the log when this volume was mounted.
    pub begin: Position,
    /// First sequence number of this run of the program.
    pub sequence: u64,
    /// First sequence number of the previous run of the program, if that run closed the volume properly, so that the recency on the device
    /// is complete.
    pub clean_run: Option<u64>,
    /// Locked while a segment is loaded or reclaimed, and while all segments are inspected.
    pub reclaiming: Mutex<()>,
    superblock: Mutex<Superblock>,
    /// Lower bound for the first sequence number of the next run. Before a record with a greater number is written, the bound on the device
    /// is raised.
    ceiling: AtomicU64,
    /// For each segment, the smallest `born_seq` of its records.
    oldest: Box<[AtomicU64]>,
    /// Part of the index that has been loaded, in thousandths.
    loaded: AtomicU32,
    is_ended: AtomicBool,
    why: Mutex<String>,
}

/// The parts from which a mounted volume is created.
pub struct Parts {
    /// The device, which contains the volume's bytes.
    pub device: Arc<dyn Device>,
    /// The superblock as it is on the device.
    pub superblock: Superblock,
    /// The purge log as it is on the device.
    pub purges: PurgeLog,
    /// First sequence number of the previous run of the program, if that run closed the volume properly.
    pub clean_run: Option<u64>,
    /// Whether the volume is empty, so that no index must be loaded.
    pub is_empty: bool,
}

impl Mounted {
    /// Creates a mounted volume from these parts.
    ///
    /// # Errors
    ///
    /// The system can't create the reader threads.
    pub fn begin(context: Arc<Context>, parts: Parts) -> io::Result<Arc<Mounted>> {
        let options = &context.options;
        let pool = Arc::new(start_pool(&options.name, options.readers)?);
        Ok(Arc::new_cyclic(|weak| {
            Mounted::new(context, parts, pool, weak)
        }))
    }

    fn new(context: Arc<Context>, parts: Parts, pool: Arc<Pool>, weak: &Weak<Mounted>) -> Mounted {
        let superblock = parts.superblock;
        let segments = superblock.geometry.segments;
        let begin = Position {
            segment: superblock.open,
            lap: superblock.lap,
        };
        let index = Arc::new(Index::new(segments as usize));
        for (space, after) in &*context.inactive.lock() {
            index.set_inactive(*space, seconds(*after));
        }
        for segment in 0..segments {
            let lap = if parts.is_empty {
                0
            } else {
                begin.lap_of(segment)
            };
            index.set_lap(segment as u16, lap);
        }
        index.set_lap(begin.segment as u16, begin.lap);
        if parts.is_empty {
            index.set_loaded();
        }
        let salt = Salt::of(superblock.uuid);
        let pins = Pins::new(segments as usize);
        let weak = Weak::clone(weak);
        let reader = Reader {
            source: LogDevice {
                device: Arc::clone(&parts.device),
                geometry: superblock.geometry,
                salt,
            },
            index: Arc::clone(&index),
            pins: Arc::clone(&pins),
            pool,
            tally: Arc::clone(&context.tally),
            clock: context.clock.clone(),
            made_s: superblock.made_s,
            limit: context.options.read_timeout,
            on_failure: Box::new(move |error| {
                if let Some(mounted) = weak.upgrade() {
                    mounted.fail("a read failed", error);
                }
            }),
        };
        Mounted {
            context,
            device: parts.device,
            geometry: superblock.geometry,
            salt,
            index,
            pins,
            reader: Arc::new(reader),
            queue: Queue::default(),
            purges: Mutex::new(parts.purges),
            begin,
            sequence: superblock.sequence,
            ceiling: AtomicU64::new(superblock.sequence + SEQUENCE_STEP),
            clean_run: parts.clean_run,
            reclaiming: Mutex::new(()),
            superblock: Mutex::new(superblock),
            oldest: (0..segments).map(|_| AtomicU64::new(u64::MAX)).collect(),
            loaded: AtomicU32::new(if parts.is_empty { LOADED } else { 0 }),
            is_ended: AtomicBool::new(false),
            why: Mutex::new(String::new()),
        }
    }

    /// Ends reads and writes for this reason. If they have ended before, the earlier reason stays.
    pub fn end(&self, why: &str) {
        {
            let mut first = self.why.lock();
            if self.is_ended.load(Ordering::SeqCst) {
                return;
            }
            why.clone_into(&mut first);
            self.is_ended.store(true, Ordering::SeqCst);
        }
        self.queue.end();
        self.context.bell.ring();
    }

    /// Ends reads and writes because the device has failed.
    pub fn fail(&self, doing: &str, error: &io::Error) {
        if self.is_ended() {
            return;
        }
        self.context.counters.errors.add(1);
        self.end(&format!("{doing}: {error}"));
    }

    /// Whether reads and writes have ended.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }

    /// Returns the reason why reads and writes have ended.
    pub fn why(&self) -> String {
        self.why.lock().clone()
    }

    /// Returns the number of seconds since the volume was created.
    pub fn now(&self) -> u32 {
        self.reader.now()
    }

    /// Changes the superblock on the device. When this returns, the change and all earlier writes survive a power failure.
    pub fn write_superblock(&self, change: impl FnOnce(&mut Superblock)) -> io::Result<()> {
        let mut superblock = self.superblock.lock();
        if self.is_ended() {
            return Err(io::Error::other("it is out of use"));
        }
        let mut changed = *superblock;
        change(&mut changed);
        write_superblock(&*self.device, &mut changed)?;
        *superblock = changed;
        Ok(())
    }

    /// Waits until no thread writes to the purge log or the superblock any more; called after `end`.
    pub fn wait_for_logs(&self) {
        drop(self.purges.lock());
        drop(self.superblock.lock());
    }

    /// Returns the present superblock.
    pub fn superblock(&self) -> Superblock {
        *self.superblock.lock()
    }

    /// Ensures that the next run of the program begins with a sequence number greater than `number`. Such a number may come from another
    /// volume and be greater than all numbers of this run.
    pub fn reserve(&self, number: u64) -> io::Result<()> {
        if number < self.ceiling.load(Ordering::SeqCst) || number > NUMBER_MAX {
            return Ok(());
        }
        let base = number / SEQUENCE_STEP * SEQUENCE_STEP;
        self.write_superblock(|superblock| superblock.sequence = superblock.sequence.max(base))?;
        self.ceiling
            .fetch_max(base + SEQUENCE_STEP, Ordering::SeqCst);
        Ok(())
    }

    /// Ensures that the next run of the program begins with a sequence number greater than that of a purge.
    ///
    /// # Errors
    ///
    /// The device failed, which ends this mounted volume.
    pub fn log_number(&self, number: u64) -> Result<(), LogError> {
        self.reserve(number)
            .map_err(|error| self.log_failed("the superblock can't be written", error))
    }

    fn log_failed(&self, doing: &str, error: io::Error) -> LogError {
        if self.is_ended() {
            return LogError::Out;
        }
        self.fail(doing, &error);
        LogError::Io(error)
    }

    /// Runs `work` on the purge log. If the device fails, this mounted volume ends.
    pub fn with_purges<T>(
        &self,
        work: impl FnOnce(&mut PurgeLog, &dyn Device, u64) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let mut purges = self.purges.lock();
        if self.is_ended() {
            return Err(LogError::Out);
        }
        let nonce = self.context.random.next_u64();
        let before = purges.generation();
        let mut result = work(&mut purges, &*self.device, nonce);
        let generation = purges.generation();
        if generation != before && !matches!(result, Err(LogError::Io(_))) {
            let noted = self.write_superblock(|superblock| superblock.log_generation = generation);
            result = noted.map_err(LogError::Io).and(result);
        }
        result.map_err(|error| match error {
            LogError::Io(error) => self.log_failed("the purge log can't be written", error),
            other => other,
        })
    }

    /// Sets the smallest `born_seq` of a segment's records.
    pub fn set_oldest(&self, segment: u32, born: u64) {
        self.oldest[segment as usize].store(born, Ordering::SeqCst);
    }

    /// Lowers the smallest `born_seq` of a segment to `born`, unless it is smaller already.
    pub fn note_born(&self, segment: u32, born: u64) {
        self.oldest[segment as usize].fetch_min(born, Ordering::SeqCst);
    }

    /// Returns the smallest `born_seq` of all records in segments.
    fn oldest(&self) -> u64 {
        // The lock of `reclaiming` keeps segments from being reclaimed during this scan: a record copied to a segment that was already scanned
        // would be missed.
        let _reclaiming = self.reclaiming.lock();
        let all = self.oldest.iter().map(|born| born.load(Ordering::SeqCst));
        all.min().unwrap_or(u64::MAX)
    }

    /// Returns a lower bound for the `born_seq` of all stored and queued records; 0 while the index loads.
    pub fn oldest_born(&self) -> u64 {
        match self.loaded() {
            // The queue is checked before the segments: a record that is written in between is then seen at least once.
            LOADED => self.queue.oldest_born().min(self.oldest()),
            _ => 0,
        }
    }

    /// Returns the part of the index that has been loaded, in thousandths.
    pub fn loaded(&self) -> u32 {
        self.loaded.load(Ordering::SeqCst)
    }

    /// Sets the part of the index that has been loaded, in thousandths.
    pub fn set_loaded(&self, thousandths: u32) {
        self.loaded.store(thousandths, Ordering::SeqCst);
    }

    /// Whether a record's object is in memory, according to the store of the record's cache.
    pub fn is_witnessed(&self, id: &Id) -> bool {
        let witness = self.context.witnesses.read().get(&id.space).cloned();
        witness
            .and_then(|witness| witness.upgrade())
            .is_some_and(|witness| witness.is_in_use(id))
    }
}

/// Converts `inactive`, the time after which unread records are dropped, to seconds, rounded up.
pub fn seconds(after: Duration) -> u32 {
    let whole = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// Overwrites the older of the two superblocks on the device. When this returns, the new one survives a power failure. The two are never
/// written at the same time.
pub fn write_superblock(device: &dyn Device, superblock: &mut Superblock) -> io::Result<()> {
    superblock.generation += 1;
    let place = Geometry::superblock_place((superblock.generation % 2) as usize);
    write_aligned(device, place, &superblock.encode())?;
    device.sync()
}

/// Creates a location in a segment. Returns `Some` for every location that the log writes to.
pub fn place(segment: u32, offset: u64, length: u64) -> Option<RecordLocation> {
    RecordLocation::new(u64::from(segment), offset, length)
}
