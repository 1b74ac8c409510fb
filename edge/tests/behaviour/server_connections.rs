//! Tests of `GET /servers/connections`: which request went over which connection to a server.

use std::time::Duration;

use serde_json::Value;
use sluice_lab::origin::{Ending, Fault, Latch, Origin, Resource};

use crate::harness::http2_front::{Http2Front, Http2Options};
use crate::harness::{Edge, Setup, eventually, fresh, serving};

fn answer(edge: &Edge) -> Value {
    let reply = edge.get_admin("/servers/connections?upstream=origin&n=100");
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).expect("JSON")
}

/// Returns the connections to the only server.
fn connections(edge: &Edge) -> Vec<Value> {
    let answer = answer(edge);
    let servers = answer["servers"].as_array().expect("servers");
    assert_eq!(servers.len(), 1, "{answer}");
    servers[0]["connections"]
        .as_array()
        .expect("connections")
        .clone()
}

fn exchanges(connection: &Value) -> Vec<Value> {
    connection["exchanges"]
        .as_array()
        .expect("exchanges")
        .clone()
}

/// Waits until this many exchanges have ended, and returns the connections.
fn ended(edge: &Edge, count: usize) -> Vec<Value> {
    let have_ended = || {
        let all = connections(edge);
        let exchanges = all.iter().flat_map(exchanges);
        exchanges.filter(|one| one["ended_us"].is_u64()).count() == count
    };
    eventually("exchanges that have ended", have_ended);
    connections(edge)
}

fn edge_of(origin: &Origin, upstream: &str) -> Edge {
    let setup = Setup::uncached(origin).with_http1_servers().workers(1);
    setup.upstream(upstream).start()
}

/// Waits until all connections are closed, and returns the sides that closed them.
fn closed_by(edge: &Edge) -> Vec<Value> {
    let all = || {
        connections(edge)
            .into_iter()
            .map(|one| one["closed_by"].clone())
    };
    eventually("closed connections", || all().all(|by| by.is_string()));
    all().collect()
}

#[test]
fn with_keepalive_one_connection_carries_all_requests() {
    let origin = serving("/x", Resource::offset(1000));
    let edge = edge_of(&origin, "");
    for _ in 0..5 {
        edge.get("/x", &[]).verify_whole(1000).expect("the body");
    }
    let all = ended(&edge, 5);
    assert_eq!(all.len(), 1, "{all:?}");
    let connection = &all[0];
    assert_eq!(connection["requests"], 5);
    assert_eq!(connection["protocol"], "HTTP/1.1");
    assert!(
        connection["closed_us"].is_null() && connection["tls_us"].is_null(),
        "{connection}"
    );
    let opened = connection["opened_us"].as_u64().expect("a time");
    let mut last = opened;
    for (n, one) in exchanges(connection).iter().enumerate() {
        assert_eq!(one["nth"], n + 1);
        assert_eq!(
            (&one["status"], &one["end"]),
            (&200.into(), &"complete".into()),
            "{one}"
        );
        assert_eq!(
            (&one["bytes"], &one["path"]),
            (&1000.into(), &"/x".into()),
            "{one}"
        );
        let time = |name: &str| one[name].as_u64().expect("a time");
        assert!(
            last <= time("began_us") && time("began_us") <= time("ended_us"),
            "{connection}"
        );
        assert!(
            time("began_us") + time("head_us") <= time("ended_us"),
            "{one}"
        );
        last = time("ended_us");
    }
    assert!(last <= answer(&edge)["now_us"].as_u64().expect("a time"));
    assert_eq!(
        answer(&edge)["servers"][0]["address"],
        origin.addr().to_string()
    );
}

#[test]
fn each_request_has_its_own_connection_if_the_server_closes_them() {
    let origin = serving("/x", Resource::offset(10).close());
    let edge = edge_of(&origin, "");
    for _ in 0..4 {
        assert_eq!(edge.get("/x", &[]).status, 200);
    }
    let all = ended(&edge, 4);
    let counts = all.iter().map(|one| one["requests"].as_u64());
    assert_eq!(counts.collect::<Vec<_>>(), [Some(1); 4]);
    assert_eq!(closed_by(&edge), ["server"; 4]);
}

#[test]
fn each_request_has_its_own_connection_without_keepalive() {
    let origin = serving("/x", Resource::offset(10));
    let edge = edge_of(&origin, "keepalive = false");
    for _ in 0..3 {
        assert_eq!(edge.get("/x", &[]).status, 200);
    }
    assert_eq!(ended(&edge, 3).len(), 3);
    assert_eq!(closed_by(&edge), ["sluice"; 3]);
}

