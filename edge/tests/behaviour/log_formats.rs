//! Tests of custom log formats, of the rules that select the logged requests, and of the error log.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{SOON, Setup, eventually, fresh, origin, serving};

/// Returns a configuration with an access log in this format and with these lines in `[log]`.
fn logged(origin: &Origin, format: &str, more: &str) -> String {
    let text = Setup::cached(origin).workers(1).text();
    let log =
        format!("[log]\naccess = \"access.log\"\nflush = \"10ms\"\nformat = '{format}'\n{more}");
    text.replace("[log]\n", &log)
}

#[test]
fn a_custom_format_is_written() {
    let origin = serving("/x", fresh(1000));
    let format = "{client} {method} {target} {path} {query} {status} {bytes} {cache} \
                  \"{request.X-Trace}\" {upstream_status} {request_time} {host}";
    let edge = Setup::of_text(logged(&origin, format, "")).start();
    edge.get("/x?a=1", &[("X-Trace", "one \"two\"")]);
    edge.get("/x?a=1", &[]);
    edge.ask("POST", "/x", &[], b"");
    let lines = edge.log(3);
    let host = edge.http;
    // A line ends with the time in seconds, which has three decimal places, and the host.
    let check_end = |line: &str, begin: &str| {
        let rest = line
            .split_once(begin)
            .unwrap_or_else(|| panic!("{lines:#?}"))
            .1;
        let (time, after) = rest.split_once(' ').expect("a host");
        let (seconds, thousandths) = time.split_once('.').expect("a time");
        assert!(
            seconds.parse::<u32>().is_ok() && thousandths.len() == 3,
            "{time}"
        );
        assert_eq!(after, host.to_string());
    };
    let first = "127.0.0.1 GET /x?a=1 /x a=1 200 1000 uri-miss \"one \\x22two\\x22\" 200 ";
    assert!(lines[0].starts_with(first), "{lines:#?}");
    check_end(&lines[0], first);
    check_end(&lines[1], " 200 1000 hit \"-\" - ");
    check_end(&lines[2], " method \"-\" 200 ");
}

// Quotes and line ends in a client's request must not end the field or the line in the log.
#[test]
fn clients_can_not_inject_lines_into_a_custom_format() {
    let origin = origin();
    origin.serve_rest(Resource::status(200));
    let format = "{method}|{target}|{user_agent}|{request.x}|{status}";
    let edge = Setup::of_text(logged(&origin, format, "")).start();
    let hostile = [
        "GET /a|b HTTP/1.1\r\nHost: a\r\nUser-Agent: x|500|\r\nX: |\\x7C|\r\nConnection: close\r\n\r\n",
        "GET /x\nGET|/forged|-|-|200\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: \u{1b}[2J\u{9f}é\u{2028}\r\nConnection: close\r\n\r\n",
    ];
    for request in hostile {
        edge.send_raw(request.as_bytes());
    }
    let lines = edge.log(hostile.len());
    assert_eq!(lines.len(), hostile.len(), "{lines:#?}");
    for line in &lines {
        assert!(line.bytes().all(|b| (0x20..0x7f).contains(&b)), "{line:?}");
        assert_eq!(line.matches('|').count(), 4, "{line}");
    }
    assert!(
        lines[0].contains("|x\\x7C500\\x7C|\\x7C\\x5Cx7C\\x7C|"),
        "{}",
        lines[0]
    );
}

// The program refuses a format with an unknown field. The error has the position of the field, and
// suggests the most similar known field.
#[test]
fn an_unknown_log_field_is_refused() {
    let origin = origin();
    let said = Setup::of_text(logged(&origin, "{client} {statsu}", "")).refused();
    assert!(said.contains("unknown variable `statsu`"), "{said}");
    assert!(said.contains("did you mean `status`?"), "{said}");
}

// A route logs all errors and a sample of all other requests. The route's rule takes precedence
// over the site's rule.
#[test]
fn a_route_logs_according_to_its_rule() {
    let origin = origin();
    origin.serve_rest(Resource::status(404));
    for path in ["/off/x", "/some/x", "/all/x", "/x"] {
        origin.serve(path, fresh(10));
    }
    let text = logged(&origin, "{status} {target}", "").replace(
        "[[site]]\n[[site.route]]\n",
        "[[site]]\nlog = { statuses = [\"4xx\", \"5xx\"] }\n\
         [[site.route]]\npath = \"/off/*\"\nproxy = \"origin\"\nlog = false\n\
         [[site.route]]\npath = \"/some/*\"\nproxy = \"origin\"\nlog = { sample = 0.5 }\n\
         [[site.route]]\npath = \"/all/*\"\nproxy = \"origin\"\nlog = true\n[[site.route]]\n",
    );
    let edge = Setup::of_text(text).start();
    let mut client = edge.client();
    for _ in 0..200 {
        for path in ["/off/x", "/some/x", "/all/x", "/x", "/off/404", "/404"] {
            client.get(path, &[]).expect("a reply");
        }
    }
    edge.send_raw(b"GET /malformed HTTP/1.1\r\n\r\n");
    let mut lines = Vec::new();
    eventually("the last line", || {
        lines = edge.log(1);
        lines.iter().any(|line| line.contains("malformed"))
    });
    let count = |wanted: &str| lines.iter().filter(|line| *line == wanted).count();
    assert_eq!(count("200 /off/x") + count("404 /off/404"), 0);
    assert_eq!(count("200 /x"), 0, "the site's rule");
    assert_eq!(count("404 /404"), 200, "the site's rule");
    assert_eq!(count("200 /all/x"), 200);
    let some = count("200 /some/x");
    assert!((50..150).contains(&some), "{some} of 200");
    assert_eq!(count("400 /malformed"), 1);
}

