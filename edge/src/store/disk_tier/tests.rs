//! Tests of stores with volumes on real files: stored objects are found again, and deleted ones are not.

mod removed;

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use super::volumes::tag_of;
use super::*;
use crate::store::object::Phase;
use crate::store::table_key::VARIANTS_MAX;
use crate::store::tests::{content, head, table_key};
use crate::store::{Landing, Next, ObjectView, Options as StoreOptions, Progress, Reader, Rule};
use crate::sys::Clock;
use crate::volume::{self, Volume};

const MIB: u64 = 1 << 20;
const KEY: &[u8] = b"key";

pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}
pub fn volume_in(folder: &Path, name: &str) -> Arc<Volume> {
    volume_of(folder, name, 16 * MIB)
}
fn volume_of(folder: &Path, name: &str, size: u64) -> Arc<Volume> {
    let options = volume::Options {
        name: name.to_owned(),
        path: folder.join(name),
        size,
        segment: 0,
        queue: 32 * MIB,
        readers: 2,
        write_delay: Duration::from_millis(50),
        read_timeout: Duration::from_secs(10),
        retry: Duration::from_secs(10),
        overwrite: false,
    };
    Volume::open(options, Clock::system()).expect("a volume")
}
/// Creates a store of 8 MiB with blocks of 128 KiB on these volumes.
pub fn store_on(volumes: &[Arc<Volume>], options: &Options) -> Arc<Store> {
    store_of(&SIZES, volumes, options)
}
const SIZES: StoreOptions = StoreOptions {
    memory: 8 * MIB,
    max_object_size: 4 * MIB,
    evict: crate::evict::Kind::S3Fifo,
    shards: 1,
    block: 128 << 10,
};
fn store_of(sizes: &StoreOptions, volumes: &[Arc<Volume>], options: &Options) -> Arc<Store> {
    let store = Store::new(sizes);
    add_volumes(&store, volumes, options);
    store
}
fn add_volumes(store: &Arc<Store>, volumes: &[Arc<Volume>], options: &Options) {
    let volumes = Volumes::new(options, volumes.to_vec(), 7);
    store.set_volumes(Some(volumes)).expect("few purges");
}
/// Creates a store with one volume in a temporary folder; the returned `TempDir` deletes the folder when dropped.
pub fn with_one_volume() -> (tempfile::TempDir, [Arc<Volume>; 1], Arc<Store>) {
    let folder = tempfile::tempdir().expect("a folder");
    let volumes = [volume_in(folder.path(), "a")];
    let store = store_on(&volumes, &Options::default());
    (folder, volumes, store)
}
pub fn versioned(length: u64, generation: u64) -> Head {
    Head {
        joinable: generation != 0,
        generation,
        ..head(Some(length))
    }
}
/// Returns a head with Vary: User-Agent for this variant.
fn varied(variant: u128) -> Head {
    varied_by("user-agent", variant)
}
fn varied_by(name: &str, variant: u128) -> Head {
    Head {
        vary: Some(crate::store::Selected {
            names: Arc::from([Box::from(name)]),
            variant,
        }),
        ..versioned(5000, 0)
    }
}
fn launch(store: &Arc<Store>, primary: u128, head: Head, range: Range<u64>) -> Landing {
    let variant = head.vary.as_ref().map_or(0, |vary| vary.variant);
    let mut landing = begin(store, TableKey { primary, variant }, range);
    open(store, &mut landing, head);
    landing
}
/// Inserts a new object without a head. Returns the landing of the flight that fetches these bytes of it.
fn begin(store: &Arc<Store>, table_key: TableKey, range: Range<u64>) -> Landing {
    let object = store.create(KEY).expect("room");
    let weight = store.weight(KEY);
    store.enter(table_key.primary, |locked| {
        locked.insert(table_key.variant, object.clone(), weight);
    });
    let all = |_: &ObjectView<'_>| (smallvec::smallvec![range.clone()], ());
    let ((), mut landings) = store.arrange(&object, table_key, 0, all);
    let mut landing = landings.pop().expect("a flight");
    landing.accept(range, 0).expect("all is claimed");
    landing.reserve().expect("room");
    landing
}
fn open(store: &Arc<Store>, landing: &mut Landing, head: Head) {
    let sparse = head.joinable && head.length > Some(128 << 10);
    let charge = store.charge_head(head.memory()).expect("room");
    landing.open(Arc::new(head), charge, sparse);
}
/// Inserts a new object and fills these bytes of it.
pub fn bring(store: &Arc<Store>, primary: u128, head: Head, range: Range<u64>) -> Arc<Object> {
    let mut landing = launch(store, primary, head, range.clone());
    let object = landing.object().clone();
    let bytes = content(range.start, range.end);
    for piece in bytes.chunks(10_000) {
        assert!(block_on(landing.write(piece, 0)).is_ok());
    }
    landing.land();
    object
}
/// Removes all objects of this key from memory, as evictions would.
pub fn forget_memory(store: &Arc<Store>, primary: u128) {
    store.enter(primary, |locked| locked.clear());
}
/// Inserts a new object that serves as the placeholder of a recall.
pub fn placed(store: &Arc<Store>, primary: u128) -> Arc<Object> {
    let spare = store.create(KEY).expect("room");
    spare.mark_recall();
    let weight = store.weight(KEY);
    store.enter(primary, |locked| locked.insert(0, spare.clone(), weight));
    spare
}
pub fn recalled(store: &Arc<Store>, primary: u128) -> Option<Arc<Object>> {
    let spare = placed(store, primary);
    match store.recall(&spare, table_key(primary), 0) {
        Some(recall) => block_on(recall.run()),
        None => store.give_up_recall(table_key(primary), &spare),
    }
    store.enter(primary, |locked| locked.find(0))
}
/// Reads bytes of an object that are in memory or on volumes.
pub fn read(store: &Arc<Store>, object: &Arc<Object>, range: Range<u64>) -> Option<Vec<u8>> {
    let mut reader = object.reader(range.start);
    read_on(store, &mut reader, range)
}
fn read_on(store: &Arc<Store>, reader: &mut Reader, range: Range<u64>) -> Option<Vec<u8>> {
    let (primary, object) = (1, reader.object().clone());
    reader.limit(range.start, range.end);
    let mut bytes = Vec::new();
    while !reader.wanted().is_empty() {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match reader.poll_next(&mut cx) {
            std::task::Poll::Ready(Next::Bytes(piece)) => bytes.extend_from_slice(&piece),
            std::task::Poll::Ready(Next::End) => break,
            _ => {
                let reads = disk_reads(store, &object, table_key(primary), reader.wanted(), 0);
                if reads.is_empty() {
                    return None;
                }
                for read in reads {
                    block_on(read.run(|| 0));
                }
            }
        }
    }
    Some(bytes)
}

