//! A simulated device in memory for tests, which can lose power, fail, stall or lose bits on request.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::device::{Device, OpenError, ReadMode};

/// Number of bytes that a disk writes atomically.
pub const SECTOR: usize = 512;

/// The data that a read with `ReadMode::Cached` finds in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedData {
    /// All data is in memory.
    All,
    /// No data is in memory.
    Nothing,
    /// The first bytes of each read are in memory: this many.
    First(usize),
    /// The device can't tell which data is in memory.
    Unsupported,
}

/// Numbers of calls to a simulated device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of reads that waited for the device or bypassed the page cache.
    pub reads: u64,
    /// Number of reads limited to data in memory.
    pub reads_cached: u64,
    /// Number of reads that bypassed the page cache.
    pub reads_direct: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of bytes written.
    pub written: u64,
    /// Number of syncs.
    pub syncs: u64,
}

/// A device whose content is in memory. Tests share it by `Arc`.
pub struct Simulated {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The current content of the device.
    content: Vec<u8>,
    /// The content of the device at the last sync.
    durable: Vec<u8>,
    /// For each sector, its content after each write since the last sync, oldest first.
    unsynced: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// Bytes that the page cache has wrong, by their offset on the device.
    stale: BTreeMap<u64, u8>,
    cached: CachedData,
    /// Number of writes before the one during which power is lost.
    writes_left: Option<u64>,
    is_dead: bool,
    read_errno: Option<i32>,
    write_errno: Option<i32>,
    holds_reads: bool,
    held: usize,
    counts: Counts,
}

impl Simulated {
    /// Creates a device of this many zero bytes.
    pub fn new(size: u64) -> Arc<Simulated> {
        // The two vectors are allocated separately, not cloned: zeroed memory takes no space until it is written to.
        Simulated::with(vec![0; size as usize], vec![0; size as usize])
    }

    /// Creates a device with this content.
    pub fn of(content: Vec<u8>) -> Arc<Simulated> {
        Simulated::with(content.clone(), content)
    }

    fn with(durable: Vec<u8>, content: Vec<u8>) -> Arc<Simulated> {
        Arc::new(Simulated {
            state: Mutex::new(State {
                durable,
                content,
                unsynced: BTreeMap::new(),
                stale: BTreeMap::new(),
                cached: CachedData::All,
                writes_left: None,
                is_dead: false,
                read_errno: None,
                write_errno: None,
                holds_reads: false,
                held: 0,
                counts: Counts::default(),
            }),
            changed: Condvar::new(),
        })
    }

    /// Simulates a loss of power: this device fails from now on. Returns a device with the surviving content: each sector has its content
    /// at the last sync, or after any one of the later writes.
    pub fn crash(&self, seed: u64) -> Arc<Simulated> {
        let mut state = self.state.lock();
        state.is_dead = true;
        self.changed.notify_all();
        let mut random = seed;
        let mut content = state.durable.clone();
        for (sector, versions) in &state.unsynced {
            let pick = split_mix(&mut random) as usize % (versions.len() + 1);
            if let Some(version) = versions.get(pick) {
                let at = sector * SECTOR;
                let length = SECTOR.min(content.len() - at);
                content[at..at + length].copy_from_slice(&version[..length]);
            }
        }
        Simulated::of(content)
    }

    /// Simulates a killed process, and returns a device that has all written data.
    pub fn kill(&self) -> Arc<Simulated> {
        let mut state = self.state.lock();
        state.is_dead = true;
        self.changed.notify_all();
        Simulated::of(state.content.clone())
    }

    /// Simulates a loss of power after `writes` further writes, during the next one; `crash` then returns the surviving content.
    pub fn crash_after(&self, writes: u64) {
        self.state.lock().writes_left = Some(writes);
    }

    /// Whether power was lost.
    pub fn is_dead(&self) -> bool {
        self.state.lock().is_dead
    }

    /// Makes reads fail with this system error; `None` makes them succeed again.
    pub fn fail_reads(&self, errno: Option<i32>) {
        self.state.lock().read_errno = errno;
    }

