//! Many at once: one fetch where the response is for all, no queue where it is not.

use std::collections::HashMap;

use sluice_lab::origin::{Ending, Fault, Gate, Origin, Resource, Seen};

use crate::aging::{Crowd, LENGTH, assert_failed, current, times};
use crate::harness::{
    Edge, SOON, Setup, assert_hit, assert_says, cache_status, eventually, origin, serving,
    wait_asked,
};

/// The first request is answered as it says, all others differently.
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

// "1,000 clients asking for one uncached object: 1 origin request"
#[test]
fn a_crowd_on_a_miss_is_one_fetch() {
    let gate = Gate::closed();
    let origin = serving("/x", current().gate_head(&gate));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 300, "/x", &[]);
    assert!(gate.wait_held(1, SOON));
    gate.release();
    for reply in crowd.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
    assert_eq!(times(&origin, "/x"), 1);
}

/// Asserts that a crowd is at the origin all at the same time.
fn assert_no_queue(edge: &Edge, gate: &Gate, count: usize) {
    let crowd = Crowd::of(edge, count, "/x", &[]);
    let all = gate.wait_held(count, SOON);
    assert!(all, "{} of {count} are at the origin", gate.held());
    gate.release();
    for reply in crowd.replies() {
        reply.verify_whole(LENGTH).expect("the body");
        assert_says(&reply, "detail=no-store");
    }
}

// "no pile-up": of what is known to be for nobody else, all are fetched at the same time.
#[test]
fn what_is_known_not_to_be_shared_is_not_queued_for() {
    let gate = Gate::closed();
    let origin = first_and_others(unshared(), unshared().gate_head(&gate));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]).verify_whole(LENGTH).expect("the body");
    assert_no_queue(&edge, &gate, 60);
    assert_eq!(times(&origin, "/x"), 61);
}

