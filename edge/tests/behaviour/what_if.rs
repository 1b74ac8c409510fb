//! Tests of the hit ratios that `GET /what-if` predicts for other sizes of a cache.

use serde_json::Value;
use sluice_lab::client::Client;
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, Setup, eventually, fresh, origin};

/// Number of files, and the size of each in bytes. The small cache has room for about a third of them.
const FILES: u64 = 600;
const BYTES: u64 = 40_000;
/// Number of requests that fill the cache, and of those that count.
const WARM_UP: u64 = 1500;
const COUNTED: u64 = 3000;
const SMALL: &str = "memory = \"8MiB\"";
const LARGE: &str = "memory = \"16MiB\"";

fn files() -> Origin {
    let origin = origin();
    for n in 0..FILES {
        origin.serve(&format!("/{n}"), fresh(BYTES));
    }
    origin
}

/// Requests files, of which some are much more popular than others.
struct Load {
    client: Client,
    state: u64,
    sent: u64,
}

impl Load {
    fn new(edge: &Edge) -> Load {
        Load {
            client: edge.client(),
            state: 1,
            sent: 0,
        }
    }

    fn unit(&mut self) -> f64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn request(&mut self, times: u64) {
        for _ in 0..times {
            let file = (FILES as f64 * self.unit().powf(2.5)) as u64;
            let reply = self.client.get(&format!("/{file}"), &[]).expect("a reply");
            assert_eq!(reply.status, 200);
        }
        self.sent += times;
    }
}

/// The number of requests and of hits so far: of the real cache, and of the simulated ones by their size.
struct Counts {
    requests: f64,
    measured: f64,
    once: f64,
    twice: f64,
}

impl Counts {
    /// Returns the ratios of the real cache, of the simulated one, and of the one with twice the size, since an earlier moment.
    fn ratios_since(&self, before: &Counts) -> [f64; 3] {
        let requests = self.requests - before.requests;
        [
            (self.measured - before.measured) / requests,
            (self.once - before.once) / requests,
            (self.twice - before.twice) / requests,
        ]
    }
}

fn what_if(edge: &Edge) -> Value {
    let reply = edge.get_admin("/what-if");
    let all: Value = serde_json::from_str(&reply.text()).expect("JSON");
    all["caches"]["main"].clone()
}

/// Waits until this many requests were simulated.
fn counts(edge: &Edge, requests: u64) -> Counts {
    eventually("all requests are simulated", || {
        what_if(edge)["references"].as_u64() == Some(requests)
    });
    let state = what_if(edge);
    let hits = |ratios: &Value| ratios["hit_ratio"].as_f64().expect("a ratio") * requests as f64;
    let simulated = |times: f64| {
        let points = state["points"].as_array().expect("a list");
        let point = points.iter().find(|point| point["times"] == times);
        hits(point.expect("the size"))
    };
    assert_eq!(state["dropped"], 0);
    Counts {
        requests: requests as f64,
        measured: hits(&state["measured"]),
        once: simulated(1.0),
        twice: simulated(2.0),
    }
}

/// Requests files, and returns the ratios over the last `COUNTED` requests.
fn ratios(edge: &Edge, load: &mut Load) -> [f64; 3] {
    load.request(WARM_UP);
    let before = counts(edge, load.sent);
    load.request(COUNTED);
    counts(edge, load.sent).ratios_since(&before)
}

#[test]
fn the_predicted_ratio_of_twice_the_memory_is_that_after_a_reload() {
    let origin = files();
    let edge = Setup::cached(&origin).cache(SMALL).start();
    let empty = what_if(&edge);
    assert_eq!(empty["memory"], 8 << 20);
    assert_eq!(empty["volumes"], 0);
    assert!(empty["measured"]["hit_ratio"].is_null());
    let mut load = Load::new(&edge);
    let [measured, once, twice] = ratios(&edge, &mut load);
    assert!((once - measured).abs() < 0.04, "{once} {measured}");
    assert!(twice > measured + 0.05, "{twice} {measured}");

    edge.rewrite(&Setup::cached(&origin).cache(LARGE).text());
    let output = edge.command(&["reload"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(what_if(&edge)["memory"], 16 << 20);
    load.sent = 0;
    let [after, again, _] = ratios(&edge, &mut load);
    assert!((after - twice).abs() < 0.04, "{after} {twice}");
    assert!((again - after).abs() < 0.04, "{again} {after}");
}

// A range of a large file uses its blocks, and each of them is stored or missing by itself.
#[test]
fn blocks_of_large_files_are_used_one_by_one() {
    let origin = origin();
    let length = 4 << 20;
    origin.serve("/large", fresh(length));
    let edge = Setup::cached(&origin).start();
    let range = |start: u64, end: u64| {
        let range = format!("bytes={start}-{}", end - 1);
        let reply = edge.get("/large", &[("range", &range)]);
        assert_eq!(reply.status, 206);
    };
    let block = 1 << 20;
    // One block is fetched and then hit; two blocks of which one is stored are hit and fetched.
    range(0, 100);
    range(100, 200);
    range(block - 10, block + 10);
    eventually("all requests are simulated", || {
        what_if(&edge)["references"] == 3
    });
    let state = what_if(&edge);
    let measured = &state["measured"];
    let near = |ratio: &Value, expected: f64| {
        let ratio = ratio.as_f64().expect("a ratio");
        assert!((ratio - expected).abs() < 1e-6, "{ratio} {expected}");
    };
    assert_eq!(state["sampled_references"], 4);
    near(&measured["hit_ratio"], 2.0 / 3.0);
    near(&measured["byte_hit_ratio"], 2.0 / 4.0);
    near(&state["points"][5]["hit_ratio"], 2.0 / 3.0);
    near(&state["points"][5]["byte_hit_ratio"], 2.0 / 4.0);
}

// A response that the origin has confirmed counts as no hit, but its content did not have to be fetched.
#[test]
fn confirmed_responses_are_no_hits_at_any_size() {
    let origin = origin();
    origin.serve("/x", Resource::offset(1000).cache_control("no-cache"));
    // The references of one worker are replayed in their order.
    let edge = Setup::cached(&origin).workers(1).start();
    for _ in 0..2 {
        assert_eq!(edge.get("/x", &[]).status, 200);
    }
    eventually("all requests are simulated", || {
        what_if(&edge)["references"] == 2
    });
    let state = what_if(&edge);
    for ratios in [&state["measured"], &state["points"][2]] {
        assert_eq!(ratios["hit_ratio"], 0.0);
        assert_eq!(ratios["byte_hit_ratio"], 0.5);
    }
}
