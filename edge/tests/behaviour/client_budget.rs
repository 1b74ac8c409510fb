//! Tests of the client budget: the limit of the bytes that one client can make the edge fetch and
//! hold in memory.

use std::net::IpAddr;

use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Origin, Record};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, serving};
use crate::partial_objects::{asked, landed};

/// Length of a file larger than any disk of the test machine. The origin generates the content on
/// request.
const HUGE: u64 = 100_000_000_000;

const MIB: u64 = 1 << 20;

/// Maximum number of bytes of memory that the program may use in addition to its caches.
const MEMORY_MAX: u64 = 32 << 20;

/// Starts an edge with blocks of 1 MiB in front of an origin that has this file.
fn edge(origin: &Origin, mode: &str, lines: &[&str]) -> Edge {
    let setup = Setup::cached(origin)
        .cache(&format!("fill = \"{mode}\""))
        .cache("slice = \"1MiB\"");
    let setup = lines.iter().fold(setup, |setup, line| setup.cache(line));
    setup.start()
}

/// Returns pseudo-random offsets in a file.
fn places(seed: u64, length: u64) -> impl Iterator<Item = u64> {
    let mut state = seed * 2 + 1;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 20) % length
    })
}

/// Requests the byte at this offset.
fn one_byte(client: &mut Client, at: u64) -> Reply {
    let range = format!("bytes={at}-{at}");
    let reply = client.get("/x", &[("Range", &range)]).expect("a reply");
    reply.verify_range(at, at, HUGE).expect("the byte");
    reply
}

fn sent(origin: &Origin) -> u64 {
    origin.read_record(|record| record.sent_total)
}

// Each request for one byte makes the edge fetch a block. The client's budget limits the bytes that
// are fetched for it and not sent.
#[test]
fn one_byte_ranges_cost_no_more_than_the_budget() {
    for mode in ["slice", "auto"] {
        let origin = serving("/x", fresh(HUGE));
        let edge = edge(&origin, mode, &["client_budget = \"4MiB\""]);
        let mut client = edge.client();
        for at in places(1, HUGE).take(60) {
            one_byte(&mut client, at);
        }
        landed(&edge);
        let sent = sent(&origin);
        assert!(sent <= 6 * MIB, "{mode}: {sent} bytes for 60");
        // A new connection from the same address has no budget of its own.
        let mut client = edge.client();
        for at in places(2, HUGE).take(20) {
            one_byte(&mut client, at);
        }
        landed(&edge);
        let sent = self::sent(&origin);
        assert!(sent <= 6 * MIB, "{mode}: {sent} bytes for 80");
    }
}

#[test]
fn each_client_has_its_own_budget() {
    let origin = serving("/x", fresh(HUGE));
    let edge = edge(&origin, "slice", &["client_budget = \"4MiB\""]);
    let mut greedy = edge.client();
    for at in places(3, HUGE).take(30) {
        one_byte(&mut greedy, at);
    }
    landed(&edge);
    let before = sent(&origin);
    let from: IpAddr = "127.0.0.2".parse().expect("an address");
    let mut other = Client::connect_from(from, edge.http).expect("connected");
    let block = HUGE / 2 / MIB * MIB;
    one_byte(&mut other, block + 500_000);
    let all = |record: &Record| record.sent_total >= before + MIB;
    assert!(origin.wait_for(all, SOON), "{:?}", asked(&origin).last());
    landed(&edge);
    assert_eq!(sent(&origin), before + MIB, "the byte's block");
}

// Bytes that the client requested never count against its budget.
#[test]
fn requested_bytes_do_not_count_against_the_budget() {
    let origin = serving("/x", fresh(HUGE));
    let edge = edge(&origin, "slice", &["client_budget = \"4MiB\""]);
    let mut client = edge.client();
    for at in places(4, HUGE).take(20) {
        one_byte(&mut client, at);
    }
    let first = 7 * MIB + 1000;
    let range = format!("bytes={first}-{}", first + 12 * MIB - 1);
    let reply = client.get("/x", &[("Range", &range)]).expect("a reply");
    let right = reply.verify_range(first, first + 12 * MIB - 1, HUGE);
    right.expect("twelve mebibytes of three budgets");
}

