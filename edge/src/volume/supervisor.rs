//! The supervisor thread of a volume. The thread loads the index, opens the device again after a failure, and drops inactive records.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::device_io::read_exactly;
use super::format::record::{HEADER_MAX, Header};
use super::format::{BLOCK, up};
use super::index::{Cursor, Key, RecordLocation};
use super::mount::{Mode, mount};
use super::mounted::{Context, Mounted};
use super::queue::Overrun;
use super::recover::{load_tables, open_segment};
use super::types::{Id, LogError};
use super::writer;
use crate::sys::disk::device::{OpenError, Opened};

/// Reason shown for a volume that was closed.
const CLOSED: &str = "it is closed";
/// Interval between two steps of the sweep that drops inactive records.
const TICK: Duration = Duration::from_millis(500);
/// Number of buckets of the index that one step of the sweep checks.
const SWEEP_STEPS: usize = 2000;
/// Maximum number of records that one step of the sweep reads from the device.
const SWEEP_READS: usize = 64;

/// Opens the device: the real one, or the simulated one of a test.
pub type Opener = Box<dyn Fn() -> Result<Opened, OpenError> + Send + Sync>;

/// Whether a volume is in service.
pub enum Service {
    /// In service.
    Up(Arc<Mounted>),
    /// Out of service for this reason.
    Out(String),
}

/// State of a volume that its threads share.
pub struct Inner {
    /// State that stays when the device is closed and opened again.
    pub context: Arc<Context>,
    now: RwLock<Service>,
    open: Opener,
    /// Locked while the volume is opened, wiped or closed, so that only one of these happens at a time.
    changing: Mutex<Changing>,
    is_closed: AtomicBool,
    sequence: AtomicU64,
}

struct Changing {
    /// The threads of the present mounted volume.
    threads: Vec<JoinHandle<()>>,
    /// Time at which a failed device is opened again, in microseconds.
    retry_at: u64,
    /// Last known lap of the volume: number of the pass over all segments.
    lap: u64,
    /// First sequence number (of fetches and purges) of the last known run with this volume.
    sequence: u64,
}

impl Inner {
    /// Opens the volume when the program starts.
    ///
    /// # Errors
    ///
    /// The device has content that must not be overwritten, or its sizes are not usable.
    pub fn open(context: Arc<Context>, open: Opener) -> Result<Arc<Inner>, String> {
        let first = open().and_then(|opened| mount(&context, opened, Mode::Continue));
        let now = match first {
            Ok(mounted) => Service::Up(mounted),
            Err(OpenError::Refused(why)) => return Err(why),
            Err(OpenError::Failed(why)) => {
                context.counters.errors.add(1);
                tracing::warn!(target: "sluice::event::volume::out-of-use", volume = %context.options.name, "a volume is out of use: {why}");
                Service::Out(why)
            }
        };
        let retry_at = context.clock.monotonic_us() + retry_us(&context);
        let sequence = match &now {
            Service::Up(mounted) => mounted.sequence,
            Service::Out(_) => 1,
        };
        Ok(Arc::new(Inner {
            context,
            now: RwLock::new(now),
            open,
            changing: Mutex::new(Changing {
                threads: Vec::new(),
                retry_at,
                lap: 0,
                sequence: 0,
            }),
            is_closed: AtomicBool::new(false),
            sequence: AtomicU64::new(sequence),
        }))
    }

