//! Tests of the cache: which responses are stored, and which requests are answered with them.

use sluice_lab::origin::{Latch, Modified, Resource, Tag};

use crate::harness::{
    Setup, assert_has_parameter, assert_hit, cache_status, eventually, fresh, origin, serving, ttl,
    wait_for_requests,
};

// Cache-Status (RFC 9211) has `hit`, or the reason why the response was not a hit.
#[test]
fn a_missed_response_is_stored_and_then_hit() {
    let origin = serving("/x", fresh(100_000));
    let edge = Setup::cached(&origin).start();
    let miss = edge.get("/x", &[]);
    miss.verify_whole(100_000).expect("the body");
    assert_eq!(
        cache_status(&miss),
        "sluice; fwd=uri-miss; fwd-status=200; stored"
    );
    let hit = edge.get("/x", &[]);
    hit.verify_whole(100_000).expect("the body");
    assert_hit(&hit);
    assert!((3590..=3600).contains(&ttl(&hit)));
    assert!(hit.header("age").is_some() && hit.header("date").is_some());
    for name in [
        "etag",
        "last-modified",
        "accept-ranges",
        "cache-control",
        "via",
    ] {
        assert_eq!(hit.header(name), miss.header(name), "{name}");
    }
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn concurrent_requests_for_one_object_share_one_fetch() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(300_000).hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let mut clients: Vec<_> = (0..8).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    eventually("all wait", || edge.counter("requests_now") == 8);
    latch.release();
    let mut collapsed = 0;
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(300_000).expect("the body");
        collapsed += usize::from(cache_status(&reply).ends_with("; collapsed"));
    }
    assert_eq!((collapsed, origin.requests().len()), (7, 1));
    assert_eq!(edge.counter("cache_collapsed"), 7);
}

// Responses with `no-store`, `private` or Set-Cookie, and responses to requests with Authorization,
// are not stored. Cache-Status gives the reason.
#[test]
fn responses_that_may_not_be_shared_are_not_stored() {
    let origin = origin();
    // The responses have no validator. With a validator they could be stored and revalidated on
    // each use.
    let bare = || Resource::offset(9).tag(Tag::None).modified(Modified::None);
    let unshared = [
        (
            "no-store",
            Resource::offset(9).cache_control("no-store, max-age=60"),
        ),
        (
            "no-store",
            Resource::offset(9)
                .cache_control("NO-STORE")
                .header("Expires", "Thu, 01 Jan 2037 00:00:00 GMT"),
        ),
        (
            "private",
            Resource::offset(9).cache_control("private, max-age=60"),
        ),
        ("set-cookie", fresh(9).header("Set-Cookie", "a=b")),
        ("no-cache", bare().cache_control("no-cache, max-age=60")),
        ("no-lifetime", bare()),
        ("vary-any", fresh(9).vary("*")),
        ("vary-any", fresh(9).vary("accept-encoding, *")),
        ("status", fresh(9).with_status(429)),
        ("expired", bare().cache_control("max-age=0")),
    ];
    let edge = Setup::cached(&origin).start();
    for (n, (reason, resource)) in unshared.into_iter().enumerate() {
        let path = format!("/{n}");
        origin.serve(&path, resource);
        for times in 1..=3 {
            let reply = edge.get(&path, &[]);
            assert_eq!(reply.body.len(), 9, "{n} {reason}");
            assert_has_parameter(&reply, &format!("detail={reason}"));
            assert_eq!(
                origin.read_record(|record| record.count(&path)),
                times,
                "{n} {reason}"
            );
        }
    }
    assert_eq!(edge.counter("cache_hits"), 0);
}

