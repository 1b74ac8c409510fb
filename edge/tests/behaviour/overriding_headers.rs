//! Tests of request headers from which an origin may take URL, host or method in place of the
//! request's. They reach the origin only if the configuration names them.

use sluice_lab::origin::{Resource, Seen};

use crate::bodies::assert_trailer;
use crate::harness::{Edge, Setup, fresh, serving};

/// Headers that frameworks honour, and spellings that CGI programs can't distinguish from them.
const OVERRIDING: &[&str] = &[
    "X-Original-URL",
    "X-Original-Query",
    "X-Arr-Original-Url",
    "X-Unencoded-Url",
    "X-Matched-Path",
    "X-Invoke-Path",
    "X-Invoke-Query",
    "X-Now-Route-Matches",
    "X-Middleware-Subrequest",
    "X-WAP-URL",
    "X-HTTP-Path-Override",
    "X-HTTP-Proto",
    "X-Sendfile",
    "X-Sendfile-Type",
    "X-Accel-Mapping",
    "X-Accel-Redirect",
    "Request-URI",
    "Base-URL",
    "Http-Url",
    "Proxy-Url",
    "REQUEST_URI",
    "x_middleware_subrequest",
    "Http_Url",
    "X-Rewrite-URL",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "X-Forwarded-Path",
    "X-Forwarded-Prefix",
    "X-Original-Host",
    "X-Host",
    "Proxy",
    "X_Original_URL",
    "x_http-method_override",
];

fn with_all() -> Vec<(&'static str, &'static str)> {
    let all = OVERRIDING.iter().map(|&name| (name, "/admin"));
    all.chain([("X-Other", "1")]).collect()
}

fn assert_none(seen: &Seen) {
    for name in OVERRIDING {
        assert_eq!(seen.header(name), None, "{} {name}", seen.method);
    }
}

#[test]
fn overriding_headers_reach_no_origin() {
    let origin = serving("/x", fresh(10));
    origin.serve("/pass/x", Resource::offset(10));
    let edge = Setup::cached(&origin)
        .tables("forward_headers = \"*\"\n")
        .start();
    for (method, target) in [
        ("GET", "/x"),
        ("POST", "/x"),
        ("HEAD", "/x?other"),
        ("GET", "/pass/x"),
        ("POST", "/pass/x"),
    ] {
        origin.reset_record();
        edge.ask(method, target, &with_all(), b"");
        assert_none(&origin.requests()[0]);
    }
    assert_eq!(origin.requests()[0].header("x-other"), Some("1"));
}

/// Starts an edge without a cache whose route has these lines, in front of an origin at `/x`.
fn routed(lines: &str) -> (sluice_lab::origin::Origin, Edge) {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).tables(lines).start();
    (origin, edge)
}

#[test]
fn overriding_headers_that_the_route_names_are_forwarded() {
    let (origin, edge) = routed(
        "request_headers = { set = { X-HTTP-Method-Override = \"{header:X-HTTP-Method-Override}\", X-Script-Name = \"/app\" } }\n",
    );
    edge.ask("POST", "/x", &with_all(), b"");
    let seen = &origin.requests()[0];
    assert_eq!(seen.header_all("x-http-method-override"), ["/admin"]);
    assert_eq!(seen.header_all("x-script-name"), ["/app"]);
    assert_eq!(seen.header("x_http-method_override"), None);
    assert_eq!(seen.header("x-original-url"), None);
}

// Some origins merge trailers into the headers, so the same rules apply to both.
#[test]
fn trailers_obey_the_rules_of_headers() {
    let (origin, edge) =
        routed("request_headers = { remove = [\"X-Secret\"], set = { X-Tenant = \"blue\" } }\n");
    let trailers = [
        "X-Secret",
        "x_secret",
        "X-Tenant",
        "X_Tenant",
        "X-Original-URL",
        "x_rewrite_url",
        "X-Forwarded-For",
        "x_forwarded_for",
        "Cookie",
        "Content_Disposition",
    ];
    let trailers = trailers.map(|name| format!("{name}: evil\r\n")).concat();
    let request = format!(
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 42\r\n{trailers}\r\n"
    );
    let mut client = edge.client();
    client.send_raw(request.as_bytes()).expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    assert_trailer(&origin, "x-sum", "42");
}

// The operator writes a name with `_`. All spellings of the client are removed nevertheless.
#[test]
fn edits_of_names_with_underscores_cover_all_spellings() {
    let (origin, edge) =
        routed("request_headers = { remove = [\"X_Secret\"], set = { X_Tenant = \"blue\" } }\n");
    let names = ["X_Secret", "X-Secret", "X_Tenant", "X-Tenant"];
    edge.get("/x", &names.map(|name| (name, "evil")));
    let seen = &origin.requests()[0];
    assert_eq!(seen.header("x_secret").or(seen.header("x-secret")), None);
    assert_eq!(seen.header("x-tenant"), None);
    assert_eq!(seen.header_all("x_tenant"), ["blue"]);
}

// A constant is the same for all clients, so fetches that clients share carry it, too.
#[test]
fn overriding_headers_with_a_constant_value_reach_the_origin_on_cached_routes() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin)
        .tables("[site.route.request_headers.set]\nX-Script-Name = \"/app\"\nX-Forwarded-Prefix = \"/app\"\n")
        .start();
    for method in ["GET", "POST", "OPTIONS"] {
        origin.reset_record();
        edge.ask(
            method,
            "/x",
            &[("X_Script_Name", "/evil"), ("X-Forwarded-Prefix", "/evil")],
            b"",
        );
        let seen = &origin.requests()[0];
        for name in ["x-script-name", "x-forwarded-prefix"] {
            assert_eq!(seen.header_all(name), ["/app"], "{method} {name}");
        }
        assert_eq!(seen.header("x_script_name"), None, "{method}");
    }
}
