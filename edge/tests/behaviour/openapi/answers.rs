//! Each page is asked for with sensible values, and its answers are checked against the description.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use sluice_lab::client::Client;

use super::description::{Answer, Description};
use super::site::{PENDING, SECURE, Site, encoded};
use crate::harness::{Edge, SOON, Setup};

/// Answers that the test does not provoke: a fetch that runs for ten seconds.
const NOT_PROVOKED: [&str; 1] = ["POST /fetch 202 application/json"];

/// Sends requests to the admin address, and checks every answer.
struct Checked<'a> {
    edge: &'a Edge,
    description: &'a Description,
    /// Method, path, status and media type of the answers.
    seen: BTreeSet<String>,
}

impl Checked<'_> {
    fn ask(
        &mut self,
        line: (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
        status: u16,
    ) -> Answer {
        self.ask_from("127.0.0.1", line, headers, body, status)
    }

    fn ask_from(
        &mut self,
        source: &str,
        (method, target): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
        status: u16,
    ) -> Answer {
        let source = source.parse().expect("an address");
        let mut client = Client::connect_from(source, self.edge.admin).expect("accepted");
        let answer = Answer::of(&mut client, (method, target), headers, body);
        let answer = answer.unwrap_or_else(|error| panic!("{method} {target}: {error}"));
        let shown = answer.shown();
        assert_eq!(answer.head.status, status, "{method} {target}: {shown}");
        if let Err(why) = self.description.check(method, target, &answer) {
            panic!("{method} {target}: {why}\n{shown}");
        }
        if let Some(operation) = self.description.operation_of(method, target) {
            let (name, of) = (operation.name(), answer.media_type());
            self.seen.insert(format!("{name} {status} {of}"));
        }
        answer
    }

    fn get(&mut self, target: &str, status: u16) -> Answer {
        self.ask(("GET", target), &[], b"", status)
    }

    fn get_as(&mut self, target: &str, accept: &str, status: u16) -> Answer {
        self.ask(("GET", target), &[("Accept", accept)], b"", status)
    }

    fn post(&mut self, target: &str, status: u16) -> Answer {
        self.ask(("POST", target), &[("x-sluice", "1")], b"", status)
    }

    fn purge(&mut self, body: &Value, status: u16) -> Answer {
        let body = body.to_string();
        let headers = [("x-sluice", "1")];
        self.ask(("POST", "/purge"), &headers, body.as_bytes(), status)
    }
}

#[test]
fn every_answer_is_as_described() {
    let site = Site::start();
    let description = Description::of(&site.edge);
    let mut checked = Checked {
        edge: &site.edge,
        description: &description,
        seen: BTreeSet::new(),
    };
    ask_for_pages(&mut checked);
    ask_about_urls(&mut checked, &site);
    ask_for_history(&mut checked, &site);
    give_orders(&mut checked, &site);
    ask_wrongly(&mut checked);
    let mut missing = description.successes();
    missing.retain(|line| !checked.seen.contains(line));
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    assert_eq!(missing, NOT_PROVOKED);
}

fn ask_for_pages(checked: &mut Checked<'_>) {
    checked.get("/", 200);
    checked.get_as("/", "text/html,*/*;q=0.8", 307);
    checked.get("/dashboard", 308);
    let page = checked.get("/dashboard/", 200);
    let tag = page.head.header("etag").expect("a tag").to_owned();
    for (target, tag) in [("/dashboard/", tag.as_str()), ("/dashboard/main.js", "*")] {
        checked.ask(("GET", target), &[("If-None-Match", tag)], b"", 304);
    }
    for name in [
        "index.html",
        "main.js",
        "style.css",
        "icon.svg",
        "vendor/uplot-license.txt",
    ] {
        checked.get(&format!("/dashboard/{name}"), 200);
    }
    for target in [
        "/openapi.json",
        "/health",
        "/settings",
        "/status",
        "/members",
        "/what-if",
        "/servers",
    ] {
        checked.get(target, 200);
        checked.ask(("HEAD", target), &[], b"", 200);
        checked.ask(("PUT", target), &[("x-sluice", "1")], b"", 405);
    }
    for upstream in ["origin", "spare"] {
        let target = format!("/servers/connections?upstream={upstream}&n=50");
        checked.get(&target, 200);
    }
    checked.get("/certificates", 200);
    checked.get("/metrics", 200);
    checked.get_as(
        "/metrics",
        "application/openmetrics-text;version=1.0.0",
        200,
    );
    for by in ["requests", "bytes", "misses", "latency"] {
        checked.get(&format!("/top?by={by}&minutes=60&n=10"), 200);
    }
    let events = checked.get("/events", 200);
    let events: Value = serde_json::from_slice(&events.body).expect("JSON");
    assert_ne!(events["events"], json!([]), "there are events");
    checked.get_as("/events?n=1000", "application/jsonl", 200);
    checked.get("/events?after=1&n=1", 200);
}