// RFC 9111 3.5: the response to a request with Authorization is stored only if the response permits
// it. The origin receives the Authorization header.
#[test]
fn requests_with_authorization_bypass_the_cache() {
    let origin = serving("/x", fresh(100));
    let edge = Setup::cached(&origin).start();
    let authorized = [("Authorization", "Basic eDp5")];
    for _ in 0..2 {
        assert_has_parameter(&edge.get("/x", &authorized), "detail=authorization");
    }
    assert_has_parameter(&edge.get("/x", &[]), "stored");
    let past = edge.get("/x", &authorized);
    assert_has_parameter(&past, "fwd=bypass");
    assert_has_parameter(&past, "detail=authorization");
    assert_hit(&edge.get("/x", &[]));
    let with = |seen: &&sluice_lab::origin::Seen| seen.header("authorization").is_some();
    assert_eq!(origin.requests().iter().filter(with).count(), 3);
}

#[test]
fn content_codings_are_variants() {
    let origin = serving("/x", fresh(500).encoded("gzip", "zipped"));
    let edge = Setup::cached(&origin).start();
    let ask = |codings: &str| edge.get("/x", &[("Accept-Encoding", codings)]);
    for round in 0..2 {
        for codings in ["gzip", "gzip, deflate", "GZIP;q=0.5"] {
            let reply = ask(codings);
            assert_eq!(reply.text(), "zipped", "{codings}");
            assert_eq!(reply.header("content-encoding"), Some("gzip"));
        }
        for codings in ["identity", "", "gzip;q=0"] {
            let reply = ask(codings);
            reply.verify_whole(500).expect(codings);
            assert_eq!(reply.header("vary"), Some("Accept-Encoding"));
        }
        edge.get("/x", &[]).verify_whole(500).expect("no field");
        assert_eq!(edge.objects("/x").len(), 2, "round {round}");
    }
    let asked = origin.requests().len();
    assert_eq!(asked, 2, "one fetch for each variant");
}

// The origin's Vary names request headers for which the cache has no special rules.
#[test]
fn variants_by_any_request_header_are_kept_apart() {
    let origin = origin();
    let flavoured = |seen: &sluice_lab::origin::Seen| {
        let flavour = seen.header("x-flavour").unwrap_or("plain").to_owned();
        Resource::bytes(flavour)
            .cache_control("max-age=60")
            .vary("X-Flavour")
    };
    origin.serve("/x", Resource::dynamic(flavoured));
    let edge = Setup::cached(&origin).start();
    for _ in 0..3 {
        for flavour in ["cherry", "lemon", "mint"] {
            let reply = edge.get("/x", &[("X-Flavour", flavour)]);
            assert_eq!(reply.text(), flavour, "{}", cache_status(&reply));
        }
        assert_eq!(edge.get("/x", &[]).text(), "plain");
    }
    for flavour in ["cherry", "lemon", "mint"] {
        assert_hit(&edge.get("/x", &[("X-Flavour", flavour)]));
    }
    assert_hit(&edge.get("/x", &[]));
}

// User-Agent is not a list, although it contains commas (RFC 9110 5.3). An origin may distinguish
// values that would be equal as lists, so they are different variants (RFC 9111 4.1) and different
// keys.
#[test]
fn values_that_the_origin_may_distinguish_do_not_share_a_response() {
    const AGENT: &str = "Mozilla/5.0 (KHTML, like Gecko)";
    let requests: [&[&str]; 5] = [
        &["Mozilla/5.0 (KHTML", "like Gecko)"],
        &["Mozilla/5.0 (KHTML,like Gecko)"],
        &["Mozilla/5.0 (KHTML\t ,\t like Gecko)"],
        &["like Gecko)", "Mozilla/5.0 (KHTML"],
        &[AGENT],
    ];
    let by_vary = |seen: &sluice_lab::origin::Seen| {
        Resource::bytes(seen.header_all("user-agent").join("|"))
            .cache_control("max-age=60")
            .vary("User-Agent")
    };
    let by_key = |seen: &sluice_lab::origin::Seen| {
        Resource::bytes(seen.header_all("user-agent").join("|")).cache_control("max-age=60")
    };
    let key = "key = \"{scheme}{host}{path}{query}{header:User-Agent}\"";
    for (resource, setting) in [
        (Resource::dynamic(by_vary), ""),
        (Resource::dynamic(by_key), key),
    ] {
        let origin = origin();
        origin.serve("/x", resource);
        let edge = Setup::cached(&origin).cache(setting).start();
        // The first response shows that Vary names the header.
        edge.get("/x", &[]);
        for hit in [false, true] {
            for lines in requests {
                let fields: Vec<_> = lines.iter().map(|line| ("User-Agent", *line)).collect();
                let reply = edge.get("/x", &fields);
                assert_eq!(reply.text(), lines.join("|"));
                let status = cache_status(&reply);
                assert_eq!(
                    status.starts_with("sluice; hit"),
                    hit,
                    "{lines:?}: {status}"
                );
            }
        }
    }
}

