//! Tests of hostile and unusual clients. They must not use much memory or many descriptors, or
//! delay other clients.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use sluice_lab::client::Client;
use sluice_lab::origin::{Framing, Latch};

use crate::harness::{
    Edge, SOON, Setup, assert_hit, cache_status, eventually, fresh, origin, serving,
};

const MEMORY_MAX: u64 = 32 << 20;

/// Opens a connection, sends a request, and does not read the response.
fn stalled(edge: &Edge, target: &str) -> Client {
    let mut client = edge.slow_reader();
    client.send("GET", target, &[], b"").expect("sent");
    client
}

#[test]
fn stalled_readers_pin_no_more_than_the_cache_s_memory() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .limits("send_timeout = \"1h\"\nmin_rate = 0")
        .start();
    let path = |n: u64| format!("/offset/{}", 1_000_000 + n);
    // The bodies for the stalled clients are together twice as large as the memory tier.
    let mut readers: Vec<Client> = (0..16).map(|n| stalled(&edge, &path(n))).collect();
    eventually("all have begun", || edge.counter("requests") == 16);
    for n in 100..125 {
        let length = 1_000_000 + n;
        let reply = edge.get(&path(n), &[]);
        reply.verify_whole(length).expect("others are served");
        let status = cache_status(&reply);
        assert!(
            status.ends_with("stored") || status.ends_with("no-room"),
            "{status}"
        );
        let (bytes, limit) = (edge.cache_state("bytes"), edge.cache_state("limit"));
        // If nothing can be evicted, a body may exceed the limit by its pass-through window.
        assert!(bytes <= limit + (4 << 20), "{bytes} of {limit}");
    }
    for (n, reader) in (0..).zip(&mut readers) {
        let reply = reader.read_response().expect("a reply");
        reply
            .verify_whole(1_000_000 + n)
            .expect("what was evicted is read to its end");
    }
    drop(readers);
    eventually("all have left", || edge.counter("requests_now") == 0);
    eventually("nothing is pinned", || edge.cache_state("pinned") == 0);
    assert!(edge.cache_state("bytes") <= edge.cache_state("limit"));
    let memory = edge.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes resident");
}

// The ledger counts the metadata of each object in addition to its bytes.
#[test]
fn many_small_objects_keep_within_memory() {
    let origin = origin();
    let edge = Setup::cached(&origin).cache("memory = \"8MiB\"").start();
    let mut client = edge.client();
    for batch in 0..40 {
        let requests: String = (0..100)
            .map(|n| format!("GET /offset/10?{batch}-{n} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .collect();
        client.send_raw(requests.as_bytes()).expect("sent");
        for _ in 0..100 {
            let reply = client.read_response().expect("a reply");
            reply.verify_whole(10).expect("the body");
        }
    }
    let (bytes, limit) = (edge.cache_state("bytes"), edge.cache_state("limit"));
    assert!(bytes <= limit, "{bytes} of {limit}");
    let memory = edge.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes resident");
}

// The client sends pipelined requests and does not read the responses. The edge stops reading
// requests, so that they don't accumulate in its memory.
#[test]
fn a_pipelining_client_that_does_not_read_is_stopped() {
    let origin = serving("/x", fresh(1_000_000));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[])
        .verify_whole(1_000_000)
        .expect("the body");
    let mut client = edge.slow_reader();
    client
        .set_timeout(Duration::from_millis(300))
        .expect("a timeout");
    let requests = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    let mut sent = 0;
    while let Ok(count) = client.stream().write(requests.as_bytes()) {
        sent += count;
        assert!(sent < 64 << 20, "all of it is taken");
    }
    assert!(
        edge.counter("requests") < 20,
        "answers are made as they are read"
    );
    let memory = edge.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes resident");
    assert_hit(&edge.get("/x", &[]));
}

// The store has room for the whole object, so a slow rider does not delay other riders of the same
// fetch.
#[test]
fn a_stalled_rider_does_not_stop_a_fill() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(20_000_000).hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let _stalled = [stalled(&edge, "/x"), stalled(&edge, "/x")];
    let mut reader = edge.client();
    reader.send("GET", "/x", &[], b"").expect("sent");
    eventually("all share the fetch", || edge.counter("requests_now") == 3);
    latch.release();
    let reply = reader.read_response().expect("a reply");
    reply.verify_whole(20_000_000).expect("all of it");
}

// The store has no room for the object, so the pages that a fast reader has passed are dropped. A
// stalled reader is cut off when the bytes that it needs are gone.
#[test]
fn a_stalled_rider_of_an_object_too_large_to_store_is_cut_off() {
    let latch = Latch::closed();
    let endless = fresh(40_000_000)
        .framing(Framing::Chunked(50_000))
        .hold_head(&latch);
    let origin = serving("/x", endless);
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .limits("send_timeout = \"1h\"\nmin_rate = 0")
        .start();
    let mut stalled = stalled(&edge, "/x");
    let mut reader = edge.client();
    reader.send("GET", "/x", &[], b"").expect("sent");
    eventually("both share the fetch", || edge.counter("requests_now") == 2);
    latch.release();
    let reply = reader.read_response().expect("a reply");
    reply.verify_whole(40_000_000).expect("all of it");
    let late = stalled.read_response().expect("a head");
    assert!(late.truncated(), "{:?}", late.end);
    sluice_lab::offset::verify_offset(0, &late.body).expect("what came is right");
    assert!(edge.peak_memory() < MEMORY_MAX);
}