// The same where it turns out while they wait: from then on all at once.
#[test]
fn who_waited_for_what_is_not_shared_is_not_queued() {
    let (first, others) = (Gate::closed(), Gate::closed());
    let origin = first_and_others(unshared().gate_head(&first), unshared().gate_head(&others));
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

// The same for what is stored, stale, and then not for others any more.
#[test]
fn who_waited_for_a_validation_is_not_queued() {
    let (first, others) = (Gate::closed(), Gate::closed());
    let stale = crate::aging::stale("");
    let (now, then) = (first.clone(), others.clone());
    let choose = move |seen: &Seen| match seen.id {
        0 => stale.clone(),
        1 => unshared().version(1).gate_head(&now),
        _ => unshared().version(1).gate_head(&then),
    };
    let origin = serving("/x", Resource::dynamic(choose));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
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

// `pass_for`: remembered for a while, and stored again when it may be.
#[test]
fn what_is_passed_is_tried_again() {
    let origin = serving("/x", unshared());
    let edge = Setup::cached(&origin).cache("pass_for = \"1s\"").start();
    assert_says(&edge.get("/x", &[]), "detail=no-store");
    origin.serve("/x", current());
    eventually("it is stored again", || {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(LENGTH).expect("the body");
        cache_status(&reply).starts_with("sluice; hit")
    });
}

// `pass_for`: for so long it is not tried.
#[test]
fn what_is_passed_is_not_tried_meanwhile() {
    let origin = serving("/x", unshared());
    let edge = Setup::cached(&origin).cache("pass_for = \"1h\"").start();
    edge.get("/x", &[]);
    origin.serve("/x", current());
    for asked in 2..=4 {
        assert!(!cache_status(&edge.get("/x", &[])).contains("hit"));
        assert_eq!(times(&origin, "/x"), asked);
    }
}

// "for one whose Vary parts them: one request per variant"
#[test]
fn a_crowd_of_several_variants_is_one_fetch_for_each() {
    let gate = Gate::closed();
    let held = gate.clone();
    let speaking = move |seen: &Seen| {
        let language = seen.header("accept-language").unwrap_or("none").to_owned();
        let body = Resource::bytes(language).vary("Accept-Language");
        body.cache_control("max-age=3600").gate_head(&held)
    };
    let origin = serving("/x", Resource::dynamic(speaking));
    let edge = Setup::cached(&origin).start();
    let languages = ["de", "en", "fr", "it"];
    let crowd = |n: usize| {
        let language = [("Accept-Language", languages[n])];
        Crowd::beside(20 * n, &edge, 20, "/x", &language)
    };
    let crowds = [0, 1, 2, 3].map(crowd);
    assert!(gate.wait_held(1, SOON));
    gate.release();
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

// An origin that fails: everybody is told, it is not asked once for each, and it is asked again.
#[test]
fn a_crowd_at_a_failing_origin_is_told() {
    let gate = Gate::closed();
    // The first answer is held so that all wait for it, and then ends in its head.
    let cut = Fault::RawHead(b"HTTP/1.1 200 OK\r\nConte".to_vec());
    let cut = Resource::bytes("").close().fault(cut).gate_head(&gate);
    let end = current().fault(Fault::EndBeforeHead(Ending::Fin));
    let origin = first_and_others(cut, end);
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 30, "/x", &[]);
    assert!(gate.wait_held(1, SOON));
    gate.release();
    for reply in crowd.replies() {
        assert_failed(&reply);
    }
    let asked = times(&origin, "/x");
    assert!(asked <= 10, "{asked} requests for 30 clients");
    origin.serve("/x", current());
    eventually("it is asked again", || edge.get("/x", &[]).status == 200);
    assert_hit(&edge.get("/x", &[]));
}

// An error that is an answer goes to all who waited.
#[test]
fn a_crowd_gets_an_error_as_it_is() {
    let gate = Gate::closed();
    let origin = serving("/x", Resource::status(503).gate_head(&gate));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 30, "/x", &[]);
    assert!(gate.wait_held(1, SOON));
    gate.release();
    for reply in crowd.replies() {
        assert_eq!((reply.status, &*reply.text()), (503, "status 503\n"));
    }
}

// Who began the fetch may leave before anything came: the others get it.
#[test]
fn who_began_the_fetch_may_leave() {
    let gate = Gate::closed();
    let origin = serving("/x", current().gate_head(&gate));
    let edge = Setup::cached(&origin).start();
    let mut leader = edge.client();
    leader.send("GET", "/x", &[], b"").expect("sent");
    wait_asked(&origin, "/x", 1);
    let others = Crowd::beside(1, &edge, 10, "/x", &[]);
    leader.reset().expect("it is reset");
    eventually("it has left", || edge.counter("requests_now") == 10);
    gate.release();
    for reply in others.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
    assert_eq!(times(&origin, "/x"), 1);
}

// The same where it turns out that the response was for the one who left alone.
#[test]
fn who_began_an_unshared_fetch_may_leave() {
    let gate = Gate::closed();
    let origin = first_and_others(unshared().gate_head(&gate), unshared());
    let edge = Setup::cached(&origin).start();
    let mut leader = edge.client();
    leader.send("GET", "/x", &[], b"").expect("sent");
    wait_asked(&origin, "/x", 1);
    let others = Crowd::beside(1, &edge, 10, "/x", &[]);
    leader.reset().expect("it is reset");
    eventually("it has left", || edge.counter("requests_now") == 10);
    gate.release();
    for reply in others.replies() {
        reply.verify_whole(LENGTH).expect("the body");
    }
}

// A cookie for one is not given to those who waited.
#[test]
fn a_crowd_does_not_share_a_cookie() {
    let gate = Gate::closed();
    let origin = origin();
    let held = gate.clone();
    let own = move |seen: &Seen| {
        let cookie = format!("id={}", seen.id);
        current().header("Set-Cookie", &cookie).gate_head(&held)
    };
    origin.serve("/x", Resource::dynamic(own));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 20, "/x", &[]);
    assert!(gate.wait_held(1, SOON));
    gate.release();
    let mut cookies: Vec<_> = crowd
        .replies()
        .iter()
        .map(|reply| reply.header("set-cookie").expect("a cookie").to_owned())
        .collect();
    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 20);
}
