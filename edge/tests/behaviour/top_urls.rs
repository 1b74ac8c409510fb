//! Tests of `GET /top`: the URLs with the most requests, bytes, misses and latency.

use serde_json::Value;
use sluice_lab::origin::{Latch, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, origin, serving};

/// Returns the URLs with the most of a measure.
fn top(edge: &Edge, by: &str) -> Vec<Value> {
    let reply = edge.get_admin(&format!("/top?by={by}&minutes=60&n=20"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(
        (&answer["by"], &answer["minutes"]),
        (&by.into(), &60.into())
    );
    answer["urls"].as_array().expect("URLs").clone()
}

/// Returns the entry of a URL.
fn entry(edge: &Edge, by: &str, path: &str) -> Option<Value> {
    let url = edge.url(path);
    top(edge, by).into_iter().find(|one| one["url"] == url)
}

fn number(entry: &Value, name: &str) -> f64 {
    entry[name].as_f64().expect("a number")
}

#[test]
fn requests_that_reach_the_origin_are_all_counted() {
    let origin = origin();
    origin.serve("/pass/a", Resource::offset(1000));
    origin.serve("/pass/b", Resource::offset(50_000));
    let edge = Setup::cached(&origin).start();
    for _ in 0..3 {
        edge.get("/pass/a", &[]);
    }
    edge.get("/pass/b", &[]);
    eventually("all are counted", || {
        entry(&edge, "requests", "/pass/a").is_some_and(|one| number(&one, "requests") == 3.0)
            && entry(&edge, "requests", "/pass/b").is_some()
    });
    let first = &top(&edge, "requests")[0];
    assert_eq!(first["url"], edge.url("/pass/a"));
    assert_eq!((number(first, "value"), number(first, "error")), (3.0, 0.0));
    assert_eq!(
        (number(first, "bytes"), number(first, "misses")),
        (3000.0, 0.0)
    );
    assert!(number(first, "latency_ms") > 0.0);
    assert_eq!(top(&edge, "bytes")[0]["url"], edge.url("/pass/b"));
    assert!(top(&edge, "misses").is_empty());
}

#[test]
fn misses_and_latency_name_the_urls_that_cause_them() {
    let latch = Latch::at(0);
    let origin = serving("/quick", fresh(10));
    origin.serve("/slow", fresh(10).hold_body(&latch));
    let edge = Setup::cached(&origin).start();
    let mut held = edge.client();
    held.send("GET", "/slow", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    edge.get("/quick", &[]);
    eventually("some time passes", || {
        edge.status()["recent"]["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds >= 1.0)
    });
    latch.release();
    held.read_response().expect("a reply");
    eventually("both are counted", || top(&edge, "misses").len() == 2);
    assert_eq!(top(&edge, "latency")[0]["url"], edge.url("/slow"));
}

#[test]
fn a_sample_of_the_hits_stands_for_all_of_them() {
    let origin = serving("/hit", fresh(100));
    let edge = Setup::cached(&origin).workers(1).start();
    let mut client = edge.client();
    for _ in 0..1600 {
        client.get("/hit", &[]).expect("a reply");
    }
    // With one in sixteen at random, less than half or more than twice as many are next to impossible.
    eventually("they are counted", || {
        entry(&edge, "requests", "/hit").is_some_and(|one| {
            let requests = number(&one, "requests");
            (800.0..3200.0).contains(&requests) && number(&one, "bytes") == 100.0 * requests
        })
    });
    assert_eq!(edge.counter("samples_dropped"), 0);
}

#[test]
fn secrets_in_urls_are_masked() {
    let origin = origin();
    origin.serve("/pass/x", fresh(10));
    let edge = Setup::cached(&origin)
        .tables("signed_urls = { keys = [\"0123456789abcdef0123456789abcdef\"], signature_parameter = \"proof\" }\n")
        .start();
    edge.get("/pass/x?token=s3cr3t&page=2", &[]);
    edge.get("/x?expires=1&proof=s3cr3t", &[]);
    eventually("they are counted", || top(&edge, "requests").len() == 2);
    let text = edge.get_admin("/top").text() + &edge.get_admin("/events").text();
    assert!(!text.contains("s3cr3t"), "{text}");
    assert!(entry(&edge, "requests", "/pass/x?token=***&page=2").is_some());
    assert!(entry(&edge, "requests", "/x?expires=1&proof=***").is_some());
}

#[test]
fn a_query_without_a_meaning_is_refused() {
    let edge = Setup::cached(&origin()).start();
    for query in [
        "by=size",
        "minutes=0",
        "minutes=61",
        "n=-1",
        "other=1",
        "minutes=x",
    ] {
        let reply = edge.get_admin(&format!("/top?{query}"));
        assert_eq!(reply.status, 400, "{query}");
    }
    for query in ["after=-1", "n=x", "other=1"] {
        assert_eq!(
            edge.get_admin(&format!("/events?{query}")).status,
            400,
            "{query}"
        );
    }
}
