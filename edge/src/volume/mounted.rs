//! One life of a volume: a device with what it holds, from when it was opened to when it fails.

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
use super::reading::{LogDevice, Pins, Pool, Reader, Tally};
use super::types::{Id, LogError, Options, Witness};
use crate::sys::Clock;
use crate::sys::disk::device::Device;
use crate::sys::random::Random;

/// Each run counts from so much further on than the one before.
pub const SEQUENCE_STEP: u64 = 1 << 44;

/// Thousandths of an index that is there.
pub const LOADED: u32 = 1000;

/// What outlives a device.
pub struct Context {
    /// As configured.
    pub options: Options,
    /// The time.
    pub clock: Clock,
    /// What is counted.
    pub counters: Counters,
    /// What readers count.
    pub tally: Arc<Tally>,
    /// Names of volumes, and other numbers that must not come twice.
    pub random: Random,
    /// Who knows what is in use.
    pub witnesses: RwLock<HashMap<u64, Weak<dyn Witness>>>,
    /// After how long without a read what is dropped.
    pub inactive: Mutex<HashMap<u64, Duration>>,
    /// The greatest number of a purge of each cache that was logged, or was to be.
    pub purged: Mutex<BTreeMap<u64, u64>>,
    /// Wakes the supervisor.
    pub bell: Bell,
}

impl Context {
    /// Remembers a purge, or that there was one: a volume that begins anew has nothing that is older.
    pub fn note_purge(&self, space: u64, number: u64) {
        if number <= NUMBER_MAX {
            let mut purged = self.purged.lock();
            let newest = purged.entry(space).or_default();
            *newest = number.max(*newest);
        }
    }

    /// Tells who has records here that the volume is out.
    pub fn tell_out(&self) {
        let witnesses: Vec<_> = self.witnesses.read().values().cloned().collect();
        for witness in witnesses.iter().filter_map(Weak::upgrade) {
            witness.is_out();
        }
    }
}

/// Something that one thread waits for.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes it.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until it was rung since the last time, or for so long.
    pub fn wait(&self, most: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.changed.wait_while_for(&mut rung, |rung| !*rung, most);
        }
        *rung = false;
    }
}

/// Where the log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The segment that is written to.
    pub segment: u32,
    /// Its lap.
    pub lap: u64,
}

impl Position {
    /// The one that is written next.
    pub fn next(self, segments: u32) -> Position {
        match self.segment + 1 {
            behind if behind == segments => Position {
                segment: 0,
                lap: self.lap + 1,
            },
            segment => Position { segment, ..self },
        }
    }

    /// The one that was written before; of lap 0 if there is none.
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

    /// The lap that a segment has when the log is here.
    pub fn lap_of(self, segment: u32) -> u64 {
        match segment <= self.segment {
            true => self.lap,
            false => self.lap - 1,
        }
    }
}

/// A volume that is open.
pub struct Mounted {
    /// What outlives it.
    pub context: Arc<Context>,
    /// Where the bytes are.
    pub device: Arc<dyn Device>,
    /// Where what is.
    pub geometry: Geometry,
    /// What checksums are mixed with.
    pub salt: Salt,
    /// Where the records are.
    pub index: Arc<Index>,
    /// Who reads them.
    pub pins: Arc<Pins>,
    /// Reads them.
    pub reader: Arc<Reader>,
    /// What waits to be written.
    pub queue: Queue,
    /// The purges.
    pub purges: Mutex<PurgeLog>,
    /// Where the log was when it was opened.
    pub begin: Position,
    /// From which number on this run counts.
    pub sequence: u64,
    /// Of the run before, if it ended in order: its recency counts.
    pub clean_run: Option<u64>,
    /// A segment is loaded, or reclaimed, under this; so that none is while all are looked at.
    pub gate: Mutex<()>,
    superblock: Mutex<Superblock>,
    /// The next run counts from here on at least; before a number of this size is written, it is moved.
    ceiling: AtomicU64,
    /// The least number at which anything in a segment was born.
    oldest: Box<[AtomicU64]>,
    /// Thousandths of the index that were read.
    loaded: AtomicU32,
    is_ended: AtomicBool,
    why: Mutex<String>,
}

/// What is needed to begin a life.
pub struct Parts {
    /// Where the bytes are.
    pub device: Arc<dyn Device>,
    /// As it is on the device.
    pub superblock: Superblock,
    /// As read.
    pub purges: PurgeLog,
    /// Of the run before, if it ended in order.
    pub clean_run: Option<u64>,
    /// Nothing is to be loaded.
    pub is_empty: bool,
}