// No file descriptor is left. The program waits until some are closed, and then accepts connections
// again.
#[test]
fn the_program_survives_running_out_of_descriptors() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(100));
    origin.serve("/held", fresh(10).hold_head(&latch));
    let edge = Setup::cached(&origin)
        // Requests over TLS could not be sent before the connection is accepted.
        .in_clear_text()
        .descriptors(80)
        .limits("connections = 1000")
        .start();
    edge.get("/x", &[]).verify_whole(100).expect("the body");
    // Each connection has its request at once, since idle ones would be closed to make room. All requests wait for one
    // fetch.
    let begin = |_| {
        let mut client = edge.client();
        // The connection may have been closed, since no descriptor was left for it.
        let _ = client.send("GET", "/held", &[], b"");
        client
    };
    let clients: Vec<Client> = (0..150).map(begin).collect();
    // The admin address may not answer meanwhile.
    eventually("it is full", || edge.open_descriptors() > 70);
    drop(clients);
    latch.release();
    eventually("all have left", || edge.counter("connections_now") <= 1);
    // Connections that the clients have closed may still wait to be accepted, and take descriptors.
    eventually("it goes on", || {
        let reply = sluice_lab::client::get(edge.http, "/x", &[]);
        reply.is_ok_and(|reply| reply.verify_whole(100).is_ok())
    });
}

// An idle connection owns no buffer, so thousands of them use little memory.
#[test]
fn idle_connections_use_little_memory() {
    // Enough that memory which the program takes once, such as the pages of histograms, adds little for each.
    const IDLE: u64 = 8000;
    let origin = serving("/x", fresh(5000));
    let edge = Setup::cached(&origin).in_clear_text().start();
    edge.get("/x", &[]).verify_whole(5000).expect("the body");
    let before = edge.process.memory().expect("its memory").rss;
    let used = |_| {
        let mut client = edge.client();
        let reply = client.get("/x", &[]).expect("a reply");
        reply.verify_whole(5000).expect("the body");
        client
    };
    let clients: Vec<Client> = (0..IDLE).map(used).collect();
    let after = edge.process.memory().expect("its memory").rss;
    drop(clients);
    let each = after.saturating_sub(before) / IDLE;
    // The limit is far below the size of any read buffer, although a test build uses more memory
    // than a release build.
    assert!(each < 4 << 10, "{each} bytes for each idle connection");
}

/// Connects from this address and sends a request with a head of 30 KB.
fn ask_with_long_head(edge: &Edge, from: &str, target: &str) -> Client {
    let from: IpAddr = from.parse().expect("an address");
    let mut client = Client::connect_from(from, edge.http).expect("connected");
    let long = "y".repeat(30_000);
    let headers = [("Host", "a"), ("X-Long", &*long)];
    client.send("GET", target, &headers, b"").expect("sent");
    client
}

fn assert_over_memory(mut client: Client) {
    let refused = client.read_response().expect("a reply");
    assert_eq!(
        (refused.status, refused.text().as_str()),
        (503, "503 request-memory\n")
    );
}

// Each waiting request has a head of 30 KB, so six of them take the permitted memory, and three of
// them the half of it, which is all that one client gets.
#[test]
fn requests_that_wait_take_no_more_than_the_permitted_memory() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(1000));
    origin.serve("/pass/held", fresh(10).hold_head(&latch));
    let edge = Setup::cached(&origin)
        .limits("request_memory = \"512KiB\"")
        .start();
    let ask = |from, target| ask_with_long_head(&edge, from, target);
    assert_eq!(
        ask("127.0.0.1", "/x")
            .read_response()
            .expect("a reply")
            .status,
        200
    );
    let mut waiting: Vec<Client> = (0..3).map(|_| ask("127.0.0.1", "/pass/held")).collect();
    assert!(latch.wait_held(3, SOON), "the origin has three requests");
    assert_over_memory(ask("127.0.0.1", "/pass/held"));
    assert_eq!(edge.counter("requests_over_memory"), 1);
    waiting.extend((0..3).map(|_| ask("127.0.0.2", "/pass/held")));
    assert!(latch.wait_held(6, SOON), "the origin has six requests");
    assert_over_memory(ask("127.0.0.3", "/pass/held"));
    assert_eq!(edge.counter("requests_over_memory"), 2);
    assert_hit(&ask("127.0.0.1", "/x").read_response().expect("a reply"));
    latch.release();
    for client in &mut waiting {
        assert_eq!(client.read_response().expect("a reply").status, 200);
    }
    eventually("no memory is counted", || {
        edge.counter("request_memory_now") == 0
    });
    assert_eq!(origin.requests().len(), 7, "the refused ones were not sent");
    // The memory of the requests that have ended is free again.
    let again = ask("127.0.0.1", "/pass/held").read_response();
    assert_eq!(again.expect("a reply").status, 200);
}

// One request of a client may take more than its half.
#[test]
fn a_single_request_may_take_all_of_the_permitted_memory() {
    let origin = serving("/pass/x", fresh(10));
    let edge = Setup::cached(&origin)
        .limits("request_memory = \"96KiB\"")
        .start();
    let reply = ask_with_long_head(&edge, "127.0.0.1", "/pass/x").read_response();
    assert_eq!(reply.expect("a reply").status, 200);
}
