//! Tests of invalidation by unsafe methods (RFC 9111 4.4).

use sluice_lab::client::Reply;
use sluice_lab::origin::{Latch, Origin, Resource};

use crate::caching_rules::{LENGTH, assert_failed, bare, current, kill, stale, times};
use crate::harness::{Edge, SOON, Setup, assert_hit, cache_status, fresh, origin, serving};

fn is_hit(reply: &Reply) -> bool {
    cache_status(reply).starts_with("sluice; hit")
}

/// Requests a path, so that the response is stored.
fn store(edge: &Edge, path: &str) {
    edge.get(path, &[]);
    assert_hit(&edge.get(path, &[]));
}

// RFC 9111 4.4: every method that is not known to be safe invalidates the stored response.
#[test]
fn unsafe_methods_invalidate_and_safe_methods_do_not() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin).start();
    for (method, forgotten) in [
        ("POST", true),
        ("PUT", true),
        ("DELETE", true),
        ("PATCH", true),
        ("M-SEARCH", true),
        ("FROBNICATE", true),
        ("OPTIONS", false),
        ("HEAD", false),
    ] {
        store(&edge, "/x");
        edge.ask(method, "/x", &[], b"");
        let hit = is_hit(&edge.get("/x", &[]));
        assert_eq!(hit, !forgotten, "{method}");
    }
}

// RFC 9111 4.4: only a response that is no error (2xx or 3xx) invalidates.
#[test]
fn failed_requests_invalidate_nothing() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin).start();
    for (status, forgotten) in [
        (200, true),
        (201, true),
        (204, true),
        (299, true),
        (302, true),
        (303, true),
        (400, false),
        (403, false),
        (409, false),
        (500, false),
        (503, false),
    ] {
        origin.serve("/x", current());
        store(&edge, "/x");
        origin.serve("/x", Resource::status(status));
        assert_eq!(edge.ask("POST", "/x", &[], b"x").status, status);
        origin.serve("/x", current());
        let hit = is_hit(&edge.get("/x", &[]));
        assert_eq!(hit, !forgotten, "{status}");
    }
}

/// Sends a POST to `/do`. The response names a URL in the header `field`. Returns whether the
/// response of `path` is still stored.
fn survives(edge: &Edge, origin: &Origin, path: &str, field: &str, url: &str) -> bool {
    origin.serve(path, current());
    store(edge, path);
    let done = Resource::status(201).header(field, url);
    origin.serve("/dir/do", done);
    assert_eq!(edge.ask("POST", "/dir/do", &[], b"x").status, 201);
    is_hit(&edge.get(path, &[]))
}

// RFC 9111 4.4: the URLs in Location and Content-Location are invalidated as well. They may be
// absolute or relative.
#[test]
fn named_locations_of_the_same_host_are_invalidated() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let absolute = edge.url("/dir/x?a=b");
    let capitals = format!(
        "{}://{}/dir/./x?a=b",
        edge.scheme().to_uppercase(),
        edge.http
    );
    let no_scheme = format!("//{}/dir/x?a=b", edge.http);
    let urls = [
        &*absolute,
        &*capitals,
        &*no_scheme,
        "/dir/x?a=b",
        "x?a=b",
        "../dir/x?a=b",
        "/dir/x?a=b#part",
    ];
    for field in ["Location", "Content-Location"] {
        for url in urls {
            let kept = survives(&edge, &origin, "/dir/x?a=b", field, url);
            assert!(!kept, "{field}: {url}");
        }
    }
}

// URLs of other hosts are not invalidated. Otherwise one site could remove the responses of
// another.
#[test]
fn named_locations_of_other_hosts_are_not_invalidated() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let other_port = format!("{}://{}:1/x", edge.scheme(), edge.http.ip());
    let urls = [
        "http://other.example/x",
        "//other.example/x",
        &*other_port,
        "http://[::1/x",
        "",
    ];
    for field in ["Location", "Content-Location"] {
        for url in urls {
            let kept = survives(&edge, &origin, "/x", field, url);
            assert!(kept, "{field}: {url}");
        }
    }
    // The response that is stored for the other host stays valid.
    let other = [("Host", "other.example")];
    edge.get("/x", &other);
    origin.serve(
        "/do",
        Resource::status(201).header("Location", "http://other.example/x"),
    );
    edge.ask("POST", "/do", &[], b"x");
    assert_hit(&edge.get("/x", &other));
}

