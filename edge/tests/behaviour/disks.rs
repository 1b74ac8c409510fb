//! Volumes of the tests: files in a folder that outlives the program, what fills them, and what an edge
//! that has them says of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use sluice_lab::client::{self, Reply};
use sluice_lab::noise;
use sluice_lab::origin::{Origin, Resource, Seen};
use tempfile::TempDir;

use crate::harness::{Edge, Setup, assert_hit, cache_status, eventually, fresh, origin};

/// What requests name: a key must not change with the port, which is another after each start.
pub const HOST: &str = "a.example";

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// The smallest volume, whose segments are of one mebibyte.
pub const SMALL: u64 = 16 * MIB;

/// The block of these tests: several fit into a segment.
pub const BLOCK: u64 = 256 << 10;

/// Where volumes lie.
pub struct Disks {
    folder: TempDir,
    count: usize,
    size: u64,
    lines: String,
}

impl Disks {
    /// So many small volumes, `disk1` and so on.
    pub fn new(count: usize) -> Disks {
        Disks::within(tempfile::tempdir().expect("a temporary folder"), count)
    }

    /// The same on a file system that is memory.
    pub fn in_memory(count: usize) -> Disks {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary folder in memory");
        Disks::within(folder, count)
    }

    /// The same in a folder of a file system under test.
    pub fn within(folder: TempDir, count: usize) -> Disks {
        Disks {
            folder,
            count,
            size: SMALL,
            lines: String::new(),
        }
    }

    /// Volumes of so many bytes.
    pub fn sized(mut self, size: u64) -> Disks {
        self.size = size;
        self
    }

    /// A line for each volume's table.
    pub fn each(mut self, line: &str) -> Disks {
        self.lines += &format!("{line}\n");
        self
    }

    /// The file of a volume, counted from 1.
    pub fn path(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.vol"))
    }

    /// Bytes that each volume may take.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The volumes' names, as a list in the configuration.
    pub fn names(&self) -> String {
        let names: Vec<_> = (1..=self.count).map(|n| format!("disk{n}")).collect();
        format!("{names:?}")
    }

    /// The volumes' tables.
    pub fn tables(&self) -> String {
        let table = |n| {
            let (path, size, lines) = (self.path(n), self.size, &self.lines);
            format!("[volume.disk{n}]\npath = {path:?}\nsize = \"{size}B\"\n{lines}")
        };
        (1..=self.count).map(table).collect()
    }

    /// A cache on all of them in front of the origin.
    pub fn setup(&self, origin: &Origin) -> Setup {
        Setup::cached(origin)
            .cache(&format!("volumes = {}", self.names()))
            .cache("slice = \"256KiB\"")
            .tables(&self.tables())
    }

    /// Bytes of a volume's file: its length, and what it takes.
    pub fn taken(&self, number: usize) -> (u64, u64) {
        let file = fs::metadata(self.path(number)).expect("the volume's file");
        (file.len(), file.blocks() * 512)
    }
}

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Stopped,
    /// By `kill -9`.
    Killed,
}

/// All ways.
pub const ENDS: [End; 2] = [End::Stopped, End::Killed];

/// Ends the program so.
pub fn end(mut edge: Edge, how: End) {
    match how {
        End::Stopped => {
            edge.signal(Signal::TERM);
            assert!(edge.wait_exit().success(), "it ends in order");
        }
        End::Killed => {
            edge.signal(Signal::KILL);
            edge.wait_exit();
        }
    }
}

/// Starts the program; all its volumes have loaded when this returns.
pub fn start(setup: &Setup) -> Edge {
    let edge = setup.start();
    loaded(&edge);
    edge
}

/// Waits until all volumes have loaded.
pub fn loaded(edge: &Edge) {
    let up = |volume: &Value| volume["state"] == "up";
    eventually("all volumes are up", || volumes(edge).iter().all(up));
}

/// Ends the program so and starts it again.
pub fn again(edge: Edge, how: End, setup: &Setup) -> Edge {
    end(edge, how);
    start(setup)
}

/// What the status says of each volume.
pub fn volumes(edge: &Edge) -> Vec<Value> {
    let status = edge.status();
    let volumes = status["volumes"].as_array().expect("volumes in the status");
    volumes.clone()
}

/// What the status says of a volume, counted from 1.
pub fn volume(edge: &Edge, number: usize) -> Value {
    let name = format!("disk{number}");
    let mut volumes = volumes(edge).into_iter();
    let found = volumes.find(|volume| volume["name"] == *name);
    found.unwrap_or_else(|| panic!("no volume {name}"))
}

/// A number of a volume.
pub fn number_of(edge: &Edge, number: usize, name: &str) -> u64 {
    let volume = volume(edge, number);
    let value = volume[name].as_u64();
    value.unwrap_or_else(|| panic!("no {name} in {volume}"))
}

/// A number of all volumes, summed.
pub fn sum(edge: &Edge, name: &str) -> u64 {
    let value = |volume: &Value| {
        let value = volume[name].as_u64();
        value.unwrap_or_else(|| panic!("no {name} in {volume}"))
    };
    volumes(edge).iter().map(value).sum()
}

/// Waits until so many records, or more, are on the volumes, and nothing waits to be written.
pub fn written(edge: &Edge, records: u64) {
    let what = format!("{records} records are on the volumes");
    eventually(&what, || {
        sum(edge, "records") >= records && sum(edge, "queue_bytes") == 0
    });
}

/// Waits until nothing is fetched and nothing waits to be written.
pub fn settled(edge: &Edge) {
    eventually("nothing is on its way to the volumes", || {
        edge.counter("flights_now") == 0 && sum(edge, "queue_bytes") == 0
    });
}

