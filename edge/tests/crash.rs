//! Kills the real program with SIGKILL under load, a hundred times. After each restart no response
//! has a damaged body or bytes of two versions, and no response contains a version that an
//! acknowledged purge removed.
//!
//! The bytes of each path contain the path and its version. A client that changes a path does three
//! things: it raises the version at the origin, sends a purge, and raises the lowest permitted
//! version of the path once the purge is acknowledged. The response to a request that begins after
//! that must not have a lower version.

#[allow(
    dead_code,
    reason = "shared with the tests of behaviour, which use the rest"
)]
#[path = "behaviour/disks.rs"]
mod disks;
#[allow(
    dead_code,
    reason = "shared with the tests of behaviour, which use the rest"
)]
#[path = "behaviour/harness/mod.rs"]
mod harness;

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};
use sluice_lab::client::{self, Client, ReadError, Reply};
use sluice_lab::noise::{self, Dice};
use sluice_lab::origin::{Origin, OriginOptions, Resource, Seen};

use disks::{Disks, HOST, is_hit, number_of, volumes};
use harness::{Edge, Setup, cache_status, eventually};

/// The number of paths. A path's number determines its folder and its tag.
const PATHS: usize = 32;
const FOLDERS: usize = 5;
const TAGS: usize = 7;

/// The number of concurrent clients.
const CLIENTS: u64 = 4;

fn path(number: usize) -> String {
    format!("/{}/{number}", number % FOLDERS)
}

/// Returns the length of a path's content: between zero and a few blocks.
fn length(number: usize) -> u64 {
    match number % 4 {
        0 => 700 * number as u64,
        1 => 20_000 + 1000 * number as u64,
        2 => 65_536 + number as u64,
        _ => 200_000 + 6_001 * number as u64,
    }
}

/// The state of all paths in the test, shared by all clients and the origin.
struct World {
    origin: Origin,
    /// The version of each path that the origin serves.
    now: Arc<Vec<AtomicU32>>,
    /// The lowest version of each path that may be served, in the present run of the program and in
    /// all later runs.
    floor: Vec<AtomicU32>,
    /// The lowest version of each path that may be served in the present run of the program.
    /// Invalidations without a purge raise it.
    floor_of_run: Vec<AtomicU32>,
    tally: Tally,
}

/// Numbers of observed events, which prove that the load really tested something.
#[derive(Debug, Default)]
struct Tally {
    requests: AtomicU64,
    purges: AtomicU64,
    hits_after_restart: AtomicU64,
    missing_after_restart: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, SeqCst);
}

fn numbers() -> Vec<AtomicU32> {
    (0..PATHS).map(|_| AtomicU32::new(0)).collect()
}

impl World {
    fn new() -> World {
        let options = OriginOptions {
            forget: true,
            ..OriginOptions::default()
        };
        let origin = Origin::start(options).expect("a free port on loopback");
        let now = Arc::new(numbers());
        let versions = now.clone();
        origin.serve_rest(Resource::dynamic(move |seen| resource(seen, &versions)));
        World {
            origin,
            now,
            floor: numbers(),
            floor_of_run: numbers(),
            tally: Tally::default(),
        }
    }

    /// Starts the program for another run. The minimums that held only in the previous run are
    /// reset.
    fn start(&self, setup: &Setup) -> Edge {
        let edge = setup.start();
        self.floor_of_run.iter().for_each(|of| of.store(0, SeqCst));
        edge
    }

    fn least(&self, number: usize) -> u32 {
        let [floor, of_run] = [&self.floor, &self.floor_of_run].map(|of| of[number].load(SeqCst));
        floor.max(of_run)
    }

    /// Checks the response to a request for a path. `least` is the lowest version that was
    /// permitted when the request began.
    fn check(&self, number: usize, first: u64, least: u32, reply: &Reply) {
        let told = || {
            let floor = self.floor[number].load(SeqCst);
            let said = cache_status(reply);
            format!(
                "{} {} {said} (purged up to {floor})",
                path(number),
                reply.status
            )
        };
        let version = reply.header("etag").and_then(version_of);
        let version = version.unwrap_or_else(|| panic!("no version: {}", told()));
        assert!(
            version >= least,
            "version {version}, not {least}: {}",
            told()
        );
        let newest = self.now[number].load(SeqCst);
        assert!(
            version <= newest,
            "version {version} of {newest}: {}",
            told()
        );
        let right = noise::verify(number as u64, version, first, &reply.body);
        right.unwrap_or_else(|wrong| panic!("version {version}: {wrong}: {}", told()));
    }

