//! Tests of the history of numbers: its points, what a restart and a reload leave of it, and the stream of new points.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};
use sluice_lab::client;

use crate::disks::{End, end};
use crate::harness::{Edge, SOON, Setup, eventually, fresh, serving};

/// Returns the parsed response to a GET of the admin address.
fn ask(edge: &Edge, target: &str) -> Value {
    let reply = edge.get_admin(target);
    assert_eq!(reply.status, 200, "{target}: {}", reply.text());
    serde_json::from_slice(&reply.body).expect("JSON")
}

/// Returns the sum of a rate's points over the last hour, each times its length: the increase of the counter.
fn total(edge: &Edge, scope: &str, member: &str, series: &str) -> f64 {
    let member = member.replace(' ', "%20").replace('*', "%2A");
    let target = format!("/history?scope={scope}&member={member}&series={series}&points=4000");
    if edge.get_admin(&target).status == 404 {
        // The first reading is still to come.
        return 0.0;
    }
    let answer = ask(edge, &target);
    let step_s = answer["step_s"].as_f64().expect("a number");
    let points = answer["series"][series].as_array().expect("a list");
    points.iter().filter_map(Value::as_f64).sum::<f64>() * step_s
}

/// Waits until a counter's rates add up to this increase.
fn wait_for_total(edge: &Edge, scope: &str, member: &str, series: &str, expected: f64) {
    let mut found = 0.0;
    eventually(&format!("{series} of {scope} {member:?} add up"), || {
        found = total(edge, scope, member, series);
        assert!(found < expected + 0.1, "{series}: {found}");
        found > expected - 0.1
    });
}

/// Returns the names of a scope's members.
fn members(edge: &Edge, scope: &str) -> Vec<String> {
    let all = ask(edge, "/members");
    let names = all[scope].as_array().expect("a list");
    names
        .iter()
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect()
}

#[test]
fn the_points_add_up_to_the_requests() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).start();
    for _ in 0..20 {
        edge.get("/x", &[]);
    }
    edge.get("/pass/x", &[]);
    for (series, expected) in [
        ("requests", 21.0),
        ("cache_hits", 19.0),
        ("cache_misses", 1.0),
        ("responses_4xx", 1.0),
        ("upstream_requests", 2.0),
    ] {
        wait_for_total(&edge, "edge", "", series, expected);
    }
    let workers = members(&edge, "worker");
    assert_eq!(workers, ["0", "1"]);
    let sum: f64 = workers
        .iter()
        .map(|worker| total(&edge, "worker", worker, "requests"))
        .sum();
    assert!((20.9..21.1).contains(&sum), "{sum}");
    // Sites, routes and caches have a point every ten seconds.
    for (scope, member, series, expected) in [
        ("route", "* *", "requests", 20.0),
        ("route", "* *", "hits", 19.0),
        ("route", "* /pass/*", "responses_4xx", 1.0),
        ("site", "*", "requests", 21.0),
        ("cache", "main", "hit_bytes", 19_000.0),
        ("upstream", "origin", "requests", 2.0),
        (
            "server",
            &format!("origin {}", origin.addr()),
            "requests",
            2.0,
        ),
    ] {
        eventually("the first reading of all things", || {
            !members(&edge, scope).is_empty()
        });
        wait_for_total(&edge, scope, member, series, expected);
    }
    let table = ask(
        &edge,
        "/history?scope=route&members=*&series=requests,request_duration_p99&from=-60",
    );
    let rows = table["members"].as_array().expect("a list");
    let names: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["member"].as_str())
        .collect();
    assert_eq!(names, ["* *", "* /pass/*"]);
    assert!(
        rows[0]["request_duration_p99"].as_f64() > Some(0.0),
        "{table}"
    );
}

#[test]
fn refused_requests_have_a_history_by_their_reason() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).with_http1().in_clear_text().start();
    edge.send_raw(b"GET / HTTP/1.1\r\n\r\n");
    wait_for_total(&edge, "reason", "no-host", "requests", 1.0);
}

#[test]
fn members_name_their_series_and_rings() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).start();
    let all = ask(&edge, "/members");
    let requests = &all["series"]["edge"].as_array().expect("a list");
    let requests = requests.iter().find(|series| series["name"] == "requests");
    assert_eq!(requests.expect("a series")["unit"], "per second");
    assert_eq!(
        all["rings"]["edge"][0],
        json!({ "step_s": 1, "span_s": 3600 })
    );
    assert_eq!(
        all["rings"]["route"][2],
        json!({ "step_s": 600, "span_s": 604_800 })
    );
    assert_eq!(all["series"]["route"].as_array().map(Vec::len), Some(32));
}

