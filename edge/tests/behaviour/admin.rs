//! Tests of the admin address: `/status` with its counters, objects, bytes, flights and pools, and
//! the details of the objects of one URL.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_lab::client;
use sluice_lab::origin::{Latch, Resource};

use crate::harness::{SOON, Setup, eventually, fresh, origin, serving};

#[test]
fn status_shows_counters_objects_bytes_flights_and_pools() {
    let latch = Latch::at(200_000);
    let origin = serving("/x", fresh(100_000));
    origin.serve("/held", fresh(500_000).hold_body(&latch));
    let edge = Setup::cached(&origin).workers(2).start();
    edge.get("/x", &[]);
    edge.get("/x", &[]);
    let mut held = edge.client();
    held.send("GET", "/held", &[], b"").expect("sent");
    held.read_head().expect("a head");
    assert!(latch.wait_held(1, SOON));
    let status = edge.status();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["pid"], edge.process.pid());
    assert_eq!(status["workers"].as_array().map(Vec::len), Some(2));
    let counters = &status["counters"];
    for (name, value) in [
        ("requests", 3),
        ("requests_now", 1),
        ("cache_hits", 1),
        ("flights", 2),
        ("flights_now", 1),
    ] {
        assert_eq!(counters[name], value, "{name}");
    }
    let cache = &status["caches"]["main"];
    assert_eq!(
        (&cache["objects"], &cache["flights"]),
        (&json!(2), &json!(1))
    );
    let bytes = cache["bytes"].as_u64().expect("a number");
    assert!((600_000..800_000).contains(&bytes), "{bytes}");
    assert_eq!(cache["limit"], 256 << 20);
    let server = &status["upstreams"]["origin"]["servers"][0];
    assert_eq!(server["address"], origin.addr().to_string());
    let connections = ["busy", "idle"].map(|name| server[name].as_u64().expect("a number"));
    assert_eq!(connections[0], 1, "{server}");
    assert!(connections[1] <= 1);
    assert_eq!(
        (&server["requests"], &server["failures"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(status["reload"]["generation"], 1);
}

#[test]
fn status_shows_hit_ratios_and_rates_of_the_last_seconds() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).start();
    eventually("a sample is older than the requests", || {
        edge.status()["recent"]["seconds"].as_f64() > Some(0.0)
    });
    for _ in 0..4 {
        edge.get("/x", &[]);
    }
    eventually("the requests have ended", || {
        edge.counter("requests_now") == 0
    });
    let (all, hits) = ("cache_response_bytes", "cache_hit_bytes");
    assert_eq!([all, hits].map(|name| edge.counter(name)), [4000, 3000]);
    let recent = &edge.status()["recent"];
    assert_eq!(recent["hit_ratio"], 0.75, "{recent}");
    assert_eq!(recent["byte_hit_ratio"], 0.75, "{recent}");
    let shown = String::from_utf8(edge.command(&["status"]).stdout).expect("UTF-8");
    let ratio = "hit ratio   75.0% of requests, 75.0% of bytes\n";
    assert!(
        shown.contains(ratio) && shown.contains(" requests/s, "),
        "{shown}"
    );
}

#[test]
fn durations_of_requests_are_counted_in_their_buckets() {
    let slow = fresh(100).delay_head(Duration::from_millis(200));
    let origin = serving("/slow", slow);
    let edge = Setup::cached(&origin).workers(1).start();
    eventually("there is a sample", || {
        edge.status()["recent"]["seconds"].as_f64() > Some(0.0)
    });
    let counted = |label: &str, count: u32| {
        let name = "sluice_request_duration_seconds";
        let line = format!("{name}_{label} {count}\n");
        edge.get_admin("/metrics").text().contains(&line)
    };
    edge.get("/slow", &[]);
    eventually("the request is counted", || {
        counted("count{worker=\"0\"}", 1)
    });
    assert!(counted("bucket{worker=\"0\",le=\"0.065536\"}", 0));
    assert!(counted("bucket{worker=\"0\",le=\"+Inf\"}", 1));
    let p50_us = edge.status()["request_duration"]["p50_us"].as_u64();
    assert!(p50_us > Some(100_000), "{p50_us:?}");
    eventually("the request is among those of the last seconds", || {
        edge.status()["recent"]["request_duration"]["p50_us"].as_u64() == p50_us
    });
    // The durations of cache hits don't contain the waits before them.
    for _ in 0..2 {
        edge.get("/slow", &[]);
    }
    eventually("the hits are counted", || counted("count{worker=\"0\"}", 3));
    assert!(counted("bucket{worker=\"0\",le=\"0.065536\"}", 2));
    let shown = String::from_utf8(edge.command(&["status"]).stdout).expect("UTF-8");
    assert!(shown.contains("\nlatency     p50 "), "{shown}");
}

