//! Tests of bodies that end early, and of partial responses that are shorter than requested. The
//! number of requests to the origin for one client is limited, and Cache-Status has the reason.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sluice_lab::client::Reply;
use sluice_lab::origin::{BadChunk, Ending, Fault, Framing, Modified, Resource, Seen, Tag};

use crate::harness::{Edge, Setup, assert_hit, cache_status, fresh, origin, serving};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, asked, by_range, check_range, filling, good, landed,
    one_version, wanted,
};

const ALL_MODES: [&str; 4] = ["whole", "lock", "slice", "auto"];

/// Most requests that the origin may receive for one client if every body ends early.
const REQUESTS_MAX: usize = 2;

/// Length of the small bodies in bytes.
const LENGTH: u64 = 5000;

fn cut(after: u64, ending: Ending) -> Fault {
    Fault::CutBody { after, ending }
}

/// Returns responses with bodies that end early, each with a description.
fn short_bodies() -> Vec<(&'static str, Resource)> {
    let bare = || fresh(LENGTH).tag(Tag::None).modified(Modified::None);
    let chunked = || fresh(LENGTH).framing(Framing::Chunked(1000));
    vec![
        ("no byte", bare().fault(cut(0, Ending::Fin))),
        ("10 bytes", bare().fault(cut(10, Ending::Fin))),
        ("10 bytes and a reset", bare().fault(cut(10, Ending::Reset))),
        (
            "a too large Content-Length",
            bare().fault(Fault::LengthTooLong(7)),
        ),
        ("no range", bare().ranges(false).fault(cut(10, Ending::Fin))),
        (
            "no byte, with a tag",
            fresh(LENGTH).fault(cut(0, Ending::Fin)),
        ),
        (
            "10 bytes, with a tag",
            fresh(LENGTH).fault(cut(10, Ending::Fin)),
        ),
        (
            "10 bytes of the whole, with a tag",
            fresh(LENGTH).ranges(false).fault(cut(10, Ending::Fin)),
        ),
        (
            "no last chunk",
            chunked().fault(Fault::Chunk(BadChunk::NoLast)),
        ),
        ("10 chunked bytes", chunked().fault(cut(10, Ending::Fin))),
    ]
}

/// Asserts that a response is truncated or an error with a named reason, and has no parameter that
/// does not apply.
fn assert_explained(reply: &Reply, how: &str) {
    let status = cache_status(reply);
    assert!(!status.contains("vary-miss"), "{how}: {status}");
    match reply.status {
        502..=504 => assert!(status.contains("detail="), "{how}: {status}"),
        200 | 206 => {
            let range = reply.content_range();
            let expected = range.map_or(LENGTH, |range| range.last - range.first + 1);
            let is_all = reply.body.len() as u64 == expected;
            assert!(reply.truncated() || is_all, "{how}: {status}");
        }
        other => panic!("{how}: {other} {status}"),
    }
}

#[test]
fn a_body_that_ends_early_causes_at_most_two_requests() {
    for mode in ALL_MODES {
        let origin = origin();
        let edge = filling(&origin, mode).start();
        for (n, (how, resource)) in short_bodies().into_iter().enumerate() {
            for (m, range) in [
                None,
                Some("bytes=0-9"),
                Some("bytes=100-199"),
                Some("bytes=-5"),
            ]
            .into_iter()
            .enumerate()
            {
                let path = format!("/{n}/{m}");
                origin.serve(&path, resource.clone());
                let fields: Vec<_> = range.iter().map(|range| ("Range", *range)).collect();
                let reply = edge.get(&path, &fields);
                let how = format!("{mode}: {how}, {range:?}");
                assert_explained(&reply, &how);
                landed(&edge);
                let requests: Vec<_> = origin.read_record(|record| {
                    let seen = record.of(&path);
                    seen.map(|seen| seen.header("range").map(str::to_owned))
                        .collect()
                });
                // A 206 with a wrong length is unusable, so each try costs a second request, without Range.
                let tries = requests.iter().filter(|range| range.is_none()).count();
                let is_wrong_part = how.contains("too large") && tries < requests.len();
                let counted = if is_wrong_part { tries } else { requests.len() };
                assert!(counted <= REQUESTS_MAX, "{how}: {requests:?}");
            }
        }
    }
}

