//! Helpers that start the program in front of a test origin for the duration of one test.

mod edge;
pub mod http2_front;
pub mod setup;

use std::thread;
use std::time::{Duration, Instant};

use sluice_lab::client::Reply;
use sluice_lab::origin::{Origin, OriginOptions, Resource};
use sluice_lab::pauses;

pub use edge::Edge;
pub use setup::Setup;

/// Time limit for steps that usually take far less, even on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

/// Starts an origin on a free port.
pub fn origin() -> Origin {
    Origin::start(OriginOptions::default()).expect("a free port on loopback")
}

/// Starts an origin that serves one resource.
pub fn serving(path: &str, resource: Resource) -> Origin {
    let origin = origin();
    origin.serve(path, resource);
    origin
}

/// Returns a resource of this many bytes that is fresh for an hour. Each byte depends on its
/// offset, so that tests can check it.
pub fn fresh(length: u64) -> Resource {
    Resource::offset(length).cache_control("max-age=3600")
}

/// Makes an origin slow: pauses before the head and before the body of the resource, and then sends
/// 400 kB/s on each connection.
pub fn slow(resource: Resource, pause: Duration) -> Resource {
    resource.delay_head(pause).delay_body(pause).rate(400_000)
}

/// Polls until the condition holds. Fails the test if the condition does not hold within `SOON`.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    pauses::point();
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the value of Cache-Status in a response.
pub fn cache_status(reply: &Reply) -> &str {
    reply.header("cache-status").unwrap_or("")
}

/// Asserts that a response came from the cache.
pub fn assert_hit(reply: &Reply) {
    let status = cache_status(reply);
    assert!(status.starts_with("sluice; hit"), "{status:?}");
}

/// Asserts that Cache-Status contains this parameter.
pub fn assert_has_parameter(reply: &Reply, word: &str) {
    let status = cache_status(reply);
    let found = status.split("; ").any(|parameter| parameter == word);
    assert!(found, "{word:?} is not in {status:?}");
}

/// Asserts that an error response without a page of its own names this reason.
pub fn assert_reason(reply: &Reply, reason: &str) {
    assert_eq!(reply.text(), format!("{} {reason}\n", reply.status));
}

/// Returns the `ttl` in the Cache-Status of a hit: the remaining freshness in seconds.
pub fn ttl(reply: &Reply) -> i64 {
    let ttl = cache_status(reply)
        .split("; ")
        .find_map(|parameter| parameter.strip_prefix("ttl="));
    ttl.and_then(|ttl| ttl.parse().ok()).expect("a ttl")
}

/// Waits until this many requests for `path` have reached the origin.
pub fn wait_for_requests(origin: &Origin, path: &str, times: usize) {
    let asked = origin.wait_for(|record| record.count(path) >= times, SOON);
    assert!(asked, "{path} was not asked {times} times");
}

/// Starts an origin that serves this resource at `/x`, and an edge that has stored the response.
pub fn stored(resource: Resource) -> (Origin, Edge) {
    stored_by(resource, |setup| setup)
}

/// Starts an origin that serves this resource at `/x`, and an edge that has stored the response.
/// The edge's cache has this additional line in its configuration.
pub fn stored_with(resource: Resource, line: &str) -> (Origin, Edge) {
    stored_by(resource, |setup| setup.cache(line))
}

fn stored_by(resource: Resource, change: impl FnOnce(Setup) -> Setup) -> (Origin, Edge) {
    let origin = serving("/x", resource);
    let edge = change(Setup::cached(&origin)).start();
    edge.get("/x", &[]);
    (origin, edge)
}