/// Records of a body of this length, where blocks are `BLOCK` bytes.
pub fn records(length: u64) -> u64 {
    match length {
        0..=0x1_0000 => 1,
        length => 1 + length.div_ceil(BLOCK),
    }
}

/// Asks in the name of the host that keys are made with.
pub fn ask(edge: &Edge, method: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
    let fields = [&[("Host", HOST)], fields].concat();
    edge.ask(method, path, &fields, b"")
}

/// GET.
pub fn get(edge: &Edge, path: &str) -> Reply {
    ask(edge, "GET", path, &[])
}

/// The URL of a path.
pub fn url(path: &str) -> String {
    format!("http://{HOST}{path}")
}

/// Purges, and has it acknowledged; the answer.
pub fn purge(edge: &Edge, order: &Value) -> Value {
    let reply = ask_purge(edge, order);
    assert_eq!(reply.status, 200, "{order}: {}", reply.text());
    serde_json::from_slice(&reply.body).expect("JSON")
}

/// Asks for a purge.
pub fn ask_purge(edge: &Edge, order: &Value) -> Reply {
    let body = order.to_string();
    let fields = [("x-sluice", "1")];
    client::once(edge.admin, "POST", "/purge", &fields, body.as_bytes()).expect("an answer")
}

/// Purges one path.
pub fn purge_path(edge: &Edge, path: &str) {
    purge(edge, &json!({"url": url(path)}));
}

/// Whether a reply came out of the cache.
pub fn is_hit(reply: &Reply) -> bool {
    cache_status(reply).starts_with("sluice; hit")
}

/// Asserts that the origin gets no request meanwhile.
pub fn without_origin<T>(origin: &Origin, what: &str, run: impl FnOnce() -> T) -> T {
    let before = origin.read_record(|record| record.requests_total);
    let result = run();
    let asked = origin.read_record(|record| record.requests_total - before);
    assert_eq!(asked, 0, "{what}: the origin was asked");
    result
}

/// A file of the shelf: its name says what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its number, which its bytes depend on.
    pub number: u64,
    /// Its length in bytes.
    pub length: u64,
}

impl File {
    /// This file.
    pub fn new(number: u64, length: u64) -> File {
        File { number, length }
    }

    /// So many files of this length, the first with this number.
    pub fn row(first: u64, count: u64, length: u64) -> Vec<File> {
        let numbers = first..first + count;
        numbers.map(|number| File::new(number, length)).collect()
    }

    /// Its path.
    pub fn path(&self) -> String {
        format!("/shelf/{}/{}", self.number, self.length)
    }

    /// Gets it and checks every byte.
    pub fn get(&self, edge: &Edge) -> Reply {
        let reply = get(edge, &self.path());
        self.verify(&reply);
        reply
    }

    /// The same, where the origin must not be needed.
    pub fn assert_kept(&self, edge: &Edge) {
        assert_hit(&self.get(edge));
    }

    /// Gets a piece of it, both ends included, and checks every byte.
    pub fn get_range(&self, edge: &Edge, first: u64, last: u64) -> Reply {
        let range = format!("bytes={first}-{last}");
        let reply = ask(edge, "GET", &self.path(), &[("Range", &range)]);
        let said = cache_status(&reply);
        assert_eq!(reply.status, 206, "{self:?} {range}: {said}");
        assert_eq!(reply.body.len() as u64, last - first + 1, "{self:?} {said}");
        self.check(first, &reply);
        reply
    }

    fn verify(&self, reply: &Reply) {
        let said = cache_status(reply);
        assert_eq!(reply.status, 200, "{self:?}: {said}");
        assert_eq!(reply.body.len() as u64, self.length, "{self:?}: {said}");
        assert_eq!(reply.header("etag"), Some(&*self.tag()), "{self:?}: {said}");
        self.check(0, reply);
    }

    fn check(&self, first: u64, reply: &Reply) {
        assert!(!reply.truncated(), "{self:?} was cut");
        let right = noise::verify(self.number, 0, first, &reply.body);
        right.unwrap_or_else(|wrong| panic!("{self:?}: {wrong} ({})", cache_status(reply)));
    }

    fn tag(&self) -> String {
        format!("\"v0-{}\"", self.length)
    }

    fn named(seen: &Seen) -> Option<File> {
        let (number, length) = seen.path().strip_prefix("/shelf/")?.split_once('/')?;
        Some(File::new(number.parse().ok()?, length.parse().ok()?))
    }
}

/// An origin that has every file of the shelf.
pub fn shelf() -> Origin {
    let origin = origin();
    origin.serve_rest(Resource::dynamic(|seen| match File::named(seen) {
        Some(file) => Resource::noise(file.number, file.length).cache_control("max-age=3600"),
        None => Resource::status(404),
    }));
    origin
}

/// Fetches a file that lies at `/x`, of the offset bytes, and waits until it is on the volumes.
pub fn keep_x(edge: &Edge, origin: &Origin, length: u64) {
    origin.serve("/x", fresh(length));
    let before = sum(edge, "records");
    get(edge, "/x").verify_whole(length).expect("the body");
    written(edge, before + records(length));
}

/// Fetches files and waits until they are on the volumes, a few at a time, so that none is shed.
pub fn fill(edge: &Edge, files: &[File]) {
    let mut waiting = 0;
    for file in files {
        file.get(edge);
        waiting += file.length;
        if waiting >= MIB {
            settled(edge);
            waiting = 0;
        }
    }
    settled(edge);
}
