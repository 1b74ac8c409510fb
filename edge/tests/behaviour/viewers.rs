//! Tests of many viewers at different positions of one file: each receives its bytes, however slow
//! the origin is and however many fetches one object may have.

use sluice_lab::client::Client;
use sluice_lab::origin::{Gate, Origin, Resource, Seen};

use crate::harness::{Edge, Setup, cache_status, eventually, fresh, serving};
use crate::partial_objects::{BLOCK, MODES, asked, bytes, filling, landed};

/// The smallest permitted block.
const SMALL: u64 = 64 << 10;

/// An edge with blocks of this size.
fn in_small_blocks(origin: &Origin, mode: &str) -> Edge {
    let setup = Setup::cached(origin).cache(&format!("fill = \"{mode}\""));
    setup.cache("slice = \"64KiB\"").start()
}

/// A file whose first bytes arrive at once and whose other bytes arrive at the rate of `slow`.
fn slow_behind_the_first(
    length: u64,
    slow: impl Fn(Resource) -> Resource + Send + Sync + 'static,
) -> Origin {
    let choose = move |seen: &Seen| match seen.id {
        0 => fresh(length),
        _ => slow(fresh(length)),
    };
    serving("/x", Resource::dynamic(choose))
}

/// Fetches the first bytes, so that the cache knows the file can be combined from parts.
fn check_first(edge: &Edge, length: u64) {
    let reply = edge.get("/x", &[("Range", "bytes=0-9")]);
    reply.verify_range(0, 9, length).expect("the first bytes");
    landed(edge);
}

/// Starts a viewer of a range of a file.
struct Viewer {
    client: Client,
    first: u64,
    last: u64,
}

impl Viewer {
    fn new(edge: &Edge, first: u64, count: u64) -> Viewer {
        let mut client = edge.client();
        let last = first + count - 1;
        let sent = client.send("GET", "/x", &[("Range", &bytes(first, last))], b"");
        sent.expect("sent");
        Viewer {
            client,
            first,
            last,
        }
    }

    fn check(&mut self, length: u64) {
        let reply = self.client.read_response().expect("a reply");
        let right = reply.verify_range(self.first, self.last, length);
        right.unwrap_or_else(|wrong| panic!("{wrong} ({:?})", cache_status(&reply)));
    }
}

/// Viewers at equally spaced positions, each of a range of this length.
fn viewers(edge: &Edge, many: u64, apart: u64, count: u64) -> Vec<Viewer> {
    let viewer = |n| Viewer::new(edge, 1 + SMALL + n * apart, count);
    (0..many).map(viewer).collect()
}

fn check_all(viewers: &mut [Viewer], length: u64) {
    for viewer in viewers {
        viewer.check(length);
    }
}

// The origin sends each response slowly, so concurrent fetches are faster until there are too many
// of them. Flights are split, taken over and queued, and no viewer is cut off.
#[test]
fn viewers_of_a_slow_file_are_not_cut_off() {
    const LENGTH: u64 = 60_000_000;
    for mode in MODES {
        let origin = slow_behind_the_first(LENGTH, |file| file.rate(400_000));
        let edge = in_small_blocks(&origin, mode);
        check_first(&edge, LENGTH);
        let mut viewers = viewers(&edge, 30, 20 * SMALL + 5000, 10 * SMALL);
        check_all(&mut viewers, LENGTH);
    }
}

// The same if all viewers wait for bytes at the same time.
#[test]
fn viewers_of_a_stalled_file_are_not_cut_off() {
    const LENGTH: u64 = 60_000_000;
    for mode in MODES {
        let gate = Gate::at(50_000);
        let held = gate.clone();
        let origin = slow_behind_the_first(LENGTH, move |file| file.gate(&held));
        let edge = filling(&origin, mode).start();
        check_first(&edge, LENGTH);
        let mut viewers = viewers(&edge, 24, 9 * BLOCK + 5000, 2 * BLOCK);
        eventually("all read", || edge.counter("requests_now") == 24);
        gate.release();
        check_all(&mut viewers, LENGTH);
    }
}

/// More viewers than one object may have fetches, in front of an origin that holds each response.
fn more_than_there_are_fetches(
    count: u64,
    hold: impl Fn(Resource, &Gate) -> Resource + Copy + Send + Sync + 'static,
) {
    const LENGTH: u64 = 100_000_000;
    const MANY: u64 = 300;
    for mode in MODES {
        let gate = Gate::closed();
        let held = gate.clone();
        let origin = slow_behind_the_first(LENGTH, move |file| hold(file, &held));
        let edge = in_small_blocks(&origin, mode);
        check_first(&edge, LENGTH);
        let mut viewers = viewers(&edge, MANY, 3 * SMALL, count);
        eventually("all wait", || edge.counter("requests_now") == MANY);
        gate.release();
        check_all(&mut viewers, LENGTH);
        // The object stays as usable as before.
        landed(&edge);
        let mut again = Viewer::new(&edge, 1 + SMALL, count);
        let before = asked(&origin).len();
        again.check(LENGTH);
        assert!(asked(&origin).len() <= before + 2, "{mode}");
    }
}

// A viewer that finds all fetches in use before its response has begun is served all the same.
#[test]
fn viewers_beyond_the_fetch_limit_are_served_before_their_responses_begin() {
    more_than_there_are_fetches(10, |file, gate| file.gate_head(gate));
}

// A viewer whose response has begun, and that needs another fetch, is served as well.
#[test]
fn viewers_beyond_the_fetch_limit_are_served_after_their_responses_begin() {
    more_than_there_are_fetches(SMALL + 10, |file, gate| file.gate(gate));
}
