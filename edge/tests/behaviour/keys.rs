//! Tests of the configured key, of requests that bypass the cache, and of the headers of shared
//! fetches.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Origin, Resource, Seen};

use crate::caching_rules::{LENGTH, current, last_sent, times};
use crate::harness::{
    Edge, Setup, assert_has_parameter, assert_hit, cache_status, origin, serving, stored_with,
};

/// Starts an origin whose response body has the target and these headers of the request.
fn echoing(fields: &'static [&'static str]) -> Origin {
    let told = move |seen: &Seen| {
        let mut text = seen.target.clone();
        for name in fields {
            let value = seen.header(name).unwrap_or("-");
            text += &format!(" {value}");
        }
        Resource::bytes(text).cache_control("max-age=3600")
    };
    let origin = origin();
    origin.serve_rest(Resource::dynamic(told));
    origin
}

fn is_hit(reply: &Reply) -> bool {
    cache_status(reply).starts_with("sluice; hit")
}

fn targets(origin: &Origin) -> Vec<String> {
    let target = |seen: &Seen| seen.target.clone();
    origin.read_record(|record| record.requests.iter().map(target).collect())
}

// The setting `key` contains a header. Responses are stored separately by its value, even without
// Vary, and the origin receives the header.
#[test]
fn a_header_can_be_part_of_the_key() {
    let origin = echoing(&["x-tenant"]);
    let edge = Setup::cached(&origin)
        .cache("key = \"{scheme}{host}{path}{query}{header:X-Tenant}\"")
        .start();
    for round in 0..2 {
        for tenant in ["a", "b", "A"] {
            let reply = edge.get("/x", &[("x-tenant", tenant)]);
            assert_eq!(reply.text(), format!("/x {tenant}"));
            assert_eq!(is_hit(&reply), round > 0);
        }
        assert_eq!(edge.get("/x", &[]).text(), "/x -");
    }
    assert_eq!(times(&origin, "/x"), 4);
}

// The setting `key` contains a cookie. The origin receives this cookie and no others.
#[test]
fn a_cookie_can_be_part_of_the_key() {
    let origin = echoing(&["cookie"]);
    let edge = Setup::cached(&origin)
        .cache("key = \"{scheme}{host}{path}{query}{cookie:lang}\"")
        .start();
    for cookies in ["lang=de; session=1", "session=2; lang=de", "a=b;lang=de"] {
        let reply = edge.get("/x", &[("Cookie", cookies)]);
        assert_eq!(reply.text(), "/x lang=de", "{cookies}");
    }
    assert_eq!(
        edge.get("/x", &[("Cookie", "lang=en")]).text(),
        "/x lang=en"
    );
    for none in ["session=3", "Lang=de", "xlang=de"] {
        assert_eq!(edge.get("/x", &[("Cookie", none)]).text(), "/x -", "{none}");
    }
    assert_eq!(times(&origin, "/x"), 3);
}

// The setting `key` contains no host, or no query.
#[test]
fn parts_can_be_left_out_of_the_key() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin).cache("key = \"{path}\"").start();
    edge.get("/x?a=1", &[("Host", "a.example")]);
    assert_hit(&edge.get("/x?a=2", &[("Host", "b.example")]));
    assert_hit(&edge.get("/x", &[]));
    assert_eq!(times(&origin, "/x"), 1);
}

// The setting `key` contains literal text. Values next to each other in the key must not be
// confused.
#[test]
fn parts_of_the_key_are_kept_apart() {
    let origin = echoing(&["x-a", "x-b"]);
    let edge = Setup::cached(&origin)
        .cache("key = \"v1 {host}{path}{query}{header:X-A}{header:X-B}\"")
        .start();
    for (a, b) in [("1", "23"), ("12", "3"), ("123", "")] {
        let reply = edge.get("/x", &[("X-A", a), ("X-B", b)]);
        assert!(!is_hit(&reply), "{a} {b}");
        assert_eq!(reply.text(), format!("/x {a} {b}"));
    }
}

