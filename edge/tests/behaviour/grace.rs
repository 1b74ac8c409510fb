//! Tests of stale responses: served while they are revalidated in the background, and while the
//! origin fails (RFC 5861, RFC 9111 4.2.4).

use std::thread;

use sluice_lab::origin::{BrokenHead, Ending, Fault, Latch, Resource};

use crate::background_revalidation::{SWR, revalidated_in_the_background};
use crate::caching_rules::{
    Crowd, LENGTH, aged, assert_failed, assert_stale, current, kill, stale, stale_on_arrival,
    times, until_fresh,
};
use crate::harness::{
    SOON, Setup, assert_has_parameter, assert_hit, cache_status, eventually, origin, serving,
    stored,
};
use crate::partial_objects::{BLOCK, FILE, MODES, ask_range, check_range, filling, landed};
const SIE: &str = ", stale-if-error=600";

/// Returns responses and connection failures of an origin for which the stale response is served.
fn failures() -> Vec<(&'static str, Resource)> {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Le".to_vec();
    let end = |ending| current().fault(Fault::EndBeforeHead(ending));
    let empty = Resource::bytes("").close();
    let mut failures = vec![
        ("closed without an answer", end(Ending::Fin)),
        ("reset without an answer", end(Ending::Reset)),
        ("a cut head", empty.fault(Fault::RawHead(cut))),
        ("no HTTP", current().fault(Fault::Head(BrokenHead::Garbage))),
        ("no answer", current().fault(Fault::NeverAnswer)),
        (
            "half a head",
            current().fault(Fault::StallHead { after: 30 }),
        ),
    ];
    for (name, status) in [("500", 500), ("502", 502), ("503", 503), ("504", 504)] {
        failures.push((name, Resource::status(status)));
    }
    failures
}

// RFC 5861 4: an error is "any situation that would result in a 500, 502, 503 or 504".
#[test]
fn a_stale_response_is_served_if_the_origin_fails() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .with_http1_servers()
        .upstream("read_timeout = \"12s\"")
        .start();
    let (origin, edge) = (&origin, &edge);
    // All at the same time, since some of them wait for the timeout.
    thread::scope(|scope| {
        for (n, (how, failing)) in failures().into_iter().enumerate() {
            scope.spawn(move || {
                let path = format!("/{n}");
                origin.serve(&path, stale(SIE));
                edge.get(&path, &[]);
                origin.serve(&path, failing);
                let reply = edge.get(&path, &[]);
                reply.verify_whole(LENGTH).expect(how);
                assert_stale(&reply, "stale-if-error");
                assert!(times(origin, &path) >= 2, "{how}: it was asked");
            });
        }
    });
}

// The origin refuses connections. The permitted time comes from `stale-if-error` in the response,
// or from the configuration.
#[test]
fn a_stale_response_is_served_if_the_origin_is_down() {
    for (more, setting) in [(SIE, "0s"), ("", "10m"), (", stale-if-error=600", "1s")] {
        let origin = serving("/x", stale(more));
        let setting = format!("stale_if_error = \"{setting}\"");
        let edge = Setup::cached(&origin).cache(&setting).start();
        edge.get("/x", &[]);
        kill(&origin);
        for _ in 0..5 {
            let reply = edge.get("/x", &[]);
            reply.verify_whole(LENGTH).expect("the old one");
            assert_stale(&reply, "stale-if-error");
        }
        let range = edge.get("/x", &[("Range", "bytes=5-9")]);
        range.verify_range(5, 9, LENGTH).expect("the range");
    }
}

// RFC 5861 4: the time in the response takes precedence over the configured one. When this time is
// over, the client receives the error.
#[test]
fn the_error_is_served_after_the_grace_period() {
    for (more, setting) in [
        ("", "0s"),
        ("", "30s"),
        (", stale-if-error=30", "10m"),
        (", stale-if-error=0", "10m"),
    ] {
        let origin = serving("/x", stale(more));
        let setting = format!("stale_if_error = \"{setting}\"");
        let edge = Setup::cached(&origin).cache(&setting).start();
        edge.get("/x", &[]);
        origin.serve("/x", Resource::status(503));
        let error = edge.get("/x", &[]);
        assert_eq!((error.status, &*error.text()), (503, "status 503\n"));
        kill(&origin);
        assert_failed(&edge.get("/x", &[]));
    }
}

