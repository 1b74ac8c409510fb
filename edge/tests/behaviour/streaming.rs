//! Tests of back-pressure. Bodies of any length are sent in limited memory, whether the client or
//! the origin is slow.

use std::io::Write;
use std::time::Duration;

use sluice_lab::client::Client;
use sluice_lab::offset::{offset_bytes, verify_offset};
use sluice_lab::origin::{Framing, Latch, Origin, OriginOptions, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, origin, wait_for_requests};

/// Upper bound of the bytes that the edge and the sockets on both sides hold of a body whose client
/// does not read.
const STALLED_MAX: u64 = 16 << 20;

/// Configuration lines with which slow clients are not cut off.
const PATIENT: &str = "send_timeout = \"1h\"\nmin_rate = 0";

/// Maximum number of bytes of memory that the program may use in addition to its caches.
const MEMORY_MAX: u64 = 32 << 20;

/// Starts an origin with small socket buffers.
fn small_origin(path: &str, resource: Resource) -> Origin {
    let options = OriginOptions {
        send_buffer: Some(64 << 10),
        receive_buffer: Some(64 << 10),
        ..OriginOptions::default()
    };
    let origin = Origin::start(options).expect("a free port on loopback");
    origin.serve(path, resource);
    origin
}

/// Waits until the number of bytes that the origin has sent no longer grows. Returns this number.
fn bytes_when_stalled(origin: &Origin) -> u64 {
    let sent = || origin.read_record(|record| record.sent_total);
    loop {
        let before = sent();
        let more = origin.wait_for(
            |record| record.sent_total > before,
            Duration::from_millis(300),
        );
        if !more {
            return before;
        }
    }
}

/// Sends a request and does not read the response. Asserts that the origin stops sending and that
/// the edge's memory stays small.
fn stall(edge: &Edge, origin: &Origin, path: &str) -> Client {
    let mut client = edge.slow_reader();
    client.send("GET", path, &[], b"").expect("sent");
    wait_for_requests(origin, path, 1);
    let sent = bytes_when_stalled(origin);
    assert!(sent < STALLED_MAX, "{sent} bytes were fetched in vain");
    let memory = edge.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes of memory");
    client
}

/// Reads the head and the first 20 MB of the body, and checks every byte.
fn read_on(client: &mut Client) {
    client.read_head().expect("a head");
    let mut at = 0;
    while at < 20_000_000 {
        let piece = client.read_some(100_000).expect("more");
        verify_offset(at, &piece).expect("the right bytes");
        assert_eq!(piece.len(), 100_000);
        at += 100_000;
    }
}

#[test]
fn a_stalled_reader_stops_the_origin() {
    let origin = small_origin("/x", Resource::offset(200_000_000));
    let edge = Setup::uncached(&origin).limits(PATIENT).start();
    let mut client = stall(&edge, &origin, "/x");
    read_on(&mut client);
    assert!(edge.peak_memory() < MEMORY_MAX);
}

// The response goes through a cache that can't store an object of this size. The origin must stop
// sending when the client stops reading.
#[test]
fn a_stalled_reader_of_an_object_too_large_to_store_stops_the_origin() {
    let large = Resource::offset(200_000_000).cache_control("max-age=60");
    let origin = small_origin("/x", large);
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .limits(PATIENT)
        .start();
    let mut client = stall(&edge, &origin, "/x");
    read_on(&mut client);
    assert!(edge.peak_memory() < MEMORY_MAX);
}

// The length of the body is unknown, so the edge notices during the fetch that the object is too
// large. The origin must stop sending when the client stops reading.
#[test]
fn a_stalled_reader_of_an_endless_body_stops_the_origin() {
    let endless = Resource::offset(60_000_000)
        .cache_control("max-age=60")
        .framing(Framing::Chunked(50_000));
    let origin = small_origin("/x", endless);
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .limits(PATIENT)
        .start();
    let client = stall(&edge, &origin, "/x");
    assert!(edge.cache_state("bytes") <= edge.cache_state("limit") + (2 << 20));
    let mut reader = edge.client();
    let reply = reader.get("/x", &[]).expect("a reply");
    reply
        .verify_whole(60_000_000)
        .expect("the reader receives all of it");
    drop(client);
    let memory = edge.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes of memory");
}

#[test]
fn a_stalled_origin_stops_the_uploader() {
    let latch = Latch::closed();
    let origin = small_origin("/x", Resource::status(200).hold_upload(&latch));
    let edge = Setup::uncached(&origin)
        .in_clear_text()
        .limits("body = 0")
        .start();
    let mut client = edge.client();
    let total = 30_000_000;
    let head = format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {total}\r\n\r\n");
    client.send_raw(head.as_bytes()).expect("sent");
    let body = offset_bytes(0, total);
    let sent = send_until_stalled(&mut client, &body);
    assert!((sent as u64) < STALLED_MAX, "{sent} bytes were taken");
    assert!(edge.peak_memory() < MEMORY_MAX);
    latch.release();
    client.send_raw(&body[sent..]).expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    let seen = &origin.requests()[0];
    assert!(seen.body_complete && seen.body_is_offset);
    assert_eq!(seen.body_length, total as u64);
}

fn send_until_stalled(client: &mut Client, body: &[u8]) -> usize {
    client
        .set_timeout(Duration::from_millis(500))
        .expect("a timeout");
    let mut sent = 0;
    while let Ok(count) = client.stream().write(&body[sent..]) {
        sent += count;
        assert!(sent < body.len(), "all was taken");
    }
    client.set_timeout(SOON).expect("a timeout");
    sent
}

#[test]
fn other_clients_are_served_while_one_is_stalled() {
    let origin = origin();
    origin.serve("/x", Resource::offset(200_000_000));
    let edge = Setup::cached(&origin).workers(1).start();
    let clients: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = edge.slow_reader();
            client.send("GET", "/x", &[], b"").expect("sent");
            client
        })
        .collect();
    eventually("four at once", || edge.counter("requests_now") == 4);
    for n in 1..20 {
        let target = format!("/offset/{}", n * 1000);
        edge.get(&target, &[])
            .verify_whole(n * 1000)
            .expect("the body");
    }
    drop(clients);
}