    /// Makes writes and syncs fail with this system error; `None` makes them succeed again.
    pub fn fail_writes(&self, errno: Option<i32>) {
        self.state.lock().write_errno = errno;
    }

    /// Flips a bit on the device permanently.
    pub fn flip(&self, at: u64, bit: u32) {
        let mut state = self.state.lock();
        state.content[at as usize] ^= 1 << (bit % 8);
        state.durable[at as usize] ^= 1 << (bit % 8);
    }

    /// Flips a bit in the page cache; direct reads still find the written value.
    pub fn flip_cached(&self, at: u64, bit: u32) {
        let mut state = self.state.lock();
        let byte = state.content[at as usize] ^ (1 << (bit % 8));
        state.stale.insert(at, byte);
    }

    /// Sets the data that a read with `ReadMode::Cached` finds in memory from now on.
    pub fn set_cached(&self, cached: CachedData) {
        self.state.lock().cached = cached;
    }

    /// Blocks reads that wait for the disk, until `release_reads` is called.
    pub fn hold_reads(&self) {
        self.state.lock().holds_reads = true;
    }

    /// Releases blocked reads.
    pub fn release_reads(&self) {
        self.state.lock().holds_reads = false;
        self.changed.notify_all();
    }

    /// Waits until this many reads are blocked.
    pub fn wait_for_held(&self, reads: usize) {
        let mut state = self.state.lock();
        while state.held < reads {
            self.changed.wait(&mut state);
        }
    }

    /// Returns the number of blocked reads.
    pub fn held(&self) -> usize {
        self.state.lock().held
    }

    /// Returns the numbers of calls so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Returns the current content of the device.
    pub fn content(&self) -> Vec<u8> {
        self.state.lock().content.clone()
    }

    /// Locks the state, after waiting while reads are blocked.
    fn state_to_read(&self, how: ReadMode) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if how != ReadMode::Cached && state.holds_reads && !state.is_dead {
            state.held += 1;
            self.changed.notify_all();
            while state.holds_reads && !state.is_dead {
                self.changed.wait(&mut state);
            }
            state.held -= 1;
        }
        state
    }
}

impl State {
    /// Counts a read, and returns the maximum number of bytes that it may return.
    fn begin_read(&mut self, how: ReadMode) -> io::Result<usize> {
        self.is_alive()?;
        if how == ReadMode::Cached {
            self.counts.reads_cached += 1;
            return match self.cached {
                CachedData::All => Ok(usize::MAX),
                CachedData::First(bytes) => Ok(bytes),
                CachedData::Nothing => Err(io::ErrorKind::WouldBlock.into()),
                CachedData::Unsupported => Err(io::ErrorKind::Unsupported.into()),
            };
        }
        self.counts.reads += 1;
        self.counts.reads_direct += u64::from(how == ReadMode::Direct);
        match self.read_errno {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(usize::MAX),
        }
    }

    fn is_alive(&self) -> io::Result<()> {
        match self.is_dead {
            true => Err(io::Error::other("the simulated device has lost power")),
            false => Ok(()),
        }
    }

    /// Returns at most `length` bytes from offset `at` on.
    fn bytes(&self, at: usize, length: usize, how: ReadMode) -> Cow<'_, [u8]> {
        let end = self.content.len().min(at + length);
        let mut bytes = Cow::Borrowed(&self.content[at..end]);
        if how != ReadMode::Direct {
            for (place, byte) in self.stale.range(at as u64..end as u64) {
                bytes.to_mut()[*place as usize - at] = *byte;
            }
        }
        bytes
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.content[at..at + bytes.len()].copy_from_slice(bytes);
        let written = at..at + bytes.len();
        self.stale
            .retain(|place, _| !written.contains(&(*place as usize)));
    }

    /// Remembers the content of all sectors between two offsets after a write.
    fn note(&mut self, from: usize, to: usize) {
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            let at = sector * SECTOR;
            let length = SECTOR.min(self.content.len() - at);
            let mut version = [0; SECTOR];
            version[..length].copy_from_slice(&self.content[at..at + length]);
            self.unsynced.entry(sector).or_default().push(version);
        }
    }
}

