//! Tests of the access log: combined and JSON formats with cache status, reason and timings, and
//! protection against injection.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;
use sluice_lab::origin::{Fault, Resource};

use crate::harness::setup::version;
use crate::harness::{SOON, Setup, eventually, fresh, origin, serving};

// The lines have the fields of nginx's combined format.
#[test]
fn the_combined_format_is_written() {
    let origin = serving("/x", fresh(1000));
    // Each worker writes its lines independently, so the test runs one worker to know their order.
    let edge = Setup::cached(&origin).workers(1).logged("combined").start();
    let fields = [
        ("Referer", "http://a/"),
        ("User-Agent", "curl/8"),
        ("Range", "bytes=0-99"),
    ];
    edge.get("/x?y", &fields);
    edge.get("/x", &[]);
    let lines = edge.log(2);
    let (before, rest) = lines[0].split_once('[').expect("a time");
    assert_eq!(before, "127.0.0.1 - - ");
    let (time, rest) = rest.split_once("] ").expect("a time");
    assert_eq!(time.len(), "10/Oct/2000:13:55:36 +0000".len(), "{time}");
    let version = version();
    let asked = format!("\"GET /x?y {version}\" 206 100 \"http://a/\" \"curl/8\"");
    assert_eq!(rest, asked);
    let asked = format!("\"GET /x {version}\" 200 1000 \"-\" \"-\"");
    assert!(lines[1].ends_with(&asked), "{}", lines[1]);
}

#[test]
fn the_cache_status_is_at_the_end_of_combined_lines() {
    let origin = serving("/x", fresh(10));
    let setup = Setup::cached(&origin).workers(1);
    let edge = setup.logged("combined_cache").start();
    for target in ["/x", "/x", "/pass/x"] {
        edge.get(target, &[]);
    }
    let lines = edge.log(3);
    let ends = ["\"-\" \"-\" uri-miss", "\"-\" \"-\" hit", "\"-\" \"-\" -"];
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end), "{line}");
    }
}

// The combined format has the line of a refused request as it was received, as nginx does.
#[test]
fn the_line_of_a_refused_request_is_logged_as_received() {
    let origin = serving("/x", fresh(10));
    let cases = [
        ("GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1"),
        (
            "\r\nGET /static/a HTTP/1.1\r\nbad\r\n\r\n",
            "GET /static/a HTTP/1.1",
        ),
        ("GET /a HTTP/4.0\r\nHost: a\r\n\r\n", "GET /a HTTP/4.0"),
        ("hello\r\n\r\n", "hello"),
        ("\u{1}\"\r\n\r\n", "\\x01\\x22"),
    ];
    let edge = Setup::cached(&origin).workers(1).logged("combined").start();
    for (request, _) in cases {
        edge.send_raw(request.as_bytes());
    }
    for (line, (_, expected)) in edge.log(cases.len()).iter().zip(cases) {
        assert!(line.contains(&format!("] \"{expected}\" ")), "{line}");
    }
    let edge = Setup::cached(&origin).workers(1).logged("json").start();
    for (request, _) in cases {
        edge.send_raw(request.as_bytes());
    }
    let lines = edge.json_log(cases.len());
    assert_eq!(lines[0]["version"], "HTTP/1.1");
    assert_eq!(lines[0]["target"], "/");
    for (line, name) in [(0, "host"), (2, "version"), (3, "target"), (4, "method")] {
        assert!(lines[line].get(name).is_none(), "{:?}", lines[line]);
    }
}

// The log has addresses and URLs of clients, so other users of the machine must not read it.
#[test]
fn the_log_is_created_for_its_owner_and_group_only() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).logged("combined").start();
    edge.get("/x", &[]);
    edge.log(1);
    let file = fs::metadata(edge.file("access.log")).expect("the log");
    assert_eq!(file.permissions().mode() & 0o777 & !0o640, 0);
}

#[test]
fn json_lines_are_written() {
    let origin = serving("/x", fresh(1000));
    origin.serve("/private", Resource::offset(5).cache_control("private"));
    let edge = Setup::cached(&origin).logged("json").start();
    edge.get("/x", &[("User-Agent", "lab"), ("Range", "bytes=-5")]);
    edge.get("/x", &[]);
    edge.ask("POST", "/x", &[], b"");
    edge.get("/private", &[]);
    let mut lines = edge.json_log(4);
    // Both workers write their lines independently, so the test sorts the lines by time.
    lines.sort_by_key(|line| line["time"].as_str().expect("a time").to_owned());
    let of = |cache: &str| find(&lines, |line| line["cache"] == cache);
    let miss = find(&lines, |line| line["range"] == "bytes=-5");
    assert_eq!(
        (&miss["cache"], &miss["status"], &miss["bytes"]),
        (&"uri-miss".into(), &206.into(), &5.into())
    );
    assert_eq!(
        (&miss["method"], &miss["target"], &miss["version"]),
        (&"GET".into(), &"/x".into(), &version().into())
    );
    assert_eq!(miss["host"], edge.http.to_string());
    assert_eq!(
        (&miss["user_agent"], &miss["client"]),
        (&"lab".into(), &"127.0.0.1".into())
    );
    let hit = of("hit");
    assert_eq!(hit["bytes"], 1000);
    assert!(hit.get("upstream").is_none() && hit["request_us"].is_u64());
    let posted = of("method");
    assert_eq!(posted["upstream"], origin.addr().to_string());
    assert_eq!(posted["upstream_status"], 200);
    for time in ["connect_us", "header_us", "response_us", "request_us"] {
        assert!(posted[time].is_u64(), "{time} in {posted}");
    }
    let private = find(&lines, |line| line["target"] == "/private");
    assert_eq!(private["reason"], "private");
}

