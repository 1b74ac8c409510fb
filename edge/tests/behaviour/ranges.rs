//! Tests of byte ranges, which are served as soon as their bytes have arrived.

use std::thread;
use std::time::Duration;

use sluice_lab::client::{Client, Closing};
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Framing, Latch, Origin, Resource};

use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, eventually, fresh, serving,
    wait_for_requests,
};

const FILE: u64 = 10 << 20;

/// Starts an edge that has stored a file of 100,000 bytes.
fn stored() -> (Origin, Edge) {
    let origin = serving("/x", fresh(100_000).vary("Accept-Encoding"));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]).verify_whole(100_000).expect("the body");
    (origin, edge)
}

/// Starts an edge and a client whose request causes a fetch of the whole file. The latch limits the
/// bytes that the origin sends.
fn filling(latch: &Latch, limit: u64) -> (Origin, Edge, Client) {
    let origin = serving("/x", fresh(FILE).hold_body(latch));
    let edge = Setup::cached(&origin).cache("fill = \"whole\"").start();
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client.read_head().expect("a head");
    assert!(latch.wait_passed(limit, SOON));
    (origin, edge, client)
}

// Ranges like `0-9`, `-10` (the last bytes) and `10-` (up to the end).
#[test]
fn single_ranges_of_a_stored_object_are_served() {
    let (origin, edge) = stored();
    let cases = [
        ("bytes=0-0", 0, 0),
        ("bytes=0-99999", 0, 99_999),
        ("bytes=65535-65536", 65_535, 65_536),
        ("bytes=50000-", 50_000, 99_999),
        ("bytes=99999-", 99_999, 99_999),
        ("bytes=-1", 99_999, 99_999),
        ("bytes=-70000", 30_000, 99_999),
        ("bytes=-1000000", 0, 99_999),
        ("bytes=90000-1000000", 90_000, 99_999),
        ("Bytes = 5-9", 5, 9),
    ];
    for (value, first, last) in cases {
        let reply = edge.get("/x", &[("Range", value)]);
        if value.starts_with('B') && reply.status == 200 {
            continue; // The range unit is case-insensitive; spaces may be treated as an error.
        }
        reply.verify_range(first, last, 100_000).expect(value);
        assert_hit(&reply);
        assert!(reply.header("etag").is_some() && reply.header("accept-ranges").is_some());
    }
    assert_eq!(origin.requests().len(), 1);
}

// Several ranges are sent as multipart/byteranges.
#[test]
fn several_ranges_are_sent_as_parts() {
    let (_origin, edge) = stored();
    let reply = edge.get("/x", &[("Range", "bytes=0-9, 50000-50009, -10")]);
    let ranges = [(0, 9), (50_000, 50_009), (99_990, 99_999)];
    reply.verify_parts(&ranges, 100_000).expect("three parts");
    assert_hit(&reply);
    let backwards = edge.get("/x", &[("Range", "bytes=50000-50009,0-9")]);
    let ranges = [(50_000, 50_009), (0, 9)];
    backwards.verify_parts(&ranges, 100_000).expect("as asked");
    let some = edge.get("/x", &[("Range", "bytes=7-9,200000-200001")]);
    some.verify_range(7, 9, 100_000).expect("the one there is");
}

// Overlapping ranges are merged. A Range with too many ranges is ignored, and the whole file is
// sent.
#[test]
fn overlapping_ranges_are_merged_and_too_many_are_ignored() {
    let (_origin, edge) = stored();
    let merged = edge.get("/x", &[("Range", "bytes=0-99,50-199,150-299")]);
    merged.verify_range(0, 299, 100_000).expect("one range");
    let near = edge.get("/x", &[("Range", "bytes=0-99,100-199")]);
    near.verify_range(0, 199, 100_000).expect("one range");
    let many: Vec<String> = (0..1000)
        .map(|n| format!("{}-{}", n * 90, n * 90))
        .collect();
    let reply = edge.get("/x", &[("Range", &format!("bytes={}", many.join(",")))]);
    reply.verify_whole(100_000).expect("all of it instead");
    let nested = "bytes=".to_owned() + &["0-"; 60].join(",");
    let reply = edge.get("/x", &[("Range", &nested)]);
    assert!(reply.body.len() <= 100_000, "never more than there is");
}

