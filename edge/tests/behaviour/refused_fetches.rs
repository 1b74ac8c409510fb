//! Tests of origins that refuse or fail a shared fetch, perhaps for everybody: the number of requests
//! that they get, the waits of clients, and the responses that stay stored.

use std::time::Instant;

use sluice_lab::client::Reply;
use sluice_lab::origin::{BrokenHead, Ending, Fault, Latch, Origin, Resource, Seen};

use crate::caching_rules::{LENGTH, assert_validated, stale};
use crate::harness::{
    Edge, Setup, assert_has_parameter, assert_hit, cache_status, eventually, fresh, serving,
    wait_for_requests,
};
use crate::partial_objects::{BLOCK, FILE, bytes, filling, good};

const FORWARD: &str = "forward_headers = [\"X-Who\", \"User-Agent\"]";
/// The headers of a browser. The last one is in `forward_headers`.
const BROWSER: [(&str, &str); 3] = [
    ("Accept", "text/html"),
    ("User-Agent", "browser"),
    ("X-Who", "me"),
];
/// A value to which the origin of a test objects.
const BAD: (&str, &str) = ("X-Who", "x-bad");

fn is_bad(seen: &Seen) -> bool {
    seen.header("x-who") == Some("x-bad")
}

/// Returns an origin that answers requests with the bad header by `bad`, and others by `other`.
fn either(bad: Resource, other: impl Fn(&Seen) -> Resource + Send + Sync + 'static) -> Origin {
    let choose = move |seen: &Seen| match is_bad(seen) {
        true => bad.clone(),
        false => other(seen),
    };
    serving("/x", Resource::dynamic(choose))
}

fn ask_block(edge: &Edge, number: u64, headers: &[(&str, &str)]) -> Reply {
    let range = bytes(number * BLOCK, number * BLOCK + 9);
    let mut all = vec![("Range", &*range)];
    all.extend(headers);
    edge.get("/x", &all)
}

fn gone(status: u16) -> Resource {
    Resource::status(status).cache_control("max-age=60")
}

// A neutral fetch shows that a page is missing for all, although it leaves out a header of
// `forward_headers`.
#[test]
fn a_missing_page_is_stored_after_a_fetch_without_forwarded_headers() {
    for status in [404, 410] {
        let origin = serving("/x", gone(status));
        let edge = Setup::cached(&origin).cache(FORWARD).start();
        for _ in 0..6 {
            assert_eq!(edge.get("/x", &BROWSER).status, status);
        }
        assert_eq!(origin.requests().len(), 2);
        assert_hit(&edge.get("/x", &BROWSER));
    }
}

/// Sends requests until the origin has got a neutral fetch, and `more` within the time in which
/// requests are forwarded. Returns the number of requests to the origin that exceed those of clients.
fn extra_requests(edge: &Edge, origin: &Origin, more: usize, status: u16) -> usize {
    let (before, begun) = (origin.requests().len(), Instant::now());
    for _ in 0..more {
        assert_eq!(edge.get("/x", &BROWSER).status, status);
    }
    let seconds = begun.elapsed().as_secs() as usize;
    (origin.requests().len() - before - more).saturating_sub(2 * seconds)
}

// The origin refuses everybody. Within a second, one neutral fetch shows that, and each other request
// is sent to the origin once.
#[test]
fn an_origin_that_refuses_everybody_gets_each_request_once() {
    for refusal in [gone(403), Resource::status(403), Resource::status(401)] {
        let origin = serving("/x", refusal);
        let edge = Setup::cached(&origin).cache(FORWARD).start();
        let status = edge.get("/x", &BROWSER).status;
        let extra = extra_requests(&edge, &origin, 20, status);
        assert!(extra <= 2, "{extra} for {status}");
    }
}

// The same while a stale response is stored, with and without `forward_headers`.
#[test]
fn an_origin_that_refuses_every_validation_gets_each_request_once() {
    for status in [400, 401, 403, 405, 416] {
        for line in ["", FORWARD] {
            let origin = serving("/x", stale(""));
            let edge = Setup::cached(&origin).cache(line).start();
            edge.get("/x", &[]).verify_whole(LENGTH).expect("stored");
            origin.serve("/x", Resource::status(status));
            let extra = extra_requests(&edge, &origin, 20, status);
            assert!(extra <= 2, "{extra} for {status} {line}");
            origin.serve("/x", stale(""));
            eventually("the stored response is validated", || {
                cache_status(&edge.get("/x", &[])).contains("fwd-status=304")
            });
        }
    }
}

