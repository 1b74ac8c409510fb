//! Tests of requests that wait for another client's fetch, with `fill = "whole"` and `fill =
//! "lock"`.

use std::time::{Duration, Instant};

use sluice_lab::client::Client;
use sluice_lab::origin::{Gate, Origin, Seen};

use crate::harness::{
    Edge, SOON, assert_has_parameter, assert_hit, eventually, fresh, origin, serving,
    wait_for_requests,
};
use crate::partial_objects::{FILE, asked, check_range, filling, good, send_range, send_whole};

/// Offset at which the gate holds the first response.
const HELD_AT: u64 = 300_000;

/// Starts an edge and a client whose request causes the first fetch. The gate holds this fetch at
/// `HELD_AT`; later responses are not held.
fn held_fill(gate: &Gate, lines: &[&str]) -> (Origin, Edge, Client) {
    let origin = origin();
    let held = gate.clone();
    let first_is_held = move |seen: &Seen| match seen.id {
        0 => good(seen).gate(&held),
        _ => good(seen),
    };
    let resource = sluice_lab::origin::Resource::dynamic(first_is_held);
    origin.serve("/x", resource);
    let lock = filling(&origin, "lock");
    let setup = lines.iter().fold(lock, |setup, line| setup.cache(line));
    let edge = setup.start();
    let mut first = send_whole(&edge);
    first.read_head().expect("a head");
    assert!(gate.wait_passed(HELD_AT, SOON));
    (origin, edge, first)
}

/// Releases the first fetch, checks the first client's body, and asserts that the origin receives
/// no further request.
fn finish(origin: &Origin, edge: &Edge, gate: &Gate, mut first: Client) {
    gate.release();
    let body = first.read_some(FILE as usize).expect("a body");
    assert_eq!(body.len() as u64, FILE);
    sluice_lab::offset::verify_offset(0, &body).expect("the right bytes");
    let requests = origin.requests().len();
    let whole = edge.get("/x", &[]);
    whole.verify_whole(FILE).expect("all of it");
    assert_hit(&whole);
    assert_eq!(origin.requests().len(), requests);
}

#[test]
fn requests_beyond_the_lock_timeout_are_forwarded() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, first) = held_fill(&gate, &[]);
    let range = check_range(&edge, 2_000_000, 2_000_009);
    assert_has_parameter(&range, "detail=lock");
    let several = edge.get("/x", &[("Range", "bytes=2000000-2000009,-10")]);
    let ranges = [(2_000_000, 2_000_009), (FILE - 10, FILE - 1)];
    several.verify_parts(&ranges, FILE).expect("as it came");
    // Each of these requests is forwarded to the origin unchanged, and its response is not stored.
    check_range(&edge, 2_000_000, 2_000_009);
    let expected = [
        "-",
        "bytes=2000000-2000009",
        "bytes=2000000-2000009,-10",
        "bytes=2000000-2000009",
    ];
    assert_eq!(asked(&origin), expected);
    finish(&origin, &edge, &gate, first);
}

// The fetch of the whole file is held, but the requested range has already arrived.
#[test]
fn received_bytes_of_a_locked_fill_are_served_without_a_request() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, first) = held_fill(&gate, &[]);
    check_range(&edge, 0, 9);
    check_range(&edge, 100_000, HELD_AT - 1);
    assert_eq!(asked(&origin), ["-"]);
    finish(&origin, &edge, &gate, first);
    assert_eq!(asked(&origin), ["-"]);
}

#[test]
fn requests_wait_for_a_locked_fill_up_to_the_lock_timeout() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, first) = held_fill(&gate, &["lock_timeout = \"100ms\""]);
    let began = Instant::now();
    check_range(&edge, 2_000_000, 2_000_009);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(100), "{waited:?}");
    assert_eq!(asked(&origin), ["-", "bytes=2000000-2000009"]);
    finish(&origin, &edge, &gate, first);
}

// With a long `lock_timeout`, requests wait for the running fetch and share its response.
#[test]
fn requests_with_a_long_lock_timeout_share_a_locked_fill() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, first) = held_fill(&gate, &["lock_timeout = \"1h\""]);
    let mut riders = [
        send_range(&edge, 2_000_000, 2_000_009),
        send_range(&edge, 0, FILE - 1),
    ];
    eventually("all share the fetch", || edge.counter("requests_now") == 3);
    finish(&origin, &edge, &gate, first);
    let [far, all] = &mut riders;
    let far = far.read_response().expect("a reply");
    let right = far.verify_range(2_000_000, 2_000_009, FILE);
    right.expect("the range");
    let all = all.read_response().expect("a reply");
    all.verify_range(0, FILE - 1, FILE).expect("all of it");
    assert_eq!(asked(&origin), ["-"]);
}

// The head of the first response has not arrived. Requests that would wait longer than
// `lock_timeout` are forwarded in this case, too.
#[test]
fn requests_waiting_for_a_locked_head_are_forwarded() {
    let gate = Gate::closed();
    let origin = origin();
    let held = gate.clone();
    let first_is_held = move |seen: &Seen| match seen.id {
        0 => good(seen).gate_head(&held),
        _ => good(seen),
    };
    origin.serve("/x", sluice_lab::origin::Resource::dynamic(first_is_held));
    let edge = filling(&origin, "lock").start();
    let mut first = send_whole(&edge);
    wait_for_requests(&origin, "/x", 1);
    let second = edge.get("/x", &[]);
    second.verify_whole(FILE).expect("its own");
    check_range(&edge, 5, 9);
    assert_eq!(asked(&origin), ["-", "-", "bytes=5-9"]);
    gate.release();
    let reply = first.read_response().expect("a reply");
    reply.verify_whole(FILE).expect("the fill's");
    assert_hit(&edge.get("/x", &[]));
}

#[test]
fn another_fetch_starts_after_the_lock_age() {
    let gate = Gate::at(HELD_AT);
    let lines = ["lock_timeout = \"1h\"", "lock_age = \"1s\""];
    let (origin, edge, mut first) = held_fill(&gate, &lines);
    // The request might wait for an hour (`lock_timeout`). Since the first fetch makes no progress
    // for `lock_age`, another fetch starts.
    check_range(&edge, 2_000_000, 2_000_009);
    let whole = edge.get("/x", &[]);
    whole.verify_whole(FILE).expect("another fetch's");
    assert_eq!(asked(&origin), ["-", "-"]);
    assert_hit(&edge.get("/x", &[]));
    gate.release();
    let body = first.read_some(FILE as usize).expect("a body");
    let right = sluice_lab::offset::verify_offset(0, &body);
    right.expect("the first is served to its end");
    assert_eq!(body.len() as u64, FILE);
}

// With `fill = "whole"` one fetch requests all missing bytes, and all clients share it.
#[test]
fn all_clients_share_a_whole_fill() {
    let gate = Gate::at(HELD_AT);
    let origin = serving("/x", fresh(FILE).gate(&gate));
    let edge = filling(&origin, "whole").start();
    let mut clients = [
        send_range(&edge, 2_000_000, FILE - 1),
        send_range(&edge, 0, FILE - 1),
        send_range(&edge, 1_000_000, FILE - 1),
    ];
    eventually("all share the fetch", || edge.counter("requests_now") == 3);
    check_range(&edge, 0, 9);
    gate.release();
    for (client, first) in clients.iter_mut().zip([2_000_000, 0, 1_000_000]) {
        let reply = client.read_response().expect("a reply");
        let right = reply.verify_range(first, FILE - 1, FILE);
        right.expect("to the end");
    }
    assert_eq!(asked(&origin), ["-"]);
}