// `query_sort` sorts the parameters by name, in the key and in the request to the origin.
#[test]
fn parameters_can_be_sorted() {
    let origin = echoing(&[]);
    let edge = Setup::cached(&origin).cache("query_sort = true").start();
    for (n, query) in ["b=2&a=1", "a=1&b=2"].into_iter().enumerate() {
        let reply = edge.get(&format!("/x?{query}"), &[]);
        assert_eq!(reply.text(), "/x?a=1&b=2");
        assert_eq!(is_hit(&reply), n > 0);
    }
    // The order of parameters with the same name may have a meaning, so it is kept.
    assert_eq!(edge.get("/x?b=2&b=1&a", &[]).text(), "/x?a&b=2&b=1");
    assert_eq!(edge.get("/x?b=1&b=2&a", &[]).text(), "/x?a&b=1&b=2");
    assert_eq!(times(&origin, "/x"), 3);
}

// `query_ignore` removes parameters from the key and from the request to the origin.
#[test]
fn parameters_can_be_ignored() {
    let origin = echoing(&[]);
    let edge = Setup::cached(&origin)
        .cache("query_ignore = [\"utm_*\", \"ref\"]")
        .start();
    for query in [
        "?id=1",
        "?utm_source=a&id=1",
        "?id=1&ref=b&utm_=c",
        "?ref&id=1",
    ] {
        assert_eq!(edge.get(&format!("/x{query}"), &[]).text(), "/x?id=1");
    }
    for query in ["", "?utm_source=a", "?ref=b&utm_x=c"] {
        assert_eq!(edge.get(&format!("/x{query}"), &[]).text(), "/x", "{query}");
    }
    // Only parameters with exactly the configured name are ignored.
    assert_eq!(edge.get("/x?reference=1", &[]).text(), "/x?reference=1");
    assert_eq!(edge.get("/x?REF=1", &[]).text(), "/x?REF=1");
    assert_eq!(times(&origin, "/x"), 4);
}

// `query_only` keeps these parameters and removes all others.
#[test]
fn parameters_can_be_chosen() {
    let origin = echoing(&[]);
    let edge = Setup::cached(&origin)
        .cache("query_only = [\"id\", \"size_*\"]")
        .start();
    for query in [
        "?id=1&size_x=2",
        "?a=b&id=1&c&size_x=2",
        "?id=1&size_x=2&ids=3",
    ] {
        let reply = edge.get(&format!("/x{query}"), &[]);
        assert_eq!(reply.text(), "/x?id=1&size_x=2", "{query}");
    }
    assert_eq!(edge.get("/x?a=b", &[]).text(), "/x");
    assert_eq!(times(&origin, "/x"), 2);
}

// A request that is not shared reaches the origin with its query unchanged.
#[test]
fn unshared_requests_keep_their_query() {
    let origin = echoing(&[]);
    let edge = Setup::cached(&origin)
        .cache("query_sort = true")
        .cache("query_ignore = [\"utm_*\"]")
        .cache("bypass = { headers = [\"X-Debug\"] }")
        .start();
    edge.ask("POST", "/x?b&utm_a=1&a", &[], b"x");
    edge.get("/x?b&utm_a=1&a", &[("X-Debug", "1")]);
    let asked = targets(&origin);
    assert_eq!(asked, ["/x?b&utm_a=1&a", "/x?b&utm_a=1&a"]);
}

