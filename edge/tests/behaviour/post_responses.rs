//! Tests of responses to POST that answer later GET requests (RFC 9110 9.3.3). This needs POST in
//! `methods`, and a response that would be the same for any client's POST.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Ending, Fault, Framing, Latch, Origin, Resource, Seen};

use crate::caching_rules::{LENGTH, bare, current, last_sent, times};
use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, cache_status, eventually, origin, serving,
};

const POST: &str = "methods = [\"GET\", \"HEAD\", \"POST\"]";
const MIB: u64 = 1 << 20;

/// Returns a resource whose response to POST may answer GET requests for `/x`.
fn own() -> Resource {
    current().header("Content-Location", "/x")
}

fn posting(origin: &Origin) -> Setup {
    Setup::cached(origin).cache(POST)
}

fn post(edge: &Edge, fields: &[(&str, &str)]) -> Reply {
    edge.ask("POST", "/x", fields, b"x")
}

/// Whether a GET is answered with the stored response to a POST.
fn is_adopted(edge: &Edge, path: &str) -> bool {
    cache_status(&edge.get(path, &[])).starts_with("sluice; hit")
}

/// Returns a resource whose response body has the part of the request that `show` selects.
fn shows(show: fn(&Seen) -> Option<&str>) -> Resource {
    Resource::dynamic(move |seen| {
        let shown = show(seen).unwrap_or("nothing").to_owned();
        Resource::bytes(shown)
            .cache_control("max-age=3600")
            .header("Content-Location", &seen.target)
    })
}