#[test]
fn mistakes_in_requests_for_the_history_are_explained() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).start();
    edge.wait_for_history();
    for (query, status, text) in [
        ("scope=edge", 400, "series"),
        ("scope=x&series=requests", 400, "write one of edge, reason"),
        ("scope=edge&series=", 400, "at least one series"),
        (
            "scope=edge&series=requests&from=5&to=4",
            400,
            "`from` must be before `to`",
        ),
        ("scope=edge&series=requests&from=x", 400, "from"),
        ("scope=edge&series=requests&form=5", 400, "`form`"),
        ("scope=edge&series=x", 404, "no series \"x\""),
        (
            "scope=edge&member=%1b[2Jx&series=requests",
            404,
            "no member \"\\u{1b}[2Jx\"",
        ),
        ("scope=edge&members=a&series=requests", 400, "members=*"),
    ] {
        let reply = edge.get_admin(&format!("/history?{query}"));
        assert_eq!(reply.status, status, "{query}: {}", reply.text());
        assert!(reply.text().contains(text), "{query}: {}", reply.text());
    }
    let many: Vec<String> = (0..65).map(|n| format!("series{n}")).collect();
    let many = many.join(",");
    let reply = edge.get_admin(&format!("/history?scope=edge&series={many}"));
    assert!(
        reply.status == 400 && reply.text().contains("at most 64"),
        "{}",
        reply.text()
    );
}

#[test]
fn without_a_history_its_pages_say_so() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).admin("history = false").start();
    for target in [
        "/members",
        "/history?scope=edge&series=requests",
        "/stream?scope=edge&series=requests",
    ] {
        let reply = edge.get_admin(target);
        assert_eq!(reply.status, 404);
        assert!(
            reply.text().contains("`history = false`"),
            "{}",
            reply.text()
        );
    }
}

/// Returns a setup that saves its history in this folder.
fn saving(setup: Setup, folder: &Path) -> Setup {
    setup.admin(&format!("history = {folder:?}"))
}

#[test]
fn a_saved_history_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path().join("new/history");
    let origin = serving("/x", fresh(1000));
    let setup = saving(Setup::cached(&origin), &folder);
    let edge = setup.start();
    (0..5).for_each(|_| _ = edge.get("/x", &[]));
    wait_for_total(&edge, "edge", "", "requests", 5.0);
    let refused = setup.refused();
    assert!(
        refused.contains("can't save the history in") && refused.contains("another process"),
        "{refused}"
    );
    end(edge, End::Stopped);
    let mut edge = setup.start();
    eventually("the history is restored", || {
        !members(&edge, "edge").is_empty()
    });
    wait_for_total(&edge, "edge", "", "requests", 5.0);
    (0..3).for_each(|_| _ = edge.get("/x", &[]));
    wait_for_total(&edge, "edge", "", "requests", 8.0);
    let answer = ask(&edge, "/history?scope=edge&series=requests&points=4000");
    let points = answer["series"]["requests"].as_array().expect("a list");
    let known = points.iter().skip_while(|point| point.is_null());
    assert!(
        known.clone().count() < 600,
        "the history is as short as the test"
    );
    // A file with a damaged end.
    end(edge, End::Stopped);
    let file = folder.join("points");
    let length = fs::metadata(&file).expect("saved").len();
    let damaged = fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .expect("a file");
    damaged.set_len(length - 3).expect("shorter");
    edge = setup.start();
    eventually("a message", || {
        edge.process
            .stderr()
            .contains("a part of the history is lost")
    });
    wait_for_total(&edge, "edge", "", "requests", 8.0);
    end(edge, End::Stopped);
    fs::write(&file, b"something else").expect("written");
    edge = setup.start();
    eventually("a message", || {
        edge.process.stderr().contains("the history begins empty")
    });
    wait_for_total(&edge, "edge", "", "requests", 0.0);
}

