//! Tests of many concurrent requests for one URL. If the response may be shared, one fetch serves
//! all clients. If not, no client waits for another one's response.

use std::collections::HashMap;

use sluice_lab::origin::{Ending, Fault, Latch, Origin, Resource, Seen};

use crate::caching_rules::{Crowd, LENGTH, assert_failed, current, times};
use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, cache_status, eventually, origin, serving,
    stored, stored_with, wait_for_requests,
};

/// Creates an origin that answers the first request with `first` and all others with `others`.
fn first_and_others(first: Resource, others: Resource) -> Origin {
    let choose = move |seen: &Seen| match seen.id {
        0 => first.clone(),
        _ => others.clone(),
    };
    serving("/x", Resource::dynamic(choose))
}

fn unshared() -> Resource {
    Resource::offset(LENGTH).cache_control("no-store")
}

#[test]
fn a_thousand_clients_on_a_miss_cause_one_fetch() {
    let latch = Latch::closed();
    let origin = serving("/x", current().hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 300, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for reply in crowd.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
    assert_eq!(times(&origin, "/x"), 1);
}

/// Asserts that all requests of this many clients are at the origin at the same time.
fn assert_no_queue(edge: &Edge, latch: &Latch, count: usize) {
    let crowd = Crowd::of(edge, count, "/x", &[]);
    let all = latch.wait_held(count, SOON);
    assert!(all, "{} of {count} are at the origin", latch.held());
    latch.release();
    for reply in crowd.replies() {
        reply.verify_whole(LENGTH).expect("the body");
        assert_has_parameter(&reply, "detail=no-store");
    }
}

// An earlier response has shown that responses to this URL can't be shared. The requests of all
// clients must reach the origin at the same time.
#[test]
fn requests_for_an_unshareable_response_do_not_queue() {
    let latch = Latch::closed();
    let origin = first_and_others(unshared(), unshared().hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]).verify_whole(LENGTH).expect("the body");
    assert_no_queue(&edge, &latch, 60);
    assert_eq!(times(&origin, "/x"), 61);
}

// The clients wait for one fetch, whose response turns out not to be shareable. Then the requests
// of all other clients must reach the origin at the same time.
#[test]
fn clients_that_waited_for_an_unshareable_response_do_not_queue() {
    let (first, others) = (Latch::closed(), Latch::closed());
    let origin = first_and_others(unshared().hold_head(&first), unshared().hold_head(&others));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 60, "/x", &[]);
    assert!(first.wait_held(1, SOON));
    assert_eq!(times(&origin, "/x"), 1, "one is asked first");
    first.release();
    let all = others.wait_held(59, SOON);
    assert!(all, "{} of 59 are at the origin", others.held());
    others.release();
    for reply in crowd.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
    assert_eq!(times(&origin, "/x"), 60);
}

// The clients wait for the revalidation of a stale response, and the new response is not shareable.
// Then the requests of all other clients must reach the origin at the same time.
#[test]
fn clients_that_waited_for_a_revalidation_do_not_queue() {
    let (first, others) = (Latch::closed(), Latch::closed());
    let stale = crate::caching_rules::stale("");
    let (now, then) = (first.clone(), others.clone());
    let choose = move |seen: &Seen| match seen.id {
        0 => stale.clone(),
        1 => unshared().version(1).hold_head(&now),
        _ => unshared().version(1).hold_head(&then),
    };
    let (_origin, edge) = stored(Resource::dynamic(choose));
    let crowd = Crowd::of(&edge, 30, "/x", &[]);
    assert!(first.wait_held(1, SOON));
    first.release();
    let all = others.wait_held(29, SOON);
    assert!(all, "{} of 29 are at the origin", others.held());
    others.release();
    for reply in crowd.replies() {
        reply.verify_version(1, 0).expect("the new one");
    }
}

// After a response that can't be shared, requests are forwarded for the time `hit_for_pass`. Then a
// shareable response is stored again.
#[test]
fn a_passed_key_is_tried_again_after_hit_for_pass() {
    let origin = serving("/x", unshared());
    let edge = Setup::cached(&origin)
        .cache("hit_for_pass = \"1s\"")
        .start();
    assert_has_parameter(&edge.get("/x", &[]), "detail=no-store");
    origin.serve("/x", current());
    eventually("it is stored again", || {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(LENGTH).expect("the body");
        cache_status(&reply).starts_with("sluice; hit")
    });
}

#[test]
fn a_passed_key_is_not_tried_within_hit_for_pass() {
    let (origin, edge) = stored_with(unshared(), "hit_for_pass = \"1h\"");
    origin.serve("/x", current());
    for asked in 2..=4 {
        assert!(!cache_status(&edge.get("/x", &[])).contains("hit"));
        assert_eq!(times(&origin, "/x"), asked);
    }
}