// Each POST is sent to the origin, and its client receives the complete response. Later GET
// requests are hits.
#[test]
fn the_response_to_a_post_answers_get() {
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
fn by_default_the_response_to_a_post_does_not_answer_get() {
    let origin = serving("/x", own());
    let edge = Setup::cached(&origin).start();
    let reply = post(&edge, &[]);
    assert_eq!(cache_status(&reply), "sluice; fwd=method; fwd-status=200");
    assert!(!is_adopted(&edge, "/x"));
}

// A response to POST answers GET only if it is a 200 of known length, with an explicit lifetime,
// and with its own target in Content-Location.
#[test]
fn only_a_post_response_that_says_so_answers_get() {
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

// The response to the POST is for its client only, for example because of a cookie. It does not
// answer requests of other clients.
#[test]
fn an_unshared_post_answers_no_other_client() {
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
fn a_post_with_parameters_outside_the_key_answers_no_other_client() {
    let origin = origin();
    origin.serve_rest(shows(|seen| Some(&seen.target)));
    let edge = posting(&origin).cache("query_ignore = [\"utm_*\"]").start();
    let evil = edge.ask("POST", "/x?utm_a=evil", &[], b"x");
    assert_eq!(evil.text(), "/x?utm_a=evil");
    assert_eq!(edge.get("/x", &[]).text(), "/x");
}

// The Accept of a POST chooses its response, and the response has no Vary. As with GET, such a
// response is stored only if none is stored yet.
#[test]
fn a_post_response_chosen_by_its_client_replaces_nothing() {
    for setting in ["", "invalidate_on = false"] {
        let origin = serving("/x", shows(|seen| seen.header("accept")));
        let edge = posting(&origin).cache(setting).start();
        for name in ["Accept", "Accept-Language"] {
            assert_eq!(edge.get("/x", &[]).text(), "nothing");
            let reply = post(&edge, &[(name, "x-evil")]);
            assert_eq!(cache_status(&reply), "sluice; fwd=method; fwd-status=200");
            let reply = edge.get("/x", &[]);
            assert_eq!(reply.text(), "nothing");
            assert!(is_adopted(&edge, "/x"));
            assert_eq!(cache_status(&reply).contains("hit"), !setting.is_empty());
        }
        let reply = post(&edge, &[("Accept", "*/*")]);
        assert_has_parameter(&reply, "stored");
        assert_eq!(edge.get("/x", &[]).text(), "*/*");
    }
}

// A response whose Vary names the Accept of the POST is for this variant alone. The origin receives
// Accept in the form in which variants are compared.
#[test]
fn a_post_response_that_varies_by_accept_is_stored_for_its_variant() {
    let lines = |seen: &Seen| {
        Resource::bytes(seen.header_all("accept").join("|"))
            .cache_control("max-age=3600")
            .vary("Accept")
            .header("Content-Location", "/x")
    };
    let origin = serving("/x", Resource::dynamic(lines));
    let edge = posting(&origin).start();
    assert_eq!(edge.get("/x", &[]).text(), "");
    let reply = post(&edge, &[("Accept", "a/b"), ("Accept", "c/d , e/f")]);
    assert_eq!(reply.text(), "a/b,c/d,e/f");
    assert_has_parameter(&reply, "stored");
    assert_hit(&edge.get("/x", &[("Accept", "a/b, c/d, e/f")]));
    assert_eq!(edge.get("/x", &[]).text(), "");
}

// RFC 9111 4.1: if Vary names a header that describes the content of the POST, the response answers
// only requests with the same header.
#[test]
fn a_post_response_that_varies_by_the_content_answers_no_request_without_content() {
    for name in ["Content-Type", "Origin"] {
        let shown: fn(&Seen) -> Option<&str> = match name {
            "Origin" => |seen| seen.header("origin"),
            _ => |seen| seen.header("content-type"),
        };
        let varying = move |seen: &Seen| {
            Resource::bytes(shown(seen).unwrap_or("nothing").to_owned())
                .cache_control("max-age=3600")
                .vary(name)
                .header("Content-Location", "/x")
        };
        let origin = serving("/x", Resource::dynamic(varying));
        let edge = posting(&origin).start();
        let site = format!("http://{}", edge.http);
        assert_eq!(post(&edge, &[(name, &site)]).text(), site);
        assert_eq!(edge.get("/x", &[]).text(), "nothing");
        assert_eq!(post(&edge, &[]).text(), "nothing");
        let asked = times(&origin, "/x");
        assert!(is_adopted(&edge, "/x"));
        assert_eq!(times(&origin, "/x"), asked);
    }
}

// A stored variant answers all clients that select it. Therefore the POST carries Accept-Encoding
// and Accept-Language in the form of a shared fetch.
#[test]
fn a_post_is_sent_with_the_negotiation_headers_of_a_shared_fetch() {
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

// With every fill policy the response to the POST is stored completely, without a further request
// to the origin.
#[test]
fn storing_a_post_response_does_not_depend_on_the_fill_policy() {
    for mode in ["slice", "auto", "whole", "lock"] {
        let origin = serving("/x", own().vary("Accept-Encoding"));
        let edge = posting(&origin)
            .cache(&format!("fill = \"{mode}\"\nslice = \"64KiB\""))
            .start();
        for coding in ["gzip", "identity"] {
            let reply = post(&edge, &[("Accept-Encoding", coding)]);
            reply.verify_whole(LENGTH).expect("the body");
            assert_has_parameter(&reply, "stored");
        }
        let methods = origin.read_record(|record| {
            let methods = record.of("/x").map(|seen| seen.method.clone());
            methods.collect::<Vec<_>>()
        });
        assert_eq!(methods, ["POST", "POST"], "{mode}");
    }
}

// The response is too large to be stored. It goes to the client of the POST, and does not answer
// GET.
#[test]
fn a_post_response_that_can_not_be_stored_is_passed_on() {
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

// The client of the POST receives the Set-Cookie of the response. The stored response, which
// answers GET, has no Set-Cookie.
#[test]
fn the_client_of_a_post_receives_its_cookie() {
    let origin = serving("/x", own().header("Set-Cookie", "a=1"));
    let edge = posting(&origin).cache("set_cookie = \"remove\"").start();
    let reply = post(&edge, &[]);
    assert_eq!(reply.header("set-cookie"), Some("a=1"));
    let hit = edge.get("/x", &[]);
    assert_hit(&hit);
    assert_eq!(hit.header("set-cookie"), None);
}

// While the body of the response to the POST arrives, its client and other clients receive the
// bytes.
#[test]
fn other_clients_share_a_post_response_in_flight() {
    let latch = Latch::at(100);
    let origin = serving("/x", own().hold_body(&latch));
    let edge = posting(&origin).start();
    let mut poster = edge.client();
    poster.send("POST", "/x", &[], b"x").expect("sent");
    assert!(latch.wait_held(1, SOON));
    let head = poster.read_head().expect("a head");
    assert_eq!(head.status, 200);
    assert_eq!(poster.read_some(100).expect("the beginning").len(), 100);
    let mut rider = edge.client();
    rider.send("GET", "/x", &[], b"").expect("sent");
    rider.read_head().expect("a head");
    latch.release();
    let rest = poster.read_some(LENGTH as usize - 100).expect("the rest");
    assert_eq!(rest.len() as u64, LENGTH - 100);
    let body = rider.read_some(LENGTH as usize).expect("the body");
    assert_eq!(body.len() as u64, LENGTH);
    assert_eq!(times(&origin, "/x"), 1);
}

// The body of the response to the POST is truncated. Its client is cut off, and the response does
// not answer GET.
#[test]
fn a_truncated_post_response_does_not_answer_get() {
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

// The client of the POST disconnects during the response. The fetch must end as well.
#[test]
fn the_fetch_of_a_post_ends_with_its_client() {
    let latch = Latch::at(100);
    let origin = serving("/x", own().hold_body(&latch));
    let edge = posting(&origin).start();
    let mut client = edge.client();
    client.send("POST", "/x", &[], b"x").expect("sent");
    client.read_head().expect("a head");
    client.reset().expect("a reset");
    latch.advance_to(500);
    eventually("it is noticed", || edge.counter("requests_now") == 0);
    latch.advance_to(600);
    eventually("it ends", || edge.counter("flights_failed") == 1);
    latch.release();
    let reply = edge.get("/x", &[]);
    reply.verify_whole(LENGTH).expect("the body");
}

#[test]
fn the_log_names_the_server_that_answered_a_post() {
    let origin = serving("/x", own());
    let edge = posting(&origin).logged("json").start();
    post(&edge, &[]);
    let lines = edge.json_log(1);
    assert_eq!(lines[0]["upstream"], origin.addr().to_string());
    assert_eq!(lines[0]["bytes"], LENGTH);
}