// A firewall answers requests with a header of one client by a page of its own, even with a lifetime.
// The stored response stays, since validations don't carry this header.
#[test]
fn a_page_for_one_client_does_not_replace_a_stale_response() {
    let pages = [
        Resource::status(302).header("Location", "/c"),
        Resource::bytes("Are you human?"),
        Resource::status(403),
    ];
    for page in pages {
        let origin = either(page.cache_control("max-age=60"), |_| stale(""));
        let edge = Setup::cached(&origin).cache(FORWARD).start();
        edge.get("/x", &[]).verify_whole(LENGTH).expect("stored");
        for _ in 0..2 {
            edge.get("/x", &[BAD]);
            let other = edge.get("/x", &[]);
            other.verify_whole(LENGTH).expect("the stored body");
            assert_validated(&other);
        }
    }
}

// The origin refuses requests without the header that `forward_headers` names. Stored responses are
// validated all the same, by a fetch with this header.
#[test]
fn an_origin_that_needs_a_forwarded_header_confirms_a_stored_response() {
    let choose = |seen: &Seen| match seen.header("x-who") {
        Some(_) => stale(""),
        None => Resource::status(403),
    };
    let origin = serving("/x", Resource::dynamic(choose));
    let edge = Setup::cached(&origin).cache(FORWARD).start();
    edge.get("/x", &BROWSER)
        .verify_whole(LENGTH)
        .expect("stored");
    eventually("the stored response is validated", || {
        let reply = edge.get("/x", &BROWSER);
        reply.verify_whole(LENGTH).expect("the body");
        cache_status(&reply).contains("fwd=stale; fwd-status=304")
    });
}

// The fetch of a block with a header of one client returns the stored version with other directives.
// The stored response keeps its own.
#[test]
fn a_block_for_one_client_does_not_change_the_stored_response() {
    for directives in ["", "no-cache", "max-age=0", "no-store"] {
        let bad = match directives {
            "" => Resource::offset(FILE),
            directives => Resource::offset(FILE).cache_control(directives),
        };
        let origin = either(bad.header("X-Evil", "1"), good);
        let edge = filling(&origin, "slice").cache(FORWARD).start();
        for number in 0..4 {
            assert_eq!(ask_block(&edge, number, &[]).status, 206);
        }
        assert_eq!(ask_block(&edge, 6, &[BAD]).status, 206);
        for number in 0..4 {
            let reply = ask_block(&edge, number, &[]);
            assert_hit(&reply);
            assert_eq!(reply.header("x-evil"), None, "{directives}");
        }
    }
}

// A client whose own fetch fails gets the failure at once, with its reason, and the origin gets one
// request.
#[test]
fn a_failed_fetch_is_not_repeated_for_its_client() {
    let fault = |fault| Resource::bytes("").fault(fault);
    for (failing, status, reason) in [
        (fault(Fault::NeverAnswer), 504, "head-timeout"),
        (fault(Fault::Head(BrokenHead::Garbage)), 502, "bad-head"),
        (
            fault(Fault::EndBeforeHead(Ending::Fin)),
            502,
            "closed-before-head",
        ),
    ] {
        for line in ["", FORWARD] {
            let origin = serving("/x", failing.clone());
            let timeout = if status == 504 { "1s" } else { "60s" };
            let edge = Setup::cached(&origin)
                .with_http1_servers()
                .cache(line)
                .upstream(&format!("read_timeout = \"{timeout}\"\nretry = false"))
                .start();
            let reply = edge.get("/x", &BROWSER);
            assert_eq!(reply.status, status);
            assert_has_parameter(&reply, &format!("detail={reason}"));
            // After the timeout, the origin may still have to read the request.
            wait_for_requests(&origin, "/x", 1);
            assert_eq!(origin.requests().len(), 1, "{reason}");
        }
    }
}