#[test]
fn reading_the_end_of_a_huge_file_does_not_fetch_its_beginning() {
    for mode in ["slice", "auto"] {
        let origin = serving("/x", fresh(HUGE));
        let edge = edge(&origin, mode, &["client_budget = \"4MiB\""]);
        let range = format!("bytes={}-", HUGE - 100);
        let reply = edge.get("/x", &[("Range", &range)]);
        let right = reply.verify_range(HUGE - 100, HUGE - 1, HUGE);
        right.expect("the end");
        landed(&edge);
        let sent = sent(&origin);
        assert!(sent <= 2 * MIB, "{mode}: {sent}");
    }
}

/// Size of the memory tier in these tests.
const TIER: &str = "memory = \"8MiB\"";

/// Length of an object that is about twice as large as the memory tier.
const LARGE: u64 = 18_000_000;

/// Asserts that neither the memory tier nor the process exceeds its memory limit.
fn assert_bounded(edge: &Edge) {
    let (bytes, limit) = (edge.cache_state("bytes"), edge.cache_state("limit"));
    assert!(bytes <= limit + 4 * MIB, "{bytes} of {limit}");
    let memory = edge.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes resident");
}

#[test]
fn an_object_larger_than_memory_is_served_block_by_block() {
    for mode in ["slice", "auto"] {
        let origin = serving("/x", fresh(LARGE));
        let edge = edge(&origin, mode, &[TIER]);
        for _ in 0..2 {
            let whole = edge.get("/x", &[]);
            whole.verify_whole(LARGE).expect("all of it");
            assert_bounded(&edge);
        }
    }
}

