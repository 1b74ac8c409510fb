//! Tests of reads from a simulated device: from the page cache, by threads, of damaged records, and of overwritten ones.

use std::future::Future;
use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;

use super::*;
use crate::sys::disk::device::Device;
use crate::sys::disk::simulated::{CachedData, Simulated};
use crate::volume::checksum::Salt;
use crate::volume::format::Geometry;
use crate::volume::format::record::{Header, Layout, Mark};
use crate::volume::types::{Kind, PAGE};

const LAP: u64 = 3;
const SEGMENT: u32 = 2;
const LONG: Duration = Duration::from_secs(60);

struct Rig {
    device: Arc<Simulated>,
    reader: Arc<Reader>,
    failures: Arc<AtomicUsize>,
}

impl Rig {
    fn new(limit: Duration) -> Rig {
        let geometry = Geometry::of(16 << 20, 1 << 20).expect("a size that does");
        let device = Simulated::new(geometry.size());
        let index = Arc::new(Index::new(geometry.segments as usize));
        index.set_loaded();
        index.set_lap(SEGMENT as u16, LAP);
        let failures = Arc::new(AtomicUsize::new(0));
        let failed = failures.clone();
        let reader = Reader {
            source: LogDevice {
                device: device.clone(),
                geometry,
                salt: Salt::of(77),
            },
            index,
            pins: Pins::new(geometry.segments as usize),
            pool: Arc::new(start_pool("test", 1).expect("a thread")),
            tally: Arc::default(),
            clock: Clock::manual(1_000),
            made_s: 900,
            limit,
            on_failure: Box::new(move |_| {
                failed.fetch_add(1, Ordering::SeqCst);
            }),
        };
        Rig {
            device,
            reader: Arc::new(reader),
            failures,
        }
    }

