//! Tests of the settings that edit heads: headers, lifetimes, security headers, error pages, fixed
//! responses and redirects.

use std::fs;

use sluice_lab::client::Reply;
use sluice_lab::origin::{Latch, Origin, Resource, Seen};

use crate::harness::{Setup, assert_has_parameter, assert_hit, fresh, origin, serving};

/// Starts an origin whose response body lists the headers of the request, one per line.
fn echoing() -> Origin {
    let origin = origin();
    let told = |seen: &Seen| {
        let names = [
            "x-set",
            "x_set",
            "x-client",
            "x-add",
            "cookie",
            "host",
            "x-gone",
            "x-forwarded-for",
        ];
        let lines = names.iter().flat_map(|name| {
            let values = seen.header_all(name).into_iter();
            values.map(move |value| format!("{name}: {value}\n"))
        });
        Resource::bytes(lines.collect::<String>()).cache_control("max-age=3600")
    };
    origin.serve_rest(Resource::dynamic(told));
    origin
}

/// Returns a configuration that has a site with these lines, a listener and an admin address.
pub fn site(lines: &str) -> Setup {
    Setup::of_text(format!(
        "[server]\nworkers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[[site]]\n{lines}"
    ))
}

const REQUEST: &str = "[site.route.request_headers]\n\
    set = { X-Set = \"ours\", X-Client = \"{client} {method} {header:X-Who}\" }\n\
    add = { X-Add = \"more\" }\nremove = [\"Cookie\", \"X-Gone\"]\n";

// The edge edits headers as configured, however the client spells their names, and even if the
// client names them in Connection.
#[test]
fn the_origin_sees_edited_requests() {
    let origin = echoing();
    let edge = Setup::uncached(&origin).tables(REQUEST).start();
    let headers = [
        ("Host", "a.example"),
        ("X_Set", "theirs"),
        ("X-SET", "theirs"),
        ("X-Who", "me"),
        ("X-Add", "one"),
        ("Cookie", "a=b"),
        ("X-Gone", "1"),
        ("X-Gone", "2"),
        ("Connection", "X-Set, x-client"),
    ];
    let reply = edge.get("/x", &headers);
    let expected = "x-set: ours\nx-client: 127.0.0.1 GET me\nx-add: one\nx-add: more\nhost: a.example\n\
                    x-forwarded-for: 127.0.0.1\n";
    assert_eq!(reply.text(), expected);
}

// The cache works with the edited request. If the configuration removes a cookie, responses can be
// shared. A header with a constant value is part of the shared fetch.
#[test]
fn the_cache_sees_edited_requests() {
    let origin = echoing();
    let edge = Setup::cached(&origin)
        .cache("bypass = { cookies = [\"*\"] }")
        .tables(REQUEST)
        .start();
    let first = edge.get(
        "/x",
        &[("Cookie", "a=b"), ("X-Who", "me"), ("X-Set", "theirs")],
    );
    assert_has_parameter(&first, "fwd=uri-miss");
    let lines = first.text();
    assert!(lines.starts_with("x-set: ours\n"), "{lines}");
    // Headers whose values differ between clients are not part of a shared fetch.
    assert!(
        !lines.contains("x-client") && !lines.contains("x-add"),
        "{lines}"
    );
    assert_hit(&edge.get("/x", &[("Cookie", "c=d")]));
    assert_eq!(origin.requests().len(), 1);
}

// A configured header has one line with a value from the client's request and one constant line. A
// shared fetch carries none of the header's lines.
#[test]
fn edited_headers_with_a_client_s_value_are_not_shared() {
    let origin = echoing();
    let edge = Setup::cached(&origin)
        .tables(
            "request_headers = { set = { X-Set = \"1\" }, add = { X-Set = \"{header:X-Who}\" } }\n",
        )
        .start();
    let first = edge.get("/x", &[("X-Who", "mallory")]);
    assert!(!first.text().contains("mallory"), "{}", first.text());
}

const RESPONSE: &str = "response_headers = { set = { Server = \"edge\", X-Asked = \"{host}{path}{query} {status}\" }, \
    add = { Vary = \"X-Two\" }, remove = [\"X-Powered-By\", \"ETag\"] }\n";

fn edited() -> Resource {
    fresh(100)
        .header("Server", "origin")
        .header("X-Powered-By", "pride")
        .vary("X-One")
}