// SAFETY: `read` writes to each buffer from its first byte on, one buffer after the other, and counts the bytes.
unsafe impl Device for Simulated {
    fn size(&self) -> u64 {
        self.state.lock().content.len() as u64
    }

    fn set_size(&self, bytes: u64) -> Result<(), OpenError> {
        let mut state = self.state.lock();
        state.content.resize(bytes as usize, 0);
        state.durable.resize(bytes as usize, 0);
        state
            .unsynced
            .retain(|sector, _| ((sector * SECTOR) as u64) < bytes);
        Ok(())
    }

    fn read(
        &self,
        at: u64,
        into: &mut [&mut [MaybeUninit<u8>]],
        how: ReadMode,
    ) -> io::Result<usize> {
        let mut state = self.state_to_read(how);
        let most = state.begin_read(how)?;
        let mut place = state.content.len().min(at as usize);
        let mut read = 0;
        for piece in into.iter_mut() {
            let length = piece.len().min(most - read);
            let bytes = state.bytes(place, length, how);
            for (to, from) in piece.iter_mut().zip(&*bytes) {
                to.write(*from);
            }
            place += bytes.len();
            read += bytes.len();
        }
        Ok(read)
    }

    fn write(&self, at: u64, from: &[&[u8]]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.is_alive()?;
        if let Some(errno) = state.write_errno {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let length: usize = from.iter().map(|piece| piece.len()).sum();
        let (begin, end) = (at as usize, at as usize + length);
        if end > state.content.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut place = begin;
        for piece in from {
            state.put(place, piece);
            place += piece.len();
        }
        state.note(begin, end);
        state.counts.writes += 1;
        state.counts.written += length as u64;
        match &mut state.writes_left {
            Some(0) => {
                state.is_dead = true;
                state.is_alive()
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.is_alive()?;
        if let Some(errno) = state.write_errno {
            return Err(io::Error::from_raw_os_error(errno));
        }
        state.counts.syncs += 1;
        let State {
            content,
            durable,
            unsynced,
            ..
        } = &mut *state;
        for sector in std::mem::take(unsynced).into_keys() {
            let at = sector * SECTOR;
            let end = content.len().min(at + SECTOR);
            durable[at..end].copy_from_slice(&content[at..end]);
        }
        Ok(())
    }
}

/// Returns the next number of a pseudo-random sequence (SplitMix64).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

mod tests {
    use super::super::tests::read;
    use super::*;

    #[test]
    fn synced_data_survives_and_any_other_sectors_may() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let device = Simulated::new(2048);
            device.write(0, &[&[1; 1024]]).expect("written");
            device.sync().expect("synced");
            device.write(512, &[&[2; 1024]]).expect("written");
            device.write(512, &[&[3; 512]]).expect("written");
            device.crash_after(0);
            device.write(1536, &[&[4; 512]]).expect_err("power goes");
            device.sync().expect_err("it is gone");
            let content = device.crash(seed).content();
            assert_eq!(content[..512], [1; 512]);
            let sectors: Vec<u8> = content.chunks(SECTOR).map(|sector| sector[0]).collect();
            assert!(content.chunks(SECTOR).all(|s| s.iter().all(|b| *b == s[0])));
            seen.insert(sectors);
        }
        // Since the sync, one sector was written twice and has 3 possible contents; two sectors were written once and have 2 each.
        assert_eq!(seen.len(), 3 * 2 * 2);
    }

    #[test]
    fn a_device_fails_and_loses_bits_on_request() {
        let device = Simulated::new(1024);
        device.flip(5, 0);
        device.flip_cached(6, 1);
        let read = |how| read(&*device, 4, 4, how).expect("read");
        assert_eq!(read(ReadMode::Wait), [0, 1, 2, 0]);
        assert_eq!(read(ReadMode::Direct), [0, 1, 0, 0]);
        device.set_cached(CachedData::First(2));
        assert_eq!(read(ReadMode::Cached), [0, 1]);
        device.fail_reads(Some(libc::EIO));
        let mut memory = [MaybeUninit::uninit()];
        let error = device
            .read(0, &mut [&mut memory], ReadMode::Wait)
            .expect_err("EIO");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}
