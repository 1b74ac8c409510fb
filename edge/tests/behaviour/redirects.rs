//! Tests of `follow_redirects`: redirects of origins are followed inside, only to the route's own upstream and to named
//! hosts, and no other host gets anything about the client.

use sluice_lab::certificates::Authority;
use sluice_lab::client::Reply;
use sluice_lab::front::{self, TlsFront};
use sluice_lab::origin::{Origin, Resource, Seen};

use crate::harness::{Edge, Setup, assert_hit, eventually, fresh, origin, serving};

const LENGTH: u64 = 1000;

/// Returns a redirect.
fn to(status: u16, location: &str) -> Resource {
    Resource::status(status).header("Location", location)
}

/// Returns a configuration with these lines in both routes, of which the one for `/pass/` has no cache.
fn setup(origin: &Origin, lines: &str) -> Setup {
    with(&Setup::cached(origin).workers(1), lines)
}

fn with(setup: &Setup, lines: &str) -> Setup {
    let text = setup.text();
    let proxy = "proxy = \"origin\"\n";
    Setup::of_text(text.replace(proxy, &format!("{proxy}{lines}\n")))
}

fn edge(origin: &Origin, follow: &str) -> Edge {
    setup(origin, &format!("follow_redirects = {follow}")).start()
}

/// Returns an origin that redirects each path below `/to/` to the rest of the target, and another host.
fn pair() -> (Origin, Origin) {
    let (first, other) = (origin(), origin());
    other.serve_rest(fresh(LENGTH));
    (first, other)
}

fn last(origin: &Origin) -> Seen {
    origin.requests().last().expect("a request").clone()
}

fn assert_passed(reply: &Reply, status: u16, location: &str) {
    assert_eq!(
        (reply.status, reply.header("location")),
        (status, Some(location))
    );
}

#[test]
fn redirects_within_the_origin_are_followed() {
    let origin = serving("/a/end?x=1", fresh(LENGTH));
    let edge = edge(&origin, "true");
    let absolute = origin.url("/a/end?x=1");
    let mut count = 0;
    for status in [301, 302, 303, 307, 308] {
        for location in ["end?x=1", "./b/../end?x=1#f", "/a/end?x=1", &absolute] {
            for start in ["/a/x", "/pass/x"] {
                let relative = !location.starts_with(['/', 'h']);
                if start == "/pass/x" && relative {
                    continue;
                }
                count += 1;
                let start = format!("{start}{count}");
                origin.serve(&start, to(status, location));
                let reply = edge.get(&start, &[]);
                reply.verify_whole(LENGTH).expect("the last response");
                assert_eq!(reply.header("location"), None);
                assert_eq!(last(&origin).target, "/a/end?x=1");
                assert_eq!(edge.counter("upstream_redirects"), count);
            }
        }
    }
    assert_eq!(edge.counter("upstream_redirects_passed"), 0);
}

#[test]
fn the_host_of_a_redirected_request_is_that_of_its_url() {
    let (first, other) = pair();
    first.serve("/own", to(302, "/x"));
    first.serve("/named", to(302, &first.url("/x")));
    first.serve("/other", to(302, &other.url("/x")));
    first.serve("/x", fresh(LENGTH));
    let follow = format!("{:?}", other.url(""));
    let edge = edge(&first, &follow);
    for (path, origin, host) in [
        ("/own", &first, "www.example.com".to_owned()),
        ("/named", &first, first.addr().to_string()),
        ("/other", &other, other.addr().to_string()),
    ] {
        let reply = edge.get(path, &[("Host", "www.example.com")]);
        reply.verify_whole(LENGTH).expect("the last response");
        assert_eq!(last(origin).header_all("host"), [host], "{path}");
    }
    // The configured Host stays.
    let text = Setup::cached(&first).upstream("host = \"own.example\"");
    let edge = with(&text, "follow_redirects = true").start();
    edge.get("/own", &[])
        .verify_whole(LENGTH)
        .expect("the last response");
    assert_eq!(last(&first).header_all("host"), ["own.example"]);
}