impl Mounted {
    /// A life that begins with this.
    ///
    /// # Errors
    /// The system has no thread to read with.
    pub fn begin(context: Arc<Context>, parts: Parts) -> io::Result<Arc<Mounted>> {
        let options = &context.options;
        let pool = Arc::new(Pool::start(&options.name, options.readers)?);
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
            gate: Mutex::new(()),
            superblock: Mutex::new(superblock),
            oldest: (0..segments).map(|_| AtomicU64::new(u64::MAX)).collect(),
            loaded: AtomicU32::new(if parts.is_empty { LOADED } else { 0 }),
            is_ended: AtomicBool::new(false),
            why: Mutex::new(String::new()),
        }
    }

    /// Ends it: nothing is read from it and written to it any more. The first reason counts.
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

    /// Ends it, as its device failed.
    pub fn fail(&self, doing: &str, error: &io::Error) {
        if self.is_ended() {
            return;
        }
        self.context.counters.errors.add(1);
        self.end(&format!("{doing}: {error}"));
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }

    /// Why it has ended.
    pub fn why(&self) -> String {
        self.why.lock().clone()
    }

    /// Seconds since the volume was made.
    pub fn now(&self) -> u32 {
        self.reader.now()
    }

    /// Changes the superblock, and returns when that, and all that was written before, would outlast
    /// a loss of power.
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

    /// Waits for whoever is still writing to the purge log or the superblock, after it has ended:
    /// nobody does any more when this returns.
    pub fn wait_for_logs(&self) {
        drop(self.purges.lock());
        drop(self.superblock.lock());
    }

    /// The superblock as it is now.
    pub fn superblock(&self) -> Superblock {
        *self.superblock.lock()
    }

    /// Sees to it that the next run counts from greater numbers than this one, which comes from another
    /// volume if it is greater than any of this run.
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

    /// Sees to it that the next run counts on behind the number of a purge.
    ///
    /// # Errors
    /// The device failed, which ends this life.
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

    /// Works on the purge log; a device that fails ends this life.
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

    /// Nothing in a segment is older than this.
    pub fn set_oldest(&self, segment: u32, born: u64) {
        self.oldest[segment as usize].store(born, Ordering::SeqCst);
    }

    /// Something in a segment is as old as this.
    pub fn note_born(&self, segment: u32, born: u64) {
        self.oldest[segment as usize].fetch_min(born, Ordering::SeqCst);
    }

    /// Nothing in any segment is older than this.
    fn oldest(&self) -> u64 {
        // No segment is cleared meanwhile: what was just moved from there to where was looked already
        // would be missed.
        let _gate = self.gate.lock();
        let all = self.oldest.iter().map(|born| born.load(Ordering::SeqCst));
        all.min().unwrap_or(u64::MAX)
    }

    /// Nothing here, or waiting to be written, was born before this number; 0 while it loads.
    pub fn oldest_born(&self) -> u64 {
        match self.loaded() {
            // First what waits: it may be written before the other is asked.
            LOADED => self.queue.oldest_born().min(self.oldest()),
            _ => 0,
        }
    }

    /// How many thousandths of the index were read.
    pub fn loaded(&self) -> u32 {
        self.loaded.load(Ordering::SeqCst)
    }

    /// Says that so many thousandths of the index were read.
    pub fn set_loaded(&self, thousandths: u32) {
        self.loaded.store(thousandths, Ordering::SeqCst);
    }

    /// Whether what a record belongs to is in memory.
    pub fn is_witnessed(&self, id: &Id) -> bool {
        let witness = self.context.witnesses.read().get(&id.space).cloned();
        witness
            .and_then(|witness| witness.upgrade())
            .is_some_and(|witness| witness.is_in_use(id))
    }
}

/// The time without a read after which a record is dropped, in whole seconds.
pub fn seconds(after: Duration) -> u32 {
    let whole = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// Writes a superblock over the older one of the two, and returns when it would outlast a loss of
/// power: they are never both under way.
pub fn write_superblock(device: &dyn Device, superblock: &mut Superblock) -> io::Result<()> {
    superblock.generation += 1;
    let place = Geometry::superblock_place((superblock.generation % 2) as usize);
    write_aligned(device, place, &superblock.encode())?;
    device.sync()
}

/// A place in a segment; the log writes none that the index can't hold.
pub fn place(segment: u32, offset: u64, length: u64) -> Option<RecordLocation> {
    RecordLocation::new(u64::from(segment), offset, length)
}