#[test]
fn the_counters_are_the_sums_of_the_workers_counters() {
    let origin = serving("/x", fresh(100));
    let edge = Setup::cached(&origin).workers(2).start();
    for _ in 0..20 {
        edge.get("/x", &[]);
    }
    let status = edge.status();
    for (name, sum) in status["counters"].as_object().expect("an object") {
        let workers = status["workers"].as_array().expect("a list");
        let added: u64 = workers
            .iter()
            .filter_map(|worker| worker[name].as_u64())
            .sum();
        assert_eq!(sum.as_u64(), Some(added), "{name}");
    }
    assert_eq!(status["counters"]["requests"], 20);
    eventually("the clients have left", || {
        edge.counter("connections_now") == 0
    });
}

#[test]
fn the_status_of_a_url_lists_stored_and_in_flight_ranges() {
    let latch = Latch::at(300_000);
    let origin = serving("/x", fresh(500_000).hold_body(&latch));
    let edge = Setup::cached(&origin).start();
    assert!(edge.objects("/x").is_empty());
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    eventually("all that came is stored", || {
        edge.objects("/x")[0]["stored_bytes"] == 300_000
    });
    let object = &edge.objects("/x")[0];
    assert_eq!(
        (&object["status"], &object["length"]),
        (&json!(200), &json!(500_000))
    );
    assert_eq!(object["stored"], json!([{ "first": 0, "last": 299_999 }]));
    assert_eq!(
        object["in_flight"],
        json!([{ "first": 300_000, "last": 499_999 }])
    );
    let fresh_for = object["fresh_for_s"].as_i64().expect("a number");
    assert!((3590..=3600).contains(&fresh_for));
    let output = edge.command(&["status", "--url", &edge.url("/x")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("stored     0-299999"), "{said}");
    assert!(said.contains("in flight  300000-499999"), "{said}");
    latch.release();
    client
        .read_response()
        .expect("a reply")
        .verify_whole(500_000)
        .expect("the body");
    eventually("all is stored", || {
        edge.objects("/x")[0]["in_flight"] == json!([])
    });
    assert_eq!(
        edge.objects("/x")[0]["stored"],
        json!([{ "first": 0, "last": 499_999 }])
    );
}

#[test]
fn the_status_of_a_url_lists_each_variant() {
    let origin = serving("/x", fresh(500).encoded("gzip", "zipped"));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[("Accept-Encoding", "gzip")]);
    edge.get("/x", &[]);
    let objects = edge.objects("/x");
    let mut lengths: Vec<Option<u64>> = objects
        .iter()
        .map(|object| object["length"].as_u64())
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [Some(6), Some(500)]);
    let named = |object: &Value| {
        object["variant"]
            .as_str()
            .is_some_and(|name| name.contains("accept-encoding"))
    };
    assert!(objects.iter().all(named), "{objects:?}");
}

#[test]
fn a_malformed_url_is_refused_with_an_explanation() {
    let edge = Setup::cached(&origin()).start();
    for url in ["/x", "a", "ftp://a/x", "http://a/..", "http://a%2500/"] {
        let reply = edge.get_admin(&format!("/status?url={url}"));
        assert_eq!(reply.status, 400, "{url}: {}", reply.text());
    }
    assert_eq!(edge.get_admin("/status?url=http://a/nothing").text(), "[]");
}

// `/health` and `/metrics` respond. A request that a browser sends for a web page can't trigger a
// reload.
#[test]
fn health_metrics_and_reload_respond() {
    let edge = Setup::cached(&origin()).start();
    assert_eq!(edge.get_admin("/health").text(), "ok\n");
    let metrics = edge.get_admin("/metrics").text();
    assert!(metrics.contains("# TYPE"), "{metrics}");
    assert!(metrics.contains("requests"), "{metrics}");
    let forged = client::once(edge.admin, "POST", "/reload", &[], b"").expect("a reply");
    assert_eq!(forged.status, 403);
    for page in ["/status", "/metrics"] {
        let rebound = client::get(edge.admin, page, &[("Host", "evil.example")]);
        assert_eq!(rebound.expect("a reply").status, 421, "{page}");
    }
}

// RFC 9112 3.2: a request of HTTP/1.1 has one valid Host. RFC 9112 3.2.2: if the target is a URI, its
// host counts.
#[test]
fn the_admin_address_checks_host_and_target_as_listeners_do() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let cases = [
        ("GET /status HTTP/1.1", "", 400),
        ("GET /health HTTP/1.1", "", 400),
        ("GET /status HTTP/1.1", "Host:\r\n", 400),
        ("GET /status HTTP/1.1", "Host: [::1\r\n", 400),
        ("GET /status HTTP/1.1", "Host: a@127.0.0.1\r\n", 400),
        (
            "GET /status HTTP/1.1",
            "Host: localhost\r\nHost: localhost\r\n",
            400,
        ),
        (
            "GET /health HTTP/1.1",
            "Host: localhost\r\nHost: evil.com\r\n",
            400,
        ),
        (
            "GET /status HTTP/1.0",
            "Host: localhost\r\nHost: localhost\r\n",
            400,
        ),
        (
            "GET http://evil.com/status HTTP/1.1",
            "Host: 127.0.0.1\r\n",
            421,
        ),
        (
            "GET http://a@127.0.0.1/status HTTP/1.1",
            "Host: 127.0.0.1\r\n",
            400,
        ),
        (
            "GET https://127.0.0.1/status HTTP/1.1",
            "Host: 127.0.0.1\r\n",
            400,
        ),
        (
            "GET http://127.0.0.1/status HTTP/1.1",
            "Host: evil.com\r\n",
            200,
        ),
        ("GET http://127.0.0.1/status HTTP/1.1", "", 400),
        ("GET /status HTTP/1.1", "Host: LocalHost.:1\r\n", 200),
        ("GET /status HTTP/1.0", "", 200),
        ("GET /health HTTP/1.0", "", 200),
        ("GET /health HTTP/1.1", "Host: balancer.example\r\n", 200),
    ];
    for (line, headers, status) in cases {
        let mut client = client::Client::connect(edge.admin).expect("connected");
        let request = format!("{line}\r\n{headers}Connection: close\r\n\r\n");
        client.send_raw(request.as_bytes()).expect("sent");
        let reply = client.read_response().expect("a reply");
        assert_eq!(reply.status, status, "{line} {headers}");
    }
}