// An origin may repeat the name in a redirect, without the port, as in one to HTTPS.
#[test]
fn clients_do_not_choose_the_host_of_a_redirect() {
    let (first, other) = pair();
    let named = format!(
        "[upstream.bucket]\nservers = [{:?}]\nhost = \"bucket.example\"\n",
        other.url("")
    );
    let text = setup(&first, "follow_redirects = \"bucket\"").text() + &named;
    // The h2 crate does not send an authority with `%`.
    let edge = Setup::of_text(text).with_http1().start();
    for (path, host) in [
        ("/1", "bucket.example"),
        ("/2", "bucket.example:81"),
        ("/pass/3", "Bucket.Example"),
        ("/4", "b%75cket.example"),
        ("/5", "127.1"),
    ] {
        first.serve(path, to(302, "http://bucket.example/x"));
        let reply = edge.get(path, &[("Host", host)]);
        reply.verify_whole(LENGTH).expect("the other host's");
        let own = first.addr().to_string();
        let seen = last(&first);
        assert_eq!(seen.header_all("host"), [own], "{path}");
        assert_eq!(seen.header("x-forwarded-host"), None, "{path}");
        let forwarded = seen.header("forwarded").expect("it is always there");
        assert!(!forwarded.contains("host="), "{path}: {forwarded}");
        assert_eq!(last(&other).header_all("host"), ["bucket.example"]);
    }
    first.serve("/own", to(302, "/end"));
    first.serve("/end", fresh(LENGTH));
    let reply = edge.get("/own", &[("Host", "bucket.example")]);
    reply.verify_whole(LENGTH).expect("the last response");
    assert_eq!(last(&first).target, "/end");
    assert_eq!(last(&first).header("x-forwarded-host"), None);
}

#[test]
fn other_hosts_learn_nothing_about_the_client() {
    let (first, other) = pair();
    let lines = format!(
        "follow_redirects = {{ to = {:?} }}\n\
         request_headers = {{ set = {{ Authorization = \"Bearer of the origin\", X-Key = \"secret\" }} }}",
        other.url("")
    );
    let text = Setup::cached(&first)
        .server("request_id = true")
        .upstream("x_real_ip = true");
    let edge = with(&text, &lines).start();
    for path in ["/pass/x", "/x"] {
        first.serve(path, to(302, &other.url("/y?signature=%2F%7e")));
        let reply = edge.get(
            path,
            &[
                ("Host", "www.example.com"),
                ("Cookie", "session=1"),
                ("Referer", "http://www.example.com/secret"),
                ("Origin", "http://www.example.com"),
                ("X-Api-Key", "1"),
                ("X-Request-ID", "1"),
                ("Accept-Language", "de"),
            ],
        );
        reply.verify_whole(LENGTH).expect("the last response");
        let before = last(&first);
        assert_eq!(before.header("authorization"), Some("Bearer of the origin"));
        let seen = last(&other);
        assert_eq!(seen.target, "/y?signature=%2F%7e");
        for (name, value) in &seen.headers {
            let known = [
                "host",
                "via",
                "cdn-loop",
                "x-forwarded-proto",
                "x-forwarded-host",
                "forwarded",
                "accept-encoding",
                "accept-language",
                "user-agent",
            ];
            let name = name.to_ascii_lowercase();
            assert!(known.contains(&&*name), "{name}: {value}");
            for secret in ["www.example.com", "127.0.0.1;", "for="] {
                assert!(!value.contains(secret), "{name}: {value}");
            }
        }
        assert!(
            seen.header("cdn-loop")
                .is_some_and(|value| value.contains("sluice-"))
        );
        assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    }
    // Nothing comes back if the other host redirects to the origin.
    first.serve("/pass/back", to(302, &other.url("/back")));
    other.serve("/back", to(302, &first.url("/end")));
    first.serve("/end", fresh(LENGTH).header("Set-Cookie", "a=b"));
    let reply = edge.get("/pass/back", &[("Cookie", "session=1")]);
    reply.verify_whole(LENGTH).expect("the last response");
    assert_eq!(reply.header("set-cookie"), None);
    let seen = last(&first);
    for name in [
        "cookie",
        "authorization",
        "x-key",
        "x-real-ip",
        "x-forwarded-for",
    ] {
        assert_eq!(seen.header(name), None, "{name}");
    }
}