/// Claims reads of these bytes from volumes.
pub fn disk_reads(
    store: &Arc<Store>,
    object: &Arc<Object>,
    table_key: TableKey,
    want: Range<u64>,
    now_us: u64,
) -> smallvec::SmallVec<[DiskRead; 2]> {
    let claimed = store.claim_disk_reads(object, &mut object.lock(), want, now_us);
    claimed.map_or_else(Default::default, |claimed| claimed.begin(store, table_key))
}

pub fn flush(volumes: &[Arc<Volume>]) {
    volumes.iter().for_each(|volume| volume.flush());
}
#[test]
fn a_small_object_is_recalled_unchanged() {
    let (_folder, volumes, store) = with_one_volume();
    let object = bring(&store, 1, versioned(5000, 0), 0..5000);
    flush(&volumes);
    forget_memory(&store, 1);
    let again = recalled(&store, 1).expect("the object is on a volume");
    assert!(!Arc::ptr_eq(&again, &object));
    assert_eq!(again.head().as_deref(), Some(&versioned(5000, 0)));
    assert_eq!(again.born_seq, object.born_seq);
    assert_eq!(read(&store, &again, 0..5000), Some(content(0, 5000)));
}
#[test]
fn an_object_is_written_to_a_volume_that_was_added_after_its_fetch_began() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(&SIZES);
    let mut landing = begin(&store, table_key(1), 0..5000);
    let volumes = [volume_in(folder.path(), "a")];
    add_volumes(&store, &volumes, &Options::default());
    open(&store, &mut landing, versioned(5000, 0));
    assert!(block_on(landing.write(&content(0, 5000), 0)).is_ok());
    landing.land();
    flush(&volumes);
    forget_memory(&store, 1);
    assert!(recalled(&store, 1).is_some());
}
#[test]
fn blocks_are_recalled_and_missing_bytes_are_known() {
    let (_folder, volumes, store) = with_one_volume();
    let block = 128 << 10;
    // Fills two of the object's five blocks, and a part of a third one.
    bring(
        &store,
        1,
        versioned(5 * block, 9),
        block..3 * block + 70_000,
    );
    flush(&volumes);
    forget_memory(&store, 1);
    let again = recalled(&store, 1).expect("the object is on a volume");
    assert!(again.is_sparse());
    assert!(!again.covers(block..block + 1));
    assert!(again.has(block..3 * block));
    assert!(!again.has(0..1) && !again.has(3 * block..3 * block + 1));
    let part = block + 5..3 * block;
    assert_eq!(
        read(&store, &again, part.clone()),
        Some(content(part.start, part.end))
    );
    assert_eq!(read(&store, &again, 0..10), None);
}
#[test]
fn a_block_that_its_volume_has_lost_is_missing() {
    let (_folder, volumes, store) = with_one_volume();
    let (block, length) = (128 << 10, MIB);
    let object = kept_whole(&store, &volumes, length);
    assert!(object.snapshot().missing.is_empty());
    assert_eq!(
        object.snapshot().on_disk,
        [("a".to_owned(), (0..length).into())]
    );
    volumes[0].wipe("the test removes its records");
    let snapshot = object.snapshot();
    assert_eq!(snapshot.missing, (0..length).into());
    assert!(snapshot.on_disk.is_empty());
    // The request that wants the block learns of it before its response begins.
    assert!(object.has(0..block));
    assert!(disk_reads(&store, &object, table_key(1), 0..block, 0).is_empty());
    assert!(!object.has(0..1));
}
#[test]
fn a_head_that_is_fetched_again_finds_its_blocks() {
    let (_folder, volumes, store) = with_one_volume();
    let block = 128 << 10;
    bring(&store, 1, versioned(4 * block, 9), 0..2 * block);
    flush(&volumes);
    forget_memory(&store, 1);
    store.forget_on_disk(1);
    assert!(recalled(&store, 1).is_none());
    let same = bring(&store, 1, versioned(4 * block, 9), 3 * block..4 * block);
    assert!(same.has(0..2 * block) && same.has(3 * block..4 * block));
    assert!(!same.has(2 * block..2 * block + 1));
    assert_eq!(read(&store, &same, 0..1000), Some(content(0, 1000)));
    // An object with another validator does not find the blocks of this one.
    let other = bring(&store, 1, versioned(4 * block, 10), 3 * block..4 * block);
    assert!(!other.has(0..1));
}
#[test]
fn an_object_that_is_not_joinable_is_recalled_whole_or_not_at_all() {
    let (_folder, volumes, store) = with_one_volume();
    bring(&store, 1, versioned(300_000, 0), 0..300_000);
    flush(&volumes);
    forget_memory(&store, 1);
    let again = recalled(&store, 1).expect("all of it is kept");
    assert_eq!(read(&store, &again, 0..300_000), Some(content(0, 300_000)));
    // A response that was cut short is not written to the volume.
    let mut landing = launch(&store, 2, versioned(300_000, 0), 0..300_000);
    let written = block_on(landing.write(&content(0, 200_000), 0));
    assert!(matches!(written, Ok(Progress::More)));
    drop(landing);
    flush(&volumes);
    assert!(recalled(&store, 2).is_none());
}
#[test]
fn a_mirror_still_serves_with_one_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let both = Options {
        placement: Placement {
            kind: PlacementKind::Mirror,
            weights: Vec::new(),
        },
        ..Options::default()
    };
    let volumes = ["a", "b"].map(|name| volume_in(folder.path(), name));
    let store = store_on(&volumes, &both);
    bring(&store, 1, versioned(300_000, 0), 0..300_000);
    flush(&volumes);
    forget_memory(&store, 1);
    volumes[0].wipe("the test removes its records");
    let again = recalled(&store, 1).expect("the other copy");
    assert_eq!(read(&store, &again, 0..300_000), Some(content(0, 300_000)));
}
#[test]
fn an_object_requested_once_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let volumes = [volume_in(folder.path(), "a")];
    let second = Options {
        admit: Admit::Second,
        ..Options::default()
    };
    let store = store_on(&volumes, &second);
    bring(&store, 1, versioned(5000, 0), 0..5000);
    bring(&store, 2, versioned(5000, 0), 0..5000);
    assert!(store.enter(2, |locked| locked.find(0)).is_some());
    flush(&volumes);
    forget_memory(&store, 1);
    forget_memory(&store, 2);
    assert!(recalled(&store, 1).is_none());
    assert!(recalled(&store, 2).is_some());
    // The object is requested for the second time, so it is written.
    bring(&store, 1, versioned(5000, 0), 0..5000);
    flush(&volumes);
    forget_memory(&store, 1);
    assert!(recalled(&store, 1).is_some());
}
/// Creates an object of this length that is entirely on volumes and not in memory.
pub fn kept_whole(store: &Arc<Store>, volumes: &[Arc<Volume>], length: u64) -> Arc<Object> {
    for start in (0..length).step_by(2 * MIB as usize) {
        let end = length.min(start + 2 * MIB);
        bring(store, 1, versioned(length, 9), start..end);
        flush(volumes);
        forget_memory(store, 1);
    }
    recalled(store, 1).expect("the object is on a volume")
}
#[test]
fn a_fast_reader_leaves_nothing_in_memory_for_a_slow_one() {
    let (_folder, volumes, store) = with_one_volume();
    let length = 10 * MIB;
    let object = kept_whole(&store, &volumes, length);
    object.lock().begin_ride(&store.ledger);
    let mut slow = object.reader(0);
    let piece = read_on(&store, &mut slow, 0..5000);
    assert_eq!(piece, Some(content(0, 5000)));
    object.lock().begin_ride(&store.ledger);
    for start in (0..length).step_by(MIB as usize) {
        let range = start..start + MIB;
        assert_eq!(
            read(&store, &object, range.clone()),
            Some(content(range.start, range.end))
        );
        assert!(
            store.numbers().bytes <= MIB,
            "{} bytes",
            store.numbers().bytes
        );
    }
    // The page that the slow reader needs next has stayed in memory; the others are read from the volume again.
    assert!(object.lock().present.covers(&(5000..PAGE)));
    let rest = read_on(&store, &mut slow, 5000..length);
    assert_eq!(rest, Some(content(5000, length)));
    drop(slow);
    assert!(object.lock().present.is_empty());
}
#[test]
fn a_key_has_no_more_heads_on_a_volume_than_in_memory() {
    let (_folder, volumes, store) = with_one_volume();
    let last = 2 * VARIANTS_MAX as u128;
    for variant in 1..=last {
        bring(&store, 1, varied(variant), 0..5000);
        flush(&volumes);
        forget_memory(&store, 1);
    }
    let heads = volumes[0].heads(7, 1);
    assert_eq!(heads.len(), VARIANTS_MAX);
    let is_there = |variant| heads.iter().any(|found| found.tag == tag_of(variant));
    assert!((last - VARIANTS_MAX as u128 + 1..=last).all(is_there));
}
#[test]
fn an_object_that_is_not_joinable_is_recalled_with_any_number_of_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let volumes = [volume_of(folder.path(), "a", 128 * MIB)];
    let sizes = StoreOptions {
        memory: 160 * MIB,
        max_object_size: 80 * MIB,
        evict: crate::evict::Kind::S3Fifo,
        shards: 1,
        block: PAGE,
    };
    let store = store_of(&sizes, &volumes, &Options::default());
    let blocks = LOOKUPS_MAX + 100;
    let length = blocks * PAGE;
    let mut landing = launch(&store, 1, versioned(length, 0), 0..length);
    let page = content(0, PAGE);
    for _ in 0..blocks {
        assert!(block_on(landing.write(&page, 0)).is_ok());
        flush(&volumes);
    }
    landing.land();
    flush(&volumes);
    forget_memory(&store, 1);
    let again = recalled(&store, 1).expect("all of it is kept");
    assert!(again.has(0..length));
}
#[test]
fn an_unwritten_head_is_written_when_it_is_renewed() {
    let (_folder, volumes, store) = with_one_volume();
    let object = kept_whole(&store, &volumes, MIB);
    // Sets the state in which a full write queue has dropped the head.
    store.forget_head(table_key(1));
    if let Some(disk) = &mut object.lock().disk {
        disk.head = false;
    }
    let newer = Head {
        fresh_until_ms: 9000,
        born_seq: store.moment(),
        ..versioned(MIB, 9)
    };
    let charge = store.charge_head(newer.memory()).expect("room");
    store.renew(table_key(1), &object, Arc::new(newer.clone()), charge);
    assert!(object.lock().disk.as_ref().is_some_and(|disk| disk.head));
    flush(&volumes);
    forget_memory(&store, 1);
    let again = recalled(&store, 1).expect("the object is on a volume");
    assert_eq!(again.head().as_deref(), Some(&newer));
    assert!(again.has(0..MIB));
}
#[test]
fn the_newest_head_determines_the_vary_names() {
    let (_folder, volumes, store) = with_one_volume();
    for (name, variant) in [("cookie", 5), ("user-agent", 6), ("accept", 7)] {
        bring(&store, 1, varied_by(name, variant), 0..5000);
        flush(&volumes);
        forget_memory(&store, 1);
    }
    assert_eq!(volumes[0].heads(7, 1).len(), 3);
    assert!(
        recalled(&store, 1).is_none(),
        "the head belongs to another variant"
    );
    let names = store.enter(1, |locked| locked.vary().cloned());
    assert_eq!(names.as_deref(), Some(&[Box::from("accept")][..]));
}
