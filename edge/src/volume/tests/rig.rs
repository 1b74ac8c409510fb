//! Test helpers for volumes: a device, records whose content is computed from their ids, and reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::super::*;
use crate::sys::buffer::Buffer;
use crate::sys::disk::device::Opened;
use crate::sys::disk::simulated::Simulated;
use crate::volume::device_io::shared;
use crate::volume::types::PAGE;

/// Source of unique identifiers for new volumes.
static OPENED: AtomicU64 = AtomicU64::new(1);

pub struct Rig {
    pub device: Arc<Simulated>,
    pub options: Options,
    pub clock: Clock,
    pub done: Arc<Tally>,
}

/// Counts the records that were written, and those that were not.
#[derive(Default)]
pub struct Tally {
    pub written: AtomicUsize,
    pub not_written: AtomicUsize,
}

pub fn head(key: u128, version: u64) -> Id {
    Id {
        space: 7,
        key,
        version,
        part: 0,
        kind: Kind::Head,
    }
}

pub fn block(key: u128, part: u32) -> Id {
    Id {
        space: 7,
        key,
        version: 0x1234_5678_9abc,
        part,
        kind: Kind::Block,
    }
}

/// Returns the metadata and data of the record with this id and `length` bytes of data.
pub fn content(id: Id, length: usize) -> (Vec<u8>, Vec<u8>) {
    let meta = format!("{id:?} {length}").into_bytes();
    let mut state = (id.key as u64) << 20 ^ id.version ^ u64::from(id.part) << 8 ^ length as u64;
    // Each sector of 512 bytes has different content, so that exchanged sectors are noticed.
    let sectors = (0..length.div_ceil(512)).flat_map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_le_bytes().repeat(64)
    });
    let mut data: Vec<u8> = sectors.collect();
    data.truncate(length);
    (meta, data)
}

impl Rig {
    pub fn new(size: u64) -> Rig {
        Rig::on(Simulated::new(0), size)
    }

    pub fn on(device: Arc<Simulated>, size: u64) -> Rig {
        Rig {
            device,
            options: Options {
                name: "test".into(),
                path: "/simulated".into(),
                size,
                segment: 0,
                queue: 32 << 20,
                readers: 1,
                write_delay: Duration::from_millis(50),
                read_timeout: Duration::from_secs(60),
                retry: Duration::from_millis(5),
                overwrite: false,
            },
            clock: Clock::system(),
            done: Arc::default(),
        }
    }

    pub fn try_open(&self) -> Result<Arc<Volume>, Refused> {
        let device = Arc::clone(&self.device);
        let opener = Box::new(move || {
            Ok(Opened {
                device: Arc::clone(&device) as _,
                fresh: device.content().is_empty(),
                is_block: false,
            })
        });
        let (options, clock) = (self.options.clone(), self.clock.clone());
        Volume::open_with(
            options,
            clock,
            Random::seeded(OPENED.fetch_add(1, Ordering::SeqCst)),
            opener,
        )
    }

    pub fn open(&self) -> Arc<Volume> {
        self.try_open().expect("it can be opened")
    }

    pub fn put(&self, volume: &Volume, id: Id, length: usize) {
        self.put_born(volume, id, length, volume.sequence());
    }

    pub fn put_born(&self, volume: &Volume, id: Id, length: usize, born_seq: u64) {
        let (meta, data) = content(id, length);
        let source = TestSource {
            id,
            born_seq,
            content: Some(Content {
                meta,
                data: pages(&data),
            }),
            bytes: length as u64,
            done: Arc::clone(&self.done),
        };
        if let Err(source) = volume.put(Box::new(source)) {
            source.done(false);
        }
    }

    /// Reads a record's metadata and data.
    pub fn read(&self, volume: &Volume, id: Id) -> Result<(Vec<u8>, Vec<u8>), Missing> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(read(volume, id))
    }

    /// Checks that a record can be read and has the expected content.
    pub fn has(&self, volume: &Volume, id: Id, length: usize) {
        let (meta, data) = self.read(volume, id).expect("it is there");
        let (meta_then, data_then) = content(id, length);
        assert!(data == data_then, "other data of {id:?}");
        assert_eq!(meta, meta_then);
    }

    pub fn wait_loaded(&self, volume: &Volume) {
        wait_until(|| matches!(volume.status().state, State::Up | State::Out(_)));
    }
}

/// Waits until `is_so` returns true; panics after a minute.
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it did not happen");
}

async fn read(volume: &Volume, id: Id) -> Result<(Vec<u8>, Vec<u8>), Missing> {
    let found = volume.find(&id).ok_or(Missing::Gone)?;
    if id.kind == Kind::Head {
        let read = volume.read_head(found, id.space, id.key).await?;
        assert_eq!(read.id, id);
        return Ok((read.meta.to_vec(), read.data.to_vec()));
    }
    // Volumes do not know the length of a block's data, so it is derived from the record's length.
    let mut data = Vec::new();
    if let Some(length) = possible_lengths(found.length) {
        let pages = (length as u64).div_ceil(PAGE);
        let buffers =
            (0..pages).map(|page| Buffer::new((length as u64 - page * PAGE).min(PAGE) as usize));
        let read = volume.read_pages(found, &id, 0, buffers.collect()).await?;
        data = read.iter().flat_map(|b| b.filled().to_vec()).collect();
    }
    let (meta, _) = content(id, data.len());
    Ok((meta, data))
}

/// Returns the length of a record's data from the length of the record: the tests use only these lengths of blocks.
fn possible_lengths(record: u32) -> Option<usize> {
    [1_000, 100_000, 150_000, 300_000, 1 << 20]
        .into_iter()
        .filter(|length| *length <= record as usize)
        .max()
}

fn pages(data: &[u8]) -> SmallVec<[Bytes; 16]> {
    let pages = data.chunks(PAGE as usize).map(|page| {
        let mut buffer = Buffer::new(PAGE as usize);
        buffer.append(page);
        shared(buffer)
    });
    pages.collect()
}

struct TestSource {
    id: Id,
    born_seq: u64,
    content: Option<Content>,
    bytes: u64,
    done: Arc<Tally>,
}

impl RecordSource for TestSource {
    fn id(&self) -> Id {
        self.id
    }

    fn born_seq(&self) -> u64 {
        self.born_seq
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn record(&mut self) -> Option<Content> {
        self.content.take()
    }

    fn done(self: Box<Self>, written: bool) {
        let count = match written {
            true => &self.done.written,
            false => &self.done.not_written,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}
