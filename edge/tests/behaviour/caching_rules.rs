//! Helpers shared by the tests of the caching rules: responses that are old on arrival, crowds of
//! clients, an origin that stops working.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use sluice_lab::client::{Client, Reply};
use sluice_lab::origin::{Modified, Origin, Resource, Tag};

use crate::harness::{
    Edge, Setup, assert_has_parameter, assert_hit, cache_status, eventually, ttl,
};

/// The length of most bodies in these tests.
pub const LENGTH: u64 = 1000;

/// A body with this Cache-Control whose Age on arrival is this many seconds (RFC 9111 4.2.3).
pub fn aged(control: &str, age_s: u64) -> Resource {
    let body = Resource::offset(LENGTH).cache_control(control);
    body.header("Age", &age_s.to_string())
}

/// A body that is 40 seconds past its lifetime on arrival, with further directives.
pub fn stale(more: &str) -> Resource {
    aged(&format!("max-age=60{more}"), 100)
}

/// The same body, fresh for an hour.
pub fn current() -> Resource {
    Resource::offset(LENGTH).cache_control("max-age=3600")
}

/// The resource without an entity tag and without Date.
pub fn bare(resource: Resource) -> Resource {
    resource.tag(Tag::None).modified(Modified::None)
}

/// The resource with a strong entity tag.
pub fn tagged(tag: &str) -> Tag {
    Tag::Fixed(format!("\"{tag}\""))
}

/// The HTTP date this many seconds from now, negative for the past (RFC 9110 5.6.7).
pub fn date_in(seconds: i64) -> String {
    let span = Duration::from_secs(seconds.unsigned_abs());
    let now = SystemTime::now();
    httpdate::fmt_http_date(match seconds < 0 {
        true => now - span,
        false => now + span,
    })
}

/// Number of requests for a path that the origin received.
pub fn times(origin: &Origin, path: &str) -> usize {
    origin.read_record(|record| record.count(path))
}

/// The value of a header in the latest request for `path` that the origin received.
pub fn last_sent(origin: &Origin, path: &str, field: &str) -> Option<String> {
    origin.read_record(|record| {
        let last = record.of(path).last().expect("it was asked");
        last.header(field).map(str::to_owned)
    })
}

/// Makes the origin refuse connections and resets its open ones.
pub fn kill(origin: &Origin) {
    origin.refuse().expect("it listens no more");
    origin.drop_connections();
}

/// Asserts that a reply came from the cache although it was stale, for this reason.
pub fn assert_stale(reply: &Reply, detail: &str) {
    assert_has_parameter(reply, &format!("detail={detail}"));
    // A request that waited for the origin's failure counts as forwarded (RFC 9211 2.2).
    if detail == "stale-if-error" && cache_status(reply).contains("fwd=stale") {
        return;
    }
    assert_hit(reply);
    assert!(ttl(reply) <= 0, "{}", cache_status(reply));
}

/// Asserts that a reply came from the cache after the origin confirmed it with a 304.
pub fn assert_validated(reply: &Reply) {
    assert_has_parameter(reply, "fwd=stale");
    assert_has_parameter(reply, "fwd-status=304");
}

/// Asserts that the origin failed and the client received the complete error response.
pub fn assert_failed(reply: &Reply) {
    let status = reply.status;
    assert!((500..=504).contains(&status), "{status}");
    assert!(!reply.truncated());
    let said = cache_status(reply);
    assert!(!said.contains("hit"), "{said}");
}

/// Repeats a request until the reply is a fresh hit, and returns that reply.
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

/// Seconds of freshness left in the response to a second request, or `None` if that was not a hit.
pub fn fresh_for(edge: &Edge, origin: &Origin, path: &str, resource: Resource) -> Option<i64> {
    origin.serve(path, resource);
    edge.get(path, &[]);
    let again = edge.get(path, &[]);
    let hit = cache_status(&again).starts_with("sluice; hit");
    hit.then(|| ttl(&again))
}

/// A description, a response, and for how many seconds the response is fresh; `None` if it is not
/// stored.
pub type Case<'a> = (&'a str, Resource, Option<RangeInclusive<i64>>);

/// Checks for how long each response is fresh, each at its own path.
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

/// Clients that sent the same request, which the edge has accepted.
pub struct Crowd(Vec<Client>);

impl Crowd {
    /// Starts this many clients with the same request while no other clients are waiting.
    pub fn of(edge: &Edge, count: usize, target: &str, headers: &[(&str, &str)]) -> Crowd {
        Crowd::beside(0, edge, count, target, headers)
    }

    /// Starts this many clients while this many others are already waiting.
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

    /// The replies of all clients.
    pub fn replies(mut self) -> Vec<Reply> {
        let read = |client: &mut Client| client.read_response().expect("a reply");
        self.0.iter_mut().map(read).collect()
    }
}