    /// Returns the first sequence number of this run of the program.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::SeqCst)
    }

    /// Returns the mounted volume, if it is in service.
    pub fn mounted(&self) -> Option<Arc<Mounted>> {
        match &*self.now.read() {
            Service::Up(mounted) if !mounted.is_ended() => Some(Arc::clone(mounted)),
            _ => None,
        }
    }

    /// Returns the reason why the volume is out of service.
    pub fn why_out(&self) -> String {
        match &*self.now.read() {
            Service::Up(mounted) => mounted.why(),
            Service::Out(why) => why.clone(),
        }
    }

    /// Runs the supervisor until the volume is closed.
    pub fn supervise(self: &Arc<Inner>) {
        let mut cursor = Cursor::default();
        let mut loaded: Option<Arc<Mounted>> = None;
        let mut is_out = false;
        loop {
            match self.mounted() {
                Some(mounted) => {
                    is_out = false;
                    let is_new = loaded
                        .as_ref()
                        .is_none_or(|known| !Arc::ptr_eq(known, &mounted));
                    if is_new {
                        loaded = Some(Arc::clone(&mounted));
                        cursor = Cursor::default();
                        self.load(&mounted);
                    } else {
                        self.tidy(&mounted, &mut cursor);
                    }
                }
                None => {
                    loaded = None;
                    // No lock is held here: notifying a store may drop its last reference, and with it the last reference to this volume.
                    if !std::mem::replace(&mut is_out, true) {
                        self.context.notify_out();
                    }
                    self.reopen();
                }
            }
            if self.is_closed.load(Ordering::SeqCst) {
                return;
            }
            self.context.bell.wait(TICK.min(self.context.options.retry));
        }
    }

    /// Scans the open segment, starts the writer thread, then loads the tables of the full segments.
    fn load(self: &Arc<Inner>, mounted: &Arc<Mounted>) {
        let work = AssertUnwindSafe(|| {
            let (open, recency) = open_segment(mounted)?;
            self.start_writer(mounted, open)?;
            load_tables(mounted, &recency)
        });
        match std::panic::catch_unwind(work) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => mounted.fail("the index can't be read", &error),
            Err(_) => mounted.end("reading the index has panicked"),
        }
    }

    fn start_writer(
        &self,
        mounted: &Arc<Mounted>,
        open: super::compose::Open,
    ) -> std::io::Result<()> {
        // A thread that creates the volume again holds this lock and ends the mounted volume first. Therefore either that thread sees the
        // writer thread and waits for it, or the writer thread is not started.
        let mut changing = self.changing.lock();
        if mounted.is_ended() {
            return Ok(());
        }
        let life = Arc::clone(mounted);
        let thread = std::thread::Builder::new()
            .name("volume-writer".into())
            .spawn(move || writer::run(&life, open))?;
        changing.threads.push(thread);
        Ok(())
    }

    /// Cleans up after a failed mounted volume, and opens the device again when it is time.
    fn reopen(&self) {
        let mut changing = self.changing.lock();
        if self.mounted().is_some() || self.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let ended = match &*self.now.read() {
            Service::Up(ended) => Some(Arc::clone(ended)),
            Service::Out(_) => None,
        };
        if let Some(ended) = ended {
            self.take_out_of_service(&mut changing, &ended);
        }
        let now = self.context.clock.monotonic_us();
        if now < changing.retry_at {
            return;
        }
        changing.retry_at = now + retry_us(&self.context);
        let mode = Mode::Create {
            lap: changing.lap,
            sequence: changing.sequence,
        };
        match (self.open)().and_then(|opened| mount(&self.context, opened, mode)) {
            Ok(mounted) => {
                tracing::info!(target: "sluice::event::volume::in-use-again", volume = %self.context.options.name, "a volume is in use again, and empty");
                self.set_now(Service::Up(mounted));
                self.context.bell.ring();
            }
            Err(OpenError::Refused(why) | OpenError::Failed(why)) => {
                self.context.counters.errors.add(1);
                self.set_now(Service::Out(why));
            }
        }
    }

    /// Sets the state; a closed volume stays out of service.
    fn set_now(&self, now: Service) {
        let mut current = self.now.write();
        *current = match self.is_closed.load(Ordering::SeqCst) {
            true => Service::Out(CLOSED.into()),
            false => now,
        };
    }

    /// Marks the volume as out of service, once the threads of the ended mounted volume have stopped.
    fn take_out_of_service(&self, changing: &mut Changing, ended: &Mounted) {
        let why = ended.why();
        tracing::warn!(target: "sluice::event::volume::out-of-use", volume = %self.context.options.name, "a volume is out of use: {why}");
        for thread in changing.threads.drain(..) {
            let _ = thread.join();
        }
        give_up_waiting(ended);
        ended.wait_for_logs();
        let superblock = ended.superblock();
        changing.lap = superblock.lap;
        changing.sequence = superblock.sequence;
        changing.retry_at = self.context.clock.monotonic_us() + retry_us(&self.context);
        self.set_now(Service::Out(why));
    }

    /// Deletes all records: creates an empty volume on the same device.
    pub fn wipe(&self, why: &str) {
        let Some(mounted) = self.mounted() else {
            return;
        };
        mounted.end(why);
        let mut changing = self.changing.lock();
        // The records must be deleted even if the volume is closed at the same time: an ended volume is wiped too.
        if matches!(&*self.now.read(), Service::Up(now) if !Arc::ptr_eq(now, &mounted)) {
            return;
        }
        let opened = Opened {
            device: Arc::clone(&mounted.device),
            fresh: false,
            is_block: self.context.options.size == 0
                || mounted.device.size() != mounted.geometry.size(),
        };
        self.take_out_of_service(&mut changing, &mounted);
        drop(mounted);
        let mode = Mode::Create {
            lap: changing.lap,
            sequence: changing.sequence,
        };
        match mount(&self.context, opened, mode) {
            Ok(mounted) => self.set_now(Service::Up(mounted)),
            Err(OpenError::Refused(why) | OpenError::Failed(why)) => {
                self.context.counters.errors.add(1);
                self.set_now(Service::Out(why));
            }
        }
        self.context.bell.ring();
    }

    /// Closes the volume. With `drain`, the queue is written first, for at most this time.
    pub fn close(&self, drain: Option<Duration>) {
        if self.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.context.bell.ring();
        let last = match &*self.now.read() {
            Service::Up(mounted) => Some(Arc::clone(mounted)),
            Service::Out(_) => None,
        };
        if let Some(mounted) = last {
            self.close_down(&mounted, drain);
        }
        *self.now.write() = Service::Out(CLOSED.into());
    }

    fn close_down(&self, mounted: &Mounted, drain: Option<Duration>) {
        if drain.is_none() {
            mounted.end(CLOSED);
        }
        mounted.queue.close();
        let within = drain.unwrap_or(Duration::from_secs(1));
        // The writer thread starts only after the open segment was scanned; without it, the queue would not be written.
        poll(within, || {
            mounted.is_ended() || !self.changing.lock().threads.is_empty()
        });
        // A concurrent `wipe` waits for this lock, and so runs after the volume is closed.
        let mut changing = self.changing.lock();
        wait_for(&mut changing.threads, within);
        mounted.end(CLOSED);
        wait_for(&mut changing.threads, Duration::from_secs(1));
        give_up_waiting(mounted);
    }

    /// Performs one step of the periodic work: compaction of the purge log, and dropping of inactive records.
    fn tidy(&self, mounted: &Arc<Mounted>, cursor: &mut Cursor) {
        if mounted.purges.lock().wants_compaction() {
            let compacted = mounted.with_purges(|log, device, nonce| log.compact(device, nonce));
            if let Err(LogError::Full) = compacted {
                tracing::warn!(target: "sluice::event::volume::purge-log-full", volume = %mounted.context.options.name, "the purge log is full");
            }
        }
        let limits = mounted.context.inactive.lock().clone();
        if limits.values().any(|after| !after.is_zero()) {
            self.sweep(mounted, cursor);
        }
    }

    /// Drops records that have not been read for the time that is set for their cache, unless their object is in memory.
    fn sweep(&self, mounted: &Mounted, cursor: &mut Cursor) {
        let now = mounted.now();
        let mut reads = 0;
        for _ in 0..SWEEP_STEPS {
            let begin = *cursor;
            let Some(found) = mounted.index.inactive(cursor, now) else {
                return;
            };
            for (key, place) in found {
                if mounted.is_ended() || self.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                if reads == SWEEP_READS {
                    // The next step checks the same buckets again; records that this step has checked were dropped or count as used, so
                    // they are not returned again.
                    *cursor = begin;
                    return;
                }
                reads += 1;
                if drop_unless_in_use(mounted, key, place, now).is_err() {
                    return;
                }
            }
        }
    }
}