// Nothing was sent to an origin that refuses the connection, so the failure is not about the client.
#[test]
fn a_refused_connection_is_reported_as_such() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).cache(FORWARD).start();
    origin.refuse().expect("it stops listening");
    let reply = edge.get("/x", &BROWSER);
    assert_eq!(reply.status, 502);
    assert_has_parameter(&reply, "detail=connect-failed");
}

// The clients that waited beside the failed fetch share a neutral one.
#[test]
fn clients_beside_a_failed_fetch_share_a_neutral_one() {
    let bad = Resource::bytes("").fault(Fault::NeverAnswer);
    let origin = either(bad, |_| fresh(10));
    let edge = Setup::cached(&origin)
        .workers(1)
        .cache(FORWARD)
        .upstream("read_timeout = \"10s\"")
        .start();
    let mut hanging = edge.client();
    hanging.send("GET", "/x", &[BAD], b"").expect("sent");
    wait_for_requests(&origin, "/x", 1);
    let mut others: Vec<_> = (0..4)
        .map(|_| {
            let mut client = edge.client();
            client.send("GET", "/x", &BROWSER, b"").expect("sent");
            client
        })
        .collect();
    eventually("all wait", || edge.counter("requests_now") == 5);
    assert_eq!(hanging.read_response().expect("a reply").status, 504);
    for other in &mut others {
        let reply = other.read_response().expect("a reply");
        reply.verify_whole(10).expect("the body");
    }
    assert_eq!(origin.requests().len(), 2);
}

// While the origin hangs, only the first client waits for it. The others get the stale response at
// once.
#[test]
fn only_the_first_client_waits_for_a_hanging_origin() {
    for line in ["", FORWARD] {
        let origin = serving("/x", stale(", stale-if-error=600"));
        let edge = Setup::cached(&origin)
            .cache(line)
            .upstream("read_timeout = \"8s\"")
            .start();
        edge.get("/x", &BROWSER)
            .verify_whole(LENGTH)
            .expect("stored");
        let latch = Latch::closed();
        origin.serve("/x", stale("").hold_head(&latch));
        let first = edge.get("/x", &BROWSER);
        first.verify_whole(LENGTH).expect("the stored body");
        // If the machine pauses, the time may end in which no further fetch begins. Then one more client waits.
        for _ in 0..3 {
            eventually("a response without a fetch", || {
                let before = origin.requests().len();
                let reply = edge.get("/x", &BROWSER);
                reply.verify_whole(LENGTH).expect("the stored body");
                assert_has_parameter(&reply, "detail=stale-if-error");
                origin.requests().len() == before
            });
        }
        latch.release();
    }
}

// A block of a stored object hangs. Its client waits once.
#[test]
fn a_client_waits_once_for_a_block_that_hangs() {
    for header in [("Accept", "text/html"), BAD] {
        let choose = |seen: &Seen| match seen.header("range") {
            Some(range) if range.starts_with("bytes=0-") => good(seen),
            _ => Resource::bytes("").fault(Fault::NeverAnswer),
        };
        let origin = serving("/x", Resource::dynamic(choose));
        let edge = filling(&origin, "slice")
            .cache(FORWARD)
            .upstream("read_timeout = \"8s\"")
            .start();
        assert_eq!(ask_block(&edge, 0, &[]).status, 206);
        let reply = ask_block(&edge, 5, &[header]);
        assert_eq!(reply.status, 504);
        assert_has_parameter(&reply, "detail=head-timeout");
        assert_eq!(origin.requests().len(), 2);
    }
}

// The first response to a browser says why it was not stored.
#[test]
fn the_first_response_has_the_reason_for_not_storing_it() {
    let page = || Resource::bytes("page");
    for (resource, reason) in [
        (page().cache_control("no-store"), "no-store"),
        (page().cache_control("private"), "private"),
        (
            page().cache_control("max-age=60").header("Vary", "*"),
            "vary-any",
        ),
        (Resource::status(403), "no-lifetime"),
        (gone(404), "unconfirmed"),
    ] {
        let origin = serving("/x", resource);
        let edge = Setup::cached(&origin).start();
        let reply = edge.get("/x", &BROWSER);
        assert_has_parameter(&reply, &format!("detail={reason}"));
    }
}