fn ask_about_urls(checked: &mut Checked<'_>, site: &Site) {
    for target in ["/c/a", "/c/vary", "/c/large", "/spare/a", "/nothing"] {
        let url = encoded(&site.edge.url(target));
        checked.get(&format!("/status?url={url}"), 200);
        let headers = encoded("Accept-Language: de\nX: y");
        checked.get(&format!("/status?url={url}&headers={headers}"), 200);
    }
    for target in [
        "/c/a",
        "/c/b",
        "/c/large",
        "/gated/a",
        "/signed/a",
        "/files/a.txt",
        "/old/a",
        "/fixed",
        "/spare/a",
        "/pass/a",
    ] {
        let url = encoded(&site.edge.url(target));
        for (method, client) in [
            ("GET", "127.0.0.1"),
            ("POST", "192.0.2.7"),
            ("PURGE", "::1"),
            ("CONNECT", "127.0.0.1"),
        ] {
            let client = encoded(client);
            checked.get(
                &format!("/explain?url={url}&method={method}&client={client}"),
                200,
            );
        }
    }
    checked.get(
        &format!("/explain?url={}", encoded("http://secure.example/")),
        200,
    );
}

fn ask_for_history(checked: &mut Checked<'_>, site: &Site) {
    let listing = site.json("/members");
    for (scope, series) in listing["series"].as_object().expect("scopes") {
        let names = series.as_array().expect("series").iter();
        let names: Vec<&str> = names.filter_map(|one| one["name"].as_str()).collect();
        for names in names.chunks(64) {
            let names = names.join(",");
            for member in listing[scope].as_array().expect("members").iter().take(3) {
                let member = encoded(member.as_str().expect("a name"));
                let target =
                    format!("/history?scope={scope}&member={member}&series={names}&points=2");
                checked.get(&target, 200);
            }
            checked.get(
                &format!("/history?scope={scope}&members=*&series={names}&from=-60&to=-1&top=3"),
                200,
            );
        }
    }
    checked.get("/stream?scope=edge&series=requests,connections_now", 200);
    check_stream(checked.description, site);
}

/// Checks the events of a stream.
fn check_stream(description: &Description, site: &Site) {
    let mut stream = TcpStream::connect(site.edge.admin).expect("accepted");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    let target = "/stream?scope=edge&series=requests,request_duration_p99";
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut points = 0;
    for line in BufReader::new(stream).lines() {
        let line = line.expect("a line");
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        let point: Value = serde_json::from_str(data).expect("JSON");
        let checked = description.check_value(description.schema("Point"), &point);
        assert_eq!(checked, Ok(()), "{point}");
        points += 1;
        if points == 2 {
            return;
        }
    }
    panic!("the stream ended after {points} points");
}

fn give_orders(checked: &mut Checked<'_>, site: &Site) {
    let url = site.edge.url("/c/a");
    for (body, status) in [
        (json!({"url": url}), 200),
        (json!({"url": url, "soft": true, "cache": "main"}), 200),
        (json!({"prefix": "/c/"}), 200),
        (json!({"tag": "news"}), 200),
        (json!({"tags": ["news", "sport"], "soft": false}), 200),
        (json!({"all": true, "cache": "small"}), 200),
        (json!({"all": true, "cache": "none"}), 404),
        (json!({"all": false}), 400),
        (json!({"tag": "a", "url": url}), 400),
    ] {
        let is_described = description_accepts(checked.description, &body);
        assert_eq!(is_described, status != 400, "{body}");
        checked.purge(&body, status);
    }
    let encoded_url = encoded(&url);
    for (query, status) in [
        (format!("url={encoded_url}"), 200),
        (format!("url={encoded_url}&refresh=1"), 200),
        (format!("url={}", encoded(&site.edge.url("/fixed"))), 409),
        (format!("url={}", encoded("http://secure.example/")), 409),
        ("url=x".to_owned(), 400),
    ] {
        checked.post(&format!("/fetch?{query}"), status);
    }
    let server = encoded(&site.server);
    for (query, status) in [
        (
            format!("upstream=spare&server={server}&set=drain&weight=7"),
            200,
        ),
        (format!("upstream=spare&server={server}&set=up"), 200),
        ("upstream=spare&server=nowhere&set=up".to_owned(), 404),
        ("upstream=nowhere&server=a&set=up".to_owned(), 404),
        ("upstream=spare".to_owned(), 400),
    ] {
        checked.post(&format!("/servers?{query}"), status);
    }
    for (query, status) in [
        (format!("name={PENDING}&order=renew"), 200),
        (
            format!("name={PENDING}&order=revoke&reason=superseded"),
            409,
        ),
        (format!("name={SECURE}&order=renew"), 404),
        ("name=nowhere.example&order=renew".to_owned(), 404),
        (format!("name={PENDING}&order=renew&reason=superseded"), 400),
    ] {
        checked.post(&format!("/certificates?{query}"), status);
    }
    checked.post("/reload", 200);
    let config = fs::read_to_string(site.edge.file("sluice.toml")).expect("the configuration");
    site.edge.rewrite("nonsense");
    checked.post("/reload", 422);
    site.edge.rewrite(&config);
    checked.post("/reload", 200);
}

