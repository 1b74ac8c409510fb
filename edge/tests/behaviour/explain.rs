//! Tests of `GET /explain`, which says what would happen to a request, and of `POST /fetch`.

use std::cell::Cell;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sluice_lab::client::{self, Reply};
use sluice_lab::origin::{Latch, Origin, Resource};

use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, cache_status, eventually, fresh, origin,
    wait_for_requests,
};

/// Key of the signed URLs.
const KEY: &str = "0123456789abcdef";

/// Routes before those of the cache.
const ROUTES: &str = r#"
[[site.route]]
path = "/denied/*"
proxy = "origin"
deny = ["127.0.0.1"]
error_pages = { 403 = { text = "go away" } }
[[site.route]]
path = "/read/*"
proxy = "origin"
cache = "main"
allow_methods = ["GET"]
[[site.route]]
path = "/limited/*"
proxy = "origin"
cache = "main"
limit = { requests = "1/h", burst = 1 }
[[site.route]]
path = "/signed/*"
proxy = "origin"
cache = "main"
signed_urls = { keys = ["0123456789abcdef"] }
[[site.route]]
path = "/old/*"
redirect = { to = "/new{path}{query}", status = 308 }
[[site.route]]
path = "/fixed"
respond = "fixed"
[[site.route]]
path = "/bypassing/*"
proxy = "origin"
cache = "main"
bypass = { cookies = ["session"] }
[[site.route]]
path = "/rewritten/*"
proxy = "origin"
cache = "main"
rewrite = [["^/rewritten/(.*)$", "/c/$1"]]
request_headers = { set = { x-edited = "yes" } }
"#;

/// Returns the configuration for an origin. Requests below `/c/` are cached.
fn setup(origin: &Origin, files: &str) -> Setup {
    let files = format!(
        "[[site.route]]\npath = \"/files/*\"\nfiles = {{ root = {files:?}, strip_prefix = \"/files\" }}\n"
    );
    let text = Setup::cached(origin)
        .workers(1)
        .cache("fill = \"slice\"")
        .cache("slice = \"64KiB\"")
        .logged("json")
        .text();
    let cached = "proxy = \"origin\"\ncache = \"main\"\n";
    let text = text.replace(cached, &format!("path = \"/c/*\"\n{cached}"));
    let text = text.replacen("[[site]]\n", &format!("[[site]]\n{files}{ROUTES}"), 1);
    Setup::of_text(text)
}

/// An edge whose requests are explained before they are made.
struct Explained {
    origin: Origin,
    edge: Edge,
    /// Number of requests that were made, so of lines in the log.
    made: Cell<usize>,
    _files: tempfile::TempDir,
}

/// Returns an explanation without the times that have passed and are left, which differ from one moment to the next.
fn without_times(explanation: &Value) -> Value {
    match explanation {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| {
                !name.ends_with("_ms") && !["age_s", "fresh_for_s"].contains(&name.as_str())
            });
            kept.map(|(name, value)| (name.clone(), without_times(value)))
                .collect()
        }
        Value::Array(values) => values.iter().map(without_times).collect(),
        other => other.clone(),
    }
}

impl Explained {
    fn start() -> Explained {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("a.txt"), "hello, world").expect("written");
        let origin = origin();
        for (path, resource) in [
            ("/c/a", fresh(1000)),
            ("/c/large", fresh(300_000)),
            ("/c/vary", fresh(100).vary("Accept-Language")),
            (
                "/c/stale",
                Resource::offset(100).cache_control("max-age=0, stale-while-revalidate=600"),
            ),
            ("/c/old", Resource::offset(100).cache_control("max-age=0")),
            ("/c/private", Resource::offset(100).cache_control("private")),
            ("/read/x", fresh(100)),
            ("/limited/x", fresh(100)),
            ("/signed/x", fresh(100)),
            ("/bypassing/x", fresh(100)),
            ("/pass/x", fresh(100)),
        ] {
            origin.serve(path, resource);
        }
        let edge = setup(&origin, folder.path().to_str().expect("UTF-8")).start();
        Explained {
            origin,
            edge,
            made: Cell::new(0),
            _files: folder,
        }
    }

    /// Makes a request without an explanation.
    fn make(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Reply {
        let reply = self.edge.ask(method, target, headers, b"");
        self.made.set(self.made.get() + 1);
        reply
    }

    /// Has a request explained, makes it, and checks that the two agree. Returns the explanation.
    fn check(&self, decision: &str, method: &str, target: &str, headers: &[(&str, &str)]) -> Value {
        let asked = self.origin.requests().len();
        let requests = self.edge.counter("requests");
        let explanation = explain(&self.edge, method, target, headers);
        let again = explain(&self.edge, method, target, headers);
        assert_eq!(without_times(&again), without_times(&explanation));
        assert_eq!(self.origin.requests().len(), asked, "nothing is sent");
        assert_eq!(
            self.edge.counter("requests"),
            requests,
            "nothing is counted"
        );
        assert_eq!(
            explanation["decision"], decision,
            "{target}: {explanation:#}"
        );
        let reply = self.make(method, target, headers);
        let line = &self.edge.json_log(self.made.get())[self.made.get() - 1];
        assert_agree(&explanation, &reply, line);
        explanation
    }
}