/// Drops a record permanently, unless its object is in memory.
fn drop_unless_in_use(
    mounted: &Mounted,
    key: Key,
    at: RecordLocation,
    now: u32,
) -> Result<(), Overrun> {
    match read_id(mounted, at).filter(|id| mounted.index.key(id) == key) {
        Some(id) if mounted.is_witnessed(&id) => mounted.index.touch(key, at, now),
        Some(id) => mounted.queue.forget_at(&id, key, at, &mounted.index)?,
        None => drop(mounted.index.lose(key, at)),
    }
    Ok(())
}

/// Reads the id of the record at this location. Only the device contains complete ids.
fn read_id(mounted: &Mounted, at: RecordLocation) -> Option<Id> {
    let lap = mounted.index.lap(at.segment);
    let begin = u64::from(at.offset()) / BLOCK * BLOCK;
    let end = up(u64::from(at.offset()) + HEADER_MAX, BLOCK).min(mounted.geometry.segment);
    let place = mounted.geometry.segment_place(u32::from(at.segment)) + begin;
    let bytes = read_exactly(&*mounted.device, place, (end - begin) as usize).ok()?;
    let bytes = &bytes.filled()[(u64::from(at.offset()) - begin) as usize..];
    let header = Header::decode(bytes, mounted.salt, lap, mounted.geometry.segment);
    header.ok().map(|header| header.id)
}

/// Waits until the threads have ended, but at most for the time `most`.
pub fn wait_for(threads: &mut Vec<JoinHandle<()>>, most: Duration) {
    poll(most, || {
        threads.retain(|thread| !thread.is_finished());
        threads.is_empty()
    });
}

fn poll(most: Duration, mut is_so: impl FnMut() -> bool) {
    const STEP: Duration = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    while !is_so() && waited < most {
        std::thread::sleep(STEP);
        waited += STEP;
    }
}

/// Notifies the stores of all queued records that these will not be written.
fn give_up_waiting(mounted: &Mounted) {
    mounted.queue.end();
    for item in mounted.queue.take(u64::MAX) {
        if let super::queue::Item::Put { source, .. } = item {
            source.done(false);
        }
    }
}

fn retry_us(context: &Context) -> u64 {
    context.options.retry.as_micros() as u64
}
