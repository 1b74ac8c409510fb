//! A want beyond a running fill has a fetch of its own, which becomes part of the same object.

use sluice_lab::client::Client;
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Gate, Origin, OriginOptions, Outcome, Record, Resource};

use crate::harness::{Edge, SOON, assert_hit, eventually, fresh};
use crate::pieces::{asked, by_range, filling, sent_again, sent_pieces, settle};

/// Large beside what sockets hold.
const LARGE: u64 = 20_000_000;

/// How far the first fetch comes before it is held.
const HELD_AT: u64 = 300_000;

/// Beyond what may lie between the origin and the edge, in sockets of their own sizes, when a
/// connection is cut.
const ON_ITS_WAY: u64 = 4 << 20;

/// A plain fetch of a large file that is held, while ranges of it come as fast as they may.
fn held_fill(gate: &Gate) -> (Origin, Edge, Client) {
    let options = OriginOptions {
        send_buffer: Some(64 << 10),
        ..OriginOptions::default()
    };
    let origin = Origin::start(options).expect("a free port on loopback");
    let held = gate.clone();
    let ranged = |_: &_| fresh(LARGE);
    let file: Resource = by_range(ranged, move |_| fresh(LARGE).gate(&held));
    origin.serve("/x", file);
    let edge = filling(&origin, "auto").start();
    let mut first = edge.client();
    first.send("GET", "/x", &[], b"").expect("sent");
    let head = first.read_head().expect("a head");
    assert_eq!(head.status, 200);
    assert!(gate.wait_passed(HELD_AT, SOON));
    (origin, edge, first)
}

/// Asks for ten bytes of the large file and checks them.
fn check_ten(edge: &Edge, first: u64) -> sluice_lab::client::Reply {
    let range = format!("bytes={first}-{}", first + 9);
    let reply = edge.get("/x", &[("Range", &range)]);
    let right = reply.verify_range(first, first + 9, LARGE);
    right.expect("the range");
    reply
}

/// Reads all of the large file where the head has been read.
fn check_all(client: &mut Client) {
    let body = client.read_some(LARGE as usize).expect("a body");
    assert_eq!(body.len() as u64, LARGE);
    verify_offset(0, &body).expect("the right bytes");
}

// "a want beyond a running fill gets a gap fetch that merges"
#[test]
fn a_range_far_beyond_a_held_fill_is_served_at_once() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&gate);
    check_ten(&edge, 8_000_000);
    let sent = origin.read_record(|record| record.requests[0].sent);
    assert_eq!(sent, HELD_AT, "the first fetch has not moved");
    assert_eq!(asked(&origin)[0], "-");
    gate.release();
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

// Whoever rides the first fetch goes on, over the place where another fetch took over.
#[test]
fn riders_of_the_first_fetch_go_on() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&gate);
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
    gate.release();
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

// What has landed is served from here, whatever the fetch waits for.
#[test]
fn what_has_landed_costs_no_request() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&gate);
    let before = origin.read_record(|record| record.sent_for("/x"));
    check_ten(&edge, 0);
    check_ten(&edge, 200_000);
    check_ten(&edge, HELD_AT - 10);
    let pieces = origin.read_record(sent_pieces);
    let again = pieces[1..].iter().filter(|piece| piece.start < before);
    assert_eq!(again.count(), 0, "{pieces:?}");
    gate.release();
    check_all(&mut first);
}

// The first fetch ends where another has gone on before it: its connection does not bring the rest as well.
#[test]
fn a_fetch_ends_where_another_took_over() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&gate);
    check_ten(&edge, 8_000_000);
    gate.release();
    check_all(&mut first);
    let ended = |record: &Record| record.requests[0].outcome != Outcome::Pending;
    assert!(origin.wait_for(ended, SOON));
    let sent = origin.read_record(|record| record.requests[0].sent);
    assert!(sent <= 8_000_000 + ON_ITS_WAY, "{sent}");
}

// The client for whom a fetch was begun may leave: those who ride it have its bytes all the same.
#[test]
fn a_gap_fetch_outlives_its_client() {
    let gate = Gate::at(HELD_AT);
    let (origin, edge, mut first) = held_fill(&gate);
    check_ten(&edge, 8_000_000);
    let mut leaving = edge.client();
    let range = [("Range", "bytes=12000000-")];
    leaving.send("GET", "/x", &range, b"").expect("sent");
    leaving.read_head().expect("a head");
    drop(leaving);
    gate.release();
    check_all(&mut first);
    eventually("all have left", || edge.counter("requests_now") == 0);
    settle(&edge, &origin, 0);
}