/// Asserts that an explanation agrees with the response and the line in the log.
fn assert_agree(explanation: &Value, reply: &Reply, line: &Value) {
    let about = format!("{explanation:#}\n{reply:?}\n{line}");
    if let Some(answer) = explanation["answer"].as_object() {
        assert_eq!(answer["status"], reply.status, "{about}");
        for pair in answer["headers"].as_array().expect("a list") {
            let (name, value) = (pair[0].as_str(), pair[1].as_str());
            let name = name.expect("a name");
            // Both follow from the time.
            if !["date", "retry-after"].contains(&name) {
                assert_eq!(reply.header(name), value, "{name}: {about}");
            }
        }
    }
    let reason = |value: &Value| value["reason"].as_str().map(str::to_owned);
    // The reason may also follow from the origin's response.
    if explanation["answer"].is_object() || reason(explanation).is_some() {
        assert_eq!(reason(explanation), reason(line), "{about}");
    }
    match explanation["cache_status"].as_str() {
        None => {}
        Some(predicted) => {
            let real = cache_status(reply);
            for parameter in predicted.split("; ").filter(|p| !p.starts_with("ttl=")) {
                assert_has_parameter(reply, parameter);
            }
            assert_eq!(
                real.contains("; hit"),
                predicted.contains("; hit"),
                "{about}"
            );
        }
    }
}

/// Returns the explanation of a request.
fn explain(edge: &Edge, method: &str, target: &str, headers: &[(&str, &str)]) -> Value {
    let lines: Vec<String> = headers.iter().map(|(n, v)| format!("{n}: {v}")).collect();
    let query = [
        ("url", edge.url(target)),
        ("method", method.to_owned()),
        ("headers", lines.join("\n")),
    ];
    let reply = ask_admin(edge, "GET", "/explain", &query);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut explanation: Value = serde_json::from_slice(&reply.body).expect("JSON");
    // Times change from one explanation to the next.
    for name in ["age_s", "fresh_for_s", "flights", "decisions"] {
        if let Some(stored) = explanation["stored"].as_object_mut() {
            stored.remove(name);
        }
    }
    if let Some(status) = explanation["cache_status"].as_str() {
        let steady: Vec<&str> = status
            .split("; ")
            .filter(|p| !p.starts_with("ttl="))
            .collect();
        explanation["cache_status"] = steady.join("; ").into();
    }
    explanation
}

fn ask_admin(edge: &Edge, method: &str, page: &str, query: &[(&str, String)]) -> Reply {
    let pair = |(name, value): &(&str, String)| {
        format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))
    };
    let query: Vec<String> = query.iter().map(pair).collect();
    let target = format!("{page}?{}", query.join("&"));
    client::once(edge.admin, method, &target, &[("x-sluice", "1")], b"").expect("an answer")
}

fn fetch(edge: &Edge, target: &str, more: &[(&str, String)]) -> Reply {
    let mut query = vec![("url", edge.url(target))];
    query.extend_from_slice(more);
    ask_admin(edge, "POST", "/fetch", &query)
}

