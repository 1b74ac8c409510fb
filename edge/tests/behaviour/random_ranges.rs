//! Tests of many clients that request random ranges of files of many sizes. Every byte is checked,
//! also while the files change.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::verify_version;
use sluice_lab::origin::{Origin, Record, Resource};

use crate::harness::{Edge, SOON, cache_status, eventually, origin};
use crate::partial_objects::{BLOCK, MODES, filling, was_slow};

/// Paths of the files, and their lengths in bytes.
const FILES: [(&str, u64); 6] = [
    ("/one", 1),
    ("/small", 1000),
    ("/page", 100_000),
    ("/block", BLOCK),
    ("/clip", 1_500_000),
    ("/film", 3_000_000),
];

const CLIENTS: u64 = 50;

/// Number of requests per client.
const REQUESTS: u64 = 40;

/// Maximum length of a range in bytes.
const RANGE_MAX: u64 = 30_000;

/// Number of requests after which one of the files changes, in tests in which files change.
const CHANGE_EVERY: usize = 80;

/// A pseudo-random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 24) % bound
    }
}

/// State shared by all clients of a test.
struct Storm {
    origin: Origin,
    edge: Edge,
    /// Whether files change during the test.
    changing: bool,
    wholes: bool,
    done: AtomicUsize,
    cut: AtomicUsize,
    touched: Mutex<BTreeSet<(usize, u64)>>,
    versions: [AtomicU64; FILES.len()],
}

impl Storm {
    fn begin(mode: &str, changing: bool, wholes: bool) -> Storm {
        let origin = origin();
        let fresh_for = if changing {
            "max-age=1"
        } else {
            "max-age=3600"
        };
        for (path, length) in FILES {
            origin.serve(path, Resource::offset(length).cache_control(fresh_for));
        }
        let edge = filling(&origin, mode).start();
        Storm {
            origin,
            edge,
            changing,
            wholes,
            done: AtomicUsize::new(0),
            cut: AtomicUsize::new(0),
            touched: Mutex::default(),
            versions: Default::default(),
        }
    }

    fn run(&self) {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|seed| scope.spawn(move || self.client(seed)))
                .collect();
            for client in clients {
                client.join().expect("a client whose answers were right");
            }
        });
    }

    fn client(&self, seed: u64) {
        let mut random = Random(seed * 2 + 1);
        let mut client = self.edge.client();
        for _ in 0..REQUESTS {
            let file = random.below(FILES.len() as u64) as usize;
            if !self.ask(&mut client, file, &mut random) {
                self.cut.fetch_add(1, Ordering::Relaxed);
                client = self.edge.client();
            }
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            if self.changing && done.is_multiple_of(CHANGE_EVERY) {
                let file = random.below(FILES.len() as u64) as usize;
                let version = self.versions[file].fetch_add(1, Ordering::Relaxed) + 1;
                assert!(self.origin.set_version(FILES[file].0, version as u32));
            }
        }
    }

    /// Requests a range of a file or the whole file. Returns false if the response was cut off.
    fn ask(&self, client: &mut Client, file: usize, random: &mut Random) -> bool {
        let (path, length) = FILES[file];
        let first = random.below(length);
        let last = (first + random.below(RANGE_MAX)).min(length - 1);
        let whole = self.wholes && random.below(20) == 0;
        let (first, last) = if whole {
            (0, length - 1)
        } else {
            (first, last)
        };
        let range = format!("bytes={first}-{last}");
        let fields = [("Range", &*range)];
        let fields = if whole { &[][..] } else { &fields };
        let reply = client.get(path, fields);
        let reply = reply.unwrap_or_else(|error| panic!("{path} {range}: {error}"));
        self.touched
            .lock()
            .extend((first / BLOCK..=last / BLOCK).map(|block| (file, block)));
        check(&reply, whole, first, last, length)
            .unwrap_or_else(|wrong| panic!("{path} {range}: {wrong}: {}", cache_status(&reply)));
        !reply.truncated()
    }

    /// Returns the number of bytes in all blocks that clients have requested, each counted once.
    fn distinct(&self) -> u64 {
        let block_length = |(file, block): &(usize, u64)| {
            let begin = block * BLOCK;
            (FILES[*file].1 - begin).min(BLOCK)
        };
        self.touched.lock().iter().map(block_length).sum()
    }
}

/// Checks that the body of a response matches its headers, and has the bytes of the version that
/// the head names. The body may be truncated.
fn check(reply: &Reply, whole: bool, first: u64, last: u64, length: u64) -> Result<(), String> {
    let status = if whole { 200 } else { 206 };
    if reply.status != status {
        return Err(format!("status {}", reply.status));
    }
    if let Some(range) = reply.content_range()
        && (range.first, range.last, range.complete) != (first, last, Some(length))
    {
        return Err(format!("{range:?}"));
    }
    if !reply.truncated() && reply.body.len() as u64 != last - first + 1 {
        return Err(format!("{} bytes", reply.body.len()));
    }
    let version = reply
        .header("etag")
        .and_then(|tag| tag.strip_prefix("\"v"))
        .and_then(|tag| tag.split_once('-'))
        .and_then(|(version, _)| version.parse().ok())
        .ok_or("no tag of a version")?;
    verify_version(version, first, &reply.body).map_err(|wrong| wrong.to_string())
}

#[test]
fn a_crowd_requesting_ranges_fetches_each_block_once() {
    for mode in MODES {
        let storm = Storm::begin(mode, false, mode == "slice");
        storm.run();
        assert_eq!(storm.cut.load(Ordering::Relaxed), 0, "{mode}: cut");
        let distinct = storm.distinct();
        let all = |record: &Record| record.sent_total >= distinct;
        assert!(storm.origin.wait_for(all, SOON), "{mode}");
        eventually("no fetch is under way", || {
            storm.edge.counter("flights_now") == 0
        });
        let sent = storm.origin.read_record(|record| record.sent_total);
        assert!(
            sent == distinct || was_slow(&storm.edge),
            "{mode}: {sent} of {distinct}"
        );
    }
}

// Files change while clients read them. No byte may be wrong, and no request may fail.
#[test]
fn a_crowd_receives_nothing_wrong_while_files_change() {
    for mode in MODES {
        let storm = Storm::begin(mode, true, true);
        storm.run();
        let cut = storm.cut.load(Ordering::Relaxed) as u64;
        // Clients that read the old version when a file changes may be cut off.
        assert!(cut <= CLIENTS * REQUESTS / 20, "{mode}: {cut} were cut");
    }
}

// The fill policies `whole` and `lock` don't fetch ranges. The same load must receive no wrong byte
// with them.
#[test]
fn a_crowd_receives_nothing_wrong_with_whole_and_lock() {
    for mode in ["whole", "lock"] {
        let storm = Storm::begin(mode, true, true);
        storm.run();
        let cut = storm.cut.load(Ordering::Relaxed);
        assert_eq!(cut, 0, "{mode}: each answer has a fetch of its own version");
    }
}
