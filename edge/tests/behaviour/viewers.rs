//! Tests of many clients that read one file at different offsets. Each client receives its bytes,
//! however slow the origin is, and although one object has a limited number of concurrent fetches.

use std::time::Duration;

use sluice_lab::client::Client;
use sluice_lab::origin::{Latch, Origin, Resource, Seen};

use crate::harness::{Edge, Setup, cache_status, eventually, fresh, serving, slow};
use crate::partial_objects::{BLOCK, MODES, asked, bytes, filling, landed};

/// Size in bytes of the smallest permitted block.
const SMALL: u64 = 64 << 10;

/// Starts an edge with blocks of `SMALL` bytes and this fill policy.
fn in_small_blocks(origin: &Origin, mode: &str) -> Edge {
    let setup = Setup::cached(origin).cache(&format!("fill = \"{mode}\""));
    setup.cache("slice = \"64KiB\"").start()
}

/// Starts an origin with a file of this length. The first response is sent at once, and all later
/// ones as `slow` sets, for example at a low rate.
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

/// Requests the first bytes. The response shows the cache that the file can be fetched in ranges.
fn check_first(edge: &Edge, length: u64) {
    let reply = edge.get("/x", &[("Range", "bytes=0-9")]);
    reply.verify_range(0, 9, length).expect("the first bytes");
    landed(edge);
}

/// A client that reads a range of a file.
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

/// Starts `many` clients, `apart` bytes from one another. Each requests `count` bytes.
fn viewers(edge: &Edge, many: u64, apart: u64, count: u64) -> Vec<Viewer> {
    let viewer = |n| Viewer::new(edge, 1 + SMALL + n * apart, count);
    (0..many).map(viewer).collect()
}

fn check_all(viewers: &mut [Viewer], length: u64) {
    for viewer in viewers {
        viewer.check(length);
    }
}

// The origin limits the rate of each response. Concurrent fetches make clients faster, up to the
// maximum number of fetches. Claims are split and taken over, and no client may be cut off.
#[test]
fn viewers_of_a_slow_file_are_not_cut_off() {
    const LENGTH: u64 = 60_000_000;
    for mode in MODES {
        let origin = slow_behind_the_first(LENGTH, |file| slow(file, Duration::ZERO));
        let edge = in_small_blocks(&origin, mode);
        check_first(&edge, LENGTH);
        let mut viewers = viewers(&edge, 30, 20 * SMALL + 5000, 10 * SMALL);
        check_all(&mut viewers, LENGTH);
    }
}

// The origin stops all responses in the middle, so that all clients wait for bytes at the same
// time. After it continues, no client may have been cut off.
#[test]
fn viewers_of_a_stalled_file_are_not_cut_off() {
    const LENGTH: u64 = 60_000_000;
    for mode in MODES {
        let latch = Latch::at(50_000);
        let held = latch.clone();
        let origin = slow_behind_the_first(LENGTH, move |file| file.hold_body(&held));
        let edge = filling(&origin, mode).start();
        check_first(&edge, LENGTH);
        let mut viewers = viewers(&edge, 24, 9 * BLOCK + 5000, 2 * BLOCK);
        eventually("all read", || edge.counter("requests_now") == 24);
        latch.release();
        check_all(&mut viewers, LENGTH);
    }
}

/// Starts more clients than one object may have concurrent fetches. The latch holds all responses of
/// the origin until all clients wait. Each client must then receive its bytes.
fn more_than_there_are_fetches(
    count: u64,
    hold: impl Fn(Resource, &Latch) -> Resource + Copy + Send + Sync + 'static,
) {
    const LENGTH: u64 = 100_000_000;
    const MANY: u64 = 300;
    for mode in MODES {
        let latch = Latch::closed();
        let held = latch.clone();
        let origin = slow_behind_the_first(LENGTH, move |file| hold(file, &held));
        let edge = in_small_blocks(&origin, mode);
        check_first(&edge, LENGTH);
        let mut viewers = viewers(&edge, MANY, 3 * SMALL, count);
        eventually("all wait", || edge.counter("requests_now") == MANY);
        latch.release();
        check_all(&mut viewers, LENGTH);
        // After all fetches have ended, another client can use the object as before.
        landed(&edge);
        let mut again = Viewer::new(&edge, 1 + SMALL, count);
        let before = asked(&origin).len();
        again.check(LENGTH);
        assert!(asked(&origin).len() <= before + 2, "{mode}");
    }
}

// All permitted fetches of the object are in use when the client's request arrives. Its response
// has not begun, and the client must be served.
#[test]
fn viewers_beyond_the_fetch_limit_are_served_before_their_responses_begin() {
    more_than_there_are_fetches(10, |file, latch| file.hold_head(latch));
}

// All permitted fetches of the object are in use when a client whose response has begun needs
// another fetch. This client must be served, too.
#[test]
fn viewers_beyond_the_fetch_limit_are_served_after_their_responses_begin() {
    more_than_there_are_fetches(SMALL + 10, |file, latch| file.hold_body(latch));
}