    /// Raises the versions of these paths at the origin. Returns the new versions, which the caller
    /// stores as minimums once the purge is acknowledged.
    fn raise(&self, numbers: &[usize]) -> Vec<u32> {
        let raise = |number: &usize| self.now[*number].fetch_add(1, SeqCst) + 1;
        numbers.iter().map(raise).collect()
    }
}

fn resource(seen: &Seen, versions: &[AtomicU32]) -> Resource {
    let number: Option<usize> = seen.path().rsplit('/').next().and_then(|n| n.parse().ok());
    let Some(number) = number.filter(|number| *number < PATHS) else {
        return Resource::status(404);
    };
    let version = versions[number].load(SeqCst);
    Resource::noise(number as u64, length(number))
        .version(version)
        .cache_control("max-age=3600")
        .header("Surrogate-Key", &format!("t{}", number % TAGS))
}

/// Returns the version in an entity tag of the origin.
fn version_of(tag: &str) -> Option<u32> {
    let (version, _) = tag.strip_prefix("\"v")?.split_once('-')?;
    version.parse().ok()
}

/// State shared by all clients of one run.
struct Run<'a> {
    world: &'a World,
    http: SocketAddr,
    admin: SocketAddr,
    done: AtomicU64,
    /// Whether the program is being killed, so that connection errors are expected.
    ending: AtomicBool,
}

impl Run<'_> {
    /// Sends requests until the program ends: mostly reads, occasionally a purge.
    fn work(&self, dice: &mut Dice) {
        let mut client = None;
        loop {
            let turn = match &mut client {
                None => match Client::connect(self.http) {
                    Ok(new) => {
                        client = Some(new);
                        continue;
                    }
                    Err(error) => Err(ReadError::from(error)),
                },
                Some(open) => match dice.below(20) {
                    0..2 => self.purge(dice),
                    2 => self.post(open, dice),
                    _ => self.read(open, dice),
                },
            };
            let Err(error) = turn else { continue };
            if self.ending.load(SeqCst) {
                return;
            }
            // If the version of an object is replaced, its readers are cut off, and then send the
            // request again.
            let cut = matches!(error, ReadError::Closed(_) | ReadError::Reset);
            assert!(cut, "{error}");
            client = None;
        }
    }

    fn read(&self, client: &mut Client, dice: &mut Dice) -> Result<(), ReadError> {
        let number = dice.below(PATHS as u64) as usize;
        let (length, path) = (length(number), path(number));
        let least = self.world.least(number);
        let first = match dice.below(3) {
            0 if length > 0 => dice.below(length),
            _ => 0,
        };
        let range = format!("bytes={first}-{}", first + 30_000);
        let mut fields = vec![("Host", HOST)];
        if first > 0 {
            fields.push(("Range", &range));
        }
        let method = if dice.below(20) == 0 { "HEAD" } else { "GET" };
        let reply = client.request(method, &path, &fields, b"")?;
        let begin = if reply.status == 206 { first } else { 0 };
        assert!(
            [200, 206].contains(&reply.status) || self.ending.load(SeqCst),
            "{}",
            reply.status
        );
        self.world.check(number, begin, least, &reply);
        count(&self.done);
        count(&self.world.tally.requests);
        match reply.truncated() {
            true => Err(ReadError::Reset),
            false => Ok(()),
        }
    }

    /// Raises the versions of some paths, then purges these paths.
    fn purge(&self, dice: &mut Dice) -> Result<(), ReadError> {
        let one = dice.below(PATHS as u64) as usize;
        let covered = |holds: &dyn Fn(usize) -> bool| (0..PATHS).filter(|n| holds(*n)).collect();
        let (numbers, mut order): (Vec<usize>, Value) = match dice.below(40) {
            0 => (covered(&|_| true), json!({"all": true})),
            1..5 => {
                let prefix = format!("http://{HOST}/{}/", one % FOLDERS);
                (
                    covered(&|n| n % FOLDERS == one % FOLDERS),
                    json!({"prefix": prefix}),
                )
            }
            5..10 => {
                let tag = format!("t{}", one % TAGS);
                (covered(&|n| n % TAGS == one % TAGS), json!({"tag": tag}))
            }
            _ => (vec![one], json!({"url": disks::url(&path(one))})),
        };
        if dice.below(4) == 0 {
            order["soft"] = json!(true);
        }
        let versions = self.world.raise(&numbers);
        let body = order.to_string();
        let fields = [("x-sluice", "1")];
        let reply = client::once(self.admin, "POST", "/purge", &fields, body.as_bytes())?;
        if reply.truncated() {
            return Err(ReadError::Reset);
        }
        assert_eq!(reply.status, 200, "{order}: {}", reply.text());
        for (number, version) in numbers.iter().zip(versions) {
            self.world.floor[*number].fetch_max(version, SeqCst);
        }
        count(&self.done);
        count(&self.world.tally.purges);
        Ok(())
    }

    /// Raises the version of a path, then sends a POST to the path, which invalidates the stored
    /// response.
    fn post(&self, client: &mut Client, dice: &mut Dice) -> Result<(), ReadError> {
        let number = dice.below(PATHS as u64) as usize;
        let versions = self.world.raise(&[number]);
        let reply = client.request("POST", &path(number), &[("Host", HOST)], b"x")?;
        if reply.truncated() {
            return Err(ReadError::Reset);
        }
        assert_eq!(reply.status, 200);
        self.world.floor_of_run[number].fetch_max(versions[0], SeqCst);
        count(&self.done);
        Ok(())
    }
}