#[test]
fn a_log_rule_can_be_reloaded() {
    let origin = serving("/x", fresh(10));
    let text = logged(&origin, "{target}", "");
    let edge = Setup::of_text(text.clone()).start();
    edge.get("/x?before", &[]);
    edge.log(1);
    let path = edge.file("access.log");
    let text = text
        .replace("\"access.log\"", &format!("{path:?}"))
        .replace("[[site]]\n", "[[site]]\nlog = false\n");
    edge.rewrite(&text);
    let output = edge.command(&["reload"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("the selection of logged requests changed"),
        "{said}"
    );
    edge.get("/x?unseen", &[]);
    edge.rewrite(&text.replace("log = false", "log = true"));
    assert!(edge.command(&["reload"]).status.success());
    edge.get("/x?after", &[]);
    assert_eq!(edge.log(2), ["/x?before", "/x?after"]);
}

// SIGUSR1 reopens the log while requests are logged. No line may be lost, truncated or duplicated.
#[test]
fn no_line_is_lost_when_the_log_is_rotated_under_load() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).logged("json").start();
    let (stop, next) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = edge.client();
                while !stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    client.get(&format!("/x?{n}"), &[]).expect("a reply");
                }
            });
        }
        for round in 0..10 {
            let before = next.load(Ordering::Relaxed);
            eventually("requests", || next.load(Ordering::Relaxed) > before + 50);
            let moved = edge.file(&format!("old.{round}"));
            fs::rename(edge.file("access.log"), moved).expect("moved");
            edge.signal(Signal::USR1);
            eventually("a new file", || edge.file("access.log").exists());
        }
        stop.store(true, Ordering::Relaxed);
    });
    let asked = next.load(Ordering::Relaxed);
    let names = (0..10).map(|round| format!("old.{round}"));
    let all = names.chain(["access.log".to_owned()]);
    let files: Vec<_> = all.map(|name| edge.file(&name)).collect();
    let read = || -> String {
        let texts = files.iter().map(fs::read_to_string);
        texts.map(|text| text.expect("a log")).collect()
    };
    // The last line may be written in two steps.
    eventually("all lines", || read().matches('\n').count() as u64 >= asked);
    let mut numbers: Vec<u64> = read()
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            let target = line["target"].as_str().expect("a target");
            target["/x?".len()..].parse().expect("a number")
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..asked).collect::<Vec<_>>());
}

// Messages go to a file, which SIGUSR1 reopens. They report that an origin server has failed, and
// that it has recovered.
#[test]
fn messages_report_a_failing_and_recovering_server() {
    let gone = origin();
    let address = gone.addr();
    drop(gone);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("error.log");
    let server = serving("/unused", fresh(1));
    let text = logged(&server, "{status}", &format!("error = {path:?}\n"))
        .replace(&server.addr().to_string(), &address.to_string());
    let edge = Setup::of_text(text).start();
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    assert_eq!(edge.get("/x", &[]).status, 502);
    edge.get("/x", &[]);
    let cause = "cause=\"connect-failed (Connection refused)\"";
    let down =
        format!("WARN a server accepts no connections upstream=origin server={address} {cause}\n");
    eventually("a message", || read(&path).contains(&down));
    let moved = folder.path().join("old.log");
    fs::rename(&path, &moved).expect("moved");
    edge.signal(Signal::USR1);
    eventually("a new file", || path.exists());
    let options = sluice_lab::origin::OriginOptions {
        address,
        ..Default::default()
    };
    let back = Origin::start(options).expect("its port is free");
    back.serve("/x", fresh(10));
    assert_eq!(edge.get("/x", &[]).status, 200);
    let up = "INFO a server accepts connections again";
    eventually("a message in the new file", || read(&path).contains(up));
    assert_eq!(read(&moved).matches(&down).count(), 1, "told once");
    assert!(!edge.process.stderr().contains("a server"));
}

#[test]
fn the_last_message_is_written_before_the_program_ends() {
    let origin = origin();
    let mut edge = Setup::cached(&origin).start();
    edge.signal(Signal::TERM);
    assert!(edge.process.wait_exit(SOON).expect("it ends").success());
    let said = edge.process.stderr();
    assert!(
        said.contains(" INFO stopping: requests in progress may finish\n"),
        "{said}"
    );
}

// A report about an invalid configuration has several lines. In the log each line after the first
// has a mark, so that it does not look like a new message.
#[test]
fn continuation_lines_of_a_report_are_marked() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    edge.rewrite("[limits]\nno_such_key = 1\n");
    edge.signal(Signal::HUP);
    eventually("a message", || {
        edge.process.stderr().contains("no_such_key")
    });
    let said = edge.process.stderr();
    let (_, report) = said
        .split_once("a reload failed and changed nothing:\n")
        .expect("a report");
    assert!(
        report.lines().all(|line| line.starts_with("    | ")),
        "{said}"
    );
}
