//! Tests of ranges that are fetched for several clients. The shared request carries nothing of one
//! client, no client receives another client's response, and each variant is stored separately.

use sluice_lab::client::Client;
use sluice_lab::origin::{Latch, Modified, Resource, Seen, Tag};

use crate::harness::{
    Edge, SOON, Setup, assert_hit, cache_status, eventually, fresh, serving, wait_for_requests,
};
use crate::partial_objects::{
    BLOCK, FILE, MODES, asked, assert_sent_once, check_range, filling, good, one_version,
    version_of,
};

/// Sends a request for the ten bytes of `/x` from `first` on, with these headers.
fn send(edge: &Edge, first: u64, fields: &[(&str, &str)]) -> Client {
    let mut client = edge.client();
    let range = format!("bytes={first}-{}", first + 9);
    let fields = [&[("Range", &*range)], fields].concat();
    client.send("GET", "/x", &fields, b"").expect("sent");
    client
}

// The request of a shared flight is built from the key and an allow-list of headers. No other
// header of the client is sent.
#[test]
fn a_shared_range_request_carries_nothing_of_one_client() {
    const EVIL: [&str; 16] = [
        "X-Forwarded-Host",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Scheme",
        "X-Host",
        "Forwarded",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "Cookie",
        "Referer",
        "Origin",
        "If-Match",
        "X-Anything",
    ];
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        let range = ("Range", "bytes=1200000-1200009");
        let evil = EVIL.map(|name| (name, "\"evil.example\""));
        // If-Match makes the request fail, so the edge may or may not fetch the range. If a fetch
        // happens, its headers are checked below.
        edge.get("/x", &[&[range][..], &evil[..]].concat());
        let evil = &evil[..14];
        let second = edge.get("/x", &[&[("Range", "bytes=5-14")], evil].concat());
        second.verify_range(5, 14, FILE).expect("the range");
        edge.get("/x", evil).verify_whole(FILE).expect("all of it");
        let requests = origin.requests();
        assert!(requests.len() >= 2, "{mode}: {:?}", asked(&origin));
        for seen in requests {
            let head = String::from_utf8_lossy(&seen.raw_head);
            assert!(!head.contains("evil"), "{mode}: {head}");
            assert_eq!(seen.method, "GET");
        }
    }
}

// The edge evaluates If-Range and other conditions of a client itself, and does not send them in a
// shared fetch.
#[test]
fn conditions_of_one_client_are_not_part_of_a_shared_request() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        let fields = [
            ("Range", "bytes=1200000-1200009"),
            ("If-Range", "\"another\""),
        ];
        let reply = edge.get("/x", &fields);
        reply
            .verify_whole(FILE)
            .expect("all of it, of this version");
        let fields = [("If-None-Match", "\"another\""), ("Range", "bytes=0-9")];
        let reply = edge.get("/x", &fields);
        reply.verify_range(0, 9, FILE).expect("the range");
        for seen in origin.requests() {
            let head = String::from_utf8_lossy(&seen.raw_head);
            assert!(!head.contains("another"), "{mode}: {head}");
        }
    }
}

/// Returns the version that the request's cookie chooses. Without a cookie it is version 0, which
/// no client of these tests may receive.
fn by_cookie(seen: &Seen) -> u32 {
    let cookie = seen
        .header("cookie")
        .and_then(|cookie| cookie.strip_prefix("v="));
    cookie.map_or(0, |version| version.parse().expect("a number"))
}

/// Three concurrent clients request ranges of a response that turns out not to be shareable. Each
/// client must receive its own response.
fn parted(fields: &'static [(&'static str, &'static str)]) {
    for mode in MODES {
        let latch = Latch::closed();
        let held = latch.clone();
        let own = move |seen: &Seen| {
            // The resource has no Last-Modified, so that no heuristic lifetime makes it storable.
            let own = Resource::offset(FILE)
                .version(by_cookie(seen))
                .modified(Modified::None)
                .hold_head(&held);
            fields
                .iter()
                .fold(own, |own, (name, value)| own.header(name, value))
        };
        let origin = serving("/x", Resource::dynamic(own));
        let edge = filling(&origin, mode).start();
        let mut clients: Vec<_> = (1..=3)
            .map(|version: u64| {
                let cookie = format!("v={version}");
                let first = version * 600_000;
                (version, first, send(&edge, first, &[("Cookie", &cookie)]))
            })
            .collect();
        eventually("all wait", || edge.counter("requests_now") == 3);
        wait_for_requests(&origin, "/x", 1);
        latch.release();
        for (version, first, client) in &mut clients {
            let reply = client.read_response().expect("a reply");
            let got = one_version(&reply, *first, *first + 9);
            assert_eq!(u64::from(got), *version, "{mode}: {}", cache_status(&reply));
        }
        // A client that sends its request later must not receive the response of another client
        // either.
        let cookie = [("Cookie", "v=4")];
        let later = send(&edge, 600_000, &cookie).read_response();
        let later = later.expect("a reply");
        assert_eq!(one_version(&later, 600_000, 600_009), 4, "{mode}");
        let whole = edge.get("/x", &cookie);
        assert_eq!(one_version(&whole, 0, FILE - 1), 4, "{mode}");
    }
}