// `bypass` sends requests to the origin unchanged. They are not answered from the cache, and their
// responses are not stored.
#[test]
fn requests_can_bypass_the_cache() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin)
        .cache("bypass = { cookies = [\"session*\", \"id\"], headers = [\"X-Debug\"], query = [\"nocache\"] }")
        .start();
    let past: [(&str, &str, &str, &str); 6] = [
        ("/x", "Cookie", "session_id=1", "cookie"),
        ("/x", "Cookie", "a=b; session=", "cookie"),
        ("/x", "Cookie", "id=7", "cookie"),
        ("/x", "x-debug", "", "header"),
        ("/x?nocache", "X-Other", "1", "query"),
        ("/x?a=b&nocache=1", "X-Other", "1", "query"),
    ];
    for round in ["cold", "stored"] {
        for (target, name, value, detail) in past {
            let before = times(&origin, "/x");
            let reply = edge.get(target, &[(name, value)]);
            reply.verify_whole(LENGTH).expect("the body");
            assert_has_parameter(&reply, "fwd=bypass");
            assert_has_parameter(&reply, &format!("detail={detail}"));
            assert_eq!(times(&origin, "/x"), before + 1, "{round} {value}");
            if name == "Cookie" {
                assert_eq!(last_sent(&origin, "/x", "cookie").as_deref(), Some(value));
            }
        }
        let shared = edge.get("/x", &[]);
        assert_eq!(is_hit(&shared), round == "stored", "they stored nothing");
    }
    // Names that only resemble the configured ones do not match. Names of cookies and parameters
    // are case-sensitive.
    for (target, name, value) in [
        ("/x", "Cookie", "ids=7"),
        ("/x", "Cookie", "Session=1"),
        ("/x", "X-Debugger", "1"),
    ] {
        assert_hit(&edge.get(target, &[(name, value)]));
    }
    edge.get("/x?NoCache", &[]);
    assert_hit(&edge.get("/x?NoCache", &[]));
}

// If `methods` does not contain HEAD, a HEAD request is sent to the origin as HEAD, and not turned
// into GET.
#[test]
fn head_can_be_sent_on() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin).cache("methods = [\"GET\"]").start();
    for _ in 0..2 {
        let head = edge.ask("HEAD", "/x", &[], b"");
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert!(!is_hit(&head));
    }
    let methods = |seen: &Seen| seen.method.clone();
    let asked: Vec<_> = origin.requests().iter().map(methods).collect();
    assert_eq!(asked, ["HEAD", "HEAD"]);
    assert!(!is_hit(&edge.get("/x", &[])), "HEAD brings no body");
}