/// Requests all of a path and checks the response. If blocks were lost and the origin has a newer
/// version, a client that has received a part of the old version is cut off; the next request
/// receives the new version.
fn check_whole(world: &World, edge: &Edge, number: usize) -> Reply {
    for _ in 0..3 {
        let least = world.least(number);
        let reply = disks::get(edge, &path(number));
        assert_eq!(reply.status, 200, "{}", cache_status(&reply));
        world.check(number, 0, least, &reply);
        if !reply.truncated() {
            assert_eq!(reply.body.len() as u64, length(number));
            return reply;
        }
    }
    panic!("{} is cut again and again", path(number));
}

/// Requests each path once as soon as the program serves, even if the index of its volume has not
/// loaded yet.
fn check_all(world: &World, edge: &Edge) {
    for number in 0..PATHS {
        let reply = check_whole(world, edge, number);
        let after = &world.tally;
        count(match is_hit(&reply) {
            true => &after.hits_after_restart,
            false => &after.missing_after_restart,
        });
    }
}

/// One run of the program: the program starts, all paths are checked, clients send requests, and
/// the program is killed meanwhile.
fn round(world: &World, setup: &Setup, number: u64) {
    let mut edge = world.start(setup);
    check_all(world, &edge);
    let run = Run {
        world,
        http: edge.http,
        admin: edge.admin,
        done: AtomicU64::new(0),
        ending: AtomicBool::new(false),
    };
    let enough = Dice::new(number, 77).between(10, 120);
    thread::scope(|scope| {
        let run = &run;
        for client in 0..CLIENTS {
            scope.spawn(move || run.work(&mut Dice::new(number, client)));
        }
        eventually("it has worked for a while", || {
            run.done.load(SeqCst) >= enough
        });
        run.ending.store(true, SeqCst);
        edge.signal(Signal::KILL);
        edge.wait_exit();
    });
}

/// Runs and kills the program this many times with the same volumes.
fn lives(disks: &Disks, placement: &str, rounds: Range<u64>) {
    let world = World::new();
    let setup = disks
        .setup(&world.origin)
        .cache("memory = \"8MiB\"")
        .cache(&format!("placement = \"{placement}\""));
    for number in rounds.clone() {
        round(&world, &setup, number);
    }
    let edge = world.start(&setup);
    check_all(&world, &edge);
    eventually("all is loaded", || {
        volumes(&edge).iter().all(|volume| volume["state"] == "up")
    });
    assert!(number_of(&edge, 1, "records") > 0);
    let Tally {
        requests,
        purges,
        hits_after_restart,
        missing_after_restart,
    } = &world.tally;
    let [requests, purges, hits, missing] =
        [requests, purges, hits_after_restart, missing_after_restart].map(|n| n.load(SeqCst));
    let told = format!("{requests} requests, {purges} purges, {hits} hits, {missing} not");
    let rounds = rounds.end - rounds.start;
    assert!(requests > 20 * rounds && purges > 2 * rounds, "{told}");
    // Purges of the previous run removed many objects; most of the others must be served from the
    // volume.
    assert!(hits > 4 * rounds, "{told}");
}

/// Returns the numbers of this many rounds, or of more in a soak. The numbers determine the requests.
fn rounds(first: u64, count: u64) -> Range<u64> {
    first..first + count * u64::from(sluice_lab::soak::factor())
}

#[test]
fn killed_fifty_times_on_one_volume() {
    lives(&Disks::in_memory(1), "single", rounds(0, 50));
}

#[test]
fn killed_thirty_times_on_a_mirror() {
    lives(&Disks::in_memory(2), "mirror", rounds(1_000_000, 30));
}

#[test]
fn killed_twenty_times_on_stripes() {
    lives(&Disks::new(2), "stripe", rounds(2_000_000, 20));
}
