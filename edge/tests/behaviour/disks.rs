//! Helpers of the volume tests: volumes in a folder that outlives the program, content for them,
//! and their status as the edge reports it.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use sluice_lab::client::{self, Reply};
use sluice_lab::noise;
use sluice_lab::origin::{Origin, Resource, Seen};
use tempfile::TempDir;

use crate::harness::setup::scheme;
use crate::harness::{Edge, Setup, assert_hit, cache_status, eventually, fresh, origin};

/// The Host of all requests. The default Host would contain the edge's port, which differs after
/// each start, so that no stored response would be found again.
pub const HOST: &str = "a.example";

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// Size in bytes of the smallest permitted volume. Its segments have 1 MiB.
pub const SMALL: u64 = 16 * MIB;

/// Block size in bytes, so small that several blocks fit into a segment.
pub const BLOCK: u64 = 256 << 10;

/// The folder of the volumes.
pub struct Disks {
    folder: TempDir,
    count: usize,
    size: u64,
    lines: String,
}

impl Disks {
    /// Creates this many small volumes with the names `disk1`, `disk2` and so on, in a temporary
    /// folder.
    pub fn new(count: usize) -> Disks {
        Disks::within(tempfile::tempdir().expect("a temporary folder"), count)
    }

    /// Creates this many small volumes on a file system in memory.
    pub fn in_memory(count: usize) -> Disks {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary folder in memory");
        Disks::within(folder, count)
    }

    /// Creates this many small volumes in this folder, for example on a file system that the test
    /// slows down.
    pub fn within(folder: TempDir, count: usize) -> Disks {
        Disks {
            folder,
            count,
            size: SMALL,
            lines: String::new(),
        }
    }

    /// Sets the size in bytes of each volume.
    pub fn sized(mut self, size: u64) -> Disks {
        self.size = size;
        self
    }

    /// Adds a line to each volume's table.
    pub fn each(mut self, line: &str) -> Disks {
        self.lines += &format!("{line}\n");
        self
    }

    /// Returns the path of a volume's file. Volumes are counted from 1.
    pub fn path(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.vol"))
    }

    /// Returns the size of each volume in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the names of the volumes as a list for the configuration.
    pub fn names(&self) -> String {
        let names: Vec<_> = (1..=self.count).map(|n| format!("disk{n}")).collect();
        format!("{names:?}")
    }

    /// Returns the configuration tables of the volumes. A read has as much time as it needs, unless a line of
    /// the test limits it: if the program stands still during a read, stored responses count as missing after the
    /// time limit.
    pub fn tables(&self) -> String {
        let table = |n| {
            let (path, size, lines) = (self.path(n), self.size, &self.lines);
            let patience = match lines.contains("read_timeout") {
                true => "",
                false => "read_timeout = \"1h\"\n",
            };
            format!("[volume.disk{n}]\npath = {path:?}\nsize = \"{size}B\"\n{patience}{lines}")
        };
        (1..=self.count).map(table).collect()
    }

    /// Returns a configuration with one cache, on all of the volumes, in front of the origin.
    pub fn setup(&self, origin: &Origin) -> Setup {
        Setup::cached(origin)
            .cache(&format!("volumes = {}", self.names()))
            .cache("slice = \"256KiB\"")
            .tables(&self.tables())
    }

    /// Starts an edge with a cache on all of the volumes.
    pub fn start(self, origin: &Origin) -> Restartable {
        let setup = self.setup(origin);
        Restartable::new(self, setup)
    }

    /// Starts an edge with a cache on all of the volumes. The cache has this additional line in its
    /// configuration.
    pub fn start_with(self, origin: &Origin, line: &str) -> Restartable {
        let setup = self.setup(origin).cache(line);
        Restartable::new(self, setup)
    }