// RFC 9111 4.3.5: the response to HEAD has the validator of the stored response, so it updates the
// stored headers.
#[test]
fn head_updates_the_stored_response() {
    let (origin, edge) = stored_with(current().header("X-Field", "old"), "methods = [\"GET\"]");
    origin.serve("/x", current().header("X-Field", "new"));
    edge.ask("HEAD", "/x", &[], b"");
    let hit = edge.get("/x", &[]);
    hit.verify_whole(LENGTH).expect("the body");
    assert_hit(&hit);
    assert_eq!(hit.header_all("x-field"), ["new"]);
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 9111 4.3.5: the response to HEAD has another validator or length, so the stored response
// becomes stale.
#[test]
fn head_of_another_version_makes_the_stored_response_stale() {
    let same_tag = sluice_lab::origin::Tag::Fixed("\"same\"".to_owned());
    let longer = Resource::offset(LENGTH + 1).cache_control("max-age=3600");
    for (old, new, version) in [
        (current(), current().version(1), 1),
        (current().tag(same_tag.clone()), longer.tag(same_tag), 0),
    ] {
        let (origin, edge) = stored_with(old, "methods = [\"GET\"]");
        origin.serve("/x", new);
        edge.ask("HEAD", "/x", &[], b"");
        let reply = edge.get("/x", &[]);
        assert!(!is_hit(&reply), "{}", cache_status(&reply));
        reply.verify_version(version, 0).expect("the new one");
    }
}

// The response to HEAD forbids storing or has another Vary. The stored response becomes stale, and
// is not changed otherwise.
#[test]
fn head_that_forbids_storing_only_makes_the_stored_response_stale() {
    for changed in [
        current().vary("X-A"),
        current().vary("*"),
        current().cache_control("no-store"),
    ] {
        let head = changed.clone();
        let origin = serving(
            "/x",
            Resource::dynamic(move |seen| match &*seen.method {
                "HEAD" => head.clone(),
                _ => current(),
            }),
        );
        let edge = Setup::cached(&origin).cache("methods = [\"GET\"]").start();
        edge.get("/x", &[]);
        edge.ask("HEAD", "/x", &[], b"");
        let reply = edge.get("/x", &[("X-A", "2")]);
        assert_has_parameter(&reply, "fwd=stale");
        assert_has_parameter(&reply, "fwd-status=304");
        assert_hit(&edge.get("/x", &[]));
    }
}

// The HEAD request carries headers that a shared fetch would not carry. Its response therefore does
// not affect the stored response.
#[test]
fn an_unshared_head_does_not_affect_the_stored_response() {
    let own = |seen: &Seen| match &*seen.method {
        "HEAD" => current().header("X-User", "alice").version(1),
        _ => current(),
    };
    let origin = serving("/x", Resource::dynamic(own));
    origin.serve("/x?utm=1", Resource::dynamic(own));
    let edge = Setup::cached(&origin)
        .cache("methods = [\"GET\"]\nquery_ignore = [\"utm\"]\nbypass = { headers = [\"Accept\"] }")
        .start();
    edge.get("/x", &[]);
    for (target, name, value) in [
        ("/x", "Cookie", "a=b"),
        ("/x", "Authorization", "Basic eDp5"),
        ("/x", "X-Anything", "1"),
        ("/x", "If-None-Match", "\"mine\""),
        ("/x", "Accept", "*/*"),
        ("/x?utm=1", "User-Agent", "lab"),
    ] {
        let head = edge.ask("HEAD", target, &[(name, value)], b"");
        assert_eq!(head.header("x-user"), Some("alice"), "{name}");
        let hit = edge.get("/x", &[]);
        assert_hit(&hit);
        assert_eq!(hit.header("x-user"), None, "{name}");
    }
    edge.ask("HEAD", "/x", &[("X-Forwarded-Host", "a")], b"");
    assert!(!is_hit(&edge.get("/x", &[])), "it was sent without it");
}

// The HEAD request bypasses the cache by configuration. Its response does not affect the stored
// response.
#[test]
fn a_bypassing_head_does_not_affect_the_stored_response() {
    let (origin, edge) = stored_with(current(), "bypass = { cookies = [\"session\"] }");
    origin.serve("/x", current().header("X-User", "alice"));
    edge.ask("HEAD", "/x", &[("Cookie", "session=alice")], b"");
    let hit = edge.get("/x", &[]);
    assert_hit(&hit);
    assert_eq!(hit.header("x-user"), None);
}

// Headers in the key reach the origin with shared and with unshared requests.
#[test]
fn headers_in_the_key_are_forwarded() {
    let shows = |seen: &Seen| {
        let tenant = seen.header("x-original-host").unwrap_or("none").to_owned();
        Resource::bytes(tenant).cache_control("no-store")
    };
    let origin = serving("/x", Resource::dynamic(shows));
    let edge = Setup::cached(&origin)
        .cache("key = \"{scheme}{host}{path}{query}{header:X-Original-Host}\"")
        .start();
    for detail in ["no-store", "no-store"] {
        let fields = [("X-Original-Host", "tenant"), ("X-Host", "evil")];
        let reply = edge.get("/x", &fields);
        assert_has_parameter(&reply, &format!("detail={detail}"));
        assert_eq!(reply.text(), "tenant");
    }
    assert_eq!(last_sent(&origin, "/x", "x-host"), None);
}

#[test]
fn a_failed_head_does_not_affect_the_stored_response() {
    let (origin, edge) = stored_with(current(), "methods = [\"GET\"]");
    origin.serve("/x", Resource::status(503));
    assert_eq!(edge.ask("HEAD", "/x", &[], b"").status, 503);
    assert_hit(&edge.get("/x", &[]));
}

const ALL: [(&str, &str); 17] = [
    ("Host", "a.example"),
    ("X-Tenant", "t"),
    ("X-Anything", "else"),
    ("Cookie", "session=1"),
    ("X-Forwarded-Host", "evil.example"),
    ("X-Original-URL", "/admin"),
    // Some origins read `_` in header names as `-`.
    ("X_Original_URL", "/admin"),
    ("x_http_method_override", "DELETE"),
    ("Surrogate-Capability", "mine=\"ESI/1.0\""),
    ("Via", "1.1 mine"),
    ("Max-Forwards", "1"),
    ("Content-Type", "text/mine"),
    ("Content_Encoding", "mine"),
    ("Cache-Control", "no-cache"),
    ("Pragma", "no-cache"),
    ("If-None-Match", "\"mine\""),
    ("Range", "bytes=0-5"),
];

/// Returns the names of the client's headers that reach the origin in a shared fetch.
fn carried(edge: &Edge, origin: &Origin) -> Vec<&'static str> {
    edge.get("/x", &ALL);
    origin.read_record(|record| {
        let seen = record.of("/x").last().expect("it was asked");
        let came = |(name, value): &(&str, &str)| seen.header(name) == Some(*value);
        let own = ALL.iter().filter(|field| field.0 != "Host" && came(field));
        own.map(|(name, _)| *name).collect()
    })
}

