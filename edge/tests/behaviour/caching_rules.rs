//! Helpers for the tests of caching rules: responses that are old on arrival, groups of concurrent
//! clients, and an origin that stops responding.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use sluice_lab::client::{Client, Reply};
use sluice_lab::origin::{Modified, Origin, Resource, Tag};

use crate::harness::{
    Edge, Setup, assert_has_parameter, assert_hit, cache_status, eventually, ttl,
};

/// The length of most bodies in these tests.
pub const LENGTH: u64 = 1000;

/// Returns a resource with this Cache-Control. Its Age header is `age_s` seconds on arrival (RFC
/// 9111 4.2.3).
pub fn aged(control: &str, age_s: u64) -> Resource {
    let body = Resource::offset(LENGTH).cache_control(control);
    body.header("Age", &age_s.to_string())
}

/// Makes a resource stale for 40 seconds on arrival. `more` adds Cache-Control directives.
pub fn stale_on_arrival(resource: Resource, more: &str) -> Resource {
    resource
        .cache_control(&format!("max-age=60{more}"))
        .header("Age", "100")
}

/// Returns a resource that has been stale for 40 seconds on arrival. `more` adds Cache-Control
/// directives.
pub fn stale(more: &str) -> Resource {
    stale_on_arrival(Resource::offset(LENGTH), more)
}

/// Returns a resource that is fresh for an hour.
pub fn current() -> Resource {
    Resource::offset(LENGTH).cache_control("max-age=3600")
}

/// Removes the entity tag and the date of the last modification from a resource.
pub fn bare(resource: Resource) -> Resource {
    resource.tag(Tag::None).modified(Modified::None)
}

/// Returns a strong entity tag with this text.
pub fn tagged(tag: &str) -> Tag {
    Tag::Fixed(format!("\"{tag}\""))
}

/// Returns the HTTP date this many seconds from now; a negative number is a time in the past (RFC
/// 9110 5.6.7).
pub fn date_in(seconds: i64) -> String {
    let span = Duration::from_secs(seconds.unsigned_abs());
    let now = SystemTime::now();
    httpdate::fmt_http_date(match seconds < 0 {
        true => now - span,
        false => now + span,
    })
}

/// Returns the number of requests for a path that the origin has received.
pub fn times(origin: &Origin, path: &str) -> usize {
    origin.read_record(|record| record.count(path))
}

/// Returns the value of a header in the latest request for `path` that the origin has received.
pub fn last_sent(origin: &Origin, path: &str, field: &str) -> Option<String> {
    origin.read_record(|record| {
        let last = record.of(path).last().expect("it was asked");
        last.header(field).map(str::to_owned)
    })
}

/// Makes the origin refuse new connections and reset its open ones.
pub fn kill(origin: &Origin) {
    origin.refuse().expect("it listens no more");
    origin.drop_connections();
}

/// Asserts that a response came from the cache although it was stale, with this `detail` in
/// Cache-Status.
pub fn assert_stale(reply: &Reply, detail: &str) {
    assert_has_parameter(reply, &format!("detail={detail}"));
    // If the request waited until the origin failed, Cache-Status has `fwd=stale` in place of `hit`
    // (RFC 9211 2.2).
    if detail == "stale-if-error" && cache_status(reply).contains("fwd=stale") {
        return;
    }
    assert_hit(reply);
    assert!(ttl(reply) <= 0, "{}", cache_status(reply));
}

/// Asserts that the response came from the cache after the origin had confirmed the stored response
/// with a 304.
pub fn assert_validated(reply: &Reply) {
    assert_has_parameter(reply, "fwd=stale");
    assert_has_parameter(reply, "fwd-status=304");
}

/// Asserts that the origin failed and that the client received a complete error response.
pub fn assert_failed(reply: &Reply) {
    let status = reply.status;
    assert!((500..=504).contains(&status), "{status}");
    assert!(!reply.truncated());
    let said = cache_status(reply);
    assert!(!said.contains("hit"), "{said}");
}

/// Repeats a request until the response is a fresh hit, and returns that response.
pub fn until_fresh(edge: &Edge, path: &str) -> Reply {
    let mut last = None;
    eventually("it is fresh again", || {
        let reply = edge.get(path, &[]);
        let fresh = cache_status(&reply).starts_with("sluice; hit") && ttl(&reply) > 0;
        last = Some(reply);
        fresh
    });
    last.expect("it was asked")
}

/// Returns the remaining freshness in seconds that a second request finds, or `None` if the second
/// request was not a hit.
pub fn fresh_for(edge: &Edge, origin: &Origin, path: &str, resource: Resource) -> Option<i64> {
    origin.serve(path, resource);
    edge.get(path, &[]);
    let again = edge.get(path, &[]);
    let hit = cache_status(&again).starts_with("sluice; hit");
    hit.then(|| ttl(&again))
}

/// A test case: a description, a response, and the expected lifetime in seconds; `None` if the
/// response is not stored.
pub type Case<'a> = (&'a str, Resource, Option<RangeInclusive<i64>>);

/// Checks the lifetime of each response, with a separate path for each.
pub fn check_fresh_for(setup: &Setup, origin: &Origin, cases: Vec<Case<'_>>) {
    let edge = setup.start();
    for (n, (what, resource, expected)) in cases.into_iter().enumerate() {
        let path = format!("/{n}");
        let kept = fresh_for(&edge, origin, &path, resource);
        let right = match (&expected, kept) {
            (Some(expected), Some(ttl)) => expected.contains(&ttl),
            (None, None) => true,
            _ => false,
        };
        assert!(right, "{what}: kept for {kept:?}, not {expected:?}");
    }
}

/// Clients that have sent the same request and wait for the response. The edge has accepted all of
/// the requests.
pub struct Crowd(Vec<Client>);

impl Crowd {
    /// Sends the request from this many clients. No other client may be waiting at the edge.
    pub fn of(edge: &Edge, count: usize, target: &str, headers: &[(&str, &str)]) -> Crowd {
        Crowd::beside(0, edge, count, target, headers)
    }

    /// Sends the request from `count` clients while `others` other clients already wait at the
    /// edge.
    pub fn beside(
        others: usize,
        edge: &Edge,
        count: usize,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Crowd {
        let client = |_| {
            let mut client = edge.client();
            client.send("GET", target, headers, b"").expect("sent");
            client
        };
        let clients = (0..count).map(client).collect();
        let all = (others + count) as u64;
        eventually("all wait", || edge.counter("requests_now") == all);
        Crowd(clients)
    }

    /// Receives the responses of all clients.
    pub fn replies(mut self) -> Vec<Reply> {
        let read = |client: &mut Client| client.read_response().expect("a reply");
        self.0.iter_mut().map(read).collect()
    }
}
