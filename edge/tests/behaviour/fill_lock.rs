//! Tests of requests that wait for another client's fetch, with `fill = "whole"` and `fill =
//! "lock"`.

use std::time::{Duration, Instant};

use sluice_lab::client::Client;
use sluice_lab::origin::{Ending, Fault, Latch, Modified, Origin, Seen, Tag};

use crate::harness::{
    Edge, SOON, assert_has_parameter, assert_hit, eventually, fresh, origin, serving,
    wait_for_requests,
};
use crate::partial_objects::{FILE, asked, check_range, filling, good, send_range, send_whole};

/// Offset at which the latch holds the first response.
const HELD_AT: u64 = 300_000;

/// Starts an edge and a client whose request causes the first fetch. The latch holds this fetch at
/// `HELD_AT`; later responses are not held.
fn held_fill(latch: &Latch, lines: &[&str]) -> (Origin, Edge, Client) {
    let origin = origin();
    let held = latch.clone();
    let first_is_held = move |seen: &Seen| match seen.id {
        0 => good(seen).hold_body(&held),
        _ => good(seen),
    };
    let resource = sluice_lab::origin::Resource::dynamic(first_is_held);
    origin.serve("/x", resource);
    let lock = filling(&origin, "lock");
    let setup = lines.iter().fold(lock, |setup, line| setup.cache(line));
    // The first client does not read while a test waits, and with HTTP/2 its window is full then.
    let setup = setup.limits("send_timeout = \"1h\"\nmin_rate = 0");
    let edge = setup.start();
    let mut first = send_whole(&edge);
    first.read_head().expect("a head");
    assert!(latch.wait_passed(HELD_AT, SOON));
    (origin, edge, first)
}

/// Releases the first fetch, checks the first client's body, and asserts that the origin receives
/// no further request.
fn finish(origin: &Origin, edge: &Edge, latch: &Latch, mut first: Client) {
    latch.release();
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
    let latch = Latch::at(HELD_AT);
    let (origin, edge, first) = held_fill(&latch, &[]);
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
    finish(&origin, &edge, &latch, first);
}

// The fetch of the whole file is held, but the requested range has already arrived.
#[test]
fn received_bytes_of_a_locked_fill_are_served_without_a_request() {
    let latch = Latch::at(HELD_AT);
    let (origin, edge, first) = held_fill(&latch, &[]);
    check_range(&edge, 0, 9);
    check_range(&edge, 100_000, HELD_AT - 1);
    assert_eq!(asked(&origin), ["-"]);
    finish(&origin, &edge, &latch, first);
    assert_eq!(asked(&origin), ["-"]);
}

#[test]
fn requests_wait_for_a_locked_fill_up_to_the_lock_timeout() {
    let latch = Latch::at(HELD_AT);
    let (origin, edge, first) = held_fill(&latch, &["lock_timeout = \"100ms\""]);
    let began = Instant::now();
    check_range(&edge, 2_000_000, 2_000_009);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(100), "{waited:?}");
    assert_eq!(asked(&origin), ["-", "bytes=2000000-2000009"]);
    finish(&origin, &edge, &latch, first);
}

