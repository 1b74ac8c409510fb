//! Tests of the validation of responses of which a client wants a range, or whose blocks are stored.

use sluice_lab::origin::{Origin, Resource};

use crate::caching_rules::{LENGTH, current, stale, stale_on_arrival};
use crate::harness::{Edge, assert_has_parameter, assert_hit, cache_status, serving, stored};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, assert_sent_once, check_range, filling, landed, one_version,
};

// The client requests a range of a stale response. After a 304 from the origin, the range is served
// from the stored bytes.
#[test]
fn a_range_of_a_stale_response_is_served_after_validation() {
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", current());
    let range = edge.get("/x", &[("Range", "bytes=5-9")]);
    range.verify_range(5, 9, LENGTH).expect("the range");
    assert_has_parameter(&range, "fwd-status=304");
    edge.get("/x", &[]).verify_whole(LENGTH).expect("the body");
    assert_eq!(origin.read_record(|record| record.sent_total), LENGTH);
}

/// Starts an origin and an edge that has the first block of a large object stored. The block is
/// stale, and the origin still serves this version.
fn stale_block(mode: &str) -> (Origin, Edge) {
    let origin = serving("/x", stale_on_arrival(Resource::offset(FILE), ""));
    let edge = filling(&origin, mode).start();
    check_range(&edge, 5, 14);
    assert_sent_once(&edge, &origin, BLOCK);
    origin.serve("/x", Resource::offset(FILE).cache_control("max-age=3600"));
    (origin, edge)
}

// Some blocks of a large object are stored and stale. After the validation they are used, and no
// byte is fetched twice.
#[test]
fn validation_keeps_the_stored_blocks() {
    for mode in MODES {
        let (origin, edge) = stale_block(mode);
        let validated = check_range(&edge, 5, 14);
        assert_has_parameter(&validated, "fwd-status=304");
        assert_sent_once(&edge, &origin, BLOCK);
        assert_hit(&check_range(&edge, 100, BLOCK - 1));
        // Blocks that are not stored are fetched and added to the stored ones.
        check_range(&edge, 2 * BLOCK, 2 * BLOCK + 9);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
    }
}

// Some blocks of a large object are stored and stale. A request for a missing range validates them
// with its fetch, and they stay in use.
#[test]
fn validation_by_a_missing_range_keeps_the_stored_blocks() {
    for mode in MODES {
        let (origin, edge) = stale_block(mode);
        check_range(&edge, 4 * BLOCK, 4 * BLOCK + 9);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
        assert_hit(&check_range(&edge, 5, 14));
    }
}

// Blocks of an old version are stored, and the origin has a new version. It responds with a part or
// with the whole file. No response may have bytes of both versions.
#[test]
fn another_version_of_a_large_object_replaces_all_of_it() {
    for (mode, ranges) in [("slice", true), ("slice", false), ("auto", true)] {
        let origin = serving("/x", stale_on_arrival(Resource::offset(FILE), ""));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 5, 14);
        landed(&edge);
        let new = Resource::offset(FILE).cache_control("max-age=3600");
        origin.serve("/x", new.version(1).ranges(ranges));
        for first in [5, 3 * BLOCK, 100] {
            let reply = ask_range(&edge, first, first + 9);
            let version = one_version(&reply, first, first + 9);
            assert_eq!(version, 1, "{mode} {ranges}: {}", cache_status(&reply));
        }
        let whole = edge.get("/x", &[]);
        whole.verify_version(1, 0).expect("one version");
        assert_eq!(whole.body.len() as u64, FILE);
    }
}