/// Asserts that the response to a request for `/x?y` of `a.example` has this status and the
/// configured edits.
fn check_edited(reply: &Reply, status: u16) {
    assert_eq!(reply.status, status);
    assert_eq!(reply.header_all("server"), ["edge"]);
    assert_eq!(reply.header("x-powered-by"), None);
    assert_eq!(reply.header("etag"), None);
    assert_eq!(
        reply.header_all("x-asked"),
        [format!("a.example/x?y {status}")]
    );
}

// Responses are edited whether they are fetched, hits, partial, 304, or errors of the edge. The
// cache stores the origin's response without the edits.
#[test]
fn responses_of_every_kind_are_edited() {
    let origin = serving("/x", edited());
    let edge = Setup::cached(&origin).tables(RESPONSE).start();
    let host = ("Host", "a.example");
    let miss = edge.get("/x?y", &[host]);
    check_edited(&miss, 200);
    assert_eq!(miss.header_all("vary"), ["X-One", "X-Two"]);
    miss.verify_whole(100).expect("the origin's content");
    let hit = edge.get("/x?y", &[host]);
    assert_hit(&hit);
    check_edited(&hit, 200);
    let part = edge.get("/x?y", &[host, ("Range", "bytes=5-9")]);
    check_edited(&part, 206);
    part.verify_range(5, 9, 100).expect("the origin's content");
    let stored = edge.get("/x?y", &[host, ("If-None-Match", "*")]);
    check_edited(&stored, 304);
    let head = edge.ask("HEAD", "/x?y", &[host], b"");
    check_edited(&head, 200);
    assert_eq!(head.header("content-length"), Some("100"));
    let absent = edge.get("/nothing", &[host]);
    assert_eq!(
        (absent.status, absent.header("server")),
        (404, Some("edge"))
    );
    assert_eq!(origin.requests().len(), 2);
}

// The edge edits the headers of an error response. Its status, text and Cache-Status, and the
// reason in the log, stay the same.
#[test]
fn error_responses_get_edited_headers_and_keep_their_reasons() {
    let origin = origin();
    origin.refuse().expect("it can be refused");
    let told = |tables: &str| {
        let edge = Setup::uncached(&origin)
            .tables(tables)
            .logged("json")
            .start();
        let reply = edge.get("/x", &[]);
        let log = edge.json_log(1);
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.header("cache-status"), None);
        assert_eq!(log[0]["reason"], "connect-failed");
        assert!(log[0]["cache"].is_null(), "{}", log[0]);
        (
            reply.status,
            reply.text(),
            reply.header("x-a").map(str::to_owned),
        )
    };
    let plain = told("");
    assert_eq!(plain, (502, "502 connect-failed\n".to_owned(), None));
    let edited = told("response_headers = { set = { X-A = \"b\" } }\n");
    assert_eq!(edited, (plain.0, plain.1, Some("b".to_owned())));
}

// Interim responses (1xx) and 101 are passed through unchanged.
#[test]
fn interim_responses_are_not_edited() {
    let latch = Latch::closed();
    let early = edited()
        .interim(103, &[("Link", "</a.css>"), ("Server", "origin")])
        .hold_head(&latch);
    let origin = serving("/x", early);
    origin.serve("/up", Resource::upgrade("echo"));
    let edge = Setup::uncached(&origin).tables(RESPONSE).start();
    let mut client = edge.client();
    client
        .send("GET", "/x?y", &[("Host", "a.example")], b"")
        .expect("sent");
    let interim = client.read_head().expect("an interim head");
    assert_eq!(
        (interim.status, interim.header("server")),
        (103, Some("origin"))
    );
    latch.release();
    check_edited(&client.read_response().expect("a reply"), 200);
    let mut client = edge.client();
    let headers = [
        ("Host", "a"),
        ("Connection", "upgrade"),
        ("Upgrade", "echo"),
    ];
    client.send("GET", "/up", &headers, b"").expect("sent");
    let head = client.read_head().expect("a head");
    assert_eq!(
        (
            head.status,
            head.header("server").is_some_and(|s| s == "edge")
        ),
        (101, false)
    );
}