#[test]
fn locations_of_failed_requests_are_not_invalidated() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin).start();
    store(&edge, "/x");
    origin.serve("/do", Resource::status(409).header("Location", "/x"));
    edge.ask("POST", "/do", &[], b"x");
    assert_hit(&edge.get("/x", &[]));
}

// A Content-Location in the response to a safe request, such as GET, invalidates nothing.
#[test]
fn locations_of_safe_requests_are_not_invalidated() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin).start();
    store(&edge, "/x");
    origin.serve(
        "/y",
        Resource::status(302)
            .header("Location", "/x")
            .header("Content-Location", "/x"),
    );
    edge.get("/y", &[]);
    edge.ask("OPTIONS", "/y", &[], b"");
    assert_hit(&edge.get("/x", &[]));
}

#[test]
fn all_variants_are_invalidated() {
    let origin = serving("/x", fresh(500).encoded("gzip", "zipped"));
    let edge = Setup::cached(&origin).start();
    let ask = |coding| edge.get("/x", &[("Accept-Encoding", coding)]);
    for coding in ["gzip", "identity"] {
        ask(coding);
        assert_hit(&ask(coding));
    }
    edge.ask("POST", "/x", &[("Accept-Encoding", "gzip")], b"x");
    for coding in ["gzip", "identity"] {
        assert!(!is_hit(&ask(coding)), "{coding}");
    }
}

// Targets with another path or with the same path and another query are not invalidated.
#[test]
fn other_targets_are_not_invalidated() {
    let origin = origin();
    origin.serve_rest(current());
    let edge = Setup::cached(&origin).start();
    let others = ["/x?a", "/x/", "/x/y", "/y"];
    for path in others {
        store(&edge, path);
    }
    edge.ask("POST", "/x", &[], b"x");
    edge.ask("DELETE", "/x?b", &[], b"");
    for path in others {
        assert_hit(&edge.get(path, &[]));
    }
}

// The configured key ignores some query parameters. Invalidation uses the same key, so it ignores
// them, too.
#[test]
fn invalidation_uses_the_configured_key() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin)
        .cache("query_ignore = [\"utm_*\"]")
        .start();
    store(&edge, "/x?a=1");
    edge.ask("POST", "/x?utm_source=x&a=1", &[], b"x");
    assert!(!is_hit(&edge.get("/x?a=1", &[])));
}

// RFC 9111 4.4: the responses stored for the URI are invalidated, whatever headers or cookies are
// part of their keys.
#[test]
fn all_keys_of_a_url_are_invalidated() {
    let origin = serving("/x", current());
    origin.serve("/x?other", current());
    origin.serve("/do", Resource::status(201).header("Location", "/x"));
    let edge = Setup::cached(&origin)
        .cache("key = \"{scheme}{host}{path}{query}{header:X-T}{cookie:c}\"")
        .start();
    let keys: [&[(&str, &str)]; 4] = [&[("X-T", "a")], &[("X-T", "b")], &[("Cookie", "c=1")], &[]];
    for (path, fields) in [("/x", keys[0]), ("/x", keys[3]), ("/do", keys[1])] {
        for key in keys {
            edge.get("/x", key);
            assert_hit(&edge.get("/x", key));
        }
        store(&edge, "/x?other");
        edge.ask("POST", path, fields, b"x");
        for key in keys {
            assert!(!is_hit(&edge.get("/x", key)), "{path} {key:?}");
        }
        assert_hit(&edge.get("/x?other", &[]));
    }
}