// Two clients wait for one flight, and the response's Vary shows that they need different variants.
// Each client then receives its own response.
#[test]
fn riders_of_different_variants_are_separated() {
    let latch = Latch::closed();
    let origin = origin();
    let held = latch.clone();
    let flavoured = move |seen: &sluice_lab::origin::Seen| {
        let flavour = seen.header("x-flavour").unwrap_or("plain").to_owned();
        Resource::bytes(flavour)
            .cache_control("max-age=60")
            .vary("X-Flavour")
            .hold_head(&held)
    };
    origin.serve("/x", Resource::dynamic(flavoured));
    let edge = Setup::cached(&origin).start();
    let flavours = ["cherry", "lemon", "mint", "cherry"];
    let mut clients = flavours.map(|flavour| {
        let mut client = edge.client();
        let fields = [("X-Flavour", flavour)];
        client.send("GET", "/x", &fields, b"").expect("sent");
        client
    });
    eventually("all wait", || edge.counter("requests_now") == 4);
    latch.release();
    for (client, flavour) in clients.iter_mut().zip(flavours) {
        assert_eq!(client.read_response().expect("a reply").text(), flavour);
    }
}

#[test]
fn head_and_get_share_a_stored_response() {
    let origin = serving("/x", fresh(5000));
    origin.serve("/y", fresh(5000));
    let edge = Setup::cached(&origin).start();
    let head = edge.ask("HEAD", "/x", &[], b"");
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("5000"))
    );
    edge.get("/x", &[]).verify_whole(5000).expect("the body");
    assert_hit(&edge.get("/x", &[]));
    edge.get("/y", &[]).verify_whole(5000).expect("the body");
    let head = edge.ask("HEAD", "/y", &[], b"");
    assert_hit(&head);
    assert_eq!(
        (head.body.len(), head.header("content-length")),
        (0, Some("5000"))
    );
    assert_eq!(origin.requests().len(), 2);
}

// The cache answers conditional requests with 304 or 412, from a stored response and from one that
// is still being fetched.
#[test]
fn the_cache_evaluates_conditional_requests() {
    let origin = serving("/x", fresh(5000));
    let tag = edge_tag(&origin);
    let edge = Setup::cached(&origin).start();
    let dated = "Thu, 01 Jan 2026 00:00:00 GMT";
    let before = "Wed, 31 Dec 2025 23:59:59 GMT";
    let weak = format!("W/{tag}");
    for round in ["cold", "stored"] {
        let cases = [
            (("If-None-Match", tag.as_str()), 304),
            (("If-None-Match", weak.as_str()), 304),
            (("If-None-Match", "*"), 304),
            (("If-None-Match", "\"other\""), 200),
            (("If-Modified-Since", dated), 304),
            (("If-Modified-Since", before), 200),
            (("If-Match", tag.as_str()), 200),
            (("If-Match", weak.as_str()), 412),
            (("If-Match", "\"other\""), 412),
            (("If-Unmodified-Since", dated), 200),
            (("If-Unmodified-Since", before), 412),
        ];
        for (field, status) in cases {
            let reply = edge.get("/x", &[field]);
            assert_eq!(reply.status, status, "{round} {field:?}");
            assert_eq!(reply.header("etag"), Some(tag.as_str()), "{field:?}");
            if status != 200 {
                assert!(reply.status == 412 || reply.body.is_empty());
                assert!(reply.header("last-modified").is_some(), "{field:?}");
            }
        }
    }
    assert_eq!(
        origin.requests().len(),
        1,
        "the origin was asked once, without conditions"
    );
    assert!(origin.requests()[0].header("if-none-match").is_none());
}

