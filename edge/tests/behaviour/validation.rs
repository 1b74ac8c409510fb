//! Tests of validation: the conditional requests that the origin receives, and the effect of its
//! responses on the waiting clients.

use sluice_lab::origin::{Latch, Modified, Resource, Seen, Tag};

use crate::caching_rules::{
    Crowd, LENGTH, assert_failed, assert_validated, bare, current, kill, last_sent, stale,
    stale_on_arrival, tagged, times,
};
use crate::harness::{
    SOON, Setup, assert_has_parameter, assert_hit, cache_status, origin, serving, stored,
    wait_for_requests,
};

const LONG_AGO: &str = "Thu, 01 Jan 2015 00:00:00 GMT";

// RFC 9111 4.3.1: the conditional request has the stored entity tag in If-None-Match and the stored
// date in If-Modified-Since.
#[test]
fn validators_are_sent_as_they_are_stored() {
    let dated = Modified::Fixed(LONG_AGO.to_owned());
    let cases = [
        (Tag::None, dated.clone(), None),
        (tagged("a-b"), Modified::None, Some("\"a-b\"")),
        (tagged("both"), dated.clone(), Some("\"both\"")),
        (
            Tag::Fixed("W/\"weak\"".to_owned()),
            dated,
            Some("W/\"weak\""),
        ),
    ];
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (n, (tag, modified, sent)) in cases.into_iter().enumerate() {
        let path = format!("/{n}");
        let has_date = modified != Modified::None;
        origin.serve(&path, stale("").tag(tag).modified(modified));
        edge.get(&path, &[]).verify_whole(LENGTH).expect("stored");
        let again = edge.get(&path, &[]);
        again.verify_whole(LENGTH).expect("validated");
        assert_validated(&again);
        let asked = |field| last_sent(&origin, &path, field);
        assert_eq!(asked("if-none-match").as_deref(), sent, "{n}");
        let date = asked("if-modified-since");
        assert_eq!(date.as_deref(), has_date.then_some(LONG_AGO), "{n}");
    }
}
// RFC 9111 4.2.3: after a successful validation the age of the stored response counts from the time
// of the 304.
#[test]
fn age_restarts_with_a_validation() {
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin).start();
    let age = |reply: &sluice_lab::client::Reply| -> u64 {
        let age = reply
            .header("age")
            .map(|age| age.parse().expect("a number"));
        age.unwrap_or(0)
    };
    assert!(age(&edge.get("/x", &[])) >= 100);
    origin.serve("/x", current());
    for _ in 0..2 {
        let reply = edge.get("/x", &[]);
        assert!(age(&reply) < 50, "{:?}", reply.header("age"));
    }
    assert_eq!(times(&origin, "/x"), 2);
}
// RFC 9111 4.3.3: the origin answers the conditional request with a 200, which replaces the stored
// response.
#[test]
fn a_new_version_replaces_the_stale_one() {
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", current().version(1));
    let new = edge.get("/x", &[]);
    new.verify_version(1, 0).expect("the new one");
    for word in ["fwd=stale", "fwd-status=200", "stored"] {
        assert_has_parameter(&new, word);
    }
    let hit = edge.get("/x", &[]);
    hit.verify_version(1, 0).expect("the new one");
    assert_hit(&hit);
}
// RFC 9110 13.1.2: If-None-Match compares weakly, so a stored weak entity tag can be used in it.
#[test]
fn a_weak_entity_tag_is_used_for_validation() {
    let (origin, edge) = stored(stale("").tag(Tag::Weak).modified(Modified::None));
    origin.update("/x", |_| current().tag(Tag::Weak).modified(Modified::None));
    assert_validated(&edge.get("/x", &[]));
    let hit = edge.get("/x", &[]);
    hit.verify_whole(LENGTH).expect("the body");
    assert_hit(&hit);
}
// Many clients request a stale response at the same time. One conditional request revalidates it
// for all of them.
#[test]
fn a_crowd_waits_for_one_validation() {
    let (origin, edge) = stored(stale(""));
    let latch = Latch::closed();
    origin.serve("/x", current().hold_head(&latch));
    let crowd = Crowd::of(&edge, 50, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for reply in crowd.replies() {
        reply.verify_whole(LENGTH).expect("the body");
        assert_validated(&reply);
    }
    assert_eq!(times(&origin, "/x"), 2);
}
// Many clients request a stale response at the same time. One conditional request receives the new
// version for all of them.
#[test]
fn a_crowd_waits_for_one_replacement() {
    let (origin, edge) = stored(stale(""));
    let latch = Latch::closed();
    origin.serve("/x", current().version(1).hold_head(&latch));
    let crowd = Crowd::of(&edge, 50, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for reply in crowd.replies() {
        reply.verify_version(1, 0).expect("the new one");
    }
    assert_eq!(times(&origin, "/x"), 2);
}
// RFC 9111 5.2.2.4: a response with `no-cache` is stored and validated on each use, whatever its
// lifetime is.
#[test]
fn no_cache_is_validated_each_time() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (path, control) in [("/a", "no-cache"), ("/b", "no-cache, max-age=3600")] {
        origin.serve(path, Resource::offset(LENGTH).cache_control(control));
        edge.get(path, &[]);
        for asked in 2..=4 {
            let reply = edge.get(path, &[]);
            reply.verify_whole(LENGTH).expect("the body");
            assert_has_parameter(&reply, "fwd-status=304");
            assert_eq!(times(&origin, path), asked);
        }
        assert_eq!(origin.read_record(|record| record.sent_for(path)), LENGTH);
    }
}
// RFC 9111 4.2.1: a response with a lifetime of 0 is useful because of its validator, so it is
// stored.
#[test]
fn max_age_0_is_stored_and_validated() {
    let control = "max-age=0";
    let origin = serving("/x", Resource::offset(LENGTH).cache_control(control));
    let edge = Setup::cached(&origin).start();
    assert_has_parameter(&edge.get("/x", &[]), "stored");
    assert_validated(&edge.get("/x", &[]));
}
// RFC 9111 4.3.2: the client's request has a condition. The edge first validates the stored
// response, and then evaluates the condition with it.
#[test]
fn a_client_s_condition_is_evaluated_after_the_validation() {
    let origin = serving("/x", stale("").tag(tagged("v")));
    let edge = Setup::cached(&origin).start();
    let own = [("If-None-Match", "\"mine\", \"v\"")];
    edge.get("/x", &[]);
    let told = edge.get("/x", &own);
    assert_eq!((told.status, told.body.len()), (304, 0));
    assert_eq!(told.header("etag"), Some("\"v\""));
    let asked = last_sent(&origin, "/x", "if-none-match");
    assert_eq!(asked.as_deref(), Some("\"v\""), "not the client's own");
    let other = edge.get("/x", &[("If-None-Match", "\"other\"")]);
    other.verify_whole(LENGTH).expect("it has another version");
}
// The client's If-None-Match has the entity tag of the origin's new version, while an older version
// is stored.
#[test]
fn a_client_with_the_new_version_receives_304() {
    let (origin, edge) = stored(stale("").tag(tagged("old")));
    origin.serve("/x", current().version(1).tag(tagged("new")));
    let told = edge.get("/x", &[("If-None-Match", "\"new\"")]);
    assert_eq!((told.status, told.header("etag")), (304, Some("\"new\"")));
    let hit = edge.get("/x", &[]);
    hit.verify_version(1, 0).expect("and it is stored");
    assert_eq!(times(&origin, "/x"), 2);
}
// RFC 9110 13.1.1: the edge evaluates If-Match after the validation. The origin does not receive
// If-Match.
#[test]
fn a_failed_precondition_is_answered_after_the_validation() {
    let (origin, edge) = stored(stale("").tag(tagged("v")));
    for (tag, status) in [("\"other\"", 412), ("\"v\"", 200)] {
        let reply = edge.get("/x", &[("If-Match", tag)]);
        assert_eq!(reply.status, status, "{tag}");
        assert_eq!(last_sent(&origin, "/x", "if-match"), None);
        assert!(last_sent(&origin, "/x", "if-none-match").is_some());
    }
}
#[test]
fn head_validates_a_stale_response() {
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", current());
    let head = edge.ask("HEAD", "/x", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some("1000"));
    assert!(last_sent(&origin, "/x", "if-none-match").is_some());
    let hit = edge.get("/x", &[]);
    hit.verify_whole(LENGTH).expect("the body");
    assert_hit(&hit);
    assert_eq!(times(&origin, "/x"), 2);
}
// RFC 9111 4.3.1: the conditional request has the headers that select the stored variant.
#[test]
fn the_validation_of_a_variant_selects_it() {
    let flavoured = |seen: &Seen| {
        let flavour = seen.header("x-flavour").unwrap_or("plain").to_owned();
        let tag = tagged(&flavour);
        let body = Resource::bytes(flavour).tag(tag).vary("X-Flavour");
        stale_on_arrival(body, "")
    };
    let origin = serving("/x", Resource::dynamic(flavoured));
    let edge = Setup::cached(&origin).start();
    let flavours = ["cherry", "lemon"];
    let ask = |flavour: &str| edge.get("/x", &[("X-Flavour", flavour)]);
    for flavour in flavours {
        ask(flavour);
    }
    for flavour in flavours {
        let reply = ask(flavour);
        assert_eq!(reply.text(), flavour, "{}", cache_status(&reply));
        assert_validated(&reply);
        let asked = |field| last_sent(&origin, "/x", field).expect("it was sent");
        assert_eq!(asked("x-flavour"), flavour);
        let tag = format!("\"{flavour}\"");
        assert!(asked("if-none-match").contains(&tag));
    }
}
/// Returns a resource whose latch holds the 304 to conditional requests. Requests without conditions
/// receive a new version.
fn held_not_modified(latch: &Latch) -> Resource {
    let latch = latch.clone();
    Resource::dynamic(move |seen| match seen.header("if-none-match") {
        Some(_) => stale("").hold_head(&latch),
        None => current().version(1),
    })
}
// RFC 9111 4.4: a POST invalidates the stored response while its validation is running. The 304
// that arrives afterwards must not make the response valid again.
#[test]
fn a_response_invalidated_during_its_validation_stays_invalidated() {
    let latch = Latch::closed();
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", held_not_modified(&latch));
    let waiting = Crowd::of(&edge, 3, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    assert_eq!(edge.ask("POST", "/x", &[], b"x").status, 200);
    latch.release();
    for reply in waiting.replies() {
        assert_eq!(reply.status, 200);
        let either = [0, 1].map(|version| reply.verify_version(version, 0).is_ok());
        assert!(either.contains(&true), "one version, whole");
        assert_eq!(reply.body.len() as u64, LENGTH);
    }
    let next = edge.get("/x", &[]);
    next.verify_version(1, 0).expect("the new one");
}
// The stored response is evicted while its validation is running. The clients receive it, or a
// newly fetched one.
#[test]
fn a_response_evicted_during_its_validation_is_served() {
    let latch = Latch::closed();
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .cache("evict = \"lru\"")
        .start();
    edge.get("/x", &[]);
    origin.serve("/x", current().hold_head(&latch));
    let waiting = Crowd::of(&edge, 3, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    for n in 0..20 {
        let length = 1_000_000 + n;
        let other = edge.get(&format!("/offset/{length}"), &[]);
        other.verify_whole(length).expect("the body");
    }
    assert!(edge.cache_state("evicted") > 5);
    latch.release();
    for reply in waiting.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
}
// RFC 9111 4.3.1: a stored response without a validator can't be used in a conditional request.
#[test]
fn a_stale_response_without_validators_is_fetched_again() {
    let origin = serving("/x", bare(stale("")));
    let edge = Setup::cached(&origin)
        .cache("stale_if_error = \"1h\"")
        .start();
    assert_has_parameter(&edge.get("/x", &[]), "stored");
    origin.serve("/x", bare(current()).version(1));
    let new = edge.get("/x", &[]);
    new.verify_version(1, 0).expect("the new one");
    assert_has_parameter(&new, "fwd=stale");
    assert_has_parameter(&new, "fwd-status=200");
    for field in ["if-none-match", "if-modified-since"] {
        assert_eq!(last_sent(&origin, "/x", field), None);
    }
}
// An entity tag without quotes is malformed (RFC 9110 8.8.3), and not used in If-None-Match.
#[test]
fn a_tag_without_quotes_validates_nothing() {
    let unquoted = Tag::Fixed("unquoted".to_owned());
    let origin = serving("/x", stale("").tag(unquoted).modified(Modified::None));
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        edge.get("/x", &[]).verify_whole(LENGTH).expect("the body");
        assert_eq!(last_sent(&origin, "/x", "if-none-match"), None);
    }
}
// RFC 9111 4.3.3: the origin responds with an error to the validation. The client receives the
// error. The stored response is kept, and validated by a later request.
#[test]
fn a_failed_validation_keeps_the_stored_response() {
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", Resource::status(503));
    let failed = edge.get("/x", &[]);
    assert_eq!((failed.status, &*failed.text()), (503, "status 503\n"));
    kill(&origin);
    assert_failed(&edge.get("/x", &[]));
    origin.reopen().expect("it listens again");
    origin.serve("/x", current());
    crate::caching_rules::until_fresh(&edge, "/x")
        .verify_whole(LENGTH)
        .expect("the body");
}
// The origin responds with 404 or 410 to the validation. From then on the client receives this
// status.
#[test]
fn a_deleted_resource_is_no_longer_served() {
    for status in [403, 404, 410] {
        let (origin, edge) = stored(stale(", stale-if-error=600"));
        origin.serve("/x", Resource::status(status).cache_control("max-age=3600"));
        assert_eq!(edge.get("/x", &[]).status, status);
        kill(&origin);
        let stored = edge.get("/x", &[]);
        assert_eq!(stored.status, status);
        assert_hit(&stored);
    }
}
// The client whose request started the validation disconnects. The other waiting clients receive
// the response.
#[test]
fn a_validation_continues_after_the_client_that_started_it_disconnects() {
    let latch = Latch::closed();
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", current().hold_head(&latch));
    let mut leader = edge.client();
    leader.send("GET", "/x", &[], b"").expect("sent");
    wait_for_requests(&origin, "/x", 2);
    let others = Crowd::beside(1, &edge, 5, "/x", &[]);
    leader.reset().expect("it is reset");
    crate::harness::eventually("it has left", || edge.counter("requests_now") == 5);
    latch.release();
    for reply in others.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
    assert_eq!(times(&origin, "/x"), 2);
    assert_hit(&edge.get("/x", &[]));
}
// A response is stale on arrival, and its body is still arriving when another request comes. The
// edge validates the response, and both clients receive the bytes of the one body.
#[test]
fn a_body_in_flight_is_validated_and_shared() {
    let latch = Latch::at(100);
    let stale = Resource::offset(LENGTH).cache_control("max-age=0");
    let origin = serving("/x", stale.hold_body(&latch));
    let edge = Setup::cached(&origin).start();
    let mut first = edge.client();
    first.send("GET", "/x", &[], b"").expect("sent");
    first.read_head().expect("a head");
    let mut second = edge.client();
    second.send("GET", "/x", &[], b"").expect("sent");
    wait_for_requests(&origin, "/x", 2);
    latch.release();
    let body = first.read_some(LENGTH as usize).expect("the body");
    sluice_lab::offset::verify_offset(0, &body).expect("the body");
    let reply = second.read_response().expect("a reply");
    reply.verify_whole(LENGTH).expect("the body");
    crate::harness::eventually("it was sent once", || {
        origin.read_record(|record| record.sent_total) == LENGTH
    });
}
// RFC 9111 3.5: the validation carries the credentials of one client. Its result serves other
// clients only if the response permits sharing.
#[test]
fn a_public_response_is_validated_with_the_client_s_credentials() {
    let guarded = |seen: &Seen| match seen.header("authorization") {
        Some(_) => stale(", public"),
        None => Resource::status(401).header("WWW-Authenticate", "Basic realm=x"),
    };
    let origin = serving("/x", Resource::dynamic(guarded));
    let edge = Setup::cached(&origin).start();
    for who in ["Basic YW5u", "Basic YmVu", "Basic YW5u"] {
        let reply = edge.get("/x", &[("Authorization", who)]);
        reply.verify_whole(LENGTH).expect(who);
        assert_eq!(
            last_sent(&origin, "/x", "authorization").as_deref(),
            Some(who)
        );
    }
    assert_eq!(edge.get("/x", &[]).status, 401);
    let still = edge.get("/x", &[("Authorization", "Basic YW5u")]);
    still.verify_whole(LENGTH).expect("as before");
}