// The object is larger than memory, so its blocks are evicted. The fetches that follow must return
// the right bytes.
#[test]
fn evicted_blocks_are_fetched_again() {
    let origin = serving("/x", fresh(LARGE));
    let edge = edge(&origin, "slice", &[TIER, "client_budget = \"1GiB\""]);
    let mut client = edge.client();
    for at in places(5, LARGE - 10).take(60) {
        let range = format!("bytes={at}-{}", at + 9);
        let reply = client.get("/x", &[("Range", &range)]).expect("a reply");
        let right = reply.verify_range(at, at + 9, LARGE);
        right.unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    landed(&edge);
    assert_bounded(&edge);
    let sent = sent(&origin);
    assert!(sent > LARGE, "some were fetched again: {sent}");
    assert!(sent <= 61 * MIB, "one block for each at most: {sent}");
}

// Clients stop reading in the middle of an object larger than memory. They must not keep more than
// a few pages in memory, so that other objects can be stored.
#[test]
fn stalled_readers_of_a_large_object_pin_little() {
    let origin = serving("/x", fresh(LARGE));
    let setup = Setup::cached(&origin)
        .cache("fill = \"slice\"")
        .cache("slice = \"1MiB\"")
        .cache(TIER)
        .limits("send_timeout = \"1h\"\nmin_rate = 0");
    let edge = setup.start();
    let mut stalled: Vec<Client> = (0..8)
        .map(|n| {
            let mut client = edge.slow_reader();
            let range = format!("bytes={}-", n * 2_000_000);
            let fields = [("Range", &*range), ("Connection", "close")];
            client.send("GET", "/x", &fields, b"").expect("sent");
            client.read_head().expect("a head");
            client
        })
        .collect();
    let whole = edge.get("/x", &[]);
    whole.verify_whole(LARGE).expect("all of it");
    assert_bounded(&edge);
    // After the others have read, the stalled clients read on and receive their bytes.
    let last = stalled
        .pop()
        .expect("eight")
        .read_to_end()
        .expect("the rest");
    assert_eq!(last.len() as u64, LARGE - 14_000_000);
    verify_offset(14_000_000, &last).expect("the right bytes");
}

// The bytes read ahead for all clients together don't fit into memory. All clients are still
// served, and few bytes are fetched twice.
#[test]
fn too_many_readers_for_memory_cause_few_extra_fetches() {
    const READERS: u64 = 24;
    const EACH: u64 = 1_300_000;
    for mode in ["slice", "auto"] {
        let origin = serving("/x", fresh(HUGE));
        let edge = edge(&origin, mode, &[TIER, "client_budget = 0"]);
        let read = |n: u64| {
            let first = n * 5_000_000 + 12_345;
            let range = format!("bytes={first}-{}", first + EACH - 1);
            let reply = edge.get("/x", &[("Range", &range)]);
            let right = reply.verify_range(first, first + EACH - 1, HUGE);
            right.unwrap_or_else(|wrong| panic!("{mode} {n}: {wrong}"));
        };
        std::thread::scope(|scope| {
            for n in 0..READERS {
                scope.spawn(move || read(n));
            }
        });
        landed(&edge);
        let sent = sent(&origin);
        assert!(sent <= 2 * READERS * EACH, "{mode}: {sent}");
        assert_bounded(&edge);
    }
}

// The client requests a stored file of 8 MiB again and again, and resets each connection before it
// has received more than the beginning. Only bytes that it received are credited to its budget.
#[test]
fn resetting_downloads_of_stored_bytes_buys_no_budget() {
    let origin = serving("/x", fresh(HUGE));
    origin.serve("/stored", fresh(8 * MIB));
    let edge = edge(&origin, "slice", &["client_budget = \"4MiB\""]);
    let from: IpAddr = "127.0.0.2".parse().expect("an address");
    let mut other = Client::connect_from(from, edge.http).expect("connected");
    let host = edge.http.to_string();
    let whole = other.get("/stored", &[("Host", &host)]).expect("a reply");
    whole.verify_whole(8 * MIB).expect("the file");
    let mut client = edge.client();
    for at in places(5, HUGE).take(20) {
        one_byte(&mut client, at);
    }
    landed(&edge);
    let before = sent(&origin);
    for _ in 0..10 {
        let mut reader = edge.slow_reader();
        reader.send("GET", "/stored", &[], b"").expect("sent");
        let head = reader.read_head().expect("a head");
        assert!(
            head.header("cache-status")
                .is_some_and(|s| s.contains("hit"))
        );
        reader.reset().expect("a socket");
    }
    eventually("the readers are gone", || edge.counter("requests_now") == 0);
    for at in places(6, HUGE).take(20) {
        one_byte(&mut client, at);
    }
    landed(&edge);
    let more = sent(&origin) - before;
    assert!(more <= 3 * MIB, "{more} bytes for 20");
}

// A client that closes each connection after the response has received all of it.
#[test]
fn bytes_received_on_connections_that_close_are_credited() {
    let origin = serving("/x", fresh(HUGE));
    let edge = edge(&origin, "slice", &["client_budget = \"4MiB\""]);
    for block in 0..12 {
        let (first, last) = (block * MIB, (block + 1) * MIB - 1);
        let range = format!("bytes={first}-{last}");
        let fields = [("Range", &*range), ("Connection", "close")];
        let reply = edge.get("/x", &fields);
        reply.verify_range(first, last, HUGE).expect("the block");
    }
    // The budget permits a whole block for a single byte.
    landed(&edge);
    let before = sent(&origin);
    one_byte(&mut edge.client(), 50 * MIB + 500_000);
    let all = |record: &Record| record.sent_total >= before + MIB;
    assert!(origin.wait_for(all, SOON), "{:?}", asked(&origin).last());
}

// The client sends all its requests at once and reads slowly, so that several responses are in the
// edge's send buffer at a time. All of them are credited once the client has received them.
#[test]
fn bytes_of_pipelined_responses_are_credited() {
    const BLOCKS: u64 = 12;
    const PIECES: u64 = 16;
    let origin = serving("/x", fresh(HUGE));
    let edge = edge(&origin, "slice", &["client_budget = \"4MiB\""]);
    let piece = MIB / PIECES;
    let ranges: Vec<(u64, u64)> = (0..BLOCKS * PIECES)
        .map(|n| (n * piece, (n + 1) * piece - 1))
        .collect();
    let request = |(first, last): &(u64, u64)| {
        format!("GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes={first}-{last}\r\n\r\n")
    };
    let requests: String = ranges.iter().map(request).collect();
    let mut client = edge.slow_reader();
    client.send_raw(requests.as_bytes()).expect("sent");
    for (first, last) in ranges {
        let reply = client.read_response().expect("a reply");
        reply.verify_range(first, last, HUGE).expect("the piece");
    }
    drop(client);
    eventually("the client is gone", || {
        edge.counter("connections_now") == 0
    });
    // The budget permits a whole block for a single byte.
    landed(&edge);
    let before = sent(&origin);
    let host = [("Host", "a"), ("Range", "bytes=52928800-52928800")];
    let reply = edge.get("/x", &host);
    reply
        .verify_range(52_928_800, 52_928_800, HUGE)
        .expect("the byte");
    let all = |record: &Record| record.sent_total >= before + MIB;
    assert!(origin.wait_for(all, SOON), "{:?}", asked(&origin).last());
}