    /// Writes a record and adds it to the index.
    fn put(&self, id: &Id, offset: u64, meta: &[u8], data: &[u8]) -> Found {
        let source = &self.reader.source;
        let seq = 5;
        let layout = Layout::of(offset, meta.len() as u32, data.len() as u32);
        let pages = (0..).zip(data.chunks(PAGE as usize));
        let crcs: Vec<u32> = pages
            .map(|(page, bytes)| Header::crc_of_page(source.salt, LAP, seq, page, bytes))
            .collect();
        let header = Header {
            mark: Mark::Stored(id.kind),
            id: *id,
            seq,
            born_seq: 4,
            meta: meta.len() as u32,
            data: data.len() as u32,
            meta_crc: Header::crc_of_meta(source.salt, LAP, seq, meta),
        };
        let mut record = vec![0; layout.length() as usize];
        header.encode(source.salt, LAP, &crcs, &mut record);
        let mut copy = |to: u64, bytes: &[u8]| {
            record[(to - offset) as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        copy(layout.meta, meta);
        copy(layout.data, data);
        let at = source.geometry.segment_place(SEGMENT) + offset;
        self.device.write(at, &[&record]).expect("there is room");
        let place =
            RecordLocation::new(u64::from(SEGMENT), offset, layout.length()).expect("a place");
        self.reader.index.insert(id, place, 0);
        self.reader.index.find(id).expect("it was put in")
    }

    /// Returns the offset on the device of a record's first byte.
    fn at(&self, found: &Found) -> u64 {
        let segment = self.reader.source.geometry.segment_place(SEGMENT);
        segment + u64::from(found.offset)
    }

    fn pages(
        &self,
        found: Found,
        id: &Id,
        first: u32,
        buffers: Vec<Buffer>,
    ) -> Result<Vec<u8>, Missing> {
        let read = block_on(self.reader.read_pages(found, id, first, buffers))?;
        Ok(read
            .iter()
            .flat_map(|buffer| buffer.filled().to_vec())
            .collect())
    }

    fn head(&self, found: Found, id: &Id) -> Result<HeadRead, Missing> {
        block_on(self.reader.read_head(found, id.space, id.key))
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(future)
}

fn id(kind: Kind) -> Id {
    Id {
        space: 1,
        key: 2,
        version: 3,
        part: u32::from(kind == Kind::Block),
        kind,
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at ^ at >> 8 ^ at >> 16) as u8)
        .collect()
}

/// Returns one buffer for each of these pages; the last one has the size of the remaining data.
fn buffers(data: usize, pages: std::ops::Range<usize>) -> Vec<Buffer> {
    let page = PAGE as usize;
    pages
        .map(|n| Buffer::new((data - n * page).min(page)))
        .collect()
}

fn cached() -> impl Strategy<Value = CachedData> {
    prop_oneof![
        Just(CachedData::All),
        Just(CachedData::Nothing),
        Just(CachedData::Unsupported),
        (0..300_000usize).prop_map(CachedData::First),
    ]
}

/// Generates a record's offset, the lengths of its metadata and data, and the pages to read.
fn records() -> impl Strategy<Value = (u64, usize, usize, std::ops::Range<usize>)> {
    let lengths = (
        64..200u64,
        prop_oneof![Just(0), 0..9000usize],
        1..700_000usize,
    );
    lengths.prop_flat_map(|(unit, meta, data)| {
        let pages = data.div_ceil(PAGE as usize);
        (0..pages).prop_flat_map(move |first| {
            (first + 1..=pages).prop_map(move |end| (unit * 64, meta, data, first..end))
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64 * sluice_lab::soak::factor()))]

    #[test]
    fn pages_are_read_as_written((offset, meta, data, pages) in records(), cached in cached()) {
        let (rig, id) = (Rig::new(LONG), id(Kind::Block));
        let content = bytes(data);
        let found = rig.put(&id, offset, &bytes(meta), &content);
        rig.device.set_cached(cached);
        let page = PAGE as usize;
        let read = rig.pages(found, &id, pages.start as u32, buffers(data, pages.clone()));
        let expected = &content[pages.start * page..data.min(pages.end * page)];
        prop_assert!(read.as_deref() == Ok(expected));
        let tally = &rig.reader.tally;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        prop_assert_eq!((of(&tally.reads), of(&tally.read_bytes)), (1, expected.len() as u64));
        let waited = rig.device.counts().reads > 0;
        prop_assert_eq!(of(&tally.reads_cached) == 1, !waited);
        let usage = rig.reader.index.usage(rig.reader.index.key(&id), RecordLocation::from(&found));
        prop_assert!(usage.is_some_and(|usage| usage.used && usage.atime == 100));
    }

    #[test]
    fn a_head_is_read_with_its_data((offset, meta, data, _) in records(), cached in cached()) {
        let (rig, id) = (Rig::new(LONG), id(Kind::Head));
        let (meta, data) = (bytes(meta), bytes(data));
        let found = rig.put(&id, offset, &meta, &data);
        rig.device.set_cached(cached);
        let read = rig.head(found, &id).expect("it is there");
        prop_assert_eq!(read.id, id);
        prop_assert!(read.meta == meta && read.data == data);
    }

    #[test]
    fn a_flipped_bit_is_never_served((offset, meta, data, pages) in records(), flip: prop::sample::Index,
                                     cached: bool, whole: bool) {
        let (rig, id) = (Rig::new(LONG), id(if whole { Kind::Head } else { Kind::Block }));
        let content = bytes(data);
        let found = rig.put(&id, offset, &bytes(meta), &content);
        let bit = flip.index(found.length as usize * 8);
        let at = rig.at(&found) + bit as u64 / 8;
        match cached {
            true => rig.device.flip_cached(at, bit as u32 % 8),
            false => rig.device.flip(at, bit as u32 % 8),
        }
        let page = PAGE as usize;
        let read = match whole {
            true => rig.head(found, &id).map(|read| read.data.to_vec()),
            false => rig.pages(found, &id, pages.start as u32, buffers(data, pages.clone())),
        };
        let expected = match whole {
            true => &content[..],
            false => &content[pages.start * page..data.min(pages.end * page)],
        };
        let damaged = rig.reader.tally.damaged.load(Ordering::Relaxed);
        match read {
            Ok(read) => prop_assert!(read == expected && damaged == 0),
            Err(why) => {
                prop_assert_eq!(why, Missing::Damaged);
                prop_assert!(!cached, "what is on the device is in order");
                prop_assert_eq!(damaged, 1);
            }
        }
        prop_assert_eq!(rig.reader.index.find(&id).is_some(), damaged == 0);
        prop_assert_eq!(rig.failures.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn cached_pages_take_one_read_per_256_kib() {
    let (rig, id) = (Rig::new(LONG), id(Kind::Block));
    let content = bytes(900_000);
    let found = rig.put(&id, 4096 + 64, b"", &content);
    assert!(rig.pages(found, &id, 0, buffers(900_000, 0..14)).as_deref() == Ok(&content[..]));
    assert_eq!(rig.device.counts().reads_cached, 4);
    rig.device.set_cached(CachedData::Nothing);
    assert!(rig.pages(found, &id, 0, buffers(900_000, 0..14)).as_deref() == Ok(&content[..]));
    let counts = rig.device.counts();
    assert_eq!((counts.reads_cached, counts.reads), (5, 1));
}

#[test]
fn another_record_at_the_location_is_not_served_and_is_removed() {
    let (rig, wanted) = (Rig::new(LONG), id(Kind::Block));
    let found = rig.put(&wanted, 4096, b"", &bytes(100));
    let other = Id { part: 9, ..wanted };
    rig.put(&other, 4096, b"", &bytes(100));
    let read = rig.pages(found, &wanted, 0, buffers(100, 0..1));
    assert_eq!(read, Err(Missing::Gone));
    assert!(rig.reader.index.find(&wanted).is_none());
    assert!(rig.reader.index.find(&other).is_some());
    // A read that expects a shorter record is refused, too.
    let found = rig.reader.index.find(&other).expect("it is there");
    assert_eq!(
        rig.pages(found, &other, 0, buffers(99, 0..1)),
        Err(Missing::Gone)
    );
    let too_many = vec![Buffer::new(PAGE as usize), Buffer::new(1)];
    assert_eq!(rig.pages(found, &other, 0, too_many), Err(Missing::Gone));
}

#[test]
fn a_failing_device_is_reported() {
    let (rig, id) = (Rig::new(LONG), id(Kind::Head));
    let found = rig.put(&id, 4096, b"meta", b"");
    rig.device.set_cached(CachedData::Nothing);
    rig.device.fail_reads(Some(libc::EIO));
    assert_eq!(rig.head(found, &id).err(), Some(Missing::Failed));
    assert_eq!(rig.failures.load(Ordering::SeqCst), 1);
    assert!(
        rig.reader.index.find(&id).is_some(),
        "the record is not to blame"
    );
}

#[test]
fn an_overwritten_record_is_not_read() {
    let (rig, id) = (Rig::new(LONG), id(Kind::Head));
    let found = rig.put(&id, 4096, b"meta", b"");
    rig.reader.index.set_lap(SEGMENT as u16, LAP + 1);
    let before = rig.device.counts();
    assert_eq!(rig.head(found, &id).err(), Some(Missing::Gone));
    assert_eq!(rig.device.counts(), before);
    let beyond = Found {
        segment: 99,
        ..found
    };
    assert_eq!(rig.head(beyond, &id).err(), Some(Missing::Gone));
}

#[test]
fn a_stuck_device_delays_no_read_for_long_and_keeps_its_segment_pinned() {
    let (rig, id) = (Rig::new(Duration::from_millis(1)), id(Kind::Head));
    let found = rig.put(&id, 4096, b"meta", b"");
    rig.device.set_cached(CachedData::Nothing);
    rig.device.hold_reads();
    // A thread must have begun a read and wait for the held device. Reads whose caller gives up earlier are skipped.
    while rig.device.held() == 0 {
        assert_eq!(rig.head(found, &id).err(), Some(Missing::Slow));
    }
    rig.reader.pins.wait(SEGMENT, Duration::ZERO);
    assert!(!rig.reader.pins.is_free(SEGMENT));
    let mut slow = 0;
    while rig.head(found, &id).err() == Some(Missing::Slow) {
        slow += 1;
    }
    // The loop above may have left one read in the queue.
    assert!((63..=64).contains(&slow), "the queue is bounded: {slow}");
    assert_eq!(rig.head(found, &id).err(), Some(Missing::Busy));
    rig.device.release_reads();
    rig.reader.pins.wait(SEGMENT, LONG);
    assert!(rig.reader.pins.is_free(SEGMENT), "nobody reads any more");
    assert_eq!(
        rig.device.counts().reads,
        1,
        "what nobody waits for is not read"
    );
}

#[test]
fn a_segment_overwritten_during_a_slow_read_does_not_count_as_damaged() {
    let (rig, id) = (Rig::new(LONG), id(Kind::Head));
    let found = rig.put(&id, 4096, b"meta", b"");
    rig.device.set_cached(CachedData::Nothing);
    rig.device.hold_reads();
    let (reader, device) = (rig.reader.clone(), rig.device.clone());
    let overwriter = std::thread::spawn(move || {
        device.wait_for_held(1);
        reader.index.set_lap(SEGMENT as u16, LAP + 1);
        let at = reader.source.geometry.segment_place(SEGMENT) + 4096;
        device.write(at, &[&[7; 4096]]).expect("there is room");
        device.release_reads();
    });
    assert_eq!(rig.head(found, &id).err(), Some(Missing::Gone));
    overwriter.join().expect("no panic");
    assert_eq!(rig.reader.tally.damaged.load(Ordering::Relaxed), 0);
}
