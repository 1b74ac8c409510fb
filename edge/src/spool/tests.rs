//! Tests of the limits, the memory and the files of buffers.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

use super::buffer::Buffer;
use super::chunks::Chunks;
use super::folder::{FileCharge, Folder, SpillFile};
use super::options::{DiskOptions, Options};
use super::quota::{Charge, Quota};
use super::shared::Buffers;
use super::spill::Disk;
use super::{request, response};
use crate::handler::{Body, BodyStream, Fault, Frame};
use crate::http::ClientId;
use crate::reason::Reason;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(3600);

fn client(n: u8) -> ClientId {
    ClientId::of([10, 0, 0, n].into())
}

/// Runs a future on a runtime with timers.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// A folder of temporary files, and the limits of buffers.
struct Rig {
    folder: TempDir,
    disk: Disk,
}

impl Rig {
    fn new(memory: u64, change: impl FnOnce(&mut DiskOptions)) -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = DiskOptions::new(folder.path().to_owned());
        options.memory_per_body = 64 * KIB;
        options.timeout = LONG;
        change(&mut options);
        let buffers = Buffers::new(&Options {
            memory,
            disk: Some(options.clone()),
        });
        let disk = Disk {
            folder: Folder::open(folder.path()).expect("it can be written"),
            options: options.into(),
            buffers,
        };
        Rig { folder, disk }
    }

    fn buffer(&self) -> Buffer {
        let buffers = &self.disk.buffers;
        let (memory, most) = (buffers.memory_of(client(1)), buffers.memory.of_client());
        Buffer::new(memory, most, Some(self.disk.clone()), client(1))
    }

    /// Waits until nothing is in use. Files are closed by other threads.
    fn wait_unused(&self) {
        let numbers = || self.disk.buffers.numbers();
        let used = || numbers().bytes + numbers().disk_bytes + numbers().files;
        while used() > 0 {
            std::thread::yield_now();
        }
    }
}

fn piece(start: usize, length: usize) -> Bytes {
    (start..start + length).map(|n| (n % 251) as u8).collect()
}

async fn push(buffer: &mut Buffer, piece: Bytes) -> Result<(), Reason> {
    poll_fn(|cx| buffer.poll_push(cx, &piece, false)).await
}

async fn pop(buffer: &mut Buffer) -> Option<Result<Bytes, Reason>> {
    poll_fn(|cx| buffer.poll_pop(cx)).await
}

#[test]
fn one_client_gets_half_of_a_quota() {
    let quota = Quota::new(100);
    let charge = |n| Charge::new(&quota, client(n));
    let (mut first, mut second, mut other, mut third) =
        (charge(1), charge(1), charge(2), charge(3));
    assert!(first.grow(30) && second.grow(20));
    assert!(!second.grow(1));
    assert!(!other.grow(u64::MAX));
    assert!(other.grow(50));
    assert!(!third.grow(1), "all of it is used");
    assert_eq!(quota.used(), 100);
    let part = first.split(10);
    assert_eq!((first.amount(), part.amount()), (20, 10));
    drop(first);
    assert_eq!(quota.used(), 80);
    second.join(part);
    assert!(third.grow(20) && second.grow(0));
    drop((second, other, third));
    assert_eq!(quota.used(), 0);
}

#[test]
fn single_bytes_share_a_chunk() {
    let quota = Quota::new(64 * KIB);
    let mut chunks = Chunks::new(Charge::new(&quota, client(1)));
    for _ in 0..16 * KIB {
        assert!(chunks.push(&Bytes::from_static(b"x"), false));
    }
    assert_eq!(quota.used(), 16 * KIB);
    let large = Bytes::from(vec![0; 32 << 10]);
    assert!(!chunks.push(&large, true), "more than half of the memory");
    assert_eq!(chunks.pop().map(|bytes| bytes.len()), Some(16 << 10));
    assert_eq!(quota.used(), 0);
    assert!(chunks.push(&Bytes::from(vec![0; 1 << 20]), true), "forced");
    assert_eq!(quota.used(), 0);
}