    /// Returns the length of a volume's file and the disk space that the file occupies, in bytes.
    pub fn taken(&self, number: usize) -> (u64, u64) {
        let file = fs::metadata(self.path(number)).expect("the volume's file");
        (file.len(), file.blocks() * 512)
    }
}

/// The way in which a test ends the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Graceful, with SIGTERM.
    Stopped,
    /// At once, with SIGKILL.
    Killed,
}

/// Both ways of ending the program.
pub const ENDS: [End; 2] = [End::Stopped, End::Killed];

/// Ends the program in this way, and waits for its end.
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

/// Starts the program and waits until all of its volumes have loaded.
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

/// Ends the program in this way and starts it again with this configuration.
pub fn again(edge: Edge, how: End, setup: &Setup) -> Edge {
    end(edge, how);
    start(setup)
}

/// An edge on volumes that a test can end and start again with the same configuration.
pub struct Restartable<D = Disks> {
    edge: Option<Edge>,
    setup: Setup,
    /// The volumes, which outlive the program.
    pub disks: D,
}

impl<D> Restartable<D> {
    /// Starts an edge with this configuration on these volumes.
    pub fn new(disks: D, setup: Setup) -> Restartable<D> {
        Restartable {
            edge: Some(start(&setup)),
            setup,
            disks,
        }
    }

    /// Ends the program in this way.
    pub fn end(&mut self, how: End) {
        end(self.edge.take().expect("the program runs"), how);
    }

    /// Starts the program again after `end`.
    pub fn start(&mut self) {
        assert!(self.edge.is_none(), "the program runs");
        self.edge = Some(start(&self.setup));
    }

    /// Ends the program in this way and starts it again.
    pub fn restart(&mut self, how: End) {
        let edge = self.edge.take().expect("the program runs");
        self.edge = Some(again(edge, how, &self.setup));
    }
}

impl<D> Deref for Restartable<D> {
    type Target = Edge;

    fn deref(&self) -> &Edge {
        self.edge.as_ref().expect("the program runs")
    }
}

/// Returns the status of each volume.
pub fn volumes(edge: &Edge) -> Vec<Value> {
    let status = edge.status();
    let volumes = status["volumes"].as_array().expect("volumes in the status");
    volumes.clone()
}

/// Returns the status of one volume, counted from 1.
pub fn volume(edge: &Edge, number: usize) -> Value {
    let name = format!("disk{number}");
    let mut volumes = volumes(edge).into_iter();
    let found = volumes.find(|volume| volume["name"] == *name);
    found.unwrap_or_else(|| panic!("no volume {name}"))
}

/// Returns a number from the status of one volume, counted from 1.
pub fn number_of(edge: &Edge, number: usize, name: &str) -> u64 {
    let volume = volume(edge, number);
    let value = volume[name].as_u64();
    value.unwrap_or_else(|| panic!("no {name} in {volume}"))
}

/// Returns the sum of a number in the status over all volumes.
pub fn sum(edge: &Edge, name: &str) -> u64 {
    let value = |volume: &Value| {
        let value = volume[name].as_u64();
        value.unwrap_or_else(|| panic!("no {name} in {volume}"))
    };
    volumes(edge).iter().map(value).sum()
}

/// Waits until at least this many records are on the volumes and no record waits to be written.
pub fn written(edge: &Edge, records: u64) {
    let what = format!("{records} records are on the volumes");
    eventually(&what, || {
        sum(edge, "records") >= records && sum(edge, "queue_bytes") == 0
    });
}

/// Waits until no fetch is running and no record waits to be written.
pub fn settled(edge: &Edge) {
    eventually("nothing is on its way to the volumes", || {
        edge.counter("flights_now") == 0 && sum(edge, "queue_bytes") == 0
    });
}

/// Returns the number of records of an object with a body of this length: the head and blocks of
/// `BLOCK` bytes.
pub fn records(length: u64) -> u64 {
    match length {
        0..=0x1_0000 => 1,
        length => 1 + length.div_ceil(BLOCK),
    }
}