#[test]
fn hosts_that_are_not_named_are_never_contacted() {
    let (first, named) = pair();
    let trap = origin();
    trap.serve_rest(fresh(LENGTH));
    let edge = edge(
        &first,
        &format!("[{:?}, \"https://192.0.2.7\"]", named.url("")),
    );
    let (named_at, trap_at) = (named.addr(), trap.addr());
    let (named_port, trap_port) = (named_at.port(), trap_at.port());
    let long = format!("{}{}", named.url("/"), "a".repeat(9 << 10));
    let locations = [
        trap.url("/x"),
        format!("//{trap_at}/x"),
        format!("http://{named_at}@{trap_at}/"),
        format!("http://user@{named_at}/"),
        format!("http://user:password@{named_at}/"),
        format!("http://{named_at}\\@{trap_at}/"),
        format!("http://{named_at}.evil.example/"),
        format!("http://evil.example/?{named_at}"),
        format!("http://evil.example#@{named_at}/"),
        format!("https://{named_at}/x"),
        format!("ftp://{named_at}/x"),
        format!("file://{named_at}/etc/passwd"),
        "javascript:alert(1)".to_owned(),
        format!("http://[::ffff:127.0.0.1]:{trap_port}/"),
        format!("http://[::1]:{named_port}/"),
        format!("http://2130706433:{trap_port}/"),
        format!("http://127.1:{trap_port}/"),
        format!("http://localhost:{named_port}/"),
        "http://127.0.0.1:0/".to_owned(),
        "http://127.0.0.1:00000/".to_owned(),
        format!("http://127.0.0.1:{}/", u32::from(named_port) + 65_536),
        "http://127.0.0.1/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "//169.254.169.254/latest/meta-data/".to_owned(),
        "http://[fd00:ec2::254]/latest/meta-data/".to_owned(),
        "http://metadata.google.internal/computeMetadata/v1/".to_owned(),
        "http://192.0.2.7/".to_owned(),
        "https://192.0.2.7:8443/".to_owned(),
        "https://192.0.2.70/".to_owned(),
        "http:/x".to_owned(),
        "http:x".to_owned(),
        "http://".to_owned(),
        "///x".to_owned(),
        format!("/\\{trap_at}/"),
        format!("\\\\{trap_at}/"),
        format!("{} x", named.url("/")),
        format!("{}\u{e9}", named.url("/")),
        format!("{}%", named.url("/")),
        format!("{}%00", named.url("/")),
        long,
    ];
    for (n, location) in locations.iter().enumerate() {
        for start in [format!("/{n}"), format!("/pass/{n}")] {
            first.serve(&start, to(302, location));
            let reply = edge.get(&start, &[]);
            assert_eq!(reply.status, 302, "{location}");
            assert!(reply.header("location").is_some(), "{location}");
        }
    }
    assert_eq!(first.requests().len(), 2 * locations.len());
    assert!(named.requests().is_empty() && trap.requests().is_empty());
    assert_eq!(
        edge.counter("upstream_redirects_passed"),
        first.requests().len() as u64
    );
    // A head with control characters is no head.
    for location in ["http://127.0.0.1/\u{1}", "/\u{7f}", "/a\u{0}b"] {
        first.serve("/control", to(302, location));
        let reply = edge.get("/control", &[]);
        assert!([302, 502].contains(&reply.status), "{location:?}");
    }
    assert!(named.requests().is_empty());
    // The named host is reached in any spelling of its authority.
    first.serve(
        "/named",
        to(302, &format!("HTTP://127.0.0.1.:{named_port}?x")),
    );
    edge.get("/named", &[])
        .verify_whole(LENGTH)
        .expect("the last response");
    assert_eq!(last(&named).target, "/?x");
}

