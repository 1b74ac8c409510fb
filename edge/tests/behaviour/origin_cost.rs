//! Tests of the bytes that the origin must send for clients that disconnect, or that request few
//! bytes of large files. The client budget and the bytes in transit limit them. Other clients are
//! served as usual.

use std::net::IpAddr;

use sluice_lab::client::Client;
use sluice_lab::origin::{Latch, Origin, OriginOptions, Record, Resource, Seen};

use crate::harness::{
    Edge, SOON, Setup, assert_hit, cache_status, eventually, fresh, serving, wait_for_requests,
};
use crate::partial_objects::{BLOCK, FILE, MODES, asked, assert_sent_once, bytes, filling, landed};

const MIB: u64 = 1 << 20;

/// Length of a file larger than any disk of the test machine.
const HUGE: u64 = 100_000_000_000;

/// Length of a file larger than each client budget of these tests.
const LARGE: u64 = 8_000_000;

/// Upper bound of the bytes that are in transit on one connection when it is closed.
const ON_ITS_WAY: u64 = 512 << 10;

/// Starts an origin with small socket buffers, so that it soon blocks if the edge does not read.
fn wary() -> Origin {
    let options = OriginOptions {
        send_buffer: Some(64 << 10),
        ..OriginOptions::default()
    };
    Origin::start(options).expect("a free port on loopback")
}

/// Configures an edge with blocks of 1 MiB and a client budget of 2 MiB.
fn thrifty(origin: &Origin, mode: &str) -> Setup {
    Setup::cached(origin)
        .cache(&format!("fill = \"{mode}\""))
        .cache("slice = \"1MiB\"")
        .cache("client_budget = \"2MiB\"")
}

fn sent(origin: &Origin) -> u64 {
    origin.read_record(|record| record.sent_total)
}

#[test]
fn a_client_that_requests_many_files_and_disconnects_costs_little() {
    const MANY: u64 = 30;
    for mode in ["auto", "whole", "slice"] {
        let latch = Latch::closed();
        let origin = wary();
        origin.serve_rest(fresh(LARGE).hold_head(&latch));
        let edge = thrifty(&origin, mode).start();
        let clients: Vec<Client> = (0..MANY)
            .map(|n| {
                let mut client = edge.client();
                let sent = client.send("GET", &format!("/file-{n}"), &[], b"");
                sent.expect("sent");
                client
            })
            .collect();
        eventually("all are being fetched", || {
            edge.counter("flights_now") == MANY
        });
        drop(clients);
        latch.release();
        landed(&edge);
        let sent = sent(&origin);
        assert!(sent <= 2 * MIB + MANY * ON_ITS_WAY, "{mode}: {sent}");
    }
}

#[test]
fn heads_of_many_files_cost_little() {
    const MANY: u64 = 40;
    for mode in MODES {
        let origin = wary();
        origin.serve_rest(fresh(HUGE));
        let edge = thrifty(&origin, mode).start();
        for n in 0..MANY {
            let reply = edge.ask("HEAD", &format!("/file-{n}"), &[], b"");
            assert_eq!(reply.status, 200);
            assert_eq!(reply.header("content-length"), Some("100000000000"));
        }
        landed(&edge);
        let sent = sent(&origin);
        assert!(sent <= 3 * MIB + MANY * ON_ITS_WAY, "{mode}: {sent}");
    }
}

// The client requests one byte of each file, and the configuration reads ahead the whole file.
#[test]
fn read_ahead_counts_against_the_budget() {
    const MANY: u64 = 12;
    for mode in MODES {
        let origin = wary();
        origin.serve_rest(fresh(LARGE));
        let edge = thrifty(&origin, mode)
            .cache("read_ahead = \"whole\"")
            .start();
        for n in 0..MANY {
            let reply = edge.get(&format!("/file-{n}"), &[("Range", "bytes=0-0")]);
            reply.verify_range(0, 0, LARGE).expect("a byte");
        }
        let idle = || edge.counter("flights_now") == 0 && edge.counter("requests_now") == 0;
        eventually("no client reads", idle);
        let sent = sent(&origin);
        assert!(sent <= 4 * 2 * MIB, "{mode}: {sent} for {MANY} bytes");
    }
}

