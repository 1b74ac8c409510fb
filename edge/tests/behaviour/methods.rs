//! Tests of request methods: the methods that a route takes, TRACE, and Max-Forwards.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Origin, Resource};

use crate::harness::setup::version;
use crate::harness::{Edge, Setup, cache_status, fresh, origin};

/// Starts an origin that answers all requests, and an edge with a cache in front of it. `keys` are
/// further keys of the route.
fn route(keys: &str) -> (Origin, Edge) {
    let origin = origin();
    origin.serve_rest(fresh(100));
    let edge = Setup::cached(&origin).tables(keys).start();
    (origin, edge)
}

/// Returns the methods of all requests that the origin has received.
fn methods(origin: &Origin) -> Vec<String> {
    let seen = origin.requests();
    seen.into_iter().map(|seen| seen.method).collect()
}

fn assert_not_allowed(reply: &Reply, allow: &str) {
    assert_eq!(reply.status, 405, "{}", reply.text());
    assert_eq!(reply.header("allow"), Some(allow));
    assert_eq!(reply.text(), "405 method-not-allowed\n");
    assert_eq!(reply.header("cache-status"), None);
}

// RFC 9110 15.5.6: a method that a route does not take is answered with 405 and Allow, and does not
// reach the origin. GET includes HEAD.
#[test]
fn a_route_takes_only_the_methods_of_allow_methods() {
    let (origin, edge) = route("allow_methods = [\"GET\", \"POST\", \"PROPFIND\"]\n");
    let allow = "GET, HEAD, POST, PROPFIND";
    for method in [
        "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "FOO", "PURGE",
    ] {
        let reply = edge.ask(method, "/x", &[], b"");
        assert_not_allowed(&reply, allow);
    }
    assert!(methods(&origin).is_empty());
    for method in ["POST", "PROPFIND", "HEAD", "GET"] {
        assert_eq!(edge.ask(method, "/x", &[], b"").status, 200, "{method}");
    }
    // A HEAD that is not answered from the cache fetches with GET.
    assert_eq!(methods(&origin), ["POST", "PROPFIND", "GET"]);
}

// The page of an error replaces the content of a 405, and Allow stays. A PURGE from an address that
// may purge is not subject to `allow_methods`.
#[test]
fn a_405_may_have_an_error_page_and_purges_are_excepted() {
    let origin = origin();
    origin.serve_rest(fresh(100));
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         purge_from = \"127.0.0.1\"\n[cache.main]\n[[route]]\nproxy = {:?}\ncache = \"main\"\n\
         allow_methods = \"GET\"\nerror_pages = {{ 405 = {{ text = \"Read only\" }} }}\n",
        origin.url("")
    );
    let edge = Setup::of_text(text).start();
    let reply = edge.ask("POST", "/x", &[], b"x");
    assert_eq!((reply.status, reply.text().as_str()), (405, "Read only"));
    assert_eq!(reply.header("allow"), Some("GET, HEAD"));
    edge.get("/x", &[]);
    assert!(is_hit(&edge.get("/x", &[])));
    assert_eq!(edge.ask("PURGE", "/x", &[], b"").status, 200);
    assert!(!is_hit(&edge.get("/x", &[])));
    assert_eq!(methods(&origin), ["GET", "GET"]);
}

// A site's `allow_methods` applies to its routes. `false` in a route allows all methods again.
#[test]
fn allow_methods_of_a_site_applies_to_its_routes() {
    let origin = origin();
    origin.serve_rest(fresh(100));
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [[site]]\nallow_methods = \"GET\"\n\
         [[site.route]]\npath = \"/all/*\"\nproxy = {url:?}\nallow_methods = false\n\
         [[site.route]]\npath = \"/post/*\"\nproxy = {url:?}\nallow_methods = [\"POST\"]\n\
         [[site.route]]\nproxy = {url:?}\n",
        url = origin.url("")
    );
    let edge = Setup::of_text(text).start();
    assert_eq!(edge.ask("DELETE", "/all/x", &[], b"").status, 200);
    assert_eq!(edge.ask("POST", "/post/x", &[], b"").status, 200);
    for (method, target, allow) in [
        ("GET", "/post/x", "POST"),
        ("POST", "/x", "GET, HEAD"),
        ("DELETE", "/x", "GET, HEAD"),
    ] {
        let reply = edge.ask(method, target, &[], b"");
        let allowed = (reply.status, reply.header("allow"));
        assert_eq!(allowed, (405, Some(allow)), "{method} {target}");
    }
    assert_eq!(methods(&origin), ["DELETE", "POST"]);
}

// TRACE shows a client the headers that a proxy adds, so it is refused unless the route allows it.
#[test]
fn trace_is_refused_unless_a_route_allows_it() {
    let (origin, edge) = route("");
    let reply = edge.ask("TRACE", "/x", &[], b"");
    assert_not_allowed(&reply, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    assert_eq!(edge.ask("TRACE", "/pass/x", &[], b"").status, 405);
    assert!(methods(&origin).is_empty());
    let (origin, edge) = route("allow_methods = [\"GET\", \"TRACE\"]\n");
    assert_eq!(edge.ask("TRACE", "/x", &[], b"").status, 200);
    assert_eq!(methods(&origin), ["TRACE"]);
    for keys in ["respond = \"hello\"", "redirect = \"/y\""] {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[[route]]\n{keys}\n"
        );
        let edge = Setup::of_text(text).start();
        assert_eq!(edge.ask("TRACE", "/x", &[], b"").status, 405, "{keys}");
    }
}

