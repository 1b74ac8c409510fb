//! Tests of objects without a strong validator, which have only one fetch at a time. Each response
//! is complete, and in the end the object is stored.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Modified, Resource, Tag};

use crate::harness::{Edge, assert_hit, cache_status, fresh, serving};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, asked, check_range, filling, landed, send_range, send_whole,
};

/// Maximum number of requests at the origin in these tests.
const REQUESTS_MAX: usize = 5;

/// Returns files whose responses may not be combined: one has a weak entity tag, and one has no
/// validators.
fn kinds() -> [(&'static str, Resource); 2] {
    let bare = fresh(FILE).tag(Tag::None).modified(Modified::None);
    [("weak", fresh(FILE).tag(Tag::Weak)), ("none", bare)]
}

fn check_whole(reply: &Reply, what: &str) {
    let right = reply.verify_whole(FILE);
    right.unwrap_or_else(|wrong| panic!("{what}: {wrong} ({:?})", cache_status(reply)));
}

/// Asserts that the whole file is stored, and that the origin has received few requests.
fn assert_stored(edge: &Edge, origin: &sluice_lab::origin::Origin, what: &str) {
    landed(edge);
    let asked = asked(origin);
    assert!(asked.len() <= REQUESTS_MAX, "{what}: {asked:?}");
    let whole = edge.get("/x", &[]);
    check_whole(&whole, what);
    assert_hit(&whole);
    assert_hit(&check_range(edge, 1_000_000, 2_000_000));
    assert_eq!(
        self::asked(origin),
        asked,
        "{what}: a hit causes no request"
    );
}

// The first request is for a range of several blocks. The response must not be cut off after the
// first block.
#[test]
fn a_cold_range_of_several_blocks_is_complete() {
    let ranges = [(200_000, 300_000), (10, 2_400_000), (10, FILE - 1)];
    for mode in MODES {
        for (kind, file) in kinds() {
            for (first, last) in ranges {
                let origin = serving("/x", file.clone());
                let edge = filling(&origin, mode).start();
                let reply = ask_range(&edge, first, last);
                let right = reply.verify_range(first, last, FILE);
                right.unwrap_or_else(|wrong| panic!("{mode} {kind} {first}-{last}: {wrong}"));
                let asked = asked(&origin);
                assert!(asked.len() <= REQUESTS_MAX, "{mode} {kind}: {asked:?}");
            }
        }
    }
}

// The first request is for an open range or for the whole file. The response must be complete, and
// the file is stored afterwards.
#[test]
fn a_cold_request_for_the_whole_is_complete_and_stored() {
    for mode in MODES {
        for (kind, file) in kinds() {
            let what = format!("{mode} {kind}");
            let origin = serving("/x", file);
            let edge = filling(&origin, mode).start();
            check_whole(&edge.get("/x", &[]), &what);
            assert_stored(&edge, &origin, &what);
        }
    }
}

// A small range is stored. Other bytes can't be added to it, so a larger request causes a fetch of
// the whole file.
#[test]
fn a_larger_request_after_a_small_range_is_complete_and_stored() {
    for mode in MODES {
        for (kind, file) in kinds() {
            for wide in [None, Some((50, 700_000))] {
                let what = format!("{mode} {kind} {wide:?}");
                let origin = serving("/x", file.clone());
                let edge = filling(&origin, mode).start();
                check_range(&edge, 100, 109);
                landed(&edge);
                for _ in 0..2 {
                    match wide {
                        None => check_whole(&edge.get("/x", &[]), &what),
                        Some((first, last)) => drop(check_range(&edge, first, last)),
                    }
                }
                check_whole(&edge.get("/x", &[]), &what);
                assert_stored(&edge, &origin, &what);
            }
        }
    }
}

// The client requests several ranges. The first one is stored, and the last one is not. All must
// come from one version.
#[test]
fn several_ranges_of_which_the_first_is_stored_are_complete() {
    let ranges = [(0, 9), (2_000_000, 2_000_009)];
    for mode in MODES {
        for (kind, file) in kinds() {
            let what = format!("{mode} {kind}");
            let origin = serving("/x", file);
            let edge = filling(&origin, mode).start();
            check_range(&edge, 0, 9);
            landed(&edge);
            let fields = [("Range", "bytes=0-9,2000000-2000009")];
            for _ in 0..2 {
                let reply = edge.get("/x", &fields);
                let right = reply.verify_parts(&ranges, FILE);
                right.unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            }
            check_whole(&edge.get("/x", &[]), &what);
            assert_stored(&edge, &origin, &what);
        }
    }
}

// Many clients concurrently request various parts of the file. One fetch serves them.
#[test]
fn a_crowd_of_all_kinds_of_requests_is_served_by_few_fetches() {
    for mode in MODES {
        for (kind, file) in kinds() {
            let what = format!("{mode} {kind}");
            let origin = serving("/x", file);
            let edge = filling(&origin, mode).start();
            check_range(&edge, 0, 9);
            landed(&edge);
            let ranges: Vec<_> = (0..4)
                .map(|n| (2 * n * BLOCK, (2 * n + 1) * BLOCK + 9))
                .collect();
            let mut clients: Vec<_> = ranges
                .iter()
                .map(|&(first, last)| (send_range(&edge, first, last), send_whole(&edge)))
                .collect();
            for ((part, whole), (first, last)) in clients.iter_mut().zip(&ranges) {
                let part = part.read_response().expect("a reply");
                let right = part.verify_range(*first, *last, FILE);
                right.unwrap_or_else(|wrong| panic!("{what} {first}-{last}: {wrong}"));
                check_whole(&whole.read_response().expect("a reply"), &what);
            }
            assert_stored(&edge, &origin, &what);
        }
    }
}
