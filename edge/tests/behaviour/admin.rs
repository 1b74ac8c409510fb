//! Tests of the admin address: `/status` with its counters, objects, bytes, flights and pools, and
//! the details of the objects of one URL.

use serde_json::{Value, json};
use sluice_lab::client;
use sluice_lab::origin::{Gate, Resource};

use crate::harness::{SOON, Setup, eventually, fresh, origin, serving};

#[test]
fn status_shows_counters_objects_bytes_flights_and_pools() {
    let gate = Gate::at(200_000);
    let origin = serving("/x", fresh(100_000));
    origin.serve("/held", fresh(500_000).gate(&gate));
    let edge = Setup::cached(&origin).workers(2).start();
    edge.get("/x", &[]);
    edge.get("/x", &[]);
    let mut held = edge.client();
    held.send("GET", "/held", &[], b"").expect("sent");
    held.read_head().expect("a head");
    assert!(gate.wait_held(1, SOON));
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
    let gate = Gate::at(300_000);
    let origin = serving("/x", fresh(500_000).gate(&gate));
    let edge = Setup::cached(&origin).start();
    assert!(edge.objects("/x").is_empty());
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    assert!(gate.wait_held(1, SOON));
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
    let output = edge.command(&["status", "--url", &format!("http://{}/x", edge.http)]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("stored     0-299999"), "{said}");
    assert!(said.contains("in flight  300000-499999"), "{said}");
    gate.release();
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
    let rebound = client::get(edge.admin, "/status", &[("Host", "evil.example")]);
    assert_eq!(rebound.expect("a reply").status, 421);
}

#[test]
fn the_admin_address_responds_while_the_workers_are_busy() {
    let gate = Gate::closed();
    let origin = serving("/x", Resource::status(200).gate_head(&gate));
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
    gate.release();
    eventually("all have left", || edge.counter("requests_now") == 0);
}