// A range beyond the end is answered with 416. A malformed Range is ignored (RFC 9110 14.2).
#[test]
fn ranges_beyond_the_end_are_refused_and_malformed_ones_ignored() {
    let (_origin, edge) = stored();
    for value in ["bytes=100000-", "bytes=200000-200001,300000-", "bytes=-0"] {
        let reply = edge.get("/x", &[("Range", value)]);
        assert_eq!(reply.status, 416, "{value}");
        assert_eq!(reply.header("content-range"), Some("bytes */100000"));
    }
    for value in [
        "bytes=9-5",
        "bytes=",
        "bytes=a-b",
        "lines=0-5",
        "bytes=0-5,x",
        "bytes=--5",
    ] {
        let reply = edge.get("/x", &[("Range", value)]);
        reply.verify_whole(100_000).expect(value);
    }
    let head = edge.ask("HEAD", "/x", &[("Range", "bytes=0-9")], b"");
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("100000"))
    );
    let twice = edge.get("/x", &[("Range", "bytes=0-9"), ("Range", "bytes=0-99")]);
    twice.verify_whole(100_000).expect("two fields say nothing");
}

#[test]
fn if_range_requires_the_same_version() {
    let (_origin, edge) = stored();
    let tag = edge
        .get("/x", &[])
        .header("etag")
        .expect("a tag")
        .to_owned();
    let ask = |validator: &str| edge.get("/x", &[("Range", "bytes=5-9"), ("If-Range", validator)]);
    ask(&tag).verify_range(5, 9, 100_000).expect("the range");
    let date = "Thu, 01 Jan 2026 00:00:00 GMT";
    ask(date).verify_range(5, 9, 100_000).expect("the range");
    let weak = format!("W/{tag}");
    for other in [
        "\"other\"",
        weak.as_str(),
        "Fri, 02 Jan 2026 00:00:00 GMT",
        "nonsense",
    ] {
        ask(other).verify_whole(100_000).expect(other);
    }
}

#[test]
fn a_received_range_is_served_while_the_fill_runs() {
    let latch = Latch::at(1_000_000);
    let (origin, edge, _filling) = filling(&latch, 1_000_000);
    for first in [0, 500_000, 900_000] {
        let range = format!("bytes={first}-{}", first + 9999);
        let reply = edge.get("/x", &[("Range", &range)]);
        reply.verify_range(first, first + 9999, FILE).expect(&range);
    }
    assert!(latch.wait_held(1, SOON), "the fill has not moved meanwhile");
    assert_eq!(origin.requests().len(), 1);
}

// The range is served when the running fetch reaches its bytes, before the fetch ends.
#[test]
fn a_range_further_on_is_served_when_the_fill_reaches_it() {
    let latch = Latch::at(1_000_000);
    let (origin, edge, _filling) = filling(&latch, 1_000_000);
    let mut waiting = edge.client();
    let range = [("Range", "bytes=5000000-5000009")];
    waiting.send("GET", "/x", &range, b"").expect("sent");
    let head = waiting.read_head().expect("the head is known already");
    assert_eq!(head.status, 206);
    assert_eq!(
        head.header("content-range"),
        Some("bytes 5000000-5000009/10485760")
    );
    let soon = Duration::from_millis(50);
    assert_eq!(waiting.wait_closed(soon).expect("a socket"), Closing::Open);
    latch.advance_to(5_000_010);
    assert_eq!(waiting.read_some(10).expect("the range"), b"005000000\n");
    assert!(latch.wait_held(1, SOON), "the fill is not at its end");
    assert_eq!(origin.requests().len(), 1);
}

// Three clients request ranges of a 10 MiB file that is not stored, at the same time: two in the
// middle, one near the end.
#[test]
fn three_ranges_of_a_cold_file_cost_one_fetch() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(FILE).vary("Accept-Encoding").hold_head(&latch));
    let edge = Setup::cached(&origin).cache("fill = \"whole\"").start();
    let firsts = [5_000_000, 5_000_100, 10_485_000];
    let mut clients = firsts.map(|first| {
        let mut client = edge.client();
        let range = format!("bytes={first}-{}", first + 9);
        client
            .send("GET", "/x", &[("Range", &range)], b"")
            .expect("sent");
        client
    });
    wait_for_requests(&origin, "/x", 1);
    latch.release();
    for (client, first) in clients.iter_mut().zip(firsts) {
        let reply = client.read_response().expect("a reply");
        reply
            .verify_range(first, first + 9, FILE)
            .expect("the range");
    }
    let all = |record: &sluice_lab::origin::Record| record.sent_total == FILE;
    assert!(origin.wait_for(all, SOON));
    assert_eq!(origin.requests().len(), 1);
    eventually("all has arrived", || edge.counter("flights_now") == 0);
    assert_hit(&edge.get("/x", &[("Range", "bytes=-10")]));
    assert_eq!(origin.read_record(|record| record.sent_total), FILE);
}

