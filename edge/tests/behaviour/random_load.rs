//! Tests of random load: ranges, evictions, changing versions, fetches that break off, and clients
//! that disconnect, all at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::{verify_version, version_of};
use sluice_lab::origin::{Ending, Fault, Framing, Origin, Resource, Seen};

use crate::harness::{Edge, Setup, eventually, origin};

const OBJECTS: u64 = 40;
const CLIENTS: u64 = 6;
const REQUESTS: u64 = 80;

/// A seeded random number generator, so that each client sends the same requests in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn length(object: u64) -> u64 {
    object * object * 911 + 1
}

/// Starts an origin with objects of up to 1.4 MB. Every seventh response breaks off halfway, every
/// fifth object has no known length, and every third one is stale after a second. `version` is the
/// version of all objects.
fn changing(version: Arc<AtomicU32>) -> Origin {
    let origin = origin();
    let choose = move |seen: &Seen| {
        let object: u64 = seen.path().trim_start_matches('/').parse().unwrap_or(0);
        let version = version.load(Ordering::Relaxed) % 10;
        let age = if object.is_multiple_of(3) {
            "max-age=1"
        } else {
            "max-age=60"
        };
        let mut resource = Resource::offset(length(object))
            .version(version)
            .header("X-Version", &version.to_string())
            .cache_control(age);
        if object.is_multiple_of(5) {
            resource = resource.framing(Framing::Chunked(7919));
        }
        if seen.id % 7 == 6 {
            let cut = Fault::CutBody {
                after: length(object) / 2,
                ending: Ending::Reset,
            };
            resource = resource.fault(cut);
        }
        resource
    };
    origin.serve_rest(Resource::dynamic(choose));
    origin
}

/// Checks that every byte of a response belongs to its offset and to the version that the head
/// names.
fn check(reply: &Reply, object: u64, asked: Option<u64>) {
    if reply.status == 502 {
        return; // The connection broke before a response arrived.
    }
    let first = match reply.content_range() {
        Some(range) => range.first,
        None => 0,
    };
    assert!(matches!(reply.status, 200 | 206), "{}", reply.status);
    assert!(first == 0 || asked == Some(first), "{first} for {asked:?}");
    if !reply.truncated() && reply.status == 200 {
        assert_eq!(reply.body.len() as u64, length(object));
    }
    let Some(byte) = reply.body.first() else {
        return;
    };
    let version = version_of(*byte).expect("an offset body");
    assert_eq!(
        reply.header("x-version"),
        Some(version.to_string().as_str())
    );
    verify_version(version, first, &reply.body).expect("one version, in its place");
}

fn run_client(edge: &Edge, seed: u64, version: &AtomicU32) {
    let mut dice = Dice(seed);
    let mut client: Option<Client> = None;
    for _ in 0..REQUESTS {
        let object = dice.below(OBJECTS);
        let target = format!("/{object}");
        let first = dice.below(length(object));
        let range = format!("bytes={first}-{}", first + dice.below(200_000));
        let mut asker = client.take().unwrap_or_else(|| edge.client());
        match dice.below(20) {
            0 => version.store(dice.below(10) as u32, Ordering::Relaxed),
            1 => asker.send("GET", &target, &[], b"").expect("sent"),
            2..10 => match asker.get(&target, &[("Range", &range)]) {
                Ok(reply) => {
                    check(&reply, object, Some(first));
                    client = keep(asker, &reply);
                }
                Err(error) => panic!("{target} {range}: {error}"),
            },
            _ => {
                let reply = asker.get(&target, &[]).expect("a reply");
                check(&reply, object, None);
                client = keep(asker, &reply);
            }
        }
    }
}

fn keep(client: Client, reply: &Reply) -> Option<Client> {
    let ends = reply.truncated() || reply.header("connection") == Some("close");
    (!ends).then_some(client)
}

#[test]
fn bodies_are_correct_under_random_load() {
    let version = Arc::new(AtomicU32::new(0));
    let origin = changing(version.clone());
    let edge = Setup::cached(&origin).cache("memory = \"8MiB\"").start();
    thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let (edge, version) = (&edge, &version);
            scope.spawn(move || run_client(edge, seed, version));
        }
    });
    let gauges = [
        "requests_now",
        "connections_now",
        "flights_now",
        "upstream_busy_now",
    ];
    eventually("all has come to its end", || {
        let counters = &edge.status()["counters"];
        gauges.iter().all(|gauge| counters[gauge] == 0)
    });
    let state = |name| edge.cache_state(name);
    assert!(state("bytes") <= state("limit"));
    assert_eq!((state("pinned"), state("flights")), (0, 0));
    assert!(state("evicted") > 0 && edge.counter("cache_hits") > 0);
    assert!(edge.counter("cache_collapsed") > 0 && edge.counter("flights_failed") > 0);
}