fn find(lines: &[Value], wanted: impl Fn(&Value) -> bool) -> Value {
    let found = lines.iter().find(|line| wanted(line));
    found.unwrap_or_else(|| panic!("not in {lines:?}")).clone()
}

#[test]
fn the_log_contains_the_reasons_of_faults() {
    let origin = serving("/x", fresh(10).fault(Fault::NeverAnswer));
    let edge = Setup::cached(&origin)
        .upstream("read_timeout = \"1s\"")
        .logged("json")
        .start();
    edge.get("/x", &[]);
    edge.send_raw(b"GET /x HTTP/1.1\r\n\r\n");
    edge.ask("PURGE", "/x", &[], b"");
    let lines = edge.json_log(3);
    let late = find(&lines, |line| line["status"] == 504);
    assert_eq!(late["reason"], "head-timeout");
    let refused = find(&lines, |line| line["status"] == 400);
    assert_eq!(refused["reason"], "no-host");
    let purge = find(&lines, |line| line["status"] == 403);
    assert_eq!(purge["reason"], "purge-not-allowed");
}

// Quotes and line ends in a client's request must not end the field or the line in the log.
#[test]
fn clients_can_not_inject_log_lines() {
    let origin = origin();
    origin.serve_rest(Resource::status(200));
    let hostile = [
        "GET /a\"b HTTP/1.1\r\nHost: a\r\nUser-Agent: \"} {\"status\":1\r\nConnection: close\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nReferer: a\\\" - \\\r\nUser-Agent: \u{1b}[2J\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nReferer: a\\\" - \\\r\nUser-Agent: \u{9f}\u{2028}é\r\nConnection: close\r\n\r\n",
        "GET /x\n127.0.0.1 - - [] \"GET /forged HTTP/1.1\r\n\r\n",
        "G\"{}\u{7}T /x\u{1b}[31m HTTP/1.1\r\nHost: a\r\n\r\n",
        "\u{0}\u{1}\u{2}\r\n\r\n",
        "BREW\"/ /x HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for format in ["combined", "json"] {
        let edge = Setup::uncached(&origin).logged(format).start();
        for request in hostile {
            edge.send_raw(request.as_bytes());
        }
        let lines = edge.log(hostile.len());
        assert_eq!(lines.len(), hostile.len(), "{format}: {lines:#?}");
        for line in &lines {
            let clean = |byte: u8| (0x20..0x7f).contains(&byte);
            assert!(line.bytes().all(clean), "{format}: {line:?}");
            match format {
                "json" => drop(serde_json::from_str::<Value>(line).expect("one object")),
                _ => assert_eq!(line.matches('"').count(), 6, "{line}"),
            }
        }
    }
}

// After the log file is renamed, SIGUSR1 makes the program open a new file under the old name.
#[test]
fn the_log_can_be_rotated() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).logged("json").start();
    edge.get("/x?before", &[]);
    edge.log(1);
    fs::rename(edge.file("access.log"), edge.file("old.log")).expect("moved");
    edge.signal(Signal::USR1);
    eventually("lines in a new file", || {
        edge.get("/x?after", &[]);
        edge.file("access.log").exists()
    });
    let new = edge.json_log(1);
    assert!(new.iter().all(|line| line["target"] == "/x?after"));
    let old = fs::read_to_string(edge.file("old.log")).expect("the old one");
    assert!(old.contains("/x?before"));
}

#[test]
fn the_last_lines_are_written_before_the_program_ends() {
    let origin = serving("/x", fresh(10));
    let mut edge = Setup::cached(&origin).logged("combined").start();
    let text = edge_config(&edge).replace("10ms", "1h");
    edge.rewrite(&text);
    assert!(edge.command(&["reload"]).status.success());
    for _ in 0..100 {
        edge.get("/x", &[]);
    }
    edge.signal(Signal::TERM);
    assert!(edge.process.wait_exit(SOON).expect("it ends").success());
    assert_eq!(edge.log(100).len(), 100);
}

fn edge_config(edge: &crate::harness::Edge) -> String {
    fs::read_to_string(edge.file("sluice.toml")).expect("the configuration")
}
