//! Helpers of the tests of partially stored objects: an edge with small blocks, and the exact bytes
//! that an origin has sent.

use std::ops::Range;

use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::{VERSIONS, verify_version};
use sluice_lab::origin::{Origin, Outcome, Record, Resource, Seen};

use crate::harness::{Edge, SOON, Setup, cache_status, eventually, fresh};

/// The block size of these tests.
pub const BLOCK: u64 = 256 << 10;

/// A file of nine and a half blocks.
pub const FILE: u64 = 2_500_000;

/// The fill policies that fetch ranges.
pub const MODES: [&str; 2] = ["slice", "auto"];

/// A cache with this fill policy in front of the origin.
pub fn filling(origin: &Origin, mode: &str) -> Setup {
    Setup::cached(origin)
        .cache(&format!("fill = \"{mode}\""))
        .cache("slice = \"256KiB\"")
}

/// The end of the block that contains this byte.
pub fn block_end(at: u64) -> u64 {
    ((at / BLOCK + 1) * BLOCK).min(FILE)
}

/// The value of Range for these bytes, both ends included.
pub fn bytes(first: u64, last: u64) -> String {
    format!("bytes={first}-{last}")
}

/// Requests bytes of `/x`, both ends included.
pub fn ask_range(edge: &Edge, first: u64, last: u64) -> Reply {
    edge.get("/x", &[("Range", &bytes(first, last))])
}

/// Requests bytes of `/x` and checks them.
pub fn check_range(edge: &Edge, first: u64, last: u64) -> Reply {
    let reply = ask_range(edge, first, last);
    let right = reply.verify_range(first, last, FILE);
    right.unwrap_or_else(|wrong| panic!("{wrong} ({:?})", cache_status(&reply)));
    reply
}

/// Sends a request for bytes of `/x`, both ends included, on a new connection.
pub fn send_range(edge: &Edge, first: u64, last: u64) -> Client {
    let mut client = edge.client();
    let range = bytes(first, last);
    let sent = client.send("GET", "/x", &[("Range", &range)], b"");
    sent.expect("sent");
    client
}

/// Sends a request for all of `/x` on a new connection.
pub fn send_whole(edge: &Edge) -> Client {
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client
}

/// Serves `/x` differently for requests with Range and without.
pub fn by_range(
    ranged: impl Fn(&Seen) -> Resource + Send + Sync + 'static,
    plain: impl Fn(&Seen) -> Resource + Send + Sync + 'static,
) -> Resource {
    Resource::dynamic(move |seen| match seen.header("range") {
        Some(_) => ranged(seen),
        None => plain(seen),
    })
}

/// The response to a request for an offset body from a correct origin.
pub fn good(_seen: &Seen) -> Resource {
    fresh(FILE)
}

/// The first byte that a request wants, and the last one if it names one; a request without Range
/// wants all from 0.
pub fn wanted(seen: &Seen) -> (u64, Option<u64>) {
    let Some(range) = seen.header("range") else {
        return (0, None);
    };
    let (first, last): (&str, &str) = range
        .strip_prefix("bytes=")
        .and_then(|ends| ends.split_once('-'))
        .expect("one range of bytes");
    let number = |text: &str| text.parse().expect("a number");
    match (first, last) {
        ("", count) => (FILE.saturating_sub(number(count)), None),
        (first, "") => (number(first), None),
        (first, last) => (number(first), Some(number(last))),
    }
}

/// The Range headers that the origin received for `/x`, in order; "-" for none.
pub fn asked(origin: &Origin) -> Vec<String> {
    let field = |seen: &Seen| seen.header("range").unwrap_or("-").to_owned();
    origin.read_record(|record| record.of("/x").map(field).collect())
}

/// The ranges of `/x` that an origin with range support has sent, one per response.
pub fn sent_pieces(record: &Record) -> Vec<Range<u64>> {
    let answered = record.of("/x").filter(|seen| seen.sent > 0);
    answered
        .map(|seen| {
            let first = wanted(seen).0;
            first..first + seen.sent
        })
        .collect()
}

/// Number of bytes of `/x` that the origin sent more than once.
pub fn sent_again(origin: &Origin) -> u64 {
    let mut pieces = origin.read_record(sent_pieces);
    pieces.sort_by_key(|piece| piece.start);
    let (mut again, mut reached) = (0, 0);
    for piece in pieces {
        again += reached.min(piece.end).saturating_sub(piece.start);
        reached = reached.max(piece.end);
    }
    again
}

/// Waits until no fetch is running.
pub fn landed(edge: &Edge) {
    eventually("no fetch is under way", || edge.counter("flights_now") == 0);
}

/// Waits until the origin has sent this many bytes, no fetch is running, and the origin has
/// recorded it.
pub fn settle(edge: &Edge, origin: &Origin, sent: u64) {
    let all = origin.wait_for(|record| record.sent_total >= sent, SOON);
    let (total, asked) = (
        origin.read_record(|record| record.sent_total),
        asked(origin),
    );
    assert!(all, "{total} bytes of {sent} were sent: {asked:?}");
    landed(edge);
    let over = |record: &Record| {
        let mut requests = record.requests.iter();
        requests.all(|seen| seen.outcome != Outcome::Pending)
    };
    assert!(origin.wait_for(over, SOON), "the origin has ended");
}

/// Asserts that the origin sent exactly this many bytes of `/x`, none of them twice.
pub fn assert_sent_once(edge: &Edge, origin: &Origin, sent: u64) {
    settle(edge, origin, sent);
    let asked = asked(origin);
    assert_eq!(sent_again(origin), 0, "bytes were sent twice: {asked:?}");
    let total = origin.read_record(|record| record.sent_for("/x"));
    assert_eq!(total, sent, "{asked:?}");
}

/// The version of these bytes, which begin at `first`; `None` if they are of several versions or of
/// none.
pub fn version_of(first: u64, body: &[u8]) -> Option<u32> {
    (0..=VERSIONS).find(|version| verify_version(*version, first, body).is_ok())
}

/// Asserts that a reply is a complete response of one version to a request for these bytes, and
/// returns the version.
pub fn one_version(reply: &Reply, first: u64, last: u64) -> u32 {
    let status = cache_status(reply);
    let (first, count) = match reply.status {
        206 => {
            let range = reply.content_range().expect("a Content-Range");
            assert_eq!((range.first, range.last), (first, last), "{status}");
            (first, last - first + 1)
        }
        // A server may ignore Range (RFC 9110 14.2).
        200 => (0, FILE),
        other => panic!("status {other}: {status}"),
    };
    let came = reply.body.len();
    assert!(!reply.truncated(), "{first}: cut after {came}: {status}");
    assert_eq!(reply.body.len() as u64, count, "{status}");
    version_of(first, &reply.body).unwrap_or_else(|| panic!("mixed or wrong bytes: {status}"))
}