// RFC 9110 7.6.2: each proxy subtracts 1 from Max-Forwards of TRACE and OPTIONS.
#[test]
fn max_forwards_is_counted_for_trace_and_options() {
    let (origin, edge) = route("allow_methods = [\"GET\", \"OPTIONS\", \"TRACE\"]\n");
    let sent = |method: &str, target: &str, value: &str| {
        edge.ask(method, target, &[("Max-Forwards", value)], b"");
        let seen = origin.requests().pop().expect("it was forwarded");
        assert_eq!(seen.method, method);
        seen.header("max-forwards").map(str::to_owned)
    };
    for method in ["OPTIONS", "TRACE"] {
        for (value, expected) in [
            ("1", "0"),
            ("10", "9"),
            ("007", "6"),
            ("x", "x"),
            ("-1", "-1"),
        ] {
            assert_eq!(
                sent(method, "/x", value).as_deref(),
                Some(expected),
                "{value}"
            );
        }
    }
    // The field has no meaning for other methods.
    assert_eq!(sent("GET", "/pass/x", "5").as_deref(), Some("5"));
}

// RFC 9110 7.6.2: a proxy that receives 0 answers the request itself.
#[test]
fn a_request_with_max_forwards_0_is_answered_here() {
    let (origin, edge) = route("allow_methods = [\"GET\", \"OPTIONS\", \"TRACE\"]\n");
    let end = ("Max-Forwards", "0");
    let reply = edge.ask("OPTIONS", "/x", &[end], b"");
    assert_eq!((reply.status, reply.text().as_str()), (200, ""));
    assert_eq!(reply.header("allow"), Some("GET, HEAD, OPTIONS, TRACE"));
    assert_eq!(reply.header("content-length"), Some("0"));
    // RFC 9110 9.3.8: the response to TRACE contains the request as received, without headers that
    // may be secrets.
    let fields = [
        end,
        ("Authorization", "Basic eDp5"),
        ("Cookie", "a=b"),
        ("Via", "1.1 a"),
    ];
    let reply = edge.ask("TRACE", "/x?y", &fields, b"");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("message/http"));
    let text = reply.text();
    let line = format!("TRACE /x?y {}\r\n", version());
    assert!(text.starts_with(&line), "{text}");
    assert!(text.ends_with("\r\n\r\n"), "{text}");
    let fields = text.to_ascii_lowercase();
    assert!(fields.contains("via: 1.1 a\r\n"), "{text}");
    assert!(fields.contains("max-forwards: 0\r\n"), "{text}");
    assert!(!text.contains("eDp5") && !text.contains("a=b"), "{text}");
    assert!(methods(&origin).is_empty());

    let (origin, edge) = route("");
    let reply = edge.ask("OPTIONS", "/x", &[end], b"");
    let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    assert_eq!((reply.status, reply.header("allow")), (200, Some(allow)));
    assert_eq!(edge.ask("OPTIONS", "/x", &[], b"").status, 200);
    assert_eq!(methods(&origin), ["OPTIONS"]);
}

fn is_hit(reply: &Reply) -> bool {
    cache_status(reply).starts_with("sluice; hit")
}

// RFC 9111 4.4 has every unsafe method invalidate. `invalidate_on` names the methods that do.
#[test]
fn invalidate_on_names_the_methods_that_invalidate() {
    for (value, invalidating) in [
        ("[\"POST\", \"PUT\"]", &["POST", "PUT"][..]),
        ("\"PURGE-ALL\"", &["PURGE-ALL"]),
        ("false", &[]),
    ] {
        let origin = origin();
        origin.serve_rest(fresh(100));
        let setup = Setup::cached(&origin).cache(&format!("invalidate_on = {value}"));
        let edge = setup.start();
        for method in ["POST", "PUT", "DELETE", "FOO", "get", "PURGE-ALL"] {
            edge.get("/x", &[]);
            assert!(is_hit(&edge.get("/x", &[])));
            assert_eq!(edge.ask(method, "/x", &[], b"").status, 200);
            let kept = is_hit(&edge.get("/x", &[]));
            assert_eq!(kept, !invalidating.contains(&method), "{value}: {method}");
        }
    }
}

// The URLs that a response names are kept as well, if its request's method does not invalidate.
#[test]
fn locations_are_kept_if_the_method_does_not_invalidate() {
    let origin = origin();
    origin.serve("/x", fresh(100));
    origin.serve("/do", Resource::status(201).header("Location", "/x"));
    let edge = Setup::cached(&origin)
        .tables("invalidate_on = [\"DELETE\"]\n")
        .start();
    edge.get("/x", &[]);
    for (method, kept) in [("POST", true), ("DELETE", false)] {
        assert_eq!(edge.ask(method, "/do", &[], b"").status, 201);
        assert_eq!(is_hit(&edge.get("/x", &[])), kept, "{method}");
    }
}

#[test]
fn lists_of_methods_are_checked() {
    let refused = |keys: &str| {
        let origin = origin();
        Setup::cached(&origin)
            .tables(&format!("{keys}\n"))
            .refused()
    };
    for (keys, said) in [
        ("allow_methods = [\"get\"]", "write `GET`"),
        ("allow_methods = [\"G E T\"]", "is not a method"),
        ("allow_methods = [\"CONNECT\"]", "CONNECT"),
        ("allow_methods = []", "`false`"),
        ("invalidate_on = [\"GET\"]", "is safe"),
        ("invalidate_on = [\"post\"]", "write `POST`"),
    ] {
        let text = refused(keys);
        assert!(text.contains(said), "{keys}: {text}");
    }
}