// `expires` sets a lifetime by media type. The lifetime begins when the response is sent, whatever
// the age of the stored response is.
#[test]
fn expires_goes_by_type_and_counts_from_now() {
    let origin = origin();
    let typed = |kind: &str| {
        Resource::bytes("x")
            .header("Content-Type", kind)
            .cache_control("max-age=3600")
    };
    origin.serve("/a.png", typed("image/png").header("Age", "100"));
    origin.serve("/a.html", typed("text/html; charset=utf-8"));
    origin.serve("/a.txt", typed("text/plain"));
    origin.serve("/gone", Resource::status(404).cache_control("max-age=60"));
    let edge = Setup::cached(&origin)
        .tables("expires = { default = false, types = { \"text/html\" = \"epoch\", \"image/*\" = \"1h\" } }\n")
        .start();
    let control = |target: &str| {
        let reply = edge.get(target, &[]);
        let age: u64 = reply
            .header("age")
            .map_or(0, |age| age.parse().expect("a number"));
        (reply.header_all("cache-control").join("|"), age)
    };
    for _ in 0..2 {
        let (image, age) = control("/a.png");
        assert!(age >= 100);
        assert_eq!(image, format!("max-age={}", 3600 + age));
        assert_eq!(control("/a.html").0, "no-cache");
        assert_eq!(control("/a.txt").0, "max-age=3600");
        assert_eq!(control("/gone").0, "max-age=60");
    }
    let html = edge.get("/a.html", &[]);
    assert_eq!(
        html.header("expires"),
        Some("Thu, 01 Jan 1970 00:00:01 GMT")
    );
    // A 304 has no Content-Type, so the edge sets no lifetime. The client keeps the lifetime that
    // it received with the 200.
    let unchanged = edge.get("/a.html", &[("If-None-Match", "*")]);
    assert_eq!(
        (unchanged.status, unchanged.header("cache-control")),
        (304, None)
    );
}

// `cache_control` applies only to responses with a cacheable status.
#[test]
fn a_configured_cache_control_applies_to_files_and_not_to_errors() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("a.css"), "p {}").expect("written");
    let edge = site(&format!(
        "[[site.route]]\nfiles = {:?}\ncache_control = \"public, max-age=31536000, immutable\"\nsecurity_headers = true\n\
         response_headers = {{ remove = [\"X-Frame-Options\"], set = {{ Referrer-Policy = \"no-referrer\" }} }}\n",
        folder.path().display().to_string()
    ))
    .start();
    let file = edge.get("/a.css", &[]);
    assert_eq!(
        file.header_all("cache-control"),
        ["public, max-age=31536000, immutable"]
    );
    assert_eq!(file.header("expires"), None);
    let absent = edge.get("/b.css", &[]);
    assert_eq!(
        (absent.status, absent.header("cache-control")),
        (404, Some("no-store"))
    );
    // Security headers are added to files and to errors. Settings of the route take precedence over
    // those of the site.
    for reply in [&file, &absent] {
        assert_eq!(reply.header_all("x-content-type-options"), ["nosniff"]);
        assert_eq!(reply.header("x-frame-options"), None);
        assert_eq!(reply.header_all("referrer-policy"), ["no-referrer"]);
        assert_eq!(reply.header("strict-transport-security"), None);
    }
    // The client receives the head of a file on a reused connection, and then an edited 304.
    let etag = file.header("etag").expect("a tag").to_owned();
    let unchanged = edge.get("/a.css", &[("If-None-Match", &etag)]);
    assert_eq!(
        (
            unchanged.status,
            unchanged.header_all("cache-control").len()
        ),
        (304, 1)
    );
}

#[test]
fn security_headers_of_the_origin_are_kept() {
    let origin = serving("/x", fresh(10).header("X-Frame-Options", "DENY"));
    let edge = Setup::cached(&origin)
        .tables("security_headers = true\n")
        .start();
    for _ in 0..2 {
        let reply = edge.get("/x", &[]);
        assert_eq!(reply.header_all("x-frame-options"), ["DENY"]);
        assert_eq!(reply.header_all("x-content-type-options"), ["nosniff"]);
    }
    // A security header that the configuration adds in `response_headers` is kept as well.
    origin.serve("/y", fresh(10));
    let edge = Setup::cached(&origin)
        .tables("security_headers = true\nresponse_headers = { add = { X-Frame-Options = \"DENY\" } }\n")
        .start();
    let reply = edge.get("/y", &[]);
    assert_eq!(reply.header_all("x-frame-options"), ["DENY"]);
}

// A proxy before Sluice may have TLS.
#[test]
fn a_site_without_tls_sends_a_configured_strict_transport_security() {
    let origin = serving("/x", fresh(10));
    let header = "response_headers = { set = { Strict-Transport-Security = \"max-age=1\" } }\n";
    let edge = Setup::cached(&origin).tables(header).start();
    let reply = edge.get("/x", &[]);
    assert_eq!(reply.header("strict-transport-security"), Some("max-age=1"));
}

