//! Tests of recent errors and events: `GET /events` and the file of events.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};
use sluice_lab::client;
use sluice_lab::origin::{Ending, Fault, Resource};

use crate::harness::{Edge, Setup, eventually, fresh, origin, serving};
use crate::history::Stream;

fn answer(edge: &Edge, after: u64) -> Value {
    let reply = edge.get_admin(&format!("/events?after={after}"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).expect("JSON")
}

fn events(edge: &Edge) -> Vec<Value> {
    answer(edge, 0)["events"]
        .as_array()
        .expect("events")
        .clone()
}

/// Waits for an event with this kind and reason, and returns it.
fn event(edge: &Edge, kind: &str, reason: &str) -> Value {
    let find = || {
        let mut events = events(edge).into_iter();
        events.find(|event| event["kind"] == kind && event["reason"] == reason)
    };
    eventually(reason, || find().is_some());
    find().expect("it was there")
}

/// Gives an order to the admin API, and returns the status of the answer.
fn post(edge: &Edge, target: &str, body: &str) -> u16 {
    let own = [("x-sluice", "1")];
    let reply = client::once(edge.admin, "POST", target, &own, body.as_bytes());
    reply.expect("an answer").status
}

/// Returns the events with text about this in their messages.
fn events_about(edge: &Edge, text: &str) -> Vec<Value> {
    let mut all = events(edge);
    all.retain(|event| {
        event["message"]
            .as_str()
            .is_some_and(|message| message.contains(text))
    });
    all
}

/// Returns the lines of a file of events, as far as they are complete.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let complete = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    complete
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn failed_requests_are_events_with_reason_url_and_client() {
    let origin = origin();
    let cut = Fault::CutBody {
        after: 10,
        ending: Ending::Fin,
    };
    origin.serve("/pass/x", Resource::offset(100).fault(cut));
    let edge = Setup::cached(&origin).workers(1).start();
    for n in 0..3 {
        let _ = client::once(
            edge.http,
            "GET",
            &format!("/pass/x?token=s3cr3t&n={n}"),
            &[],
            b"",
        );
    }
    eventually("three are counted", || {
        event(&edge, "request-failed", "body-cut")["count"] == 3
    });
    let cut = event(&edge, "request-failed", "body-cut");
    assert_eq!(cut["url"], edge.url("/pass/x?token=***&n=2"));
    assert_eq!(cut["client"], "127.0.0.1");
    assert!(
        cut["message"]
            .as_str()
            .expect("a text")
            .starts_with("a response with status 200 was cut")
    );
    assert!(cut["time"].as_u64() >= cut["since"].as_u64());
    assert!(cut["changed"].as_u64() > cut["id"].as_u64());
    // Only later changes are returned.
    let last = answer(&edge, 0)["last"].as_u64().expect("a number");
    assert_eq!(answer(&edge, last)["events"], json!([]));
    let number = cut["changed"].as_u64().expect("a number");
    assert!(
        answer(&edge, number - 1)["events"]
            .as_array()
            .expect("events")
            .contains(&cut)
    );
}

#[test]
fn hostile_text_is_neither_markup_nor_terminal_control() {
    let edge = Setup::cached(&origin())
        .with_http1()
        .in_clear_text()
        .start();
    edge.send_raw(b"GET /<script>alert(1)</script>\x1b[2J\xff HTTP/1.1\r\nHost: a\r\n\r\n");
    edge.send_raw(b"GET /\"'<b>&token=1 HTTP/1.1\r\nHost: <i>\r\n\r\n");
    eventually("both are there", || {
        events(&edge)
            .iter()
            .filter(|event| event["kind"] == "request-failed")
            .count()
            >= 2
    });
    let reply = edge.get_admin("/events");
    assert!(
        reply.body.iter().all(|b| matches!(b, b' '..=b'~')),
        "{}",
        reply.text()
    );
    assert!(!reply.text().contains(['<', '>']), "{}", reply.text());
}

#[test]
fn servers_reloads_purges_and_orders_are_events() {
    let origin = serving("/x", fresh(10));
    origin.serve("/healthz", Resource::status(200));
    let health = "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"1h\", up = 1, down = 1 }";
    let setup = Setup::cached(&origin).upstream(health);
    let edge = setup.start();
    event(&edge, "process", "started");
    origin.serve("/healthz", Resource::status(503));
    let unhealthy = event(&edge, "server", "unhealthy");
    let text = unhealthy["message"].as_str().expect("a text");
    assert!(
        text.contains(&format!("server={}", origin.addr())),
        "{text}"
    );
    origin.serve("/healthz", Resource::status(200));
    event(&edge, "server", "healthy");

    let order = format!(
        "/servers?upstream=origin&server={}&set=drain",
        origin.addr()
    );
    assert_eq!(post(&edge, &order, ""), 200);
    event(&edge, "order", "set");
    assert_eq!(events_about(&edge, "of origin: drain").len(), 1);

    assert_eq!(post(&edge, "/reload", ""), 200);
    event(&edge, "reload", "reloaded");
    edge.rewrite("nonsense");
    assert_eq!(post(&edge, "/reload", ""), 422);
    event(&edge, "reload", "reload-failed");
}

#[test]
fn each_purge_is_one_event_with_who_ordered_it_and_the_masked_url() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin)
        .admin("purge_from = [\"127.0.0.1\"]")
        .start();
    let purge = json!({ "url": edge.url("/over-admin?sig=s3cr3t"), "soft": true }).to_string();
    assert_eq!(post(&edge, "/purge", &purge), 200);
    assert_eq!(
        edge.ask("PURGE", "/by-method?sig=s3cr3t", &[], b"").status,
        200
    );
    let soft = [("sluice-purge", "soft")];
    assert_eq!(edge.ask("PURGE", "/softly", &soft, b"").status, 200);
    for (path, text) in [
        (
            "/over-admin",
            "/over-admin?sig=***, soft who=local client=127.0.0.1 status=200",
        ),
        (
            "/by-method",
            "/by-method?sig=*** who=127.0.0.1 client=127.0.0.1 status=200",
        ),
        (
            "/softly",
            "/softly, soft who=127.0.0.1 client=127.0.0.1 status=200",
        ),
    ] {
        eventually(path, || !events_about(&edge, path).is_empty());
        let found = events_about(&edge, path);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (&found[0]["kind"], &found[0]["reason"]),
            (&json!("purge"), &json!("purged"))
        );
        assert_eq!(
            found[0]["message"],
            format!("purge: url {}", edge.url(text))
        );
    }
    // A purge that failed is one, too.
    let wrong = [("sluice-purge", "hard")];
    assert_eq!(edge.ask("PURGE", "/wrong", &wrong, b"").status, 400);
    let purge = json!({ "url": edge.url("/nowhere"), "cache": "none" }).to_string();
    assert_eq!(post(&edge, "/purge", &purge), 404);
    for (path, status) in [("/wrong", "status=400"), ("/nowhere", "status=404")] {
        eventually(path, || !events_about(&edge, path).is_empty());
        let found = events_about(&edge, path);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["kind"], "change");
        assert!(
            found[0]["message"]
                .as_str()
                .is_some_and(|text| text.ends_with(status)),
            "{found:?}"
        );
    }
}