// Only 500, 502, 503 and 504 count as failures. Other 4xx and 5xx responses go to the client.
#[test]
fn other_statuses_do_not_cause_a_stale_response() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for status in [400, 403, 404, 410, 429, 501] {
        let path = format!("/{status}");
        origin.serve(&path, stale(SIE));
        edge.get(&path, &[]);
        origin.serve(&path, Resource::status(status));
        assert_eq!(edge.get(&path, &[]).status, status);
    }
}

#[test]
fn an_unshareable_response_does_not_cause_a_stale_response() {
    let ann = [("Authorization", "Basic YW5u")];
    for (control, fields) in [
        ("no-store", &[][..]),
        ("private", &[]),
        ("max-age=60", &ann),
    ] {
        let (origin, edge) = stored(stale(", public, stale-if-error=600"));
        let own = Resource::offset(LENGTH).cache_control(control);
        origin.serve("/x", own.version(1));
        let reply = edge.get("/x", fields);
        reply.verify_version(1, 0).expect(control);
    }
}

// RFC 9111 4.2.4, 5.2.2.2, 5.2.2.4, 5.2.2.8, 5.2.2.10: directives of the origin forbid stale
// responses. Therefore none is served, neither during revalidation nor after a failure.
#[test]
fn strict_responses_are_never_served_stale() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("stale_if_error = \"1h\"")
        .cache("stale_while_revalidate = \"1h\"")
        .cache("stale_while_updating = \"1h\"")
        .start();
    let strict = [
        "max-age=60, must-revalidate",
        "max-age=60, proxy-revalidate",
        "max-age=60, no-cache",
    ]
    .map(|control| format!("{control}{SWR}{SIE}"));
    // `s-maxage` forbids stale responses, too (RFC 9111 5.2.2.10), unless the response permits them
    // explicitly.
    let strict = [&strict[..], &["s-maxage=60".to_owned()]].concat();
    for (n, control) in strict.iter().enumerate() {
        let path = format!("/{n}");
        origin.serve(&path, aged(control, 100));
        edge.get(&path, &[]);
        edge.get(&path, &[]).verify_whole(LENGTH).expect("the body");
        assert_eq!(times(&origin, &path), 2, "{control}: it was validated");
    }
    kill(&origin);
    for n in 0..strict.len() {
        assert_failed(&edge.get(&format!("/{n}"), &[]));
    }
}

// After one failed fetch, the following requests receive the stale response without waiting for
// another attempt.
#[test]
fn requests_after_a_failure_do_not_wait_for_the_next_attempt() {
    let (origin, edge) = stored(stale(SIE));
    origin.serve("/x", Resource::status(503));
    assert_stale(&edge.get("/x", &[]), "stale-if-error");
    let latch = Latch::closed();
    origin.serve("/x", current().version(1).hold_head(&latch));
    for _ in 0..10 {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(LENGTH).expect("the old one");
        assert_hit(&reply);
    }
    latch.release();
    let new = until_fresh(&edge, "/x");
    new.verify_version(1, 0).expect("the new one");
}

// The origin is down. The time between two attempts grows, so that the origin does not receive one
// request per client request.
#[test]
fn a_failing_origin_receives_fewer_and_fewer_requests() {
    let (origin, edge) = stored(stale(SIE));
    origin.serve("/x", Resource::status(503));
    let mut client = edge.client();
    for _ in 0..500 {
        let reply = client.get("/x", &[]).expect("a reply");
        reply.verify_whole(LENGTH).expect("the old one");
    }
    let asked = times(&origin, "/x");
    assert!(asked <= 50, "{asked} attempts for 500 requests");
}