#[test]
fn two_locations_or_none_lead_nowhere() {
    let (first, named) = pair();
    let edge = edge(&first, &format!("{:?}", named.url("")));
    let two = to(302, &named.url("/x")).header("Location", &named.url("/y"));
    first.serve("/two", two);
    first.serve("/none", Resource::status(302));
    first.serve("/other", Resource::status(300).header("Location", "/x"));
    first.serve("/created", Resource::status(201).header("Location", "/x"));
    for (path, status) in [
        ("/two", 302),
        ("/none", 302),
        ("/other", 300),
        ("/created", 201),
    ] {
        assert_eq!(edge.get(path, &[]).status, status);
    }
    assert!(named.requests().is_empty());
}

#[test]
fn the_redirect_after_the_last_permitted_one_is_passed_on() {
    let (first, other) = pair();
    for n in 0..5 {
        first.serve(&format!("/{n}"), to(302, &format!("{}", n + 1)));
    }
    first.serve("/5", fresh(LENGTH));
    let three = edge(&first, "{ times = 3 }");
    let reply = three.get("/0", &[]);
    // The reference was relative to /3.
    assert_passed(&reply, 302, "/4");
    assert_eq!(first.requests().len(), 4);
    assert_eq!(three.counter("upstream_redirects"), 3);
    assert_eq!(three.counter("upstream_redirects_passed"), 1);
    let five = edge(&first, "true");
    five.get("/0", &[])
        .verify_whole(LENGTH)
        .expect("five redirects");
    // Of another host, it becomes absolute.
    first.serve("/out", to(302, &other.url("/a/b")));
    other.serve("/a/b", to(307, "../c?d#e"));
    let one = edge(
        &first,
        &format!("{{ times = 1, to = {:?} }}", other.url("")),
    );
    assert_passed(
        &one.get("/out", &[]),
        307,
        &format!("{}#e", other.url("/c?d")),
    );
}

#[test]
fn a_loop_ends_at_once() {
    let (first, other) = pair();
    first.serve("/self", to(302, "/self"));
    first.serve("/a", to(302, "/b"));
    first.serve("/b", to(302, "/a"));
    first.serve("/out", to(302, &other.url("/back")));
    other.serve("/back", to(302, &other.url("/back")));
    let edge = edge(
        &first,
        &format!("{{ times = 20, to = {:?} }}", other.url("")),
    );
    assert_passed(&edge.get("/self", &[]), 302, "/self");
    assert_eq!(first.requests().len(), 1);
    assert_passed(&edge.get("/a", &[]), 302, "/a");
    assert_eq!(first.requests().len(), 3);
    assert_passed(&edge.get("/out", &[]), 302, &other.url("/back"));
    assert_eq!(other.requests().len(), 1);
}

#[test]
fn only_303_is_followed_after_other_methods() {
    let origin = serving("/end", Resource::bytes("end"));
    let edge = edge(&origin, "true");
    let kind = [
        ("Content-Type", "text/plain"),
        ("If-Match", "\"a\""),
        ("X-A", "b"),
    ];
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for status in [301, 302, 303, 307, 308] {
            for start in ["/form", "/pass/form"] {
                origin.reset_record();
                origin.serve(start, to(status, "/end"));
                let reply = edge.ask(method, start, &kind, b"content");
                if status != 303 {
                    assert_passed(&reply, status, "/end");
                    continue;
                }
                assert_eq!(
                    (reply.status, reply.text()),
                    (200, "end".to_owned()),
                    "{method}"
                );
                let seen = last(&origin);
                assert_eq!((&*seen.method, seen.body_length), ("GET", 0));
                assert_eq!(seen.header("x-a"), Some("b"));
                for name in [
                    "content-type",
                    "content-length",
                    "transfer-encoding",
                    "if-match",
                ] {
                    assert_eq!(seen.header(name), None, "{name}");
                }
            }
        }
    }
    // Content would have to be sent again.
    origin.serve("/pass/get", to(307, "/end"));
    let length = [("Content-Length", "7")];
    assert_passed(
        &edge.ask("GET", "/pass/get", &length, b"content"),
        307,
        "/end",
    );
    // The URL of a form may show its result.
    let form = |seen: &Seen| match &*seen.method {
        "POST" => to(303, "/pass/same"),
        _ => Resource::bytes("result"),
    };
    origin.serve("/pass/same", Resource::dynamic(form));
    assert_eq!(
        edge.ask("POST", "/pass/same", &[], b"content").text(),
        "result"
    );
    let reply = edge.ask("HEAD", "/pass/same", &[], b"");
    assert_eq!(
        (reply.status, reply.header("content-length")),
        (200, Some("6"))
    );
}