#[test]
fn a_long_body_keeps_little_memory_and_names_no_file() {
    let rig = Rig::new(128 * MIB, |_| ());
    run(async {
        let mut buffer = rig.buffer();
        for n in 0..100 {
            push(&mut buffer, piece(n * 50_000, 50_000))
                .await
                .expect("room");
        }
        let numbers = rig.disk.buffers.numbers();
        assert!(numbers.bytes <= 64 * KIB + 50_000 + 8 * 100, "{numbers:?}");
        assert!(numbers.disk_bytes >= 4_800_000, "{numbers:?}");
        assert_eq!((numbers.files, numbers.spilled), (1, 1));
        let names = std::fs::read_dir(rig.folder.path()).expect("a folder");
        assert_eq!(names.count(), 0);
        let mut taken = Vec::new();
        while let Some(bytes) = pop(&mut buffer).await {
            taken.extend(bytes.expect("read"));
        }
        assert!(taken == piece(0, 5_000_000));
    });
    rig.wait_unused();
}

#[test]
fn a_full_disk_quota_refuses_and_loses_nothing() {
    let rig = Rig::new(128 * MIB, |options| options.bytes = MIB);
    run(async {
        let (mut buffer, mut length) = (rig.buffer(), 0);
        let refused = loop {
            match push(&mut buffer, piece(length, 10_000)).await {
                Ok(()) => length += 10_000,
                Err(reason) => break reason,
            }
        };
        assert_eq!(refused, Reason::BufferDiskFull);
        let numbers = rig.disk.buffers.numbers();
        assert!(numbers.disk_bytes <= MIB / 2, "half of it: {numbers:?}");
        assert_eq!(numbers.disk_full, 1);
        let mut taken = Vec::new();
        while let Some(bytes) = pop(&mut buffer).await {
            taken.extend(bytes.expect("read"));
            // Bytes that found no room go into the room that others leave.
            if taken.len() == length {
                break;
            }
        }
        assert!(taken == piece(0, length));
    });
    rig.wait_unused();
}

#[test]
fn what_can_not_be_written_stays_in_memory() {
    let rig = Rig::new(128 * MIB, |_| ());
    std::fs::remove_dir(rig.folder.path()).expect("it is empty");
    run(async {
        let mut buffer = rig.buffer();
        push(&mut buffer, piece(0, 60_000))
            .await
            .expect("in memory");
        let refused = push(&mut buffer, piece(60_000, 60_000)).await;
        assert_eq!(refused, Err(Reason::BufferDiskFailed));
        assert_eq!(buffer.bytes(), 60_000);
        push(&mut buffer, piece(60_000, 5_000))
            .await
            .expect("it fits");
        let mut taken = Vec::new();
        while let Some(bytes) = pop(&mut buffer).await {
            taken.extend(bytes.expect("in memory"));
        }
        assert!(taken == piece(0, 65_000));
    });
    assert_eq!(rig.disk.buffers.numbers().disk_errors, 1);
    rig.wait_unused();
}

// Memory is full because of other bodies of the client, so a body goes to its file earlier.
#[test]
fn a_body_without_memory_goes_on_in_its_file() {
    let rig = Rig::new(MIB, |_| ());
    run(async {
        let mut buffer = rig.buffer();
        push(&mut buffer, piece(0, 20_000))
            .await
            .expect("in memory");
        let mut others = rig.disk.buffers.memory_of(client(1));
        while others.grow(KIB) {}
        push(&mut buffer, piece(20_000, 100_000))
            .await
            .expect("in the file");
        let mut late = rig.buffer();
        let refused = push(&mut late, piece(0, 30_000)).await;
        assert_eq!(refused, Err(Reason::BuffersFull));
        let mut taken = Vec::new();
        while let Some(bytes) = pop(&mut buffer).await {
            taken.extend(bytes.expect("read"));
        }
        assert!(taken == piece(0, 120_000));
    });
    rig.wait_unused();
}

#[test]
fn bytes_that_changed_on_the_disk_are_an_error() {
    let rig = Rig::new(MIB, |_| ());
    let charge = FileCharge {
        bytes: Charge::new(&rig.disk.buffers.disk, client(1)),
        count: Charge::new(&rig.disk.buffers.files, client(1)),
    };
    let memory = || rig.disk.buffers.memory_of(client(1));
    run(async {
        let file = SpillFile::new(&rig.disk.folder, charge);
        let mut write = file.write(0, vec![piece(0, 1000)], memory(), LONG);
        let (written, _) = poll_fn(|cx| write.poll(cx)).await.expect("no timeout");
        let checksum = written.expect("written");
        for (length, checksum, expected) in [
            (1000, checksum, None),
            (1000, checksum ^ 1, Some(io::ErrorKind::InvalidData)),
            (1001, checksum, Some(io::ErrorKind::UnexpectedEof)),
        ] {
            let mut read = file.read(0, length, checksum, memory(), LONG);
            let (read, _) = poll_fn(|cx| read.poll(cx)).await.expect("no timeout");
            assert_eq!(read.err().map(|error| error.kind()), expected);
        }
    });
    rig.wait_unused();
}

