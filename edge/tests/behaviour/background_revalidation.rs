//! Tests of stale responses that are served while they are revalidated in the background (RFC 5861
//! 3).

use sluice_lab::client::Reply;
use sluice_lab::origin::{Latch, Origin, Resource, Seen};

use crate::caching_rules::{
    LENGTH, assert_stale, bare, current, kill, last_sent, stale, stale_on_arrival, tagged, times,
    until_fresh,
};
use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, cache_status, eventually, serving, stored,
    stored_with, wait_for_requests,
};
use crate::partial_objects::{BLOCK, FILE, MODES, check_range, filling, landed};

pub const SWR: &str = ", stale-while-revalidate=600";

/// Sends a request that receives a stale response and starts a background fetch. The returned latch
/// holds the origin's response, which is version 1.
pub fn revalidated_in_the_background(origin: &Origin, edge: &Edge) -> Latch {
    edge.get("/x", &[]).verify_whole(LENGTH).expect("stored");
    let latch = Latch::closed();
    origin.serve("/x", current().version(1).hold_head(&latch));
    latch
}

fn assert_swr(reply: &Reply) {
    reply.verify_whole(LENGTH).expect("the old one");
    assert_stale(reply, "stale-while-revalidate");
}

// RFC 5861 3: the stale response is served at once, while one background fetch revalidates it for
// all clients. After the fetch the new response is served.
#[test]
fn a_stale_response_is_served_while_it_is_revalidated() {
    let origin = serving("/x", stale(SWR));
    let edge = Setup::cached(&origin).start();
    let latch = revalidated_in_the_background(&origin, &edge);
    assert_swr(&edge.get("/x", &[]));
    wait_for_requests(&origin, "/x", 2);
    for _ in 0..10 {
        assert_swr(&edge.get("/x", &[]));
    }
    assert_eq!(times(&origin, "/x"), 2, "one fetch for all");
    latch.release();
    let new = until_fresh(&edge, "/x");
    new.verify_version(1, 0).expect("the new one");
    assert_eq!(times(&origin, "/x"), 2);
}

// The response has no `stale-while-revalidate`, but the configuration permits stale responses
// during revalidation.
#[test]
fn the_configuration_may_allow_background_revalidation() {
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin)
        .cache("stale_while_revalidate = \"10m\"")
        .start();
    let latch = revalidated_in_the_background(&origin, &edge);
    assert_swr(&edge.get("/x", &[]));
    latch.release();
    let new = until_fresh(&edge, "/x");
    new.verify_version(1, 0).expect("the new one");
}

// The response's `stale-while-revalidate` takes precedence over the configured time.
#[test]
fn the_response_may_forbid_background_revalidation() {
    let (origin, edge) = stored_with(
        stale(", stale-while-revalidate=0"),
        "stale_while_revalidate = \"10m\"",
    );
    origin.serve("/x", current().version(1));
    let new = edge.get("/x", &[]);
    new.verify_version(1, 0).expect("the new one");
}

// RFC 5861 3: once the time in `stale-while-revalidate` is over, a request waits for the
// revalidation.
#[test]
fn requests_after_the_grace_period_wait_for_revalidation() {
    let (origin, edge) = stored_with(
        stale(", stale-while-revalidate=30"),
        "stale_while_revalidate = \"10m\"",
    );
    origin.serve("/x", current().version(1));
    let new = edge.get("/x", &[]);
    new.verify_version(1, 0).expect("the new one");
    assert_has_parameter(&new, "fwd=stale");
}

#[test]
fn the_background_fetch_is_conditional_if_possible() {
    for validator in [true, false] {
        let with = |resource| if validator { resource } else { bare(resource) };
        let (origin, edge) = stored(with(stale(SWR)));
        origin.serve("/x", with(current()));
        assert_swr(&edge.get("/x", &[]));
        until_fresh(&edge, "/x")
            .verify_whole(LENGTH)
            .expect("the body");
        let asked = last_sent(&origin, "/x", "if-none-match");
        assert_eq!(asked.is_some(), validator);
        let sent = if validator { LENGTH } else { 2 * LENGTH };
        assert_eq!(origin.read_record(|record| record.sent_total), sent);
    }
}

// Many clients arrive when the response is already stale. All of them receive the stale response at
// once.
#[test]
fn no_client_waits_for_the_background_fetch() {
    let origin = serving("/x", stale(SWR));
    let edge = Setup::cached(&origin).start();
    let latch = revalidated_in_the_background(&origin, &edge);
    let mut clients: Vec<_> = (0..50).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    for client in &mut clients {
        assert_swr(&client.read_response().expect("a reply"));
    }
    assert!(latch.wait_held(1, SOON));
    assert_eq!(times(&origin, "/x"), 2);
    latch.release();
}