#[test]
fn the_admin_api_may_be_addressed_by_its_configured_names() {
    let setup = Setup::cached(&origin());
    let with = |hosts: &str| {
        let admin = format!("[admin]\nhosts = [{hosts}]\n");
        setup.text().replacen("[admin]\n", &admin, 1)
    };
    let edge = Setup::of_text(with("\"Edge.Example\", \"prometheus\"")).start();
    let status = |host| {
        let reply = client::get(edge.admin, "/metrics", &[("Host", host)]);
        reply.expect("a reply").status
    };
    for host in [
        "edge.example",
        "edge.example:9901",
        "EDGE.EXAMPLE.",
        "prometheus",
    ] {
        assert_eq!(status(host), 200, "{host}");
    }
    assert_eq!(status("evil.example"), 421);
    edge.rewrite(&with("\"other.example\""));
    assert!(edge.command(&["reload"]).status.success());
    assert_eq!(
        [status("edge.example"), status("other.example")],
        [421, 200]
    );
    let refused = Setup::of_text(with("\"edge.example:9901\"")).refused();
    assert!(refused.contains("is not a host name"), "{refused}");
}

#[test]
fn the_admin_address_responds_while_the_workers_are_busy() {
    let latch = Latch::closed();
    let origin = serving("/x", Resource::status(200).hold_head(&latch));
    let edge = Setup::uncached(&origin).workers(1).start();
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let mut client = edge.client();
            client.send("GET", "/x", &[], b"").expect("sent");
            client
        })
        .collect();
    eventually("all are counted", || edge.counter("requests_now") == 50);
    drop(clients);
    latch.release();
    eventually("all have left", || edge.counter("requests_now") == 0);
}

/// Opens connections with `open`, and calls `ask` beside them. Returns the connections if `ask` took less time than the
/// program waits for them. Otherwise, since the machine may have paused, does this again.
pub fn at_once_beside<T>(open: impl Fn() -> T, ask: impl Fn()) -> T {
    let mut opened = None;
    eventually("a response before the connections are closed", || {
        drop(opened.take());
        opened = Some(open());
        let begun = Instant::now();
        ask();
        begun.elapsed() < Duration::from_secs(4)
    });
    opened.expect("`open` was called")
}

// Silent connections, and connections that begin a request and stop, are closed after 5 seconds.
// They keep no operator out until then.
#[test]
fn silent_connections_keep_nobody_out_of_the_admin_address() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let connect = || client::Client::connect(edge.admin).expect("the admin address accepts");
    let mut silent = at_once_beside(
        || (0..200).map(|_| connect()).collect::<Vec<_>>(),
        || assert_eq!(edge.get_admin("/health").status, 200),
    );
    let mut stopped: Vec<_> = (0..64).map(|_| connect()).collect();
    for client in &mut stopped {
        client.send_raw(b"GET /health").expect("sent");
    }
    for client in silent.iter_mut().chain(&mut stopped) {
        client.wait_closed(SOON).expect("closed");
    }
    assert_eq!(edge.get_admin("/health").status, 200);
}

// 300 connections that have sent a part of a request take all places. The one that has waited
// longest for the rest of its request makes room for the operator.
#[test]
fn connections_that_stop_inside_a_request_keep_nobody_out_of_the_admin_address() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let connect = || client::Client::connect(edge.admin).expect("the admin address accepts");
    let part_of_head = b"GET /health".to_vec();
    let part_of_body =
        b"POST /purge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{".to_vec();
    let parts = [part_of_head, part_of_body, b"G".to_vec()];
    let stop = |part: &Vec<u8>| {
        let mut client = connect();
        client.send_raw(part).expect("sent");
        client
    };
    let mut stopped = at_once_beside(
        || -> Vec<_> { parts.iter().cycle().take(300).map(stop).collect() },
        || assert_eq!(edge.get_admin("/health").status, 200),
    );
    for client in &mut stopped {
        client.wait_closed(SOON).expect("closed");
    }
    assert_eq!(edge.get_admin("/health").status, 200);
}