// The origin ignores Range and would send 50 GB before the requested byte. If the client does not
// wait, the edge must not read these bytes.
#[test]
fn bytes_before_a_distant_range_are_not_fetched_without_a_client() {
    for mode in MODES {
        let origin = wary();
        let choose = |seen: &Seen| fresh(HUGE).ranges(seen.id == 0);
        origin.serve("/x", Resource::dynamic(choose));
        let edge = thrifty(&origin, mode).start();
        let first = edge.get("/x", &[("Range", "bytes=0-0")]);
        first.verify_range(0, 0, HUGE).expect("the first byte");
        landed(&edge);
        let mut client = edge.client();
        let far = [("Range", "bytes=50000000000-50000000000")];
        client.send("GET", "/x", &far, b"").expect("sent");
        wait_for_requests(&origin, "/x", 2);
        drop(client);
        let over = |record: &Record| record.quiet();
        assert!(origin.wait_for(over, SOON), "{mode}: it is sent on and on");
        landed(&edge);
        let sent = sent(&origin);
        assert!(sent <= 8 * MIB, "{mode}: {sent}");
    }
}

// The origin ignores Range, and the requested byte is close enough that the edge reads the bytes
// before it while a client waits. When the client disconnects, the edge stops reading.
#[test]
fn bytes_before_a_nearby_range_are_fetched_only_while_a_client_waits() {
    const LONG: u64 = 60_000_000;
    for mode in MODES {
        let latch = Latch::at(2 * MIB);
        let held = latch.clone();
        let origin = wary();
        let choose = move |seen: &Seen| match seen.id {
            0 => fresh(LONG),
            _ => fresh(LONG).ranges(false).hold_body(&held),
        };
        origin.serve("/x", Resource::dynamic(choose));
        let edge = thrifty(&origin, mode).start();
        let first = edge.get("/x", &[("Range", "bytes=0-0")]);
        first.verify_range(0, 0, LONG).expect("the first byte");
        landed(&edge);
        let mut client = edge.client();
        let far = [("Range", "bytes=50000000-50000000")];
        client.send("GET", "/x", &far, b"").expect("sent");
        assert!(latch.wait_held(1, SOON));
        drop(client);
        eventually("it is gone", || edge.counter("requests_now") == 0);
        latch.release();
        landed(&edge);
        let sent = sent(&origin);
        assert!(sent <= 8 * MIB, "{mode}: {sent}");
    }
}

// The client receives every byte that is fetched for it, so its budget is not used up, although its
// ranges are small.
#[test]
fn small_ranges_in_order_cause_one_request_per_block() {
    const STEP: u64 = 16 << 10;
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode)
            .cache("client_budget = \"1MiB\"")
            .start();
        let mut client = edge.client();
        for first in (0..FILE).step_by(STEP as usize) {
            let last = (first + STEP).min(FILE) - 1;
            let range = bytes(first, last);
            let reply = client.get("/x", &[("Range", &range)]).expect("a reply");
            let right = reply.verify_range(first, last, FILE);
            right.unwrap_or_else(|wrong| panic!("{mode}: {wrong}"));
        }
        assert_sent_once(&edge, &origin, FILE);
        let asked = asked(&origin);
        let blocks = FILE.div_ceil(BLOCK) as usize;
        assert!(asked.len() <= blocks + 2, "{mode}: {asked:?}");
    }
}

