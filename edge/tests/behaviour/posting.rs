//! Responses to POST that answer GET, too: where `methods` says so, and only what anybody's POST would
//! have brought (RFC 9110 9.3.3).

use sluice_lab::client::Reply;
use sluice_lab::origin::{Ending, Fault, Framing, Gate, Origin, Resource, Seen};

use crate::aging::{LENGTH, bare, current, last_sent, times};
use crate::harness::{
    Edge, SOON, Setup, assert_hit, assert_says, cache_status, eventually, origin, serving,
};

const POST: &str = "methods = [\"GET\", \"HEAD\", \"POST\"]";
const MIB: u64 = 1 << 20;

/// What may answer GET at `/x`.
fn own() -> Resource {
    current().header("Content-Location", "/x")
}

fn posting(origin: &Origin) -> Setup {
    Setup::cached(origin).cache(POST)
}

fn post(edge: &Edge, fields: &[(&str, &str)]) -> Reply {
    edge.ask("POST", "/x", fields, b"x")
}

/// Whether a GET is answered by what a POST brought.
fn is_adopted(edge: &Edge, path: &str) -> bool {
    cache_status(&edge.get(path, &[])).starts_with("sluice; hit")
}

/// What the origin answers with: a part of the request, shown in the body.
fn shows(show: fn(&Seen) -> Option<&str>) -> Resource {
    Resource::dynamic(move |seen| {
        let shown = show(seen).unwrap_or("nothing").to_owned();
        Resource::bytes(shown)
            .cache_control("max-age=3600")
            .header("Content-Location", &seen.target)
    })
}

// It is always sent on, and what it brought is given to its client in full.
#[test]
fn what_a_post_brought_answers_get() {
    let origin = serving("/x", own());
    let edge = posting(&origin).start();
    for asked in 1..=2 {
        let reply = post(&edge, &[]);
        reply.verify_whole(LENGTH).expect("the body");
        assert_eq!(
            cache_status(&reply),
            "sluice; fwd=method; fwd-status=200; stored"
        );
        assert_eq!(times(&origin, "/x"), asked, "POST is always sent on");
    }
    let hit = edge.get("/x", &[]);
    hit.verify_whole(LENGTH).expect("the body");
    assert_hit(&hit);
    assert_eq!(hit.header("content-location"), Some("/x"));
}

#[test]
fn by_default_it_does_not() {
    let origin = serving("/x", own());
    let edge = Setup::cached(&origin).start();
    let reply = post(&edge, &[]);
    assert_eq!(cache_status(&reply), "sluice; fwd=method; fwd-status=200");
    assert!(!is_adopted(&edge, "/x"));
}

