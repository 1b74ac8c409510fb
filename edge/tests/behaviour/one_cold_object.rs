//! Tests of many clients that request one object that is not stored. One fetch serves all of them,
//! and every body is right.

use std::io::Read;
use std::sync::Arc;
use std::thread;

use sluice_lab::client::Client;
use sluice_lab::offset::offset_bytes;
use sluice_lab::origin::Latch;

use crate::harness::{SOON, Setup, eventually, fresh, serving};

const CROWD: usize = 1000;
const OBJECT: u64 = 10_000_000;

// 1,000 clients request one object of 10 MB that is not stored. The origin receives one request,
// and every body is right.
#[test]
fn a_thousand_clients_cause_one_fetch() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(OBJECT).hold_head(&latch));
    // A thread for each client reads from its socket.
    let edge = Setup::cached(&origin)
        .cache("fill = \"whole\"")
        .in_clear_text()
        .with_http1()
        .start();
    let expected: Arc<[u8]> = offset_bytes(0, OBJECT as usize).into();
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let (mut client, expected) = (edge.client(), expected.clone());
            client.send("GET", "/x", &[], b"").expect("sent");
            thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || read_whole(&mut client.stream(), &expected))
                .expect("a thread")
        })
        .collect();
    eventually("all of them wait", || {
        edge.counter("requests_now") == CROWD as u64
    });
    latch.release();
    for client in crowd {
        client.join().expect("a right body");
    }
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(edge.counter("flights"), 1);
    assert_eq!(edge.counter("cache_collapsed"), CROWD as u64 - 1);
}

/// Reads a response and compares its body piece by piece, so that a thousand bodies need not be in
/// memory at the same time.
fn read_whole(stream: &mut impl Read, expected: &[u8]) {
    let mut buffer = vec![0; 64 << 10];
    let mut filled = 0;
    let head = loop {
        filled += stream.read(&mut buffer[filled..]).expect("a head");
        let end = buffer[..filled]
            .windows(4)
            .position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            break end + 4;
        }
    };
    assert!(buffer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let mut rest = expected;
    let mut piece = head..filled;
    loop {
        let (now, later) = rest.split_at(piece.len());
        assert!(buffer[piece] == *now, "wrong bytes");
        if later.is_empty() {
            return;
        }
        rest = later;
        piece = 0..stream.read(&mut buffer).expect("more bytes");
        assert!(!piece.is_empty(), "{} bytes are missing", rest.len());
    }
}

// Many clients request ranges at various offsets of an object that is not stored. One fetch serves
// all of them.
#[test]
fn a_crowd_requesting_ranges_causes_one_fetch() {
    let latch = Latch::at(1);
    let origin = serving(
        "/x",
        fresh(OBJECT).vary("Accept-Encoding").hold_body(&latch),
    );
    let edge = Setup::cached(&origin).cache("fill = \"whole\"").start();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..100u64)
            .map(|n| {
                let edge = &edge;
                scope.spawn(move || ask_ranges(edge.client(), n))
            })
            .collect();
        eventually("all of them wait", || edge.counter("requests_now") == 100);
        for step in 1..=20 {
            latch.advance_to(step * OBJECT / 20);
        }
        for client in clients {
            client.join().expect("a client");
        }
    });
    let whole = |record: &sluice_lab::origin::Record| record.sent_total == OBJECT;
    assert!(origin.wait_for(whole, SOON));
    assert_eq!(origin.requests().len(), 1);
}

/// Requests twenty pseudo-random ranges. `number` is the number of the client, and seeds the
/// generator.
fn ask_ranges(mut client: Client, number: u64) {
    let mut state = number * 2 + 1;
    for _ in 0..20 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let first = (state >> 20) % OBJECT;
        let last = (first + (state >> 50)).min(OBJECT - 1);
        let range = format!("bytes={first}-{last}");
        let reply = client.get("/x", &[("Range", &range)]).expect("a reply");
        reply.verify_range(first, last, OBJECT).expect(&range);
    }
}