// A write that is under way when the body ends keeps the memory of its bytes until it has ended.
#[test]
fn a_body_that_ends_early_releases_everything() {
    let rig = Rig::new(128 * MIB, |_| ());
    run(async {
        for length in [65_000, 70_000, 200_000] {
            let mut buffer = rig.buffer();
            let mut cx = Context::from_waker(Waker::noop());
            for n in 0..length / 5_000 {
                // The buffer is dropped while a write or read is under way.
                if let Poll::Ready(pushed) =
                    buffer.poll_push(&mut cx, &piece(n * 5_000, 5_000), false)
                {
                    pushed.expect("room");
                }
            }
            let _ = buffer.poll_pop(&mut cx);
        }
    });
    rig.wait_unused();
}

proptest! {
    #[test]
    fn chunks_give_back_what_they_got(
        pieces in proptest::collection::vec((any::<bool>(), 1_usize..40_000), 1..40),
    ) {
        let quota = Quota::new(4 * MIB);
        let mut chunks = Chunks::new(Charge::new(&quota, client(1)));
        let (mut given, mut taken) = (Vec::new(), Vec::new());
        for (pops, length) in pieces {
            let piece = piece(given.len(), length);
            prop_assert!(chunks.push(&piece, false));
            given.extend(piece);
            if pops {
                taken.extend(chunks.pop().unwrap_or_default());
            }
            prop_assert_eq!(chunks.bytes() as usize, given.len() - taken.len());
        }
        while let Some(bytes) = chunks.pop() {
            taken.extend(bytes);
        }
        prop_assert_eq!(given, taken);
        prop_assert_eq!(quota.used(), 0);
    }

    /// The reader takes a number of pieces after each piece that is added, while writes are under way and after they
    /// have ended.
    #[test]
    fn a_buffer_with_a_file_gives_back_what_it_got(
        pieces in proptest::collection::vec((0_usize..4, 1_usize..40_000), 1..60),
    ) {
        let rig = Rig::new(128 * MIB, |_| ());
        let (given, taken) = run(async {
            let mut buffer = rig.buffer();
            let (mut given, mut taken) = (Vec::new(), Vec::new());
            for (pops, length) in pieces {
                let piece = piece(given.len(), length);
                given.extend_from_slice(&piece);
                push(&mut buffer, piece).await.expect("room");
                for _ in 0..pops {
                    if let Some(bytes) = pop(&mut buffer).await {
                        taken.extend(bytes.expect("read"));
                    }
                }
                assert_eq!(buffer.bytes() as usize, given.len() - taken.len());
            }
            while let Some(bytes) = pop(&mut buffer).await {
                taken.extend(bytes.expect("read"));
            }
            (given, taken)
        });
        prop_assert!(given == taken);
        rig.wait_unused();
    }
}

/// Content of single bytes that are ready at once, until another task has run.
struct SingleBytes {
    has_run: Rc<Cell<bool>>,
    left: u32,
}

impl BodyStream for SingleBytes {
    fn poll_frame(&mut self, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if self.has_run.get() {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(match self.left {
            0 => Some(Err(Reason::BodyCut.into())),
            _ => Some(Ok(Frame::Data(Bytes::from_static(b"a")))),
        })
    }

    fn length(&self) -> Option<u64> {
        None
    }
}

/// Returns content whose end is reached without a fault only if another task runs soon, and starts
/// that task.
fn single_bytes() -> Body {
    let has_run = Rc::<Cell<bool>>::default();
    let set = has_run.clone();
    tokio::task::spawn_local(async move { set.set(true) });
    Body::stream(SingleBytes {
        has_run,
        left: 10_000,
    })
}

#[test]
fn other_tasks_run_while_content_of_single_bytes_is_gathered() {
    let rig = Rig::new(MIB, |_| {});
    let local = tokio::task::LocalSet::new();
    run(local.run_until(async {
        let gathered = request::gather(single_bytes(), rig.buffer()).await;
        assert!(gathered.is_ok(), "the other task did not run");
        let mut body = response::read_ahead(single_bytes(), rig.buffer());
        while let Some(frame) = body.frame().await {
            assert!(frame.is_ok(), "the other task did not run");
        }
    }));
}
