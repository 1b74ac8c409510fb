//! Tests of the host of a request: from an absolute target or from Host, and with a trailing dot.

use serde_json::json;
use sluice_lab::client;
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, Setup, assert_hit, fresh, origin, serving};

/// Sends a request with this request line and Host. Returns the complete response.
fn send(edge: &Edge, line: &str, host: &str) -> String {
    let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    edge.send_raw(request.as_bytes())
}

/// Returns the values of Host in all requests that the origin has received.
fn hosts(origin: &Origin) -> Vec<String> {
    let seen = origin.requests();
    let hosts = seen.iter().filter_map(|seen| seen.header("host"));
    hosts.map(str::to_owned).collect()
}

// RFC 9112 3.2.2: if the target is a URI, its host is the host of the request, and Host is ignored.
#[test]
fn the_host_of_an_absolute_target_replaces_host() {
    let origin = serving("/x", Resource::status(200).vary("Host"));
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[cache.main]\n\
         [[site]]\nhosts = [\"b.example\"]\n[[site.route]]\nproxy = {:?}\ncache = \"main\"\n\
         response_headers = {{ set = {{ x-host = \"{{header:host}}\" }} }}\n",
        origin.url("")
    );
    let edge = Setup::of_text(text).start();
    for (target, sent) in [
        ("http://b.example/x", "b.example"),
        ("http://B.example:8080/x", "b.example:8080"),
        ("HTTP://b.example./x", "b.example"),
    ] {
        let answer = send(&edge, &format!("GET {target}"), "a.example");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{target}: {answer}");
        let shown = format!("\r\nx-host: {sent}\r\n");
        assert!(answer.contains(&shown), "{target}: {answer}");
        let seen = origin.requests().pop().expect("a request");
        assert_eq!(seen.header("host"), Some(sent), "{target}");
        assert_eq!(seen.header("x-forwarded-host"), Some(sent), "{target}");
    }
    let other = send(&edge, "GET http://a.example/x", "b.example");
    assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
    // A malformed Host is refused even if it is not used (RFC 9112 3.2).
    let bad = send(&edge, "GET http://b.example/x", "a b");
    assert!(bad.starts_with("HTTP/1.1 400 "), "{bad}");
}

// A name with a trailing dot is the same name (RFC 1034 3.1): it selects the same site, has the
// same stored response and the same purges, and reaches the origin without the dot.
#[test]
fn a_trailing_dot_does_not_change_the_host() {
    let origin = origin();
    origin.serve_rest(fresh(100));
    for configured in ["ex.example", "ex.example."] {
        origin.reset_record();
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[cache.main]\n\
             [[site]]\nhosts = [\"{configured}\"]\n[[site.route]]\nproxy = {:?}\ncache = \"main\"\n",
            origin.url("")
        );
        let edge = Setup::of_text(text).start();
        let get = |host| edge.get("/x", &[("Host", host)]);
        assert_eq!(get("ex.example.").status, 200);
        for host in ["ex.example", "EX.example.", "ex.example.:80", "ex.example:"] {
            assert_hit(&get(host));
        }
        assert_hit(&edge.get("http://ex.example./x", &[]));
        assert_eq!(hosts(&origin), ["ex.example"]);

        let order = json!({ "url": "http://ex.example./x" }).to_string();
        let fields = [("x-sluice", "1")];
        let purged = client::once(edge.admin, "POST", "/purge", &fields, order.as_bytes());
        assert_eq!(purged.expect("an answer").status, 200);
        assert_eq!(get("ex.example").status, 200);
        assert_eq!(hosts(&origin), ["ex.example"; 2]);
        let output = edge.command(&["purge", "http://ex.example./x"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(get("ex.example").status, 200);
        assert_eq!(hosts(&origin), ["ex.example"; 3]);
    }
}
