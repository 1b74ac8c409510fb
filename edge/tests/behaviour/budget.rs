//! One client can't make the edge fetch without bound, nor hold more than there is room for.

use std::net::IpAddr;

use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Origin, Record};

use crate::harness::{Edge, SOON, Setup, fresh, serving};
use crate::pieces::{asked, landed};

/// A file that no disk here could hold; its origin makes it up as it is asked.
const HUGE: u64 = 100_000_000_000;

const MIB: u64 = 1 << 20;

/// What the program may take beside its caches.
const MEMORY_MAX: u64 = 64 << 20;

/// An edge with blocks of a mebibyte before an origin with this file.
fn edge(origin: &Origin, mode: &str, lines: &[&str]) -> Edge {
    let setup = Setup::cached(origin)
        .cache(&format!("fill = \"{mode}\""))
        .cache("slice = \"1MiB\"");
    let setup = lines.iter().fold(setup, |setup, line| setup.cache(line));
    setup.start()
}

/// Places all over a file, by a multiplicative generator.
fn places(seed: u64, length: u64) -> impl Iterator<Item = u64> {
    let mut state = seed * 2 + 1;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 20) % length
    })
}

/// Asks for one byte on this connection.
fn one_byte(client: &mut Client, at: u64) -> Reply {
    let range = format!("bytes={at}-{at}");
    let reply = client.get("/x", &[("Range", &range)]).expect("a reply");
    reply.verify_range(at, at, HUGE).expect("the byte");
    reply
}

fn sent(origin: &Origin) -> u64 {
    origin.read_record(|record| record.sent_total)
}

// "a budget per client of bytes fetched but not sent, so that one-byte ranges can't make the edge pull a file of 100 GB"
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
        // A new connection from there is the same client.
        let mut client = edge.client();
        for at in places(2, HUGE).take(20) {
            one_byte(&mut client, at);
        }
        landed(&edge);
        let sent = self::sent(&origin);
        assert!(sent <= 6 * MIB, "{mode}: {sent} bytes for 80");
    }
}

// "per client": what one has used up is not missing to another.
#[test]
fn another_client_has_a_budget_of_its_own() {
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

// What is asked for is never refused for the budget, however large it is.
#[test]
fn what_is_wanted_is_no_matter_of_the_budget() {
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

// Nor does reading the end of something huge cost what lies before it.
#[test]
fn the_end_of_something_huge() {
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

/// What the memory tier of these tests may take.
const TIER: &str = "memory = \"8MiB\"";

/// Twice that.
const LARGE: u64 = 18_000_000;

/// Asserts that neither the tier nor the program has grown beyond what it may take.
fn assert_bounded(edge: &Edge) {
    let (bytes, limit) = (edge.cache_state("bytes"), edge.cache_state("limit"));
    assert!(bytes <= limit + 4 * MIB, "{bytes} of {limit}");
    let memory = edge.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes resident");
}

// An object larger than the memory tier goes through it, block by block.
#[test]
fn an_object_larger_than_memory_is_read_through_it() {
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

// Its blocks are dropped and fetched again, and are the right ones each time.
#[test]
fn blocks_are_dropped_and_fetched_again() {
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

// Those who stalled on an object larger than memory hold neither it nor the others.
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
            let mut client = edge.reluctant_client();
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
    // They go on where they stopped.
    let last = stalled
        .pop()
        .expect("eight")
        .read_to_end()
        .expect("the rest");
    assert_eq!(last.len() as u64, LARGE - 14_000_000);
    verify_offset(14_000_000, &last).expect("the right bytes");
}