/// Sends a request with the Host `HOST`.
pub fn ask(edge: &Edge, method: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
    let fields = [&[("Host", HOST)], fields].concat();
    edge.ask(method, path, &fields, b"")
}

/// Sends a GET with the Host `HOST`.
pub fn get(edge: &Edge, path: &str) -> Reply {
    ask(edge, "GET", path, &[])
}

/// Returns the URL of a path on the host `HOST`.
pub fn url(path: &str) -> String {
    format!("{}://{HOST}{path}", scheme())
}

/// Sends a purge to the admin address, which must acknowledge it. Returns the content of the
/// response.
pub fn purge(edge: &Edge, order: &Value) -> Value {
    let reply = ask_purge(edge, order);
    assert_eq!(reply.status, 200, "{order}: {}", reply.text());
    serde_json::from_slice(&reply.body).expect("JSON")
}

/// Sends a purge to the admin address. Returns the response.
pub fn ask_purge(edge: &Edge, order: &Value) -> Reply {
    let body = order.to_string();
    let fields = [("x-sluice", "1")];
    client::once(edge.admin, "POST", "/purge", &fields, body.as_bytes()).expect("an answer")
}

/// Purges one path.
pub fn purge_path(edge: &Edge, path: &str) {
    purge(edge, &json!({"url": url(path)}));
}

/// Whether a reply came from the cache.
pub fn is_hit(reply: &Reply) -> bool {
    cache_status(reply).starts_with("sluice; hit")
}

/// Runs `run`, and asserts that the origin receives no request meanwhile.
pub fn without_origin<T>(origin: &Origin, what: &str, run: impl FnOnce() -> T) -> T {
    let before = origin.read_record(|record| record.requests_total);
    let result = run();
    let asked = origin.read_record(|record| record.requests_total - before);
    assert_eq!(asked, 0, "{what}: the origin was asked");
    result
}

/// A file of the shelf: an origin that has many numbered files. The path contains the number and
/// the length, which determine the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Number of the file, which determines its bytes.
    pub number: u64,
    /// Length of the file in bytes.
    pub length: u64,
}

impl File {
    /// The file with this number and length.
    pub fn new(number: u64, length: u64) -> File {
        File { number, length }
    }

    /// Returns `count` files of one length, numbered from `first`.
    pub fn row(first: u64, count: u64, length: u64) -> Vec<File> {
        let numbers = first..first + count;
        numbers.map(|number| File::new(number, length)).collect()
    }

    /// Returns the path of the file at the origin.
    pub fn path(&self) -> String {
        format!("/shelf/{}/{}", self.number, self.length)
    }

    /// Requests the file and checks every byte.
    pub fn get(&self, edge: &Edge) -> Reply {
        let reply = get(edge, &self.path());
        self.verify(&reply);
        reply
    }

    /// Requests the file, checks every byte, and asserts that the response is a hit without a
    /// request to the origin.
    pub fn assert_stored(&self, edge: &Edge) {
        assert_hit(&self.get(edge));
    }

    /// Requests a range of the file, both ends included, and checks every byte.
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

/// Starts an origin that serves every file of the shelf.
pub fn shelf() -> Origin {
    let origin = origin();
    origin.serve_rest(Resource::dynamic(|seen| match File::named(seen) {
        Some(file) => Resource::noise(file.number, file.length).cache_control("max-age=3600"),
        None => Resource::status(404),
    }));
    origin
}

/// Fetches the offset body at `/x` and waits until it is on the volumes.
pub fn store_x(edge: &Edge, origin: &Origin, length: u64) {
    origin.serve("/x", fresh(length));
    let before = sum(edge, "records");
    get(edge, "/x").verify_whole(length).expect("the body");
    written(edge, before + records(length));
}

/// Fetches files, a few at a time so that no record is dropped, and waits until they are on the
/// volumes.
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