// With a long `lock_timeout`, requests wait for the running fetch and share its response.
#[test]
fn requests_with_a_long_lock_timeout_share_a_locked_fill() {
    let latch = Latch::at(HELD_AT);
    let (origin, edge, first) = held_fill(&latch, &["lock_timeout = \"1h\""]);
    let mut riders = [
        send_range(&edge, 2_000_000, 2_000_009),
        send_range(&edge, 0, FILE - 1),
    ];
    eventually("all share the fetch", || edge.counter("requests_now") == 3);
    finish(&origin, &edge, &latch, first);
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
    let latch = Latch::closed();
    let origin = origin();
    let held = latch.clone();
    let first_is_held = move |seen: &Seen| match seen.id {
        0 => good(seen).hold_head(&held),
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
    latch.release();
    let reply = first.read_response().expect("a reply");
    reply.verify_whole(FILE).expect("the fill's");
    assert_hit(&edge.get("/x", &[]));
}

#[test]
fn another_fetch_starts_after_the_lock_age() {
    let latch = Latch::at(HELD_AT);
    let lines = ["lock_timeout = \"1h\"", "lock_age = \"10s\""];
    let (origin, edge, mut first) = held_fill(&latch, &lines);
    // The request might wait for an hour (`lock_timeout`). Since the first fetch makes no progress
    // for `lock_age`, another fetch starts.
    check_range(&edge, 2_000_000, 2_000_009);
    let whole = edge.get("/x", &[]);
    whole.verify_whole(FILE).expect("another fetch's");
    assert_eq!(asked(&origin), ["-", "-"]);
    assert_hit(&edge.get("/x", &[]));
    latch.release();
    let body = first.read_some(FILE as usize).expect("a body");
    let right = sluice_lab::offset::verify_offset(0, &body);
    right.expect("the first is served to its end");
    assert_eq!(body.len() as u64, FILE);
}

// The first fetch has sent bytes, and has been idle for `lock_age`. The object has no strong
// validator, so another fetch replaces it.
#[test]
fn a_request_that_arrives_after_the_lock_age_starts_another_fetch() {
    const AGE: Duration = Duration::from_secs(10);
    let latch = Latch::at(HELD_AT);
    let origin = origin();
    let held = latch.clone();
    let bare = |seen: &Seen| good(seen).tag(Tag::None).modified(Modified::None);
    let first_is_held = move |seen: &Seen| match seen.id {
        0 => bare(seen).hold_body(&held),
        _ => bare(seen),
    };
    origin.serve("/x", sluice_lab::origin::Resource::dynamic(first_is_held));
    let edge = filling(&origin, "lock")
        .cache("lock_timeout = \"1h\"")
        .cache("lock_age = \"10s\"")
        .start();
    let mut first = send_whole(&edge);
    first.read_head().expect("a head");
    let received = first.read_some(HELD_AT as usize).expect("the bytes so far");
    assert_eq!(received.len() as u64, HELD_AT);
    let since = Instant::now();
    eventually("the fetch is older than `lock_age`", || {
        since.elapsed() > AGE
    });
    let whole = edge.get("/x", &[]);
    whole.verify_whole(FILE).expect("another fetch's");
    assert_eq!(asked(&origin), ["-", "-"]);
    latch.release();
    let rest = first.read_some((FILE - HELD_AT) as usize).expect("a body");
    assert_eq!(rest.len() as u64, FILE - HELD_AT);
    assert_hit(&edge.get("/x", &[]));
}

// The second client has received the bytes that the first fetch sent. When this fetch has been idle
// for `lock_age`, another fetch continues after its last byte, for both clients.
#[test]
fn a_response_that_has_begun_is_continued_by_another_fetch_after_the_lock_age() {
    let latch = Latch::at(HELD_AT);
    let lines = ["lock_timeout = \"1h\"", "lock_age = \"10s\""];
    let (origin, edge, mut first) = held_fill(&latch, &lines);
    let whole = edge.get("/x", &[]);
    whole
        .verify_whole(FILE)
        .expect("the rest from another fetch");
    let rest = format!("bytes={HELD_AT}-{}", FILE - 1);
    assert_eq!(asked(&origin), ["-", &rest]);
    let body = first.read_some(FILE as usize).expect("a body");
    assert_eq!(body.len() as u64, FILE);
    sluice_lab::offset::verify_offset(0, &body).expect("the right bytes");
    assert_hit(&edge.get("/x", &[]));
    latch.release();
}

// The first fetch breaks off while two clients receive it, and the origin does not respond to the
// fetch for the rest. After `lock_age` the client that did not launch this fetch has another one
// launched in its place, even if it launched the first fetch.
#[test]
fn a_fetch_for_the_rest_without_a_response_is_replaced_after_the_lock_age() {
    let (body, head) = (Latch::at(HELD_AT), Latch::closed());
    let (first_body, second_head) = (body.clone(), head.clone());
    let origin = origin();
    let choose = move |seen: &Seen| match seen.id {
        0 => good(seen).hold_body(&first_body).fault(Fault::CutBody {
            after: HELD_AT + 1,
            ending: Ending::Fin,
        }),
        1 => good(seen).hold_head(&second_head),
        _ => good(seen),
    };
    origin.serve("/x", sluice_lab::origin::Resource::dynamic(choose));
    let edge = filling(&origin, "lock")
        .cache("lock_timeout = \"1h\"")
        .cache("lock_age = \"10s\"")
        .start();
    let mut clients: Vec<_> = (0..2)
        .map(|_| {
            let mut client = send_whole(&edge);
            client.read_head().expect("a head");
            let received = client
                .read_some(HELD_AT as usize)
                .expect("the bytes so far");
            assert_eq!(received.len() as u64, HELD_AT);
            client
        })
        .collect();
    body.release();
    for client in &mut clients {
        let left = (FILE - HELD_AT) as usize;
        let rest = client.read_some(left).expect("the rest");
        assert_eq!(rest.len(), left);
        sluice_lab::offset::verify_offset(HELD_AT, &rest).expect("the right bytes");
    }
    let rest = format!("bytes={}-{}", HELD_AT + 1, FILE - 1);
    assert_eq!(asked(&origin), ["-", &rest, &rest]);
    assert_hit(&edge.get("/x", &[]));
    head.release();
}

// With `fill = "whole"` one fetch requests all missing bytes, and all clients share it.
#[test]
fn all_clients_share_a_whole_fill() {
    let latch = Latch::at(HELD_AT);
    let origin = serving("/x", fresh(FILE).hold_body(&latch));
    let edge = filling(&origin, "whole").start();
    let mut clients = [
        send_range(&edge, 2_000_000, FILE - 1),
        send_range(&edge, 0, FILE - 1),
        send_range(&edge, 1_000_000, FILE - 1),
    ];
    eventually("all share the fetch", || edge.counter("requests_now") == 3);
    check_range(&edge, 0, 9);
    latch.release();
    for (client, first) in clients.iter_mut().zip([2_000_000, 0, 1_000_000]) {
        let reply = client.read_response().expect("a reply");
        let right = reply.verify_range(first, FILE - 1, FILE);
        right.expect("to the end");
    }
    assert_eq!(asked(&origin), ["-"]);
}