// Several clients wait for one fetch, whose body ends before their bytes. They do not send a
// request each.
#[test]
fn clients_that_wait_for_a_body_that_ends_early_share_the_next_fetch() {
    let bare = fresh(LENGTH).tag(Tag::None).modified(Modified::None);
    let origin = serving("/x", bare.fault(cut(0, Ending::Fin)));
    let edge = Setup::cached(&origin).start();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..10)
            .map(|_| scope.spawn(|| edge.get("/x", &[])))
            .collect();
        for client in clients {
            assert_explained(&client.join().expect("no panic"), "10 clients");
        }
    });
    assert!(origin.requests().len() <= 2 * 10, "{:?}", asked(&origin));
}

// The bodies of some blocks always end early. Fetches of another block fail four times with 503,
// which says nothing about bodies, so its client has them repeated.
#[test]
fn bodies_that_end_early_do_not_use_up_the_tries_of_another_range() {
    const FAILURES: usize = 4;
    let broken_blocks = 4..9;
    for mode in MODES {
        let failures = AtomicUsize::new(0);
        let is_broken = broken_blocks.clone();
        let choose = move |seen: &Seen| match wanted(seen).0 / BLOCK {
            1 if failures.fetch_add(1, Ordering::Relaxed) < FAILURES => Resource::status(503),
            block if is_broken.contains(&block) => good(seen).fault(cut(0, Ending::Fin)),
            _ => good(seen),
        };
        let origin = serving("/x", Resource::dynamic(choose));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        let is_done = AtomicBool::new(false);
        let reply = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    for block in broken_blocks.clone() {
                        ask_range(&edge, block * BLOCK, block * BLOCK + 9);
                    }
                }
            });
            let reply = ask_range(&edge, 0, 2 * BLOCK - 1);
            is_done.store(true, Ordering::Relaxed);
            reply
        });
        let right = reply.verify_range(0, 2 * BLOCK - 1, FILE);
        right.unwrap_or_else(|wrong| panic!("{mode}: {wrong} ({})", cache_status(&reply)));
    }
}

/// Requests ranges and the whole file, which must be complete, from an origin that sends at most
/// `limit` bytes in each 206.
fn capped(mode: &str, limit: u64) {
    for (first, last) in [(0, 1_048_575), (1_200_000, 1_200_009), (700_000, 2_100_000)] {
        let ranged = move |_: &_| fresh(FILE).fault(Fault::ShortRange(limit));
        let origin = serving("/x", by_range(ranged, good));
        let edge = filling(&origin, mode).start();
        check_range(&edge, first, last);
        landed(&edge);
        let requests = asked(&origin);
        assert!(requests.len() <= 8, "{mode}, {limit}: {requests:?}");
        complete(&edge, &requests);
        assert!(
            asked(&origin).len() <= 10,
            "{mode}, {limit}: {:?}",
            asked(&origin)
        );
    }
}

/// Requests the whole file, then ranges of it, which are stored.
fn complete(edge: &Edge, requests: &[String]) {
    let whole = edge.get("/x", &[]);
    assert_eq!(whole.status, 200, "{requests:?}: {}", cache_status(&whole));
    one_version(&whole, 0, FILE - 1);
    landed(edge);
    assert_hit(&edge.get("/x", &[]));
    assert_hit(&check_range(edge, 1_700_000, 1_700_009));
}

// An origin may send fewer bytes than a Range requests (RFC 9110 15.3.7). Once several responses
// were much shorter, the whole file is fetched without Range.
#[test]
fn an_origin_that_limits_its_partial_responses_is_served_whole() {
    for mode in ALL_MODES {
        for limit in [1, 1000, 60_000] {
            capped(mode, limit);
        }
    }
}

// The origin limits its responses to all requests, so no request brings more than 1,000 bytes.
#[test]
fn an_origin_that_limits_all_responses_receives_a_limited_number_of_requests() {
    for mode in ALL_MODES {
        let limited = |_: &_| fresh(FILE).fault(Fault::ShortRange(1000));
        let cut_whole = |_: &_| fresh(FILE).fault(cut(1000, Ending::Fin));
        let origin = serving("/x", by_range(limited, cut_whole));
        let edge = filling(&origin, mode).start();
        for (first, last) in [(0, 99_999), (5000, 5009)] {
            let before = origin.requests().len();
            let reply = ask_range(&edge, first, last);
            landed(&edge);
            let status = cache_status(&reply).to_owned();
            assert!(!status.contains("vary-miss"), "{mode}: {status}");
            let requests = asked(&origin).split_off(before);
            assert!(requests.len() <= 10, "{mode}: {requests:?}");
        }
    }
}