#[test]
fn the_decisions_of_a_cache_are_those_of_the_real_request() {
    let all = Explained::start();
    let first = all.check("miss", "GET", "/c/a", &[]);
    assert_eq!(first["cache_status"], "sluice; fwd=uri-miss");
    assert_eq!(
        (&first["cache"], &first["upstream"]),
        (&"main".into(), &"origin".into())
    );
    assert_eq!(first["key"]["primary"], all.edge.url("/c/a"));
    assert!(first["stored"].is_null() && first["answer"].is_null());
    let hit = all.check("hit", "GET", "/c/a", &[]);
    assert_eq!(hit["stored"]["freshness"]["rule"], "max-age");
    assert_eq!(hit["stored"]["freshness"]["lifetime_s"], 3600);
    assert_eq!(hit["key"]["hash"], first["key"]["hash"]);
    all.check("hit", "HEAD", "/c/a", &[]);
    let range = all.check("hit", "GET", "/c/a", &[("Range", "bytes=10-19")]);
    assert_eq!(range["answer"]["status"], 206);
    let beyond = all.check("hit", "GET", "/c/a", &[("Range", "bytes=5000-")]);
    assert_eq!(beyond["answer"]["status"], 416);
    let etag = all.edge.objects("/c/a")[0]["etag"]
        .as_str()
        .map(str::to_owned);
    let etag = etag.expect("an ETag");
    let same = all.check("hit", "GET", "/c/a", &[("If-None-Match", &etag)]);
    assert_eq!(same["answer"]["status"], 304);
    all.check("pass", "POST", "/c/other", &[]);
    all.check(
        "not-cached",
        "GET",
        "/c/none",
        &[("Cache-Control", "only-if-cached")],
    );
    all.check("miss", "GET", "/c/private", &[]);
    let passed = all.check("pass", "GET", "/c/private", &[]);
    assert_eq!(passed["reason"], "private");
    all.check("pass", "GET", "/bypassing/x", &[("Cookie", "session=1")]);
    all.check("miss", "GET", "/c/new", &[("Authorization", "Basic eDp5")]);
}

#[test]
fn stale_partial_varying_and_purged_responses_are_explained() {
    let all = Explained::start();
    all.make("GET", "/c/stale", &[]);
    let stale = all.check("stale", "GET", "/c/stale", &[]);
    assert_eq!(stale["reason"], "stale-while-revalidate");
    wait_for_requests(&all.origin, "/c/stale", 2);
    all.make("GET", "/c/old", &[]);
    let old = all.check("revalidate", "GET", "/c/old", &[]);
    assert_eq!(old["cache_status"], "sluice; fwd=stale");
    all.make("GET", "/c/large", &[("Range", "bytes=0-9")]);
    eventually("the block is stored", || {
        all.edge.objects("/c/large")[0]["flights"]
            .as_array()
            .map(Vec::len)
            == Some(0)
    });
    all.check("hit", "GET", "/c/large", &[("Range", "bytes=5-9")]);
    let missing = all.check(
        "partial",
        "GET",
        "/c/large",
        &[("Range", "bytes=200000-200009")],
    );
    assert_eq!(missing["cache_status"], "sluice; fwd=partial");
    all.make("GET", "/c/vary", &[("Accept-Language", "de")]);
    let same = all.check("hit", "GET", "/c/vary", &[("Accept-Language", "de")]);
    assert_eq!(same["key"]["vary"][0], "accept-language");
    let other = all.check("miss", "GET", "/c/vary", &[("Accept-Language", "fr")]);
    assert_eq!(other["cache_status"], "sluice; fwd=vary-miss");
    assert_ne!(same["key"]["variant"], other["key"]["variant"]);
    all.make("GET", "/c/a", &[]);
    all.check("hit", "GET", "/c/a", &[]);
    let order = format!("{{\"url\": {:?}}}", all.edge.url("/c/a"));
    let own = [("x-sluice", "1")];
    let purged = client::once(all.edge.admin, "POST", "/purge", &own, order.as_bytes());
    assert_eq!(purged.expect("an answer").status, 200);
    all.check("miss", "GET", "/c/a", &[]);
}

#[test]
fn routes_gates_edits_and_handlers_are_explained() {
    let all = Explained::start();
    let denied = all.check("gate", "GET", "/denied/x", &[]);
    assert_eq!(denied["reason"], "address-denied");
    assert_eq!(denied["gates"][0]["passes"], false);
    let method = all.check("gate", "POST", "/read/x", &[]);
    assert_eq!(method["reason"], "method-not-allowed");
    assert_eq!(
        all.check("miss", "GET", "/read/x", &[])["gates"][0]["passes"],
        true
    );
    // Explanations take nothing from the client's bucket.
    all.check("miss", "GET", "/limited/x", &[]);
    let limited = all.check("gate", "GET", "/limited/x", &[]);
    assert_eq!(limited["reason"], "too-many-requests");
    assert_eq!(limited["gates"][0]["gate"], "requests");
    let unsigned = all.check("gate", "GET", "/signed/x", &[]);
    assert_eq!(unsigned["reason"], "signature-missing");
    let signed = sign("/signed/x");
    let admitted = all.check("miss", "GET", &signed, &[]);
    assert_eq!(admitted["rewritten"], "/signed/x");
    all.check("hit", "GET", &signed, &[]);
    let none = all.check("no-route", "GET", "/elsewhere", &[]);
    assert_eq!(
        (&none["reason"], &none["route"]),
        (&"no-route".into(), &Value::Null)
    );
    let moved = all.check("redirect", "GET", "/old/x?y", &[]);
    assert_eq!(moved["answer"]["status"], 308);
    all.check("respond", "GET", "/fixed", &[]);
    all.check("respond", "GET", "/fixed", &[("Range", "bytes=0-1")]);
    all.check("files", "GET", "/files/a.txt", &[]);
    all.check("files", "GET", "/files/a.txt", &[("Range", "bytes=0-4")]);
    all.check("files", "GET", "/files/none", &[]);
    all.check("files", "POST", "/files/a.txt", &[]);
    let forwarded = all.check("forward", "GET", "/pass/x", &[]);
    assert!(forwarded["cache"].is_null());
    let rewritten = all.check("miss", "GET", "/rewritten/a", &[]);
    assert_eq!(rewritten["rewritten"], "/c/a");
    let primary = rewritten["key"]["primary"].as_str().expect("a key");
    assert!(primary.starts_with(&all.edge.url("/c/a")), "{primary}");
    assert_eq!(rewritten["edits"][0], "request: set x-edited: yes");
    all.check("hit", "GET", "/rewritten/a", &[]);
}