#[test]
fn a_crowd_with_several_variants_causes_one_fetch_per_variant() {
    let latch = Latch::closed();
    let held = latch.clone();
    let speaking = move |seen: &Seen| {
        let language = seen.header("accept-language").unwrap_or("none").to_owned();
        let body = Resource::bytes(language).vary("Accept-Language");
        body.cache_control("max-age=3600").hold_head(&held)
    };
    let origin = serving("/x", Resource::dynamic(speaking));
    let edge = Setup::cached(&origin).start();
    let languages = ["de", "en", "fr", "it"];
    let crowd = |n: usize| {
        let language = [("Accept-Language", languages[n])];
        Crowd::beside(20 * n, &edge, 20, "/x", &language)
    };
    let crowds = [0, 1, 2, 3].map(crowd);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for (crowd, language) in crowds.into_iter().zip(languages) {
        for reply in crowd.replies() {
            assert_eq!(reply.text(), language, "{}", cache_status(&reply));
        }
    }
    let mut asked: HashMap<String, usize> = HashMap::new();
    for seen in origin.requests() {
        let language = seen.header("accept-language").unwrap_or("none");
        *asked.entry(language.to_owned()).or_default() += 1;
    }
    let once = languages.iter().all(|language| asked[*language] == 1);
    assert!(once && asked.len() == 4, "{asked:?}");
}

// All clients receive an error if the origin fails. The origin receives fewer requests than there
// are clients, and another attempt later.
#[test]
fn a_crowd_at_a_failing_origin_receives_errors() {
    let latch = Latch::closed();
    // The latch holds the first response until all clients wait for it. The response then ends in
    // the middle of its head.
    let cut = Fault::RawHead(b"HTTP/1.1 200 OK\r\nConte".to_vec());
    let cut = Resource::bytes("").close().fault(cut).hold_head(&latch);
    let end = current().fault(Fault::EndBeforeHead(Ending::Fin));
    let origin = first_and_others(cut, end);
    let edge = Setup::cached(&origin).with_http1_servers().start();
    let crowd = Crowd::of(&edge, 30, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for reply in crowd.replies() {
        assert_failed(&reply);
    }
    let asked = times(&origin, "/x");
    assert!(asked <= 10, "{asked} requests for 30 clients");
    origin.serve("/x", current());
    eventually("it is asked again", || edge.get("/x", &[]).status == 200);
    assert_hit(&edge.get("/x", &[]));
}

// The origin's error response goes unchanged to all clients that waited for the fetch.
#[test]
fn a_crowd_receives_an_error_response_unchanged() {
    let latch = Latch::closed();
    let origin = serving("/x", Resource::status(503).hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 30, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for reply in crowd.replies() {
        assert_eq!((reply.status, &*reply.text()), (503, "status 503\n"));
    }
}

// The client that started the fetch disconnects before the response. The other clients still
// receive the response.
#[test]
fn the_client_that_started_a_shared_fetch_may_disconnect() {
    let latch = Latch::closed();
    let origin = serving("/x", current().hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let mut leader = edge.client();
    leader.send("GET", "/x", &[], b"").expect("sent");
    wait_for_requests(&origin, "/x", 1);
    let others = Crowd::beside(1, &edge, 10, "/x", &[]);
    leader.reset().expect("it is reset");
    eventually("it has left", || edge.counter("requests_now") == 10);
    latch.release();
    for reply in others.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
    assert_eq!(times(&origin, "/x"), 1);
}

// The response is not shareable, and the client that started the fetch has disconnected. Each of
// the other clients then sends a request of its own.
#[test]
fn the_client_that_started_an_unshared_fetch_may_disconnect() {
    let latch = Latch::closed();
    let origin = first_and_others(unshared().hold_head(&latch), unshared());
    let edge = Setup::cached(&origin).start();
    let mut leader = edge.client();
    leader.send("GET", "/x", &[], b"").expect("sent");
    wait_for_requests(&origin, "/x", 1);
    let others = Crowd::beside(1, &edge, 10, "/x", &[]);
    leader.reset().expect("it is reset");
    eventually("it has left", || edge.counter("requests_now") == 10);
    latch.release();
    for reply in others.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
}

#[test]
fn a_response_with_a_cookie_is_not_shared_with_waiting_clients() {
    let latch = Latch::closed();
    let origin = origin();
    let held = latch.clone();
    let own = move |seen: &Seen| {
        let cookie = format!("id={}", seen.id);
        current().header("Set-Cookie", &cookie).hold_head(&held)
    };
    origin.serve("/x", Resource::dynamic(own));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 20, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    let mut cookies: Vec<_> = crowd
        .replies()
        .iter()
        .map(|reply| reply.header("set-cookie").expect("a cookie").to_owned())
        .collect();
    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 20);
}