#[test]
fn cookies_of_redirects_reach_the_client() {
    let (first, other) = pair();
    let edge = edge(&first, &format!("{:?}", other.url("")));
    first.serve("/login", to(303, "/end").header("Set-Cookie", "session=1"));
    let reply = edge.ask("POST", "/login", &[], b"content");
    assert_passed(&reply, 303, "/end");
    assert_eq!(reply.header("set-cookie"), Some("session=1"));
    // The cookies of another host are not the client's.
    first.serve("/x", to(302, &other.url("/x")));
    other.serve("/x", fresh(LENGTH).header("Set-Cookie", "session=2"));
    let reply = edge.get("/x", &[]);
    reply.verify_whole(LENGTH).expect("the last response");
    assert_eq!(reply.header("set-cookie"), None);
}

#[test]
fn the_last_response_is_stored_under_the_clients_url() {
    let (first, other) = pair();
    let edge = edge(&first, &format!("{:?}", other.url("")));
    first.serve("/x", to(302, &other.url("/y")).vary("X-Country"));
    let mut fetches = 0;
    for country in ["de", "fr"] {
        let headers = [("X-Country", country)];
        let reply = edge.get("/x", &headers);
        reply.verify_whole(LENGTH).expect("the last response");
        assert_eq!(reply.header("vary"), Some("X-Country"));
        let again = edge.get("/x", &headers);
        assert_hit(&again);
        again.verify_whole(LENGTH).expect("the stored response");
        // Only the origin that chose by the header gets it.
        assert_eq!(last(&first).header("x-country"), Some(country));
        assert_eq!(last(&other).header("x-country"), None);
        assert_eq!(first.requests().len(), other.requests().len());
        assert!(first.requests().len() > fetches);
        fetches = first.requests().len();
    }
}