#[test]
fn a_crowd_receives_the_stale_response_if_revalidation_fails() {
    let (origin, edge) = stored(stale(SIE));
    let latch = Latch::closed();
    origin.serve("/x", Resource::status(503).hold_head(&latch));
    let crowd = Crowd::of(&edge, 20, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for reply in crowd.replies() {
        reply.verify_whole(LENGTH).expect("the old one");
        assert_stale(&reply, "stale-if-error");
    }
    assert!(times(&origin, "/x") <= 4);
}

#[test]
fn a_recovered_origin_is_used_again() {
    let (origin, edge) = stored(stale(SIE));
    kill(&origin);
    for _ in 0..3 {
        assert_stale(&edge.get("/x", &[]), "stale-if-error");
    }
    origin.serve("/x", current().version(1));
    origin.reopen().expect("it listens again");
    let new = until_fresh(&edge, "/x");
    new.verify_version(1, 0).expect("the new one");
}

#[test]
fn a_miss_fails_if_the_origin_is_down() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("stale_if_error = \"1h\"")
        .start();
    kill(&origin);
    assert_failed(&edge.get("/x", &[]));
    origin.serve("/x", current());
    origin.reopen().expect("it listens again");
    eventually("it is asked again", || edge.get("/x", &[]).status == 200);
}

// With a configuration like nginx's `proxy_cache_use_stale updating`, the first request waits for
// the new version, and all others receive the stale response.
#[test]
fn while_one_request_waits_others_receive_the_stale_response() {
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin)
        .cache("stale_while_updating = \"10m\"")
        .start();
    let latch = revalidated_in_the_background(&origin, &edge);
    let first = Crowd::of(&edge, 1, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    for _ in 0..5 {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(LENGTH).expect("the old one");
        assert_stale(&reply, "stale-while-updating");
    }
    latch.release();
    for reply in first.replies() {
        reply.verify_version(1, 0).expect("the new one");
        assert_has_parameter(&reply, "fwd=stale");
    }
    assert_eq!(times(&origin, "/x"), 2);
}

// The configured time limits how long a response is served after its lifetime has ended.
#[test]
fn all_requests_wait_if_the_response_is_too_stale() {
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin)
        .cache("stale_while_updating = \"30s\"")
        .start();
    let latch = revalidated_in_the_background(&origin, &edge);
    let crowd = Crowd::of(&edge, 5, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for reply in crowd.replies() {
        reply.verify_version(1, 0).expect("the new one");
    }
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 5861 4: `stale-if-error` in a request permits a stale response for the time that it names.
#[test]
fn a_client_may_accept_a_stale_response_if_the_origin_fails() {
    let (origin, edge) = stored(stale(""));
    kill(&origin);
    let ask = |control| edge.get("/x", &[("Cache-Control", control)]);
    assert_failed(&ask("stale-if-error=5"));
    let reply = ask("stale-if-error=600");
    reply.verify_whole(LENGTH).expect("the old one");
    assert_stale(&reply, "stale-if-error");
    assert_failed(&edge.get("/x", &[]));
}

// The new version breaks off in the middle of its body. Bytes of the old version must not be sent
// in place of the rest.
#[test]
fn a_truncated_new_version_is_not_completed_with_the_old_one() {
    let cut = Fault::CutBody {
        after: 500,
        ending: Ending::Fin,
    };
    let (origin, edge) = stored(stale(SIE));
    let new = current().version(1).ranges(false);
    origin.serve("/x", new.fault(cut));
    let reply = edge.get("/x", &[]);
    let old = reply.verify_whole(LENGTH).is_ok();
    let part = sluice_lab::offset::verify_version(1, 0, &reply.body).is_ok();
    assert!(
        old || part,
        "bytes of one version: {}",
        cache_status(&reply)
    );
}

// The origin is down. Stored bytes of a large object are served. Requests for missing bytes receive
// an error, and no response breaks off in the middle.
#[test]
fn stored_parts_of_a_large_object_are_served_while_the_origin_is_down() {
    for mode in MODES {
        let large = stale_on_arrival(Resource::offset(FILE), ", stale-if-error=600");
        let origin = serving("/x", large);
        let edge = filling(&origin, mode).start();
        check_range(&edge, 5, 14);
        landed(&edge);
        kill(&origin);
        for _ in 0..2 {
            let here = check_range(&edge, 100, BLOCK - 1);
            assert_stale(&here, "stale-if-error");
            assert_failed(&ask_range(&edge, 4 * BLOCK, 4 * BLOCK + 9));
        }
        origin.serve("/x", Resource::offset(FILE).cache_control("max-age=3600"));
        origin.reopen().expect("it listens again");
        eventually("the rest is there", || {
            let reply = ask_range(&edge, 4 * BLOCK, 4 * BLOCK + 9);
            reply.status == 206
        });
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
    }
}
