//! Tests of gap fetches: a client requests bytes far ahead of a running fetch. A second fetch then
//! starts at these bytes, and adds them to the same object.

use sluice_lab::client::Client;
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Latch, Origin, OriginOptions, Outcome, Record, Resource};

use crate::harness::{Edge, SOON, assert_hit, eventually, fresh};
use crate::partial_objects::{asked, by_range, filling, sent_again, sent_pieces, settle, was_slow};

/// Length of a file in bytes, which is large compared to socket buffers.
const LARGE: u64 = 20_000_000;

/// Offset at which the latch holds the first fetch.
const HELD_AT: u64 = 300_000;

/// Upper bound of the bytes that the sockets between origin and edge hold when a connection is
/// closed.
const ON_ITS_WAY: u64 = 4 << 20;

/// Starts an edge and a client that requests a whole large file. The latch holds this fetch at
/// `HELD_AT`, while the origin sends ranges of the file without delay.
fn held_fill(latch: &Latch) -> (Origin, Edge, Client) {
    let options = OriginOptions {
        send_buffer: Some(64 << 10),
        ..OriginOptions::default()
    };
    let origin = Origin::start(options).expect("a free port on loopback");
    let held = latch.clone();
    let ranged = |_: &_| fresh(LARGE);
    let file: Resource = by_range(ranged, move |_| fresh(LARGE).hold_body(&held));
    origin.serve("/x", file);
    let edge = filling(&origin, "auto").start();
    let mut first = edge.client();
    first.send("GET", "/x", &[], b"").expect("sent");
    let head = first.read_head().expect("a head");
    assert_eq!(head.status, 200);
    assert!(latch.wait_passed(HELD_AT, SOON));
    (origin, edge, first)
}

/// Requests ten bytes of the large file, and checks them.
fn check_ten(edge: &Edge, first: u64) -> sluice_lab::client::Reply {
    let range = format!("bytes={first}-{}", first + 9);
    let reply = edge.get("/x", &[("Range", &range)]);
    let right = reply.verify_range(first, first + 9, LARGE);
    right.expect("the range");
    reply
}

/// Reads the body of the large file after its head, and checks every byte.
fn check_all(client: &mut Client) {
    let body = client.read_some(LARGE as usize).expect("a body");
    assert_eq!(body.len() as u64, LARGE);
    verify_offset(0, &body).expect("the right bytes");
}

#[test]
fn a_range_far_beyond_a_held_fill_is_served_at_once() {
    let latch = Latch::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&latch);
    check_ten(&edge, 8_000_000);
    let sent = origin.read_record(|record| record.requests[0].sent);
    assert_eq!(sent, HELD_AT, "the first fetch has not moved");
    assert_eq!(asked(&origin)[0], "-");
    latch.release();
    check_all(&mut first);
    settle(&edge, &origin, LARGE);
    let again = sent_again(&origin);
    assert!(again <= ON_ITS_WAY, "{again} bytes: {:?}", asked(&origin));
    let requests = origin.requests().len();
    let whole = edge.get("/x", &[]);
    whole.verify_whole(LARGE).expect("one object");
    assert_hit(&whole);
    assert_eq!(origin.requests().len(), requests);
}

// The clients read on from the bytes of the first fetch to those of another fetch, which has taken
// over a part of the first one's claim.
#[test]
fn riders_of_the_first_fetch_continue_past_a_takeover() {
    let latch = Latch::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&latch);
    let mut riders: Vec<(u64, Client)> = [0, 100_000, 250_000]
        .into_iter()
        .map(|from| {
            let mut rider = edge.client();
            let range = format!("bytes={from}-");
            rider
                .send("GET", "/x", &[("Range", &range)], b"")
                .expect("sent");
            rider.read_head().expect("a head, since its byte is there");
            (from, rider)
        })
        .collect();
    for far in [15_000_000, 8_000_000, 11_000_000] {
        check_ten(&edge, far);
    }
    latch.release();
    check_all(&mut first);
    for (from, rider) in &mut riders {
        let body = rider.read_some((LARGE - *from) as usize).expect("a body");
        assert_eq!(body.len() as u64, LARGE - *from);
        verify_offset(*from, &body).expect("the right bytes");
    }
    settle(&edge, &origin, LARGE);
    let again = sent_again(&origin);
    assert!(again <= ON_ITS_WAY, "{again} bytes: {:?}", asked(&origin));
}

// The first fetch is held. Bytes that have already arrived are served without a further request to
// the origin.
#[test]
fn received_bytes_are_served_without_a_request() {
    let latch = Latch::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&latch);
    let before = origin.read_record(|record| record.sent_for("/x"));
    check_ten(&edge, 0);
    check_ten(&edge, 200_000);
    check_ten(&edge, HELD_AT - 10);
    let pieces = origin.read_record(sent_pieces);
    let again = pieces[1..].iter().filter(|piece| piece.start < before);
    assert!(again.count() == 0 || was_slow(&edge), "{pieces:?}");
    latch.release();
    check_all(&mut first);
}

// Another fetch has taken over a part of the first one's claim. The first fetch ends there, so that
// no byte is transferred twice.
#[test]
fn a_fetch_ends_where_another_fetch_took_over() {
    let latch = Latch::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&latch);
    check_ten(&edge, 8_000_000);
    latch.release();
    check_all(&mut first);
    let ended = |record: &Record| record.requests[0].outcome != Outcome::Pending;
    assert!(origin.wait_for(ended, SOON));
    let sent = origin.read_record(|record| record.requests[0].sent);
    assert!(sent <= 8_000_000 + ON_ITS_WAY, "{sent}");
}

// The client that caused a gap fetch disconnects. Other clients that wait for its bytes still
// receive them.
#[test]
fn a_gap_fetch_continues_after_its_client_disconnects() {
    let latch = Latch::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&latch);
    check_ten(&edge, 8_000_000);
    let mut leaving = edge.client();
    let range = [("Range", "bytes=12000000-")];
    leaving.send("GET", "/x", &range, b"").expect("sent");
    leaving.read_head().expect("a head");
    drop(leaving);
    latch.release();
    check_all(&mut first);
    eventually("all have left", || edge.counter("requests_now") == 0);
    settle(&edge, &origin, 0);
}
