//! Tests of Cache-Status for partially stored responses and for shared fetches (RFC 9211).

use sluice_lab::origin::{Latch, Origin, Resource, Seen};

use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, assert_reason, cache_status, eventually,
    serving,
};
use crate::partial_objects::{BLOCK, MODES, asked, check_range, filling, good, landed, send_range};

/// Starts an edge that has stored the first block of `/x`. The latch holds all further responses of
/// the origin.
fn begun(mode: &str, latch: &Latch) -> (Origin, Edge) {
    let held = latch.clone();
    let choose = move |seen: &Seen| match seen.id {
        0 => good(seen),
        _ => good(seen).hold_head(&held),
    };
    let origin = serving("/x", Resource::dynamic(choose));
    let edge = filling(&origin, mode).start();
    check_range(&edge, 0, 9);
    landed(&edge);
    (origin, edge)
}

// All requests wait for one fetch. Cache-Status must show that they were not hits, and that one
// fetch served them.
#[test]
fn a_request_that_waited_for_another_s_fetch_is_not_a_hit() {
    const CROWD: usize = 20;
    for mode in MODES {
        let latch = Latch::closed();
        let (origin, edge) = begun(mode, &latch);
        let mut clients: Vec<_> = (0..CROWD)
            .map(|_| send_range(&edge, 1_048_576, 1_048_585))
            .collect();
        let all = || edge.counter("requests_now") == CROWD as u64;
        eventually("all wait", all);
        assert!(latch.wait_held(1, SOON));
        latch.release();
        let mut collapsed = 0;
        for client in &mut clients {
            let reply = client.read_response().expect("a reply");
            let status = cache_status(&reply);
            assert!(!status.contains("hit"), "{mode}: {status}");
            assert!(status.contains("fwd="), "{mode}: {status}");
            collapsed += usize::from(status.contains("collapsed"));
        }
        assert_eq!(collapsed, CROWD - 1, "{mode}: all but the first");
        assert_eq!(asked(&origin).len(), 2, "{mode}: {:?}", asked(&origin));
        // The fetched bytes are stored now, so another request for them is a hit.
        landed(&edge);
        assert_hit(&check_range(&edge, 1_048_576, 1_048_585));
    }
}

// The first bytes are stored and the others are fetched by this request itself. Cache-Status must
// not have `collapsed`.
#[test]
fn a_request_that_fetched_its_missing_bytes_is_not_collapsed() {
    for mode in MODES {
        let latch = Latch::closed();
        latch.release();
        let (origin, edge) = begun(mode, &latch);
        let reply = check_range(&edge, 100_000, BLOCK + 100_000);
        let status = cache_status(&reply);
        assert!(!status.contains("hit"), "{mode}: {status}");
        assert!(!status.contains("collapsed"), "{mode}: {status}");
        assert_has_parameter(&reply, "fwd=partial");
        assert_eq!(asked(&origin).len(), 2, "{mode}: {:?}", asked(&origin));
    }
}

// The origin can't be reached. `fwd` says why the cache forwarded the request, and `detail` why
// there is no response (RFC 9211 2.2).
#[test]
fn an_error_response_says_why_the_request_was_forwarded() {
    let edge = Setup::of_servers(vec!["http://127.0.0.1:1".to_owned()]).start();
    for (method, expected) in [
        ("GET", "sluice; fwd=uri-miss; detail=connect-failed"),
        ("POST", "sluice; fwd=method; detail=connect-failed"),
    ] {
        let reply = edge.ask(method, "/x", &[], b"");
        assert_eq!(reply.status, 502);
        assert_eq!(cache_status(&reply), expected, "{method}");
    }
}

// RFC 9211 2: only caches that handled a request add Cache-Status.
#[test]
fn an_error_response_without_a_cache_has_no_cache_status() {
    let edge = Setup::of_servers(vec!["http://127.0.0.1:1".to_owned()])
        .tables("allow_methods = [\"GET\"]\n")
        .start();
    for (method, target, reason) in [
        ("GET", "/pass/x", "connect-failed"),
        ("PUT", "/x", "method-not-allowed"),
    ] {
        let reply = edge.ask(method, target, &[], b"");
        assert_eq!(reply.header("cache-status"), None, "{target}");
        assert_reason(&reply, reason);
    }
}
