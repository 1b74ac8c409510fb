//! Tests of responses that may not be shared. Clients receive them as if there were no cache.

use sluice_lab::origin::{Latch, Resource};

use crate::harness::{
    Setup, assert_has_parameter, cache_status, eventually, fresh, origin, serving,
};

fn unshared(length: u64) -> Resource {
    Resource::offset(length).cache_control("no-store")
}

// The origin receives ranges and conditions from the first request on, and evaluates them.
#[test]
fn ranges_and_conditions_reach_the_origin() {
    let origin = serving("/x", unshared(1_000_000));
    let edge = Setup::cached(&origin).start();
    let range = edge.get("/x", &[("Range", "bytes=500000-500009")]);
    range
        .verify_range(500_000, 500_009, 1_000_000)
        .expect("the range");
    assert_has_parameter(&range, "detail=no-store");
    origin.serve("/y", unshared(1_000_000));
    let tag = range.header("etag").expect("a tag").to_owned();
    assert_eq!(edge.get("/y", &[("If-None-Match", &tag)]).status, 304);
    origin.serve("/z", unshared(100).with_status(404));
    let missing = edge.get("/z", &[("Range", "bytes=5-9")]);
    assert_eq!((missing.status, missing.body.len()), (404, 100));
    assert_eq!(origin.read_record(|record| record.count("/z")), 1);
}

// The response to HEAD has no body. The next response on the connection to the client must be
// found.
#[test]
fn head_of_an_unstored_response_keeps_the_connection_in_sync() {
    let origin = serving("/x", unshared(500_000));
    let edge = Setup::cached(&origin).start();
    let mut client = edge.client();
    for _ in 0..3 {
        let head = client.request("HEAD", "/x", &[], b"").expect("a reply");
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), Some("500000"));
    }
    let get = client.get("/x", &[]).expect("a reply");
    get.verify_whole(500_000).expect("the body");
}

// The response to a shared fetch turns out not to be shareable. The requests that waited are sent
// to the origin at once, separately.
#[test]
fn requests_that_waited_are_forwarded_on_their_own() {
    let latch = Latch::closed();
    let origin = serving("/x", unshared(1000).hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let mut clients: Vec<_> = (0..4).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    eventually("all wait", || edge.counter("requests_now") == 4);
    latch.release();
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(1000).expect("the body");
        assert_has_parameter(&reply, "detail=no-store");
        let status = cache_status(&reply);
        assert!(!status.contains("collapsed"), "it had its own: {status}");
    }
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn responses_are_passed_on_unchanged() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let big = "v".repeat(50_000);
    for (n, status) in [200, 201, 302, 403, 404, 418, 500, 503]
        .into_iter()
        .enumerate()
    {
        let resource = Resource::status(status)
            .header("X-Twice", "1")
            .header("x-twice", "2")
            .header("X-Empty", "")
            .header("X-Bytes", "caf\u{e9}")
            .header("X-Big", &big)
            .header("Location", "/elsewhere");
        for path in [format!("/{n}"), format!("/pass/{n}")] {
            origin.serve(&path, resource.clone());
            let reply = edge.get(&path, &[]);
            assert_eq!(reply.status, status);
            assert_eq!(reply.text(), format!("status {status}\n"));
            assert_eq!(reply.header_all("x-twice"), ["1", "2"]);
            assert_eq!(reply.header("x-empty"), Some(""));
            assert_eq!(reply.header("x-bytes"), Some("caf\u{e9}"));
            assert_eq!(reply.header("x-big"), Some(big.as_str()));
            assert_eq!(reply.header("location"), Some("/elsewhere"));
        }
    }
}

#[test]
fn stored_responses_are_served_unchanged() {
    let big = "v".repeat(50_000);
    let resource = fresh(10)
        .header("X-Twice", "1")
        .header("x-twice", "2")
        .header("X-Empty", "")
        .header("X-Big", &big);
    let origin = serving("/x", resource);
    let edge = Setup::cached(&origin).start();
    for _ in 0..3 {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(10).expect("the body");
        assert_eq!(reply.header_all("x-twice"), ["1", "2"]);
        assert_eq!(reply.header("x-empty"), Some(""));
        assert_eq!(reply.header("x-big"), Some(big.as_str()));
        for once in ["date", "age", "content-length", "cache-status"] {
            assert!(reply.header_all(once).len() <= 1, "{once}");
        }
    }
}

// A 204 has neither content nor Content-Length, whether it comes from the origin or from the cache.
#[test]
fn no_content_has_no_length() {
    let origin = serving("/x", fresh(0).with_status(204));
    let edge = Setup::cached(&origin).start();
    let mut client = edge.client();
    for target in ["/x", "/x", "/x"] {
        let reply = client.get(target, &[]).expect("a reply");
        assert_eq!((reply.status, reply.body.len()), (204, 0));
        assert_eq!(reply.header("content-length"), None);
        assert_eq!(reply.header("transfer-encoding"), None);
    }
    assert_eq!(origin.requests().len(), 1);
}

// The origin of one edge is another edge. Both must process requests and responses as usual.
#[test]
fn edges_can_be_chained() {
    let origin = serving("/x", fresh(3_000_000));
    let inner = Setup::cached(&origin)
        .in_clear_text()
        .cache("fill = \"whole\"")
        .start();
    let outer = Setup::of_servers(vec![format!("http://{}", inner.http)])
        .cache("fill = \"whole\"")
        .start();
    let range = [("Range", "bytes=2000000-2000009")];
    let far = outer.get("/x", &range);
    far.verify_range(2_000_000, 2_000_009, 3_000_000)
        .expect("the range");
    assert_eq!(
        far.header_all("cache-status").len(),
        2,
        "each says what it did"
    );
    let inner_via = origin.requests()[0].via("sluice");
    assert_eq!(far.header_all("via"), [inner_via, "1.1 sluice".to_owned()]);
    outer
        .get("/x", &[])
        .verify_whole(3_000_000)
        .expect("the body");
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(inner.counter("requests"), 1);
    let host = outer.http.to_string();
    let direct = inner.get("/x", &[("Host", &host)]);
    assert!(cache_status(&direct).starts_with("sluice; hit"));
}