/// Whether a body fits the description of purges.
fn description_accepts(description: &Description, body: &Value) -> bool {
    description
        .check_value(description.schema("PurgeOrder"), body)
        .is_ok()
}

fn ask_wrongly(checked: &mut Checked<'_>) {
    for target in [
        "/status?url=x",
        "/explain",
        "/explain?url=%ff",
        "/history?scope=edge",
        "/history?scope=none&series=requests",
        "/history?scope=edge&series=requests&from=10&to=5",
        "/stream?scope=edge&series=",
        "/top?minutes=61",
        "/events?after=-1",
        "/dashboard/%ff",
    ] {
        checked.get(target, 400);
    }
    for target in [
        "/history?scope=edge&series=none",
        "/history?scope=cache&member=none&series=objects",
        "/stream?scope=cache&member=none&series=objects",
        "/dashboard/none.js",
        "/none",
    ] {
        checked.get(target, 404);
    }
    checked.ask(("POST", "/reload"), &[], b"", 403);
    checked.ask(("GET", "/status"), &[("Host", "other.example")], b"", 421);
    checked.ask(("GET", "/status"), &[("Host", "a b")], b"", 400);
    let long = vec![b' '; (64 << 10) + 1];
    checked.ask(("POST", "/purge"), &[("x-sluice", "1")], &long, 413);
    let target = format!("/status?url={}", "a".repeat(66_000));
    checked.get(&target, 414);
    // Most headers of a request are 100.
    let many = [("x", "y"); 101];
    checked.ask(("GET", "/status"), &many, b"", 431);
    fill_streams(checked);
}

/// Opens streams until no further one is permitted.
fn fill_streams(checked: &Checked<'_>) {
    let line = ("GET", "/stream?scope=edge&series=requests");
    let mut open = Vec::new();
    // Streams of earlier clients may still be counted.
    while open.len() <= 16 {
        let mut client = Client::connect(checked.edge.admin).expect("accepted");
        let answer = Answer::of(&mut client, line, &[], b"").expect("an answer");
        assert_eq!(checked.description.check(line.0, line.1, &answer), Ok(()));
        match answer.head.status {
            200 => open.push(client),
            status => return assert_eq!(status, 503),
        }
    }
    panic!("{} streams are open", open.len());
}

#[test]
fn refusals_for_want_of_a_token_and_of_history_are_as_described() {
    const TOKEN: &str = "operator-0123456789abcdef";
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("permitted");
        path
    };
    let operator = file("operator", TOKEN);
    let readers = file("readers", "grafana reader-0123456789abcdef\n");
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\nhistory = false\n\
         token = {{ file = {operator:?} }}\nreaders = {{ file = {readers:?} }}\n[[route]]\nrespond = \"x\"\n"
    );
    let site = Site::start();
    let description = Description::of(&site.edge);
    let edge = Setup::of_text(text).start();
    let mut checked = Checked {
        edge: &edge,
        description: &description,
        seen: BTreeSet::new(),
    };
    let operator = format!("Bearer {TOKEN}");
    let own = [("x-sluice", "1"), ("authorization", operator.as_str())];
    let reader = [
        ("x-sluice", "1"),
        ("authorization", "Bearer reader-0123456789abcdef"),
    ];
    for operation in description.operations() {
        let line = (operation.method, operation.path);
        let is_public = ["/", "/health"].contains(&line.1) || line.1.starts_with("/dashboard");
        if !is_public {
            checked.ask(line, &[], b"", 401);
        }
        if line.0 == "POST" {
            checked.ask(line, &reader, b"", 403);
        }
    }
    for target in [
        "/members",
        "/history?scope=edge&series=a",
        "/stream?scope=edge&series=a",
    ] {
        checked.ask(("GET", target), &own, b"", 404);
    }
    checked.ask(("POST", "/purge"), &own, br#"{"all": true}"#, 404);
    let wrong = [("authorization", "Bearer wrong-0123456789abcdef")];
    for n in 0..11 {
        let status = if n < 10 { 401 } else { 429 };
        checked.ask_from("127.0.0.9", ("GET", "/status"), &wrong, b"", status);
    }
    checked.ask(("GET", "/status"), &own, b"", 200);
}