#[test]
fn riders_join_at_any_offset() {
    let latch = Latch::at(300_000);
    let (origin, edge, _filling) = filling(&latch, 300_000);
    thread::scope(|scope| {
        let riders: Vec<_> = (0..20u64)
            .map(|n| {
                let edge = &edge;
                scope.spawn(move || {
                    let first = n * 524_287;
                    let range = format!("bytes={first}-");
                    let reply = edge.get("/x", &[("Range", &range)]);
                    reply
                        .verify_range(first, FILE - 1, FILE)
                        .expect("to the end");
                })
            })
            .collect();
        crate::harness::eventually("all share the fetch", || edge.counter("requests_now") == 21);
        for step in 1..=10 {
            latch.advance_to(step * FILE / 10);
        }
        latch.release();
        for rider in riders {
            rider.join().expect("a rider");
        }
    });
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(origin.read_record(|record| record.sent_total), FILE);
}

// Each part of the multipart response is sent as soon as its bytes arrive.
#[test]
fn several_ranges_of_a_running_fill_are_served() {
    let latch = Latch::at(1_000_000);
    let (origin, edge, _filling) = filling(&latch, 1_000_000);
    let mut client = edge.client();
    let range = [("Range", "bytes=0-9,4000000-4000009,2000000-2000009")];
    client.send("GET", "/x", &range, b"").expect("sent");
    latch.advance_to(4_500_000);
    let reply = client.read_response().expect("a reply");
    let ranges = [(0, 9), (4_000_000, 4_000_009), (2_000_000, 2_000_009)];
    reply.verify_parts(&ranges, FILE).expect("three parts");
    assert_eq!(origin.requests().len(), 1);
}

// While the length of the object is unknown, the edge can't send a 206. Once the object is
// complete, it can.
#[test]
fn ranges_of_an_object_of_unknown_length_are_served_once_complete() {
    let latch = Latch::at(30_000);
    let chunked = fresh(100_000)
        .framing(Framing::Chunked(10_000))
        .hold_body(&latch);
    let origin = serving("/x", chunked);
    let edge = Setup::cached(&origin).cache("fill = \"whole\"").start();
    let mut client = edge.client();
    let range = [("Range", "bytes=20000-20009")];
    client.send("GET", "/x", &range, b"").expect("sent");
    let head = client.read_head().expect("a head");
    assert_eq!((head.status, head.header("content-range")), (200, None));
    latch.release();
    drop(client);
    edge.get("/x", &[])
        .verify_whole(100_000)
        .expect("all of it");
    let reply = edge.get("/x", &range);
    reply
        .verify_range(20_000, 20_009, 100_000)
        .expect("known now");
    assert_hit(&reply);
    assert_eq!(origin.requests().len(), 1);
}

// On a route without a cache, the origin receives Range and sends the ranges.
#[test]
fn ranges_are_forwarded_on_uncached_routes() {
    let origin = serving("/pass/x", Resource::offset(FILE));
    let edge = Setup::cached(&origin).start();
    let reply = edge.get("/pass/x", &[("Range", "bytes=5000000-5000009")]);
    reply
        .verify_range(5_000_000, 5_000_009, FILE)
        .expect("the range");
    let several = edge.get("/pass/x", &[("Range", "bytes=0-9,100-109")]);
    several
        .verify_parts(&[(0, 9), (100, 109)], FILE)
        .expect("two parts");
    // The origin updates its count after it has sent the last byte, so the test waits for the
    // count.
    let expected = 10 + several.body.len() as u64;
    eventually("the origin has sent just these bytes", || {
        origin.read_record(|record| record.sent_total) == expected
    });
}

// The origin ignores Range. The edge fetches the whole file and serves ranges of it.
#[test]
fn ranges_are_served_for_an_origin_without_range_support() {
    let origin = serving("/x", fresh(100_000).ranges(false));
    let edge = Setup::cached(&origin).start();
    let cold = edge.get("/x", &[("Range", "bytes=70000-70009")]);
    cold.verify_range(70_000, 70_009, 100_000)
        .expect("the range");
    assert_has_parameter(&cold, "stored");
    assert_eq!(origin.requests().len(), 1);
}

// No range of an empty body is satisfiable.
#[test]
fn an_empty_body_has_no_ranges() {
    let origin = serving("/x", fresh(0));
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        let all = edge.get("/x", &[]);
        assert_eq!((all.status, all.body.len()), (200, 0));
        let none = edge.get("/x", &[("Range", "bytes=0-")]);
        assert_eq!(none.status, 416);
        assert_eq!(none.header("content-range"), Some("bytes */0"));
        verify_offset(0, &all.body).expect("nothing");
    }
}