#[test]
fn ranges_head_and_conditions_are_answered_from_a_stale_response() {
    let origin = serving("/x", stale(SWR));
    let edge = Setup::cached(&origin).start();
    let latch = revalidated_in_the_background(&origin, &edge);
    let range = edge.get("/x", &[("Range", "bytes=5-9")]);
    range.verify_range(5, 9, LENGTH).expect("the range");
    assert_hit(&range);
    let head = edge.ask("HEAD", "/x", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    let tag = head.header("etag").expect("a tag").to_owned();
    let told = edge.get("/x", &[("If-None-Match", &tag)]);
    assert_eq!(told.status, 304);
    latch.release();
}

#[test]
fn a_failed_background_fetch_keeps_the_stale_response() {
    let (origin, edge) = stored(stale(SWR));
    origin.serve("/x", Resource::status(503));
    assert_swr(&edge.get("/x", &[]));
    wait_for_requests(&origin, "/x", 2);
    kill(&origin);
    for _ in 0..10 {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(LENGTH).expect("the old one");
        assert_hit(&reply);
    }
    origin.reopen().expect("it listens again");
    origin.serve("/x", current().version(1));
    let new = until_fresh(&edge, "/x");
    new.verify_version(1, 0).expect("the new one");
}

// The background fetch receives a response that may not be stored, or a 404. From then on the stale
// response is not served.
#[test]
fn a_withdrawn_response_is_not_served_stale_any_longer() {
    for (status, control) in [(200, "no-store"), (404, "max-age=60"), (302, "private")] {
        let (origin, edge) = stored(stale(SWR));
        let new = Resource::bytes("new").with_status(status);
        origin.serve("/x", new.cache_control(control));
        assert_swr(&edge.get("/x", &[]));
        eventually("the new answer", || {
            let reply = edge.get("/x", &[]);
            reply.status == status && reply.text() == "new"
        });
    }
}

// RFC 9111 4.1: the background fetch carries the request headers that select the served variant.
#[test]
fn the_background_fetch_is_for_the_served_variant() {
    let speaking = |seen: &Seen| {
        let language = seen.header("accept-language").unwrap_or("none");
        let body = Resource::bytes(format!("{language} {}", seen.id)).vary("Accept-Language");
        let body = body.tag(tagged(&format!("{language}{}", seen.id)));
        match seen.id {
            0 | 1 => stale_on_arrival(body, ", stale-while-revalidate=600"),
            _ => body.cache_control("max-age=3600"),
        }
    };
    let origin = serving("/x", Resource::dynamic(speaking));
    let edge = Setup::cached(&origin).start();
    let ask = |language| edge.get("/x", &[("Accept-Language", language)]).text();
    assert_eq!((ask("de"), ask("en")), ("de 0".into(), "en 1".into()));
    assert_eq!(ask("de"), "de 0");
    eventually("the new German one", || ask("de") == "de 2");
    assert_eq!(ask("en"), "en 1", "it is stale as before");
    eventually("the new English one", || ask("en") == "en 3");
    assert_eq!(times(&origin, "/x"), 4);
}

// Stored bytes of a stale object are served at once. If the background fetch confirms the version,
// missing bytes are then added to the same object.
#[test]
fn a_large_object_is_revalidated_in_the_background() {
    for mode in MODES {
        let old = stale_on_arrival(Resource::offset(FILE), ", stale-while-revalidate=600");
        let origin = serving("/x", old);
        let edge = filling(&origin, mode).start();
        check_range(&edge, 5, 14);
        landed(&edge);
        let latch = Latch::closed();
        origin.serve(
            "/x",
            Resource::offset(FILE)
                .cache_control("max-age=3600")
                .hold_head(&latch),
        );
        assert_stale(&check_range(&edge, 5, 14), "stale-while-revalidate");
        latch.release();
        eventually("it is fresh again", || {
            let reply = check_range(&edge, 5, 14);
            !cache_status(&reply).contains("stale")
        });
        assert_eq!(origin.read_record(|record| record.sent_total), BLOCK);
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
    }
}

// Microcaching: a page with a lifetime of one second is requested again and again, and fetched once
// per second in the background.
#[test]
fn with_short_lifetimes_only_the_first_client_waits() {
    let origin = serving("/x", Resource::offset(LENGTH));
    let edge = Setup::cached(&origin)
        .cache("valid = { 200 = \"1s\" }")
        .cache("stale_while_revalidate = \"1h\"")
        .start();
    let latch = revalidated_in_the_background(&origin, &edge);
    eventually("it has become stale", || {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(LENGTH).expect("the old one");
        assert_hit(&reply);
        cache_status(&reply).contains("stale-while-revalidate")
    });
    wait_for_requests(&origin, "/x", 2);
    for _ in 0..20 {
        assert_swr(&edge.get("/x", &[]));
    }
    assert_eq!(times(&origin, "/x"), 2);
    latch.release();
    // A client that arrives before the last bytes of the new version shares the background fetch,
    // so its response is not a hit. Therefore the test repeats the request.
    eventually("the new one", || {
        edge.get("/x", &[]).verify_version(1, 0).is_ok()
    });
}