// A fetch was running when the unsafe request arrived. Its response is not stored for later
// requests.
#[test]
fn a_running_fetch_is_not_stored_after_an_invalidation() {
    let latch = Latch::at(100);
    let origin = serving("/x", current().hold_body(&latch));
    let edge = Setup::cached(&origin).start();
    let mut before = edge.client();
    before.send("GET", "/x", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    origin.serve("/x", current().version(1));
    assert_eq!(edge.ask("POST", "/x", &[], b"x").status, 200);
    // A request that arrives after the invalidation does not join the fetch that began before.
    let now = edge.get("/x", &[]);
    now.verify_version(1, 0).expect("the new one");
    latch.release();
    let reply = before.read_response().expect("a reply");
    reply
        .verify_whole(LENGTH)
        .expect("the one that it asked for");
    let hit = edge.get("/x", &[]);
    hit.verify_version(1, 0).expect("the new one");
}

// The invalidation arrives before the head of a running fetch. The response of this fetch is not
// stored.
#[test]
fn a_fetch_without_a_head_is_not_stored_after_an_invalidation() {
    let latch = Latch::closed();
    let origin = serving("/x", current().hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let mut before = edge.client();
    before.send("GET", "/x", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    origin.serve("/x", current().version(1));
    assert_eq!(edge.ask("POST", "/x", &[], b"x").status, 200);
    latch.release();
    let reply = before.read_response().expect("a reply");
    assert_eq!((reply.status, reply.body.len() as u64), (200, LENGTH));
    let now = edge.get("/x", &[]);
    now.verify_version(1, 0).expect("the new one");
}

// RFC 9111 4.4: an invalidated response must be validated or fetched again, even within the time in
// which stale responses are permitted.
#[test]
fn an_invalidated_response_is_not_served_stale() {
    let origin = serving(
        "/x",
        stale(", stale-if-error=600, stale-while-revalidate=600"),
    );
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    edge.ask("POST", "/x", &[], b"x");
    origin.serve("/x", current().version(1));
    let now = edge.get("/x", &[]);
    now.verify_version(1, 0).expect("the new one");
    edge.ask("POST", "/x", &[], b"x");
    kill(&origin);
    assert_failed(&edge.get("/x", &[]));
}

// Some blocks of a large object are stored. The invalidation covers all of them.
#[test]
fn all_parts_are_invalidated() {
    use crate::partial_objects::{
        BLOCK, FILE, ask_range, check_range, filling, landed, one_version,
    };
    let origin = serving("/x", fresh(FILE));
    let edge = filling(&origin, "slice").start();
    check_range(&edge, 5, 14);
    check_range(&edge, 3 * BLOCK, 3 * BLOCK + 9);
    landed(&edge);
    origin.serve("/x", fresh(FILE).version(1));
    edge.ask("POST", "/x", &[], b"x");
    for first in [5, 3 * BLOCK] {
        let reply = ask_range(&edge, first, first + 9);
        assert_eq!(one_version(&reply, first, first + 9), 1);
    }
}

// RFC 9110 9.3.3: a stored response to POST does not answer GET. The exception is tested in
// `post_responses.rs`.
#[test]
fn responses_to_unsafe_methods_are_not_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (n, (method, resource)) in [
        ("POST", current()),
        ("POST", current().header("Content-Location", "/other")),
        (
            "POST",
            bare(Resource::offset(LENGTH)).header("Content-Location", "/2"),
        ),
        ("PUT", current().header("Content-Location", "/3")),
        ("DELETE", current().header("Content-Location", "/4")),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{n}");
        origin.serve(&path, resource);
        for asked in 1..=2 {
            edge.ask(method, &path, &[], b"x");
            assert_eq!(times(&origin, &path), asked);
        }
        assert!(!is_hit(&edge.get(&path, &[])), "{n} {method}");
    }
}

// The configuration makes the POST bypass the cache. The POST invalidates the stored response
// nevertheless.
#[test]
fn bypassing_requests_invalidate() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin)
        .cache("bypass = { cookies = [\"session\"] }")
        .start();
    store(&edge, "/x");
    edge.ask("POST", "/x", &[("Cookie", "session=1")], b"x");
    assert!(!is_hit(&edge.get("/x", &[])));
}
