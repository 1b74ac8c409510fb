//! Tests of the numbers of upstreams and their servers: in `GET /status`, `GET /metrics` and `sluice status`.

use std::net::TcpListener;

use serde_json::Value;
use sluice_lab::certificates::Authority;
use sluice_lab::front::{self, TlsFront};
use sluice_lab::origin::{BrokenHead, Fault, Resource};

use crate::harness::{Edge, Setup, eventually, serving};

fn server(edge: &Edge) -> Value {
    edge.status()["upstreams"]["origin"]["servers"][0].clone()
}

#[test]
fn requests_durations_and_bytes_of_a_server_are_measured() {
    let origin = serving("/x", Resource::offset(100_000));
    let edge = Setup::uncached(&origin).workers(1).start();
    for _ in 0..5 {
        edge.get("/x", &[]).verify_whole(100_000).expect("the body");
    }
    let is_counted = || server(&edge)["response_duration"]["p50_us"].is_u64();
    eventually("the last response is counted", is_counted);
    let server = server(&edge);
    assert_eq!(
        (&server["requests"], &server["reuses"]),
        (&5.into(), &4.into())
    );
    assert_eq!(server["connects"], 1);
    let received = server["bytes_in"].as_u64().expect("a number");
    assert!((500_000..600_000).contains(&received), "{received}");
    let sent = server["bytes_out"].as_u64().expect("a number");
    assert!((5 * 50..5 * 2000).contains(&sent), "{sent}");
    for name in ["connect_duration", "header_duration", "response_duration"] {
        assert!(server[name]["p99_us"].is_u64(), "{name}: {server}");
    }
    let handshake = &server["tls_handshake_duration"];
    assert!(handshake["p99_us"].is_null(), "{handshake}");
    let samples = server["tcp_samples"].as_u64().expect("a number");
    assert!(samples >= 1, "{server}");
    assert!(server["tcp_window_bytes"].as_u64() > Some(0), "{server}");
    assert!(server["tcp_rtt"]["p50_us"].is_u64(), "{server}");
    let total = &edge.status()["upstreams"]["origin"]["total"];
    assert_eq!(total["requests"], 5);

    let metrics = edge.get_admin("/metrics").text();
    let address = origin.addr();
    let labels = format!("{{upstream=\"origin\",server=\"{address}\"");
    for line in [
        format!("sluice_server_reuses_total{labels}}} 4\n"),
        format!("sluice_server_header_duration_seconds_count{labels}}} 5\n"),
        format!("sluice_server_connect_duration_seconds_bucket{labels},le=\"+Inf\"}} 1\n"),
    ] {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    let said = edge.command(&["status"]);
    let said = String::from_utf8(said.stdout).expect("text");
    let row = said.lines().find(|line| line.starts_with("origin "));
    let row = row.unwrap_or_else(|| panic!("{said}"));
    let cells: Vec<&str> = row.split_whitespace().take(6).collect();
    let expected = ["origin", &address.to_string(), "up", "5", "0", "80%"];
    assert_eq!(cells, expected);
}

#[test]
fn handshakes_with_a_server_are_measured() {
    let origin = serving("/x", Resource::offset(10));
    let pair = Authority::new("Test authority").server(&["127.0.0.1"]);
    let front = TlsFront::start(origin.addr(), front::config(&pair, None)).expect("a free port");
    let setup = Setup::of_servers(vec![front.url()]).upstream("tls = { verify = false }");
    let edge = setup.workers(1).start();
    for _ in 0..2 {
        assert_eq!(edge.get("/pass/x", &[]).status, 404);
    }
    let server = server(&edge);
    assert_eq!(server["connects"], 1);
    assert!(
        server["tls_handshake_duration"]["p50_us"].is_u64(),
        "{server}"
    );
    let metrics = edge.get_admin("/metrics").text();
    let address = front.address();
    let line = format!(
        "sluice_server_tls_handshake_duration_seconds_count{{upstream=\"origin\",server=\"{address}\"}} 1\n"
    );
    assert!(metrics.contains(&line), "{metrics}");
    let said = String::from_utf8(edge.command(&["status"]).stdout).expect("text");
    let rows: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let heading = rows.iter().find(|row| row.first() == Some(&"upstream"));
    let heading = heading.expect("a table of servers");
    assert!(heading.contains(&"tls"), "{said}");
}

#[test]
fn failures_are_counted_by_reason() {
    let origin = serving(
        "/x",
        Resource::offset(10).fault(Fault::Head(BrokenHead::Garbage)),
    );
    let edge = Setup::uncached(&origin).with_http1_servers().start();
    assert_eq!(edge.get("/x", &[]).status, 502);
    let failures = &server(&edge)["failures_by_reason"];
    assert_eq!(failures["bad-head"], 1, "{failures}");
    let metrics = edge.get_admin("/metrics").text();
    let address = origin.addr();
    let line = format!(
        "sluice_server_failures_by_reason_total{{upstream=\"origin\",server=\"{address}\",reason=\"bad-head\"}} 1\n"
    );
    assert!(metrics.contains(&line), "{metrics}");
    let said = String::from_utf8(edge.command(&["status"]).stdout).expect("text");
    let line = format!("failures of origin {address}: 1 bad-head\n");
    assert!(said.contains(&line), "{said}");
}

#[test]
fn a_server_that_refuses_connections_has_failures_and_no_requests() {
    let unused = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = unused.local_addr().expect("an address");
    drop(unused);
    let edge = Setup::of_servers(vec![format!("http://{address}")]).start();
    assert_eq!(edge.get("/pass/x", &[]).status, 502);
    let server = server(&edge);
    assert_eq!(
        server["failures_by_reason"]["connect-failed"], 1,
        "{server}"
    );
    assert_eq!(server["requests"], 0);
}