// Only a 200 of known length that names its own target and its own lifetime.
#[test]
fn only_what_says_so_answers_get() {
    let origin = origin();
    let edge = posting(&origin).start();
    let at = |n: usize| format!("/{n}");
    for (n, (resource, adopted)) in [
        (current(), false),
        (current().header("Content-Location", "/other"), false),
        (current().header("Content-Location", "/1"), false),
        (current().header("Content-Location", &at(3)), true),
        (
            bare(Resource::offset(LENGTH)).header("Content-Location", &at(4)),
            false,
        ),
        (
            current()
                .header("Content-Location", &at(5))
                .with_status(404),
            false,
        ),
        (
            current()
                .header("Content-Location", &at(6))
                .framing(Framing::Chunked(64)),
            false,
        ),
        (
            current()
                .header("Content-Location", &at(7))
                .cache_control("private"),
            false,
        ),
        (
            Resource::bytes("")
                .cache_control("max-age=60")
                .header("Content-Location", &at(8)),
            true,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        origin.serve(&at(n), resource);
        let reply = edge.ask("POST", &at(n), &[], b"x");
        assert!(!reply.truncated(), "{n}");
        let stored = cache_status(&reply).ends_with("; stored");
        assert_eq!(
            (stored, is_adopted(&edge, &at(n))),
            (adopted, adopted),
            "{n}"
        );
    }
}

// What one client alone would have been given answers nobody else.
#[test]
fn a_clients_own_post_answers_nobody_else() {
    let origin = serving("/x", own());
    let edge = posting(&origin)
        .cache("bypass = { headers = [\"X-Debug\"], query = [\"nocache\"] }")
        .start();
    let site = format!("http://{}", edge.http);
    for (name, value, adopted) in [
        ("Cookie", "session=1", false),
        ("Authorization", "Basic eDp5", false),
        ("X-Debug", "1", false),
        ("X-Original-URL", "/admin", false),
        ("X-Forwarded-Host", "evil.example", false),
        ("X-Anything", "1", false),
        ("Origin", "http://evil.example", false),
        ("If-Match", "*", false),
        ("Range", "bytes=0-5", false),
        ("Origin", &site, true),
        ("Content-Type", "application/json", true),
        ("Sec-Fetch-Mode", "cors", true),
    ] {
        let reply = post(&edge, &[(name, value)]);
        assert!(reply.status / 100 == 2 && !reply.truncated(), "{name}");
        assert_eq!(is_adopted(&edge, "/x"), adopted, "{name}: {value}");
    }
}

#[test]
fn what_the_key_leaves_out_answers_nobody_else() {
    let origin = origin();
    origin.serve_rest(shows(|seen| Some(&seen.target)));
    let edge = posting(&origin).cache("query_ignore = [\"utm_*\"]").start();
    let evil = edge.ask("POST", "/x?utm_a=evil", &[], b"x");
    assert_eq!(evil.text(), "/x?utm_a=evil");
    assert_eq!(edge.get("/x", &[]).text(), "/x");
}

// A variant is what everybody gets who asks for it: the POST asks for it in their words.
#[test]
fn a_post_accepts_what_a_fetch_for_all_would() {
    let origin = serving("/x", shows(|seen| seen.header("accept-language")));
    origin.update("/x", |resource| resource.vary("Accept-Language"));
    let edge = posting(&origin).cache("languages = [\"de\"]").start();
    let accepts = [
        ("Accept-Language", "fr, de-AT;q=0.5"),
        ("Accept-Encoding", "gzip;q=0.1, compress"),
    ];
    assert_eq!(post(&edge, &accepts).text(), "de");
    let coding = last_sent(&origin, "/x", "accept-encoding");
    assert_eq!(coding.as_deref(), Some("gzip"));
    let none = edge.ask("POST", "/x", &[("Accept-Language", "fr")], b"x");
    assert_eq!(none.text(), "nothing");
}

// Whatever the fill policy: it is not asked, and no GET follows.
#[test]
fn no_policy_matters() {
    for mode in ["slice", "auto", "whole", "lock"] {
        let origin = serving("/x", own().vary("Accept-Encoding"));
        let edge = posting(&origin)
            .cache(&format!("fill = \"{mode}\"\nslice = \"64KiB\""))
            .start();
        for coding in ["gzip", "identity"] {
            let reply = post(&edge, &[("Accept-Encoding", coding)]);
            reply.verify_whole(LENGTH).expect("the body");
            assert_says(&reply, "stored");
        }
        let methods = origin.read_record(|record| {
            let methods = record.of("/x").map(|seen| seen.method.clone());
            methods.collect::<Vec<_>>()
        });
        assert_eq!(methods, ["POST", "POST"], "{mode}");
    }
}

// What is too large to be kept goes to its client all the same; GET may have nothing there.
#[test]
fn what_cannot_be_kept_is_passed_on() {
    for mode in ["auto", "lock"] {
        let large = |seen: &Seen| match &*seen.method {
            "POST" => Resource::offset(3 * MIB)
                .cache_control("max-age=3600")
                .header("Content-Location", "/x"),
            _ => Resource::status(404),
        };
        let origin = serving("/x", Resource::dynamic(large));
        let edge = posting(&origin)
            .cache(&format!("fill = \"{mode}\"\nmax_object_size = \"1MiB\""))
            .start();
        let reply = post(&edge, &[]);
        reply.verify_whole(3 * MIB).expect("all of it");
        assert_eq!(cache_status(&reply), "sluice; fwd=method; fwd-status=200");
        assert_eq!(edge.get("/x", &[]).status, 404);
    }
}

// What is stored without a field is given with it to who brought it.
#[test]
fn its_client_gets_its_cookie() {
    let origin = serving("/x", own().header("Set-Cookie", "a=1"));
    let edge = posting(&origin).cache("set_cookie = \"remove\"").start();
    let reply = post(&edge, &[]);
    assert_eq!(reply.header("set-cookie"), Some("a=1"));
    let hit = edge.get("/x", &[]);
    assert_hit(&hit);
    assert_eq!(hit.header("set-cookie"), None);
}

// Its client does not wait for all of it, and others share what is on its way.
#[test]
fn others_ride_along() {
    let gate = Gate::at(100);
    let origin = serving("/x", own().gate(&gate));
    let edge = posting(&origin).start();
    let mut poster = edge.client();
    poster.send("POST", "/x", &[], b"x").expect("sent");
    assert!(gate.wait_held(1, SOON));
    let head = poster.read_head().expect("a head");
    assert_eq!(head.status, 200);
    assert_eq!(poster.read_some(100).expect("the beginning").len(), 100);
    let mut rider = edge.client();
    rider.send("GET", "/x", &[], b"").expect("sent");
    rider.read_head().expect("a head");
    gate.release();
    let rest = poster.read_some(LENGTH as usize - 100).expect("the rest");
    assert_eq!(rest.len() as u64, LENGTH - 100);
    let body = rider.read_some(LENGTH as usize).expect("the body");
    assert_eq!(body.len() as u64, LENGTH);
    assert_eq!(times(&origin, "/x"), 1);
}

// A body that is cut is cut for the client, and answers nobody.
#[test]
fn a_cut_body_answers_nobody() {
    let cut = Fault::CutBody {
        after: 100,
        ending: Ending::Fin,
    };
    let origin = serving("/x", own().fault_times(1, cut));
    let edge = posting(&origin).start();
    let mut client = edge.client();
    client.send("POST", "/x", &[], b"x").expect("sent");
    client.read_head().expect("a head");
    let rest = client.read_to_end().expect("what there is");
    assert!(rest.len() as u64 <= 100);
    let reply = edge.get("/x", &[]);
    assert!(!cache_status(&reply).contains("hit"));
    reply.verify_whole(LENGTH).expect("the body");
}

// Who leaves does not leave a fetch behind.
#[test]
fn it_ends_with_its_client() {
    let gate = Gate::at(100);
    let origin = serving("/x", own().gate(&gate));
    let edge = posting(&origin).start();
    let mut client = edge.client();
    client.send("POST", "/x", &[], b"x").expect("sent");
    client.read_head().expect("a head");
    client.reset().expect("a reset");
    gate.advance_to(500);
    eventually("it is noticed", || edge.counter("requests_now") == 0);
    gate.advance_to(600);
    eventually("it ends", || edge.counter("flights_failed") == 1);
    gate.release();
    let reply = edge.get("/x", &[]);
    reply.verify_whole(LENGTH).expect("the body");
}

// The log tells which server answered.
#[test]
fn the_log_has_its_exchange() {
    let origin = serving("/x", own());
    let edge = posting(&origin).logged("json").start();
    post(&edge, &[]);
    let lines = edge.json_log(1);
    assert_eq!(lines[0]["upstream"], origin.addr().to_string());
    assert_eq!(lines[0]["bytes"], LENGTH);
}