// The client requests all bytes of a download larger than its budget. Other objects are stored
// meanwhile.
#[test]
fn a_download_larger_than_the_budget_does_not_prevent_other_storing() {
    for mode in ["whole", "lock", "slice", "auto"] {
        let latch = Latch::at(100_000);
        let origin = serving("/x", fresh(LARGE).hold_body(&latch));
        origin.serve("/small", fresh(100));
        origin.serve("/middling", fresh(FILE));
        let edge = thrifty(&origin, mode).start();
        let mut client = edge.client();
        client.send("GET", "/x", &[], b"").expect("sent");
        client.read_head().expect("a head");
        for (path, length) in [("/small", 100), ("/middling", FILE)] {
            let whole = edge.get(path, &[]);
            whole.verify_whole(length).expect("all of it");
            let again = edge.get(path, &[]);
            again.verify_whole(length).expect("all of it");
            let status = cache_status(&again);
            assert!(status.starts_with("sluice; hit"), "{mode} {path}: {status}");
            assert_eq!(origin.read_record(|record| record.sent_for(path)), length);
        }
        latch.release();
        let body = client.read_some(LARGE as usize).expect("all of it");
        sluice_lab::offset::verify_offset(0, &body).expect("the right bytes");
    }
}

// A budget of 0 means no limit. For each requested byte its whole block is fetched.
#[test]
fn a_budget_of_0_means_no_limit() {
    for mode in MODES {
        let origin = serving("/x", fresh(40 * BLOCK));
        let edge = filling(&origin, mode).cache("client_budget = 0").start();
        let mut client = edge.client();
        for block in 0..40 {
            let range = bytes(block * BLOCK, block * BLOCK);
            let reply = client.get("/x", &[("Range", &range)]).expect("a reply");
            reply
                .verify_range(block * BLOCK, block * BLOCK, 40 * BLOCK)
                .expect("a byte");
        }
        assert_sent_once(&edge, &origin, 40 * BLOCK);
        assert_eq!(asked(&origin).len(), 40, "{mode}");
    }
}

/// Requests `many` single bytes on one connection, `apart` bytes from one another.
fn pick(edge: &Edge, length: u64, from: u64, apart: u64, many: u64) {
    let mut client = edge.client();
    for at in (from..).step_by(apart as usize).take(many as usize) {
        let reply = client.get("/x", &[("Range", &bytes(at, at))]);
        let reply = reply.expect("a reply");
        let right = reply.verify_range(at, at, length);
        right.unwrap_or_else(|wrong| panic!("{at}: {wrong} ({:?})", cache_status(&reply)));
    }
}

// Requests for single bytes leave an object in thousands of parts. Other clients must still be able
// to use it.
#[test]
fn thousands_of_single_bytes_do_no_harm_to_others() {
    const LENGTH: u64 = 60_000_000;
    const FROM: u64 = 20_000_000;
    for (mode, apart, many) in [("auto", 1000, 100), ("slice", 8000, 1050)] {
        let origin = serving("/x", fresh(LENGTH));
        let edge = filling(&origin, mode)
            .cache("client_budget = \"1MiB\"")
            .start();
        // The first requests use up the client's budget. After that only the requested bytes are
        // fetched, and no longer their blocks.
        pick(&edge, LENGTH, 70_000, 270_000, 10);
        std::thread::scope(|scope| {
            for hand in 0..4 {
                let (edge, from) = (&edge, FROM + hand * many * apart);
                scope.spawn(move || pick(edge, LENGTH, from, apart, many));
            }
        });
        landed(&edge);
        let cost = sent(&origin);
        assert!(cost <= 4 * MIB, "{mode}: {cost} bytes for 4 times {many}");
        let from: IpAddr = "127.0.0.2".parse().expect("an address");
        let mut other = Client::connect_from(from, edge.http).expect("connected");
        let (first, last) = (FROM - 500_000, FROM + 2_500_000);
        for round in 0..2 {
            let range = bytes(first, last);
            let reply = other.get("/x", &[("Range", &range)]).expect("a reply");
            let right = reply.verify_range(first, last, LENGTH);
            right.unwrap_or_else(|wrong| panic!("{mode}: {wrong} ({:?})", cache_status(&reply)));
            if round == 1 {
                assert_hit(&reply);
            }
        }
        // The cache still stores other objects.
        let range = bytes(LENGTH - 10, LENGTH - 1);
        for round in 0..2 {
            let reply = other.get("/x", &[("Range", &range)]).expect("a reply");
            reply
                .verify_range(LENGTH - 10, LENGTH - 1, LENGTH)
                .expect("its end");
            if round == 1 {
                assert_hit(&reply);
            }
        }
    }
}