fn edge_tag(origin: &sluice_lab::origin::Origin) -> String {
    let reply = sluice_lab::client::get(origin.addr(), "/x", &[]).expect("a reply");
    origin.reset_record();
    reply.header("etag").expect("a tag").to_owned()
}

#[test]
fn different_hosts_and_queries_are_stored_separately() {
    let origin = origin();
    let told = |seen: &sluice_lab::origin::Seen| {
        let text = format!("{} {}", seen.header("host").unwrap_or(""), seen.target);
        Resource::bytes(text).cache_control("max-age=60")
    };
    origin.serve_rest(Resource::dynamic(told));
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        for host in ["a.example", "b.example", "a.example:81"] {
            for target in ["/x", "/x?", "/x?a=1", "/x?a=2", "/x/?a=1", "/X"] {
                let reply = edge.get(target, &[("Host", host)]);
                assert_eq!(reply.text(), format!("{host} {target}"));
            }
        }
    }
    assert_eq!(origin.requests().len(), 18);
}

// The request of a shared flight is built from the key and an allow-list of headers. No other
// header of the client is sent.
#[test]
fn a_shared_fetch_carries_nothing_of_one_client() {
    let origin = serving("/x", fresh(100));
    let edge = Setup::cached(&origin).start();
    let fields = [
        ("Host", "a.example"),
        ("Cookie", "session=1"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Original-URL", "/admin"),
        ("X-Rewrite-URL", "/admin"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("Range", "bytes=5-9"),
        ("If-None-Match", "\"other\""),
        ("Cache-Control", "no-store"),
        ("X-Anything", "else"),
        ("Origin", "http://evil.example"),
        ("Accept-Language", "de"),
    ];
    let reply = edge.get("/x", &fields);
    reply.verify_range(5, 9, 100).expect("the range");
    wait_for_requests(&origin, "/x", 1);
    let seen = &origin.requests()[0];
    let head = String::from_utf8_lossy(&seen.raw_head).into_owned();
    for said in [
        "evil", "admin", "DELETE", "session", "bytes=5", "other", "else",
    ] {
        assert!(!head.contains(said), "{said} is in {head}");
    }
    assert_eq!(seen.header("x-forwarded-host"), Some("a.example"));
    assert_eq!(seen.header("accept-language"), Some("de"));
}

#[test]
fn an_unshared_request_carries_all_headers_of_its_client() {
    let origin = origin();
    let personal = |seen: &sluice_lab::origin::Seen| {
        let cookie = seen.header("cookie").unwrap_or("nobody").to_owned();
        Resource::bytes(cookie).cache_control("private")
    };
    origin.serve("/x", Resource::dynamic(personal));
    let edge = Setup::cached(&origin).start();
    for who in ["ann", "ben", "ann"] {
        let reply = edge.get("/x", &[("Cookie", who)]);
        assert_eq!(reply.text(), who);
        assert_has_parameter(&reply, "detail=private");
    }
    assert_eq!(edge.get("/x", &[]).text(), "nobody");
}

// RFC 9111 4.4: a successful request with an unsafe method may have changed the resource, so the
// stored response is invalidated.
#[test]
fn unsafe_methods_invalidate_stored_responses() {
    let origin = serving("/x", fresh(100));
    let edge = Setup::cached(&origin).start();
    for (method, status, forgotten) in [
        ("POST", 200, true),
        ("DELETE", 200, true),
        ("PUT", 204, true),
        ("POST", 500, false),
        ("OPTIONS", 200, false),
    ] {
        edge.get("/x", &[]);
        assert_hit(&edge.get("/x", &[]));
        origin.update("/x", |resource| resource.with_status(status));
        let reply = edge.ask(method, "/x", &[], b"");
        assert_eq!(reply.status, status);
        assert_has_parameter(&reply, "fwd=method");
        origin.serve("/x", fresh(100));
        let hit = cache_status(&edge.get("/x", &[])).starts_with("sluice; hit");
        assert_eq!(hit, !forgotten, "{method} {status}");
    }
}

// Many objects are fetched. The ledger counts the memory of all of them, and objects are evicted to
// keep the sum within the limit.
#[test]
fn eviction_keeps_the_cache_within_its_memory() {
    for policy in ["s3-fifo", "lru"] {
        let origin = origin();
        let edge = Setup::cached(&origin)
            .cache("memory = \"8MiB\"")
            .cache(&format!("evict = \"{policy}\""))
            .start();
        edge.get("/offset/1000", &[]);
        let before = edge.peak_memory();
        for n in 1..=40 {
            let length = 300_000 + n * 10_007;
            let reply = edge.get(&format!("/offset/{length}"), &[]);
            reply.verify_whole(length).expect("the body");
            let (bytes, limit) = (edge.cache_state("bytes"), edge.cache_state("limit"));
            assert!(bytes <= limit, "{policy}: {bytes} of {limit}");
        }
        assert!(edge.cache_state("evicted") > 5, "{policy}");
        assert!(
            edge.cache_state("bytes") > 6 << 20,
            "{policy} keeps what it can"
        );
        let memory = edge.peak_memory() - before;
        assert!(memory < 16 << 20, "{policy}: {memory} more bytes resident");
    }
}

// A response larger than `max_object_size` is passed through without evicting other objects.
#[test]
fn objects_above_the_limit_are_not_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("max_object_size = \"1MiB\"\nfill = \"whole\"")
        .start();
    for _ in 0..2 {
        let reply = edge.get("/offset/1048577", &[]);
        reply.verify_whole(1_048_577).expect("the body");
        assert_has_parameter(&reply, "detail=too-large");
    }
    edge.get("/offset/1048576", &[]);
    assert_hit(&edge.get("/offset/1048576", &[]));
}

// The client that started a fetch disconnects. The fetch continues for the other clients, and its
// response is stored.
#[test]
fn a_fill_continues_after_the_client_that_started_it_disconnects() {
    let latch = Latch::at(100_000);
    let origin = serving("/x", fresh(300_000).hold_body(&latch));
    let edge = Setup::cached(&origin).start();
    let mut first = edge.client();
    first.send("GET", "/x", &[], b"").expect("sent");
    first.read_head().expect("a head");
    assert!(latch.wait_held(1, crate::harness::SOON));
    let mut second = edge.client();
    second.send("GET", "/x", &[], b"").expect("sent");
    second.read_head().expect("a head");
    drop(first);
    eventually("it has left", || edge.counter("requests_now") == 1);
    latch.release();
    let rest = second.read_some(300_000).expect("the body");
    sluice_lab::offset::verify_offset(0, &rest).expect("the body");
    assert_eq!(rest.len(), 300_000);
    assert_hit(&edge.get("/x", &[]));
    assert_eq!(origin.requests().len(), 1);
}

// The client receives the origin's entity tag unchanged, weak or strong. If the origin sends none,
// the edge adds none.
#[test]
fn validators_are_passed_on_unchanged() {
    let origin = origin();
    origin.serve("/weak", fresh(10).tag(Tag::Weak));
    origin.serve("/none", fresh(10).tag(Tag::None));
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        let weak = edge.get("/weak", &[]);
        assert!(weak.header("etag").is_some_and(|tag| tag.starts_with("W/")));
        assert_eq!(edge.get("/none", &[]).header("etag"), None);
    }
}