// `forward_headers` adds headers of the client to shared fetches.
#[test]
fn shared_fetches_carry_the_configured_headers() {
    let cases: [(&str, &[&str]); 4] = [
        ("false", &[]),
        ("[\"x-tenant\"]", &["X-Tenant"]),
        ("[\"*\"]", &["X-Tenant", "X-Anything"]),
        ("[\"*\", \"Cookie\"]", &["X-Tenant", "X-Anything", "Cookie"]),
    ];
    for (setting, expected) in cases {
        let origin = serving("/x", current());
        let edge = Setup::cached(&origin)
            .cache(&format!("forward_headers = {setting}"))
            .cache("fill = \"whole\"")
            .start();
        assert_eq!(carried(&edge, &origin), expected, "{setting}");
        assert_hit(&edge.get("/x", &[("Host", "a.example")]));
    }
}

// Each setting of a route takes precedence over the same setting of its cache.
#[test]
fn rules_of_a_route_take_precedence() {
    let origin = echoing(&[]);
    let setup = Setup::cached(&origin)
        .cache("query_ignore = [\"utm_*\"]")
        .cache("query_sort = true");
    let text = setup.text() + "query_ignore = [\"ref\"]\n";
    let edge = Setup::of_text(text).start();
    let reply = edge.get("/x?ref=1&utm_a=2&a=3", &[]);
    assert_eq!(reply.text(), "/x?a=3&utm_a=2");
}

// The admin API makes keys of a URL as the routes do, so that it finds the objects of routes with
// `key` and `query_sort`.
#[test]
fn the_objects_of_a_url_are_found_with_the_keys_of_its_routes() {
    for rules in [
        "query_sort = true",
        "query_ignore = \"utm_*\"",
        "key = \"{scheme}{host}{path}\"",
        "key = \"{path}{query}-v2\"",
        "key = \"{scheme}{host}{path}{query}{header:X-Tenant}\"",
    ] {
        let origin = echoing(&[]);
        let edge = Setup::cached(&origin).cache(rules).start();
        let host = edge.http.to_string();
        edge.get("/x?b=1&a=2&utm_source=c", &[("host", &host)]);
        let url = edge.url("/x?b=1%26a=2%26utm_source=c");
        let found = edge.get_admin(&format!("/status?url={url}")).text();
        assert!(found.contains("\"cache\":"), "{rules}: {found}");
    }
}

#[test]
fn the_objects_of_a_url_are_found_with_the_headers_in_their_key() {
    let origin = echoing(&[]);
    let edge = Setup::cached(&origin)
        .cache("key = \"{scheme}{host}{path}{header:X-Tenant}{cookie:lang}\"")
        .start();
    let host = edge.http.to_string();
    let client = [
        ("host", &*host),
        ("x-tenant", "a"),
        ("cookie", "id=1; lang=de"),
    ];
    edge.get("/x", &client);
    let found = |headers: &str| {
        let target = format!("/status?url={}&headers={headers}", edge.url("/x"));
        edge.get_admin(&target).text() != "[]"
    };
    assert!(found("X-Tenant:%20a%0ACookie:%20id=2;%20lang=de"));
    assert!(!found("X-Tenant:%20a"));
    assert!(!found("X-Tenant:%20b%0ACookie:%20lang=de"));
    assert!(!found(""));
}