#[test]
fn riders_of_a_no_store_range_are_separated() {
    parted(&[("Cache-Control", "no-store")]);
}

#[test]
fn riders_of_a_private_range_are_separated() {
    parted(&[("Cache-Control", "private, max-age=60")]);
}

#[test]
fn riders_of_a_range_with_set_cookie_are_separated() {
    parted(&[("Cache-Control", "max-age=60"), ("Set-Cookie", "id=1")]);
}

#[test]
fn riders_of_a_range_without_freshness_are_separated() {
    parted(&[]);
}

#[test]
fn riders_of_a_range_with_vary_any_are_separated() {
    parted(&[("Cache-Control", "max-age=60"), ("Vary", "*")]);
}

#[test]
fn each_client_receives_its_own_cookie() {
    for mode in MODES {
        let latch = Latch::closed();
        let held = latch.clone();
        let numbered = move |seen: &Seen| {
            let cookie = format!("id={}", seen.id);
            good(seen).header("Set-Cookie", &cookie).hold_head(&held)
        };
        let origin = serving("/x", Resource::dynamic(numbered));
        let edge = filling(&origin, mode).start();
        let mut clients: Vec<_> = (0..4).map(|_| send(&edge, 1_200_000, &[])).collect();
        eventually("all wait", || edge.counter("requests_now") == 4);
        latch.release();
        let mut cookies = Vec::new();
        for client in &mut clients {
            let reply = client.read_response().expect("a reply");
            one_version(&reply, 1_200_000, 1_200_009);
            cookies.push(reply.header("set-cookie").expect("a cookie").to_owned());
        }
        cookies.sort();
        cookies.dedup();
        assert_eq!(cookies.len(), 4, "{mode}: {cookies:?}");
    }
}

// Later parts of a file are `private`, and the first ones are not. Stored bytes are still served,
// but the private parts are not shared.
#[test]
fn a_file_that_becomes_private_in_the_middle_is_not_shared_from_there() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        let private = |seen: &Seen| {
            let own = Resource::offset(FILE).version(by_cookie(seen));
            own.cache_control("private")
        };
        origin.serve("/x", Resource::dynamic(private));
        for version in [1, 2, 1] {
            let cookie = format!("v={version}");
            let reply = send(&edge, 2_000_000, &[("Cookie", &cookie)]).read_response();
            let reply = reply.expect("a reply");
            assert_eq!(one_version(&reply, 2_000_000, 2_000_009), version, "{mode}");
        }
    }
}

/// Returns a resource whose version depends on a request header, which its Vary names.
fn by_field(name: &'static str) -> impl Fn(&Seen) -> Resource {
    move |seen| {
        let version = match seen.header(name) {
            Some("one") => 1,
            Some("two") => 2,
            _ => 0,
        };
        fresh(FILE).version(version).vary(name)
    }
}

// Two concurrent clients send different values of the header that Vary names.
#[test]
fn riders_of_different_variants_receive_their_own_ranges() {
    // A shared fetch carries Accept-Language of the client by default, and not X-Flavour.
    for name in ["Accept-Language", "X-Flavour"] {
        for mode in MODES {
            let latch = Latch::closed();
            let held = latch.clone();
            let flavoured = by_field(name);
            let choose = move |seen: &Seen| flavoured(seen).hold_head(&held);
            let origin = serving("/x", Resource::dynamic(choose));
            let edge = filling(&origin, mode).start();
            let kinds = ["one", "two", "one", "two", "none"];
            let mut clients = Vec::from(kinds.map(|kind| send(&edge, 1_200_000, &[(name, kind)])));
            eventually("all wait", || edge.counter("requests_now") == 5);
            wait_for_requests(&origin, "/x", 1);
            latch.release();
            for (client, kind) in clients.iter_mut().zip(kinds) {
                let reply = client.read_response().expect("a reply");
                let version = one_version(&reply, 1_200_000, 1_200_009);
                let own = ["none", "one", "two"][version as usize];
                assert_eq!(own, kind, "{mode} {name}: {}", cache_status(&reply));
            }
            for kind in kinds {
                let whole = edge.get("/x", &[(name, kind)]);
                let version = one_version(&whole, 0, FILE - 1);
                assert_eq!(["none", "one", "two"][version as usize], kind, "{mode}");
                assert_hit(&edge.get("/x", &[(name, kind)]));
            }
        }
    }
}

/// Returns a resource whose responses have Vary only from the second one on. All variants have the
/// same entity tag, as with some origins, or each has its own.
fn tells_late(one_tag: bool) -> Resource {
    let flavoured = by_field("X-Flavour");
    Resource::dynamic(move |seen| {
        let file = match seen.id {
            0 => fresh(FILE),
            _ => flavoured(seen),
        };
        match one_tag {
            true => file.tag(Tag::Fixed("\"one\"".to_owned())),
            false => file,
        }
    })
}