#[test]
fn http2_carries_several_requests_at_a_time_on_one_connection() {
    let latch = Latch::closed();
    let origin = serving("/held", Resource::offset(10).hold_head(&latch));
    let front = Http2Front::start(origin.addr(), Http2Options::default());
    let setup = Setup::of_servers(vec![front.url()]).without_cache();
    let edge = setup.workers(1).start();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(edge.get("/held", &[]).status, 200));
        }
        assert!(
            latch.wait_held(8, Duration::from_secs(60)),
            "eight requests"
        );
        let all = connections(&edge);
        assert_eq!(
            (all.len(), &all[0]["protocol"]),
            (1, &"HTTP/2".into()),
            "{all:?}"
        );
        let waiting = exchanges(&all[0]);
        assert_eq!(waiting.len(), 8);
        assert!(
            waiting.iter().all(|one| one["end"] == "in progress"),
            "{waiting:?}"
        );
        latch.release();
    });
    let all = ended(&edge, 8);
    assert_eq!((all.len(), &all[0]["requests"]), (1, &8.into()));
    let (mut began, mut ends) = (0, u64::MAX);
    for one in exchanges(&all[0]) {
        assert_eq!(one["end"], "complete", "{one}");
        began = one["began_us"].as_u64().expect("a time").max(began);
        ends = one["ended_us"].as_u64().expect("a time").min(ends);
    }
    assert!(began <= ends, "all of them were in progress at once");
}

#[test]
fn failed_exchanges_have_their_reason() {
    let origin = serving(
        "/x",
        Resource::offset(10).fault(Fault::EndBeforeHead(Ending::Fin)),
    );
    let edge = edge_of(&origin, "retry = { tries = 1 }");
    assert_eq!(edge.get("/x", &[]).status, 502);
    let all = ended(&edge, 1);
    let one = &exchanges(&all[0])[0];
    assert_eq!(
        (&one["end"], &one["status"]),
        (&"failed".into(), &Value::Null),
        "{one}"
    );
    assert_eq!(one["reason"], "closed-before-head");
    assert_eq!(closed_by(&edge), ["server"]);
}

#[test]
fn hits_leave_no_record() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).with_http1_servers().start();
    for _ in 0..20 {
        assert_eq!(edge.get("/x", &[]).status, 200);
    }
    let all = ended(&edge, 1);
    assert_eq!((all.len(), &all[0]["requests"]), (1, &1.into()));
}

#[test]
fn secrets_and_hostile_text_of_urls_are_not_shown() {
    let origin = serving("/x", Resource::offset(10));
    let edge = edge_of(&origin, "");
    let long = format!("/{}/secret", "a".repeat(100));
    let targets = [
        "/x?token=secret",
        "/x;jsessionid=secret/y",
        "/%3Cimg%20src=x%20onerror=alert(1)%3E?secret",
        "/x&sig=secret",
        &long,
    ];
    for target in targets {
        edge.get(target, &[]);
    }
    // Refused or not, none of this may become markup or control characters.
    edge.send_raw(b"GET /<b>\"'\\u0007\xff HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    eventually("all requests", || {
        let all = connections(&edge)
            .iter()
            .map(|one| exchanges(one).len())
            .sum::<usize>();
        all >= targets.len()
    });
    let text = edge
        .get_admin("/servers/connections?upstream=origin")
        .text();
    assert!(
        !text.contains("secret") && !text.contains(['<', '>', '&']),
        "{text}"
    );
    assert!(text.bytes().all(|b| matches!(b, b' '..=b'~')), "{text}");
    let all = connections(&edge);
    let paths: Vec<String> = all
        .iter()
        .flat_map(exchanges)
        .map(|one| one["path"].as_str().expect("a path").to_owned())
        .collect();
    assert_eq!(paths[0], "/x?...");
    assert_eq!(paths[1], "/x;...");
    assert!(paths[2].starts_with("/%3Cimg%20src=x"), "{paths:?}");
    assert_eq!(paths[4].len(), 64 + 3);
}

#[test]
fn unknown_upstreams_and_malformed_queries_are_refused() {
    let edge = Setup::uncached(&serving("/x", Resource::offset(10))).start();
    for (query, status) in [
        ("?upstream=origin&n=0", 200),
        ("?upstream=origin&n=99999999999", 200),
        ("?upstream=nothing", 404),
        ("", 400),
        ("?upstream=origin&n=-1", 400),
        ("?upstream=origin&other=1", 400),
    ] {
        let reply = edge.get_admin(&format!("/servers/connections{query}"));
        assert_eq!(reply.status, status, "{query}: {}", reply.text());
    }
}