#[test]
fn a_fixed_response_supports_conditions_and_ranges() {
    let edge = site(&format!(
        "[[site.route]]\npath = \"/robots.txt\"\nrespond = \"User-agent: *\\n\"\n\
         [[site.route]]\npath = \"/long\"\nrespond = \"{:1000}\"\n\
         [[site.route]]\npath = \"/gone\"\nrespond = {{ status = 410, body = \"<p>gone\", type = \"text/html\" }}\n\
         error_pages = {{ 4xx = {{ text = \"page\" }} }}\n\
         [[site.route]]\nrespond = {{ status = 403 }}\nerror_pages = {{ 403 = {{ text = \"page\" }} }}\n",
        "long"
    ))
    .start();
    let whole = edge.get("/robots.txt", &[]);
    assert_eq!((whole.status, &*whole.text()), (200, "User-agent: *\n"));
    let etag = whole.header("etag").expect("a tag").to_owned();
    assert_eq!(
        edge.get("/robots.txt", &[("If-None-Match", &etag)]).status,
        304
    );
    assert_eq!(
        edge.get("/robots.txt", &[("If-Match", "\"x\"")]).status,
        412
    );
    let part = edge.get(
        "/robots.txt",
        &[("Range", "bytes=0-3"), ("If-Range", &etag)],
    );
    assert_eq!((part.status, &*part.text()), (206, "User"));
    let parts = edge.get("/long", &[("Range", "bytes=0-0,900-900")]);
    assert_eq!(parts.parts().expect("two parts").len(), 2);
    let head = edge.ask("HEAD", "/robots.txt", &[], b"");
    assert_eq!(
        (head.header("content-length"), head.body.len()),
        (Some("14"), 0)
    );
    let head = edge.ask("HEAD", "/gone", &[], b"");
    assert_eq!(
        (head.status, head.header("content-length")),
        (410, Some("7"))
    );
    assert_eq!(
        edge.ask("POST", "/robots.txt", &[], b"abc").text(),
        "User-agent: *\n"
    );
    let gone = edge.get("/gone", &[("If-None-Match", "*"), ("Range", "bytes=0-0")]);
    assert_eq!((gone.status, &*gone.text()), (410, "<p>gone"));
    let bare = edge.get("/other", &[]);
    assert_eq!((bare.status, &*bare.text()), (403, "page"));
}

// The request may contain other hosts and line breaks, but the redirect leads only to the target of
// its template.
#[test]
fn redirects_lead_only_to_their_target() {
    let edge = site(
        "[[site.route]]\npath = \"/old/*\"\nredirect = { to = \"/new{path}{query}\", status = 308 }\n\
         [[site.route]]\npath_regex = '^//'\nredirect = \"{path}\"\n\
         [[site.route]]\nredirect = \"https://{hostname}{path}{query}\"\n",
    )
    .start();
    let leads = |target: &str| {
        let reply = edge.get(target, &[("Host", "A.example:8080")]);
        let location = reply.header("location").unwrap_or("none").to_owned();
        assert_eq!(reply.header("content-length"), Some("0"));
        (reply.status, location)
    };
    assert_eq!(leads("/a?b=c"), (301, "https://a.example/a?b=c".to_owned()));
    assert_eq!(leads("/old/x?y"), (308, "/new/old/x?y".to_owned()));
    assert_eq!(
        leads("//evil.example/%0d%0aSet-Cookie:x"),
        (301, "/evil.example/%0D%0ASet-Cookie:x".to_owned())
    );
    assert_eq!(leads("/a|b"), (301, "https://a.example/a%7Cb".to_owned()));
    // A malformed Host is refused before the template uses it. If the request has no Host, the
    // template uses the address on which the edge listens.
    let odd = edge.send_raw(b"GET / HTTP/1.1\r\nHost: a@b\r\nConnection: close\r\n\r\n");
    assert!(odd.starts_with("HTTP/1.1 400"), "{odd}");
    let old = edge.send_raw(b"GET /a HTTP/1.0\r\n\r\n");
    assert!(
        old.contains("\r\nlocation: https://127.0.0.1/a\r\n"),
        "{old}"
    );
}

// The template inserts a client's header into the value of another header. Line breaks in the
// client's value must not begin a new header line.
#[test]
fn a_clients_field_stays_within_its_line() {
    let edge = site(
        "response_headers = { set = { X-Echo = \"<{header:X-Say}>\", X-None = \"{header:X-None}\" } }\n\
         [[site.route]]\nrespond = \"x\"\n",
    )
    .start();
    let text = edge.send_raw(
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Say: a\tb\xff; c: d\r\nConnection: close\r\n\r\n",
    );
    assert!(text.contains("x-echo: <a\tb\u{fffd}; c: d>\r\n"), "{text}");
    assert!(!text.contains("x-none"), "{text}");
}