// A later part shows that the resource varies. The part goes only to requests that select its
// variant, and no client receives a mixture.
#[test]
fn a_later_part_with_vary_goes_only_to_matching_requests() {
    let kinds = ["none", "one", "two"];
    for mode in MODES {
        for one_tag in [true, false] {
            let origin = serving("/x", tells_late(one_tag));
            let edge = filling(&origin, mode).start();
            check_range(&edge, 0, 9);
            assert_sent_once(&edge, &origin, BLOCK);
            for kind in ["one", "two", "none", "one"] {
                for first in [1_000_000, 2_000_000] {
                    let reply = send(&edge, first, &[("X-Flavour", kind)]).read_response();
                    let reply = reply.expect("a reply");
                    let version = one_version(&reply, first, first + 9);
                    let status = cache_status(&reply);
                    assert_eq!(kinds[version as usize], kind, "{mode}: {status}");
                }
            }
            for kind in kinds {
                // Bytes that were stored before Vary was known may be served to all clients, so the
                // response may be of either version.
                let whole = edge.get("/x", &[("X-Flavour", kind)]);
                one_version(&whole, 0, FILE - 1);
            }
            let asked = asked(&origin);
            assert!(asked.len() <= 60, "{mode}: {} times", asked.len());
        }
    }
}

// The client reads bytes that were stored before Vary was known. A later part has Vary and is
// another variant, so the client must not receive it.
#[test]
fn a_reader_does_not_receive_a_later_part_of_another_variant() {
    for mode in MODES {
        for one_tag in [true, false] {
            let origin = serving("/x", tells_late(one_tag));
            let edge = filling(&origin, mode).start();
            check_range(&edge, 0, 9);
            assert_sent_once(&edge, &origin, BLOCK);
            // The response may be cut off, but no byte of it may be from another version.
            let fields = [("X-Flavour", "two"), ("Range", "bytes=0-")];
            let whole = edge.get("/x", &fields);
            let version = version_of(0, &whole.body);
            assert!(version.is_some(), "{mode}: {}", cache_status(&whole));
        }
    }
}

// `Vary: Range` has no effect, because a shared fetch has a Range of its own.
#[test]
fn vary_range_causes_a_bounded_number_of_requests() {
    for mode in ["slice", "auto", "whole"] {
        let origin = serving("/x", fresh(FILE).vary("Range"));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        eventually("it has landed", || edge.counter("flights_now") == 0);
        let again = check_range(&edge, 1_200_000, 1_200_009);
        assert_hit(&again);
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
        let asked = asked(&origin);
        assert!(asked.len() <= 12, "{mode}: {asked:?}");
    }
}

// Slices are requested with `Accept-Encoding: identity`, so clients that accept gzip and clients
// that don't share them.
#[test]
fn one_set_of_slices_serves_clients_with_and_without_gzip() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).encoded("gzip", vec![b'z'; 500_000]));
        let edge = filling(&origin, mode).start();
        let gzip = [("Accept-Encoding", "gzip, br")];
        let mut clients: Vec<(u64, Client)> = [1_200_000, 1_250_000]
            .into_iter()
            .map(|first| (first, send(&edge, first, &gzip)))
            .collect();
        clients.push((1_200_000, send(&edge, 1_200_000, &[])));
        let identity = [("Accept-Encoding", "identity")];
        clients.push((1_300_000, send(&edge, 1_300_000, &identity)));
        for (first, client) in &mut clients {
            let reply = client.read_response().expect("a reply");
            let right = reply.verify_range(*first, *first + 9, FILE);
            right.unwrap_or_else(|wrong| panic!("{mode}: {wrong}"));
            assert_eq!(reply.header("content-encoding"), None);
        }
        assert_sent_once(&edge, &origin, BLOCK);
        for seen in origin.requests() {
            let accepted = seen.header("accept-encoding").unwrap_or("identity");
            assert_eq!(accepted, "identity", "{mode}");
        }
    }
}

// The client that started the fetch disconnects. The riders of the fetch still receive their bytes.
#[test]
fn riders_continue_when_the_first_client_disconnects() {
    for mode in MODES {
        let latch = Latch::closed();
        let origin = serving("/x", fresh(FILE).hold_head(&latch));
        let edge: Edge = Setup::start(&filling(&origin, mode));
        let leader = send(&edge, 1_200_000, &[]);
        wait_for_requests(&origin, "/x", 1);
        let mut riders: Vec<_> = (0..3).map(|_| send(&edge, 1_200_000, &[])).collect();
        eventually("all wait", || edge.counter("requests_now") == 4);
        drop(leader);
        assert!(latch.wait_held(1, SOON));
        latch.release();
        for rider in &mut riders {
            let reply = rider.read_response().expect("a reply");
            let right = reply.verify_range(1_200_000, 1_200_009, FILE);
            right.expect("the range");
        }
        assert_sent_once(&edge, &origin, BLOCK);
    }
}