#[test]
fn the_end_of_a_fetch_by_order_is_an_event() {
    let origin = serving("/x", fresh(1000));
    let cut = Fault::CutBody {
        after: 10,
        ending: Ending::Fin,
    };
    origin.serve(
        "/cut",
        Resource::offset(100).cache_control("max-age=60").fault(cut),
    );
    let edge = Setup::cached(&origin).start();
    let fetch = |path: &str| {
        let url = edge.url(path).replace('?', "%3F");
        assert_eq!(post(&edge, &format!("/fetch?url={url}"), ""), 200);
    };
    fetch("/x?token=s3cr3t");
    let complete = event(&edge, "fetch", "complete");
    assert_eq!(complete["url"], edge.url("/x?token=***"));
    let text = complete["message"].as_str().expect("a text");
    assert!(text.contains("status=200 bytes=1000 took_ms="), "{text}");
    fetch("/cut");
    let failed = event(&edge, "fetch", "failed");
    assert_eq!(failed["url"], edge.url("/cut"));
    let text = failed["message"].as_str().expect("a text");
    assert!(
        text.contains(" reason=") && text.contains(" bytes="),
        "{text}"
    );
    assert!(!edge.get_admin("/events").text().contains("s3cr3t"));
}

#[test]
fn requests_to_a_dead_origin_are_events() {
    let dead = origin().addr();
    let edge = Setup::of_servers(vec![format!("http://{dead}")]).start();
    for target in ["/x", "/pass/x", "/other"] {
        assert_eq!(edge.get(target, &[]).status, 502);
        let url = json!(edge.url(target));
        eventually(target, || {
            let events = events(&edge);
            let mut failed = events
                .iter()
                .filter(|event| event["kind"] == "request-failed");
            failed.any(|event| event["url"] == url && event["reason"] == "connect-failed")
        });
    }
}