#[test]
fn a_request_that_would_wait_for_a_fetch_is_explained() {
    let latch = Latch::closed();
    let origin = origin();
    origin.serve("/x", fresh(100).hold_head(&latch));
    let edge = Setup::cached(&origin).workers(1).start();
    let mut first = edge.client();
    first.send("GET", "/x", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    let joined = explain(&edge, "GET", "/x", &[]);
    assert_eq!(joined["decision"], "join");
    assert_eq!(joined["cache_status"], "sluice; fwd=uri-miss; collapsed");
    let mut second = edge.client();
    second.send("GET", "/x", &[], b"").expect("sent");
    eventually("both wait", || edge.counter("requests_now") == 2);
    latch.release();
    first.read_response().expect("a reply");
    assert_has_parameter(&second.read_response().expect("a reply"), "collapsed");
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn wrong_questions_are_refused_and_refused_requests_explained() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let long = format!("http://a/{}", "x".repeat(20_000));
    let cases: [(&[(&str, &str)], &str); 9] = [
        (&[], "missing field `url`"),
        (&[("url", "a")], "a URL begins with http://"),
        (&[("url", "http://a/%zz")], "two hexadecimal digits"),
        (&[("url", "http://a/\r\nx: y")], "must be escaped"),
        (&[("url", "http://a/"), ("method", "G T")], "the method"),
        (
            &[("url", "http://a/"), ("headers", "x")],
            "a header is written",
        ),
        (&[("url", "http://a/"), ("headers", "Host: b")], "Host"),
        (&[("url", "http://a/"), ("client", "b")], "an IP address"),
        (&[("url", "http://a/"), ("more", "1")], "unknown field"),
    ];
    for (query, said) in cases {
        let query: Vec<_> = query.iter().map(|(n, v)| (*n, (*v).to_owned())).collect();
        let reply = ask_admin(&edge, "GET", "/explain", &query);
        assert_eq!(reply.status, 400, "{query:?}");
        assert!(reply.text().contains(said), "{query:?}: {}", reply.text());
    }
    let reply = ask_admin(&edge, "GET", "/explain", &[("url", long)]);
    let refused: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(
        (&refused["decision"], &refused["answer"]["status"]),
        (&"refused".into(), &414.into())
    );
    let trace = explain(&edge, "TRACE", "/x", &[]);
    assert_eq!(trace["answer"]["status"], 405);
    assert!(origin.requests().is_empty());
}

#[test]
fn a_fetch_completes_an_object_and_a_refresh_validates_it() {
    let origin = origin();
    origin.serve("/x", fresh(300_000));
    let edge = Setup::cached(&origin)
        .cache("fill = \"slice\"")
        .cache("slice = \"64KiB\"")
        .start();
    edge.get("/x", &[("Range", "bytes=0-9")]);
    let missing = || edge.objects("/x")[0]["missing_bytes"].as_u64();
    assert!(missing() > Some(0));
    let reply = fetch(&edge, "/x", &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let fetched: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(
        (&fetched["state"], &fetched["bytes"]),
        (&"complete".into(), &300_000.into())
    );
    assert_eq!(missing(), Some(0));
    let asked = origin.requests().len();
    assert_hit(&edge.get("/x", &[]));
    let refreshed = fetch(&edge, "/x", &[("refresh", "1".to_owned())]);
    let refreshed: Value = serde_json::from_slice(&refreshed.body).expect("JSON");
    let status = refreshed["cache_status"].as_str().expect("a status");
    assert!(
        status.contains("fwd=request") && status.contains("fwd-status=304"),
        "{status}"
    );
    let requests = origin.requests();
    assert_eq!(requests.len(), asked + 1);
    let seen = &requests[asked];
    assert!(seen.header("if-none-match").is_some());
    assert_eq!(seen.header("cache-control"), None);
    assert_hit(&edge.get("/x", &[]));
    assert_eq!(origin.requests().len(), asked + 1);
}

#[test]
fn fetches_are_bounded_and_need_a_cached_url() {
    let latch = Latch::closed();
    let origin = origin();
    for name in 0..5 {
        origin.serve(&format!("/{name}"), fresh(100).hold_head(&latch));
    }
    let edge = Setup::cached(&origin).start();
    let plain = client::once(edge.admin, "POST", "/fetch?url=http://a/", &[], b"");
    assert_eq!(plain.expect("an answer").status, 403);
    assert_eq!(fetch(&edge, "/pass/x", &[]).status, 409);
    let nowhere = [("url", "no URL".to_owned())];
    assert_eq!(ask_admin(&edge, "POST", "/fetch", &nowhere).status, 400);
    let mut orders = Vec::new();
    for name in 0..4 {
        let mut order = client::Client::connect(edge.admin).expect("the program accepts");
        let target = format!("/fetch?url={}", edge.url(&format!("/{name}")));
        order
            .send("POST", &target, &[("x-sluice", "1")], b"")
            .expect("sent");
        orders.push(order);
    }
    assert!(latch.wait_held(4, SOON));
    let refused = fetch(&edge, "/4", &[]);
    assert_eq!(refused.status, 429);
    assert!(
        refused.text().contains("4 fetches are in progress"),
        "{}",
        refused.text()
    );
    latch.release();
    for mut order in orders {
        let reply = order.read_response().expect("a reply");
        let fetched: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(fetched["state"], "complete");
    }
    assert_eq!(fetch(&edge, "/4", &[]).status, 200);
}

#[test]
fn servers_that_do_not_work_are_named_with_advice() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let server = origin.addr().to_string();
    let working = explain(&edge, "GET", "/x", &[]);
    assert_eq!(
        working["servers"],
        serde_json::json!([format!("{server} up")])
    );
    assert!(working["advice"].is_null());
    let order = [
        ("upstream", "origin".to_owned()),
        ("server", server.clone()),
        ("set", "down".to_owned()),
    ];
    assert_eq!(ask_admin(&edge, "POST", "/servers", &order).status, 200);
    let down = explain(&edge, "GET", "/x", &[]);
    let expected = format!("{server} down: by order");
    assert_eq!(down["servers"], serde_json::json!([expected]));
    let advice = down["advice"].as_str().expect("advice");
    assert!(advice.contains("`stale_if_error`"), "{advice}");
    let text = edge.command(&["inspect", "--explain", &edge.url("/x")]);
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(
        text.contains(&expected) && text.contains("advice "),
        "{text}"
    );
}

#[test]
fn the_commands_explain_a_running_sluice_and_a_configuration() {
    let origin = origin();
    origin.serve("/x", fresh(100));
    let setup = Setup::cached(&origin);
    let edge = setup.start();
    edge.get("/x", &[]);
    let url = edge.url("/x");
    let text = |output: std::process::Output| {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let live = text(edge.command(&["inspect", "--explain", &url]));
    assert!(live.contains("decision   hit\n"), "{live}");
    let live = text(edge.command(&["inspect", "--explain", "--json", &url]));
    let live: Value = serde_json::from_str(&live).expect("JSON");
    assert_eq!(
        (&live["live"], &live["answer"]["status"]),
        (&true.into(), &200.into())
    );
    let file = edge.file("sluice.toml");
    let file = file.to_str().expect("UTF-8");
    let check = |url: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"));
        let command = command.args(["check", file, "--offline", "--json", "--explain", url]);
        command.output().expect("the program starts")
    };
    let offline: Value = serde_json::from_str(&text(check(&url))).expect("JSON");
    assert_eq!(
        (&offline["live"], &offline["decision"]),
        (&false.into(), &"lookup".into())
    );
    assert_eq!(offline["key"], live["key"]);
    assert_eq!(check("nonsense").status.code(), Some(2));
}

/// Returns a signed target, made by `sluice sign`.
fn sign(target: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("key");
    std::fs::write(&file, KEY).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["sign", target, "--expires", "1h", "--key-file"])
        .arg(&file)
        .output()
        .expect("the program starts");
    let signed = String::from_utf8(output.stdout).expect("text");
    signed.trim_end().to_owned()
}