#[test]
fn routes_that_a_reload_adds_have_a_history_and_the_others_keep_theirs() {
    let origin = serving("/x", fresh(1000));
    let setup = Setup::cached(&origin);
    let edge = setup.start();
    (0..4).for_each(|_| _ = edge.get("/x", &[]));
    eventually("the first reading of all things", || {
        !members(&edge, "route").is_empty()
    });
    assert_eq!(members(&edge, "route"), ["* *", "* /pass/*"]);
    let more = "[[site]]\nhosts = \"new.example.com\"\n[[site.route]]\nproxy = \"origin\"\n";
    edge.rewrite(&setup.clone().tables(more).text());
    assert!(edge.command(&["reload"]).status.success());
    edge.get("/x", &[("Host", "new.example.com")]);
    eventually("the new route is known", || {
        members(&edge, "route").len() == 3
    });
    wait_for_total(&edge, "route", "new.example.com *", "requests", 1.0);
    wait_for_total(&edge, "route", "* *", "requests", 4.0);
    let other = setup.admin("history = false").text();
    edge.rewrite(&other);
    let output = edge.command(&["reload"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("`history` in [admin] needs a restart"),
        "{said}"
    );
}

/// A stream of events from the admin address.
pub struct Stream(BufReader<TcpStream>);

impl Stream {
    pub fn open(edge: &Edge, query: &str) -> Stream {
        Stream::open_with(edge, query, "")
    }

    /// Opens a stream with this line of a header, which ends in CRLF.
    pub fn open_with(edge: &Edge, query: &str, line: &str) -> Stream {
        let mut socket = TcpStream::connect(edge.admin).expect("the admin address accepts");
        socket.set_read_timeout(Some(SOON)).expect("a time");
        let request = format!("GET /stream?{query} HTTP/1.1\r\nHost: localhost\r\n{line}\r\n");
        socket.write_all(request.as_bytes()).expect("sent");
        Stream(BufReader::new(socket))
    }

    /// Waits for the end of the stream.
    pub fn wait_end(&mut self) {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("the stream ends");
    }

    /// Returns the next line that begins like this, without its beginning.
    pub fn line(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            let length = self.0.read_line(&mut line).expect("the stream goes on");
            assert!(length > 0, "the stream ended before {beginning:?}");
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn point(&mut self) -> Value {
        serde_json::from_str(&self.line("data: ")).expect("JSON")
    }

    /// Returns the next event of this kind.
    pub fn event(&mut self, kind: &str) -> Value {
        while self.line("event: ") != kind {}
        self.point()
    }
}

#[test]
fn a_stream_delivers_a_point_each_second() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).start();
    eventually("the first reading", || !members(&edge, "edge").is_empty());
    let mut stream = Stream::open(&edge, "scope=edge&series=requests,connections_now");
    assert!(stream.line("HTTP/1.1 ").starts_with("200"));
    assert_eq!(stream.line("content-type: "), "text/event-stream");
    assert_eq!(stream.line("event: "), "point");
    let first_id = stream.line("id: ");
    let first = stream.point();
    assert_eq!(first["t"].to_string(), first_id);
    (0..7).for_each(|_| _ = edge.get("/x", &[]));
    let mut sum = 0.0;
    let mut before = first["t"].as_u64().expect("a time");
    while sum < 6.9 {
        let point = stream.point();
        let t = point["t"].as_u64().expect("a time");
        assert!(t > before, "{point}");
        // Readings that were late stand for several seconds.
        sum += point["series"]["requests"].as_f64().expect("a rate") * (t - before) as f64;
        before = t;
        assert!(point["series"]["connections_now"].is_number(), "{point}");
    }
    assert!(sum < 7.1, "{sum}");
}

#[test]
fn too_many_streams_are_refused_until_one_ends() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).start();
    eventually("the first reading", || !members(&edge, "edge").is_empty());
    let query = "scope=edge&series=requests";
    let open = |_| {
        let mut stream = Stream::open(&edge, query);
        assert!(stream.line("HTTP/1.1 ").starts_with("200"));
        stream
    };
    let mut streams: Vec<Stream> = (0..16).map(open).collect();
    let refused = edge.get_admin(&format!("/stream?{query}"));
    assert_eq!(refused.status, 503);
    assert!(
        refused.text().contains("16 streams are open"),
        "{}",
        refused.text()
    );
    assert_eq!(
        client::get(edge.admin, "/health", &[])
            .expect("a reply")
            .status,
        200
    );
    streams.pop();
    eventually("a place is free", || {
        let mut stream = Stream::open(&edge, query);
        stream.line("HTTP/1.1 ").starts_with("200")
    });
}

#[test]
fn shutdown_does_not_wait_for_streams() {
    let origin = serving("/x", fresh(1000));
    let mut edge = Setup::cached(&origin).start();
    eventually("the first reading", || !members(&edge, "edge").is_empty());
    let mut stream = Stream::open(&edge, "scope=edge&series=requests");
    stream.point();
    edge.signal(rustix::process::Signal::TERM);
    assert!(edge.wait_exit().success());
}