#[test]
fn a_stream_has_each_event_as_the_list_shows_it() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).start();
    let started = event(&edge, "process", "started");
    let mut stream = Stream::open(&edge, "events=0");
    assert!(stream.line("HTTP/1.1 ").starts_with("200"));
    assert_eq!(stream.line("content-type: "), "text/event-stream");
    assert_eq!(stream.event("notice"), started);
    let purge = json!({ "url": edge.url("/x?sig=s3cr3t") }).to_string();
    assert_eq!(post(&edge, "/purge", &purge), 200);
    let purged = event(&edge, "purge", "purged");
    let mut notices = std::iter::from_fn(|| Some(stream.event("notice")));
    let found = notices.find(|notice| notice["kind"] == "purge");
    assert_eq!(found, Some(purged));
    // With points, only later changes follow.
    edge.wait_for_history();
    let last = answer(&edge, 0)["last"].as_u64().expect("a number");
    let query = format!("scope=edge&series=requests&events={last}");
    let mut stream = Stream::open(&edge, &query);
    assert!(stream.event("point")["series"]["requests"].is_number());
    assert_eq!(post(&edge, "/reload", ""), 200);
    assert!(stream.event("notice")["changed"].as_u64() > Some(last));
    assert!(stream.event("point")["series"]["requests"].is_number());
}

#[test]
fn events_are_also_json_lines() {
    let edge = Setup::cached(&origin()).start();
    event(&edge, "process", "started");
    for accept in ["application/jsonl", "text/html, application/x-ndjson;q=0.5"] {
        let reply = client::once(edge.admin, "GET", "/events", &[("accept", accept)], b"")
            .expect("an answer");
        assert_eq!(reply.header("content-type"), Some("application/jsonl"));
        let text = reply.text();
        assert!(text.ends_with('\n') && text.lines().count() >= 1);
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect("JSON");
            assert!(line["id"].is_u64());
        }
    }
}

#[test]
fn the_file_of_events_has_each_event_and_follows_log_rotation() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, moved) = (
        folder.path().join("events.jsonl"),
        folder.path().join("moved"),
    );
    let setup = Setup::cached(&origin()).admin(&format!("events = {path:?}"));
    let mut edge = setup.start();
    let has = |path: &Path, reason: &str| lines(path).iter().any(|line| line["reason"] == reason);
    eventually("the start is written", || has(&path, "started"));
    fs::rename(&path, &moved).expect("moved");
    edge.signal(Signal::USR1);
    eventually("a new file is there", || path.exists());
    edge.rewrite("nonsense");
    edge.signal(Signal::HUP);
    eventually("the failure is written", || has(&path, "reload-failed"));
    assert!(!has(&moved, "reload-failed"));
    // At the end, nothing is lost.
    edge.signal(Signal::TERM);
    assert!(edge.wait_exit().success());
    assert!(has(&path, "stopping"));
}

#[test]
fn another_file_of_events_needs_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::cached(&origin());
    let edge = setup.start();
    let path = folder.path().join("events.jsonl");
    edge.rewrite(&setup.admin(&format!("events = {path:?}")).text());
    let output = edge.command(&["reload"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("`events` in [admin] needs a restart"),
        "{said}"
    );
    assert!(!path.exists());
}