#[test]
fn a_redirect_that_may_not_be_reused_keeps_the_response_from_being_reused() {
    let (first, other) = pair();
    other.serve_rest(fresh(LENGTH).header("CDN-Cache-Control", "max-age=3600"));
    let edge = edge(&first, &format!("{:?}", other.url("")));
    for (n, (directives, stores)) in [
        ("max-age=60", true),
        ("public", true),
        ("no-store", false),
        ("private", false),
        ("no-cache", false),
        ("max-age=0", false),
        ("max-age=60, s-maxage=0", false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{n}");
        first.serve(&path, to(302, &other.url(&path)).cache_control(directives));
        edge.get(&path, &[])
            .verify_whole(LENGTH)
            .expect("the last response");
        let reply = edge.get(&path, &[]);
        reply.verify_whole(LENGTH).expect("the last response");
        let fetches = first
            .requests()
            .iter()
            .filter(|seen| seen.target == path)
            .count();
        assert_eq!(fetches, if stores { 1 } else { 2 }, "{directives}");
        let said = reply.header_all("cache-control").join(",");
        let is_restricted = ["no-store", "private", "no-cache"]
            .iter()
            .any(|word| said.contains(word));
        assert_eq!(is_restricted, !stores, "{directives}: {said}");
    }
}

#[test]
fn a_redirect_of_an_authorized_client_is_not_shared_unless_it_says_so() {
    let (first, other) = pair();
    other.serve_rest(Resource::offset(LENGTH).cache_control("public, max-age=3600"));
    let edge = edge(&first, &format!("{:?}", other.url("")));
    let authorized = [("Authorization", "Bearer 1")];
    for (path, directives, fetches) in [("/a", "max-age=60", 2), ("/b", "public, max-age=60", 1)] {
        first.serve(path, to(302, &other.url(path)).cache_control(directives));
        for _ in 0..2 {
            edge.get(path, &authorized)
                .verify_whole(LENGTH)
                .expect("the last response");
        }
        let count = first
            .requests()
            .iter()
            .filter(|seen| seen.target == path)
            .count();
        assert_eq!(count, fetches, "{directives}");
    }
    // Neither is a response that clients without credentials share.
    edge.get("/a", &[])
        .verify_whole(LENGTH)
        .expect("the last response");
    assert_hit(&edge.get("/a", &[]));
    let before = first.requests().len();
    edge.get("/a", &authorized)
        .verify_whole(LENGTH)
        .expect("the last response");
    assert_eq!(first.requests().len(), before + 1);
}

#[test]
fn revalidations_and_ranges_begin_at_the_origin_and_go_along() {
    let (first, other) = pair();
    first.serve_rest(Resource::dynamic({
        let url = other.url("");
        move |seen: &Seen| to(302, &format!("{url}{}", seen.target))
    }));
    other.serve("/stale", Resource::offset(LENGTH).cache_control("no-cache"));
    other.serve("/big", fresh(5 << 20));
    let edge = edge(&first, &format!("{:?}", other.url("")));
    edge.get("/stale", &[])
        .verify_whole(LENGTH)
        .expect("the last response");
    let reply = edge.get("/stale", &[]);
    reply.verify_whole(LENGTH).expect("the confirmed response");
    assert_eq!(last(&other).status, 304);
    assert!(last(&other).header("if-none-match").is_some());
    assert!(last(&first).header("if-none-match").is_some());
    let tag = reply.header("etag").expect("an entity tag").to_owned();
    for (path, origin_sees) in [("/pass/stale", true), ("/stale", false)] {
        other.serve("/pass/stale", Resource::offset(LENGTH));
        let reply = edge.get(path, &[("If-None-Match", &tag)]);
        assert_eq!(reply.status, 304, "{path} {origin_sees}");
    }
    let reply = edge.get("/big", &[("Range", "bytes=3000000-3000099")]);
    reply
        .verify_range(3_000_000, 3_000_099, 5 << 20)
        .expect("the range");
    let ranged = |origin: &Origin| {
        let seen = origin.requests();
        let seen = seen.iter().filter(|seen| seen.target == "/big");
        seen.filter(|seen| seen.header("range").is_some()).count()
    };
    assert!(ranged(&first) > 0 && ranged(&other) > 0);
    edge.get("/big", &[])
        .verify_whole(5 << 20)
        .expect("the whole");
    assert_eq!(ranged(&first), ranged(&other));
}

#[test]
fn another_host_is_reached_by_tls_if_its_url_says_so() {
    let (first, other) = pair();
    let authority = Authority::new("Test authority of buckets");
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("written");
    let pair = authority.server(&["127.0.0.1"]);
    let front = TlsFront::start(other.addr(), front::config(&pair, None)).expect("a free port");
    first.serve("/x", to(302, &format!("{}/y", front.url())));
    let bucket = format!(
        "[upstream.bucket]\nservers = {:?}\ntls = {{ ca = {ca:?} }}\n",
        front.url()
    );
    let edge = with(
        &Setup::cached(&first).tables(&bucket),
        "follow_redirects = \"bucket\"",
    )
    .start();
    edge.get("/x", &[])
        .verify_whole(LENGTH)
        .expect("the last response");
    let address = front.url().replace("https://", "");
    assert_eq!(last(&other).header_all("host"), [address]);
    assert_eq!(last(&other).header("x-forwarded-proto"), Some("https"));
    // The system's authorities do not know this one.
    let edge = self::edge(&first, &format!("{:?}", front.url()));
    let reply = edge.get("/x", &[]);
    assert_eq!(reply.status, 502);
    assert!(reply.text().contains("tls-failed"), "{}", reply.text());
}

#[test]
fn signatures_stay_with_the_host_that_they_are_for() {
    let (first, other) = pair();
    let sign = "host = \"bucket.example\"\nsign = { region = \"us-east-1\", access_key = \"A\", secret_key = \"s\" }";
    let follow = format!("follow_redirects = {:?}", other.url(""));
    let edge = with(&Setup::cached(&first).upstream(sign), &follow).start();
    first.serve("/out", to(307, &other.url("/x?list-type=2")));
    first.serve("/in", to(307, "/end?list-type=2"));
    first.serve("/end", fresh(LENGTH));
    edge.get("/out", &[])
        .verify_whole(LENGTH)
        .expect("the last response");
    let seen = last(&other);
    assert_eq!(seen.target, "/x?list-type=2");
    let names = seen
        .headers
        .iter()
        .map(|(name, _)| name.to_ascii_lowercase());
    let signed: Vec<String> = names
        .filter(|name| name.starts_with("x-amz-") || name == "authorization")
        .collect();
    assert!(signed.is_empty(), "{signed:?}");
    edge.get("/in", &[])
        .verify_whole(LENGTH)
        .expect("the last response");
    let seen = last(&first);
    // The query could list the bucket.
    assert_eq!(seen.target, "/end");
    assert!(
        seen.header("authorization")
            .is_some_and(|value| value.starts_with("AWS4-HMAC"))
    );
}

#[test]
fn connections_are_kept_after_redirects() {
    let (first, other) = pair();
    let edge = edge(&first, &format!("{:?}", other.url("")));
    for n in 0..4 {
        let path = format!("/{n}");
        let redirect = to(302, &other.url(&path));
        first.serve(
            &path,
            match n % 2 {
                0 => redirect,
                _ => redirect.framing(sluice_lab::origin::Framing::Chunked(3)),
            },
        );
        edge.get(&path, &[])
            .verify_whole(LENGTH)
            .expect("the last response");
        eventually("both connections are idle", || {
            edge.counter("upstream_idle_now") == 2
        });
    }
    assert_eq!(
        (first.connections().len(), other.connections().len()),
        (1, 1)
    );
}

#[test]
fn the_log_has_the_number_of_redirects() {
    let (first, other) = pair();
    let follow = format!("follow_redirects = {:?}", other.url(""));
    let edge = with(&Setup::cached(&first).logged("json"), &follow).start();
    first.serve("/x", to(302, "/y"));
    first.serve("/y", to(302, &other.url("/z")));
    edge.get("/x", &[]);
    // Another worker may write the next line.
    edge.json_log(1);
    edge.get("/x", &[]);
    let lines = edge.json_log(2);
    assert_eq!(lines[0]["redirects"], 2);
    assert_eq!(lines[0]["upstream"], other.addr().to_string());
    assert_eq!(
        (&lines[0]["upstream_status"], &lines[0]["status"]),
        (&200.into(), &200.into())
    );
    assert!(lines[1]["redirects"].is_null(), "{}", lines[1]);
}

#[test]
fn redirects_are_followed_with_a_path_in_proxy() {
    let origin = origin();
    origin.serve("/media/a", to(302, "b"));
    origin.serve("/media/b", fresh(LENGTH));
    origin.serve("/media/c", to(302, "/media/d"));
    origin.serve("/media/d", to(302, "http://elsewhere.example/"));
    origin.serve("/media/e", to(302, "f"));
    origin.serve("/media/f", Resource::status(201).header("Location", "g"));
    let text = setup(&origin, "follow_redirects = true").text();
    let text = text.replace("proxy = \"origin\"\n", "proxy = \"origin/media\"\n");
    let text = text.replace(
        "[[site.route]]\nproxy",
        "[[site.route]]\npath = \"/video/*\"\nproxy",
    );
    let edge = Setup::of_text(text).start();
    edge.get("/video/a", &[])
        .verify_whole(LENGTH)
        .expect("the last response");
    assert_eq!(last(&origin).target, "/media/b");
    assert_passed(&edge.get("/video/c", &[]), 302, "http://elsewhere.example/");
    assert_passed(&edge.get("/video/e", &[]), 201, "/video/g");
}

#[test]
fn without_follow_redirects_clients_get_all_redirects() {
    let origin = serving("/x", to(302, "/y"));
    for follow in ["", "follow_redirects = false"] {
        let edge = setup(&origin, follow).start();
        assert_passed(&edge.get("/x", &[]), 302, "/y");
        assert_eq!(edge.counter("upstream_redirects_passed"), 0);
    }
}
