//! Helpers of the tests of partially stored objects: an edge with small blocks, and the exact bytes
//! that the origin has sent.

use std::ops::Range;

use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::{VERSIONS, verify_version};
use sluice_lab::origin::{Origin, Outcome, Record, Resource, Seen};

use crate::harness::{Edge, SOON, Setup, cache_status, eventually, fresh};

/// Block size of these tests in bytes.
pub const BLOCK: u64 = 256 << 10;

/// Length of a file of nine and a half blocks in bytes.
pub const FILE: u64 = 2_500_000;

/// The fill policies that fetch ranges.
pub const MODES: [&str; 2] = ["slice", "auto"];

/// Configures a cache with this fill policy in front of the origin.
pub fn filling(origin: &Origin, mode: &str) -> Setup {
    Setup::cached(origin)
        .cache(&format!("fill = \"{mode}\""))
        .cache("slice = \"256KiB\"")
}

/// Returns the end of the block that contains the byte at this offset.
pub fn block_end(at: u64) -> u64 {
    ((at / BLOCK + 1) * BLOCK).min(FILE)
}

/// Returns the value of a Range header for the bytes from `first` to `last`.
pub fn bytes(first: u64, last: u64) -> String {
    format!("bytes={first}-{last}")
}

/// Requests the bytes of `/x` from `first` to `last`.
pub fn ask_range(edge: &Edge, first: u64, last: u64) -> Reply {
    edge.get("/x", &[("Range", &bytes(first, last))])
}

/// Requests the bytes of `/x` from `first` to `last`, and checks the response.
pub fn check_range(edge: &Edge, first: u64, last: u64) -> Reply {
    let reply = ask_range(edge, first, last);
    let right = reply.verify_range(first, last, FILE);
    right.unwrap_or_else(|wrong| panic!("{wrong} ({:?})", cache_status(&reply)));
    reply
}

/// Sends a request for the bytes of `/x` from `first` to `last` on a new connection, without
/// reading the response.
pub fn send_range(edge: &Edge, first: u64, last: u64) -> Client {
    let mut client = edge.client();
    let range = bytes(first, last);
    let sent = client.send("GET", "/x", &[("Range", &range)], b"");
    sent.expect("sent");
    client
}

/// Sends a request for all of `/x` on a new connection, without reading the response.
pub fn send_whole(edge: &Edge) -> Client {
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client
}

/// Returns a resource whose response to requests with Range comes from `ranged`, and whose response
/// to requests without Range comes from `plain`.
pub fn by_range(
    ranged: impl Fn(&Seen) -> Resource + Send + Sync + 'static,
    plain: impl Fn(&Seen) -> Resource + Send + Sync + 'static,
) -> Resource {
    Resource::dynamic(move |seen| match seen.header("range") {
        Some(_) => ranged(seen),
        None => plain(seen),
    })
}

/// Returns the resource that a correct origin serves at `/x`.
pub fn good(_seen: &Seen) -> Resource {
    fresh(FILE)
}

/// Returns the first byte that a request wants, and the last one if its Range names one. Without
/// Range the first byte is 0.
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

/// Returns the Range headers of the requests for `/x` that the origin has received, in order; "-"
/// for a request without Range.
pub fn asked(origin: &Origin) -> Vec<String> {
    let field = |seen: &Seen| seen.header("range").unwrap_or("-").to_owned();
    origin.read_record(|record| record.of("/x").map(field).collect())
}

/// Returns the range of `/x` that the origin has sent in each response.
pub fn sent_pieces(record: &Record) -> Vec<Range<u64>> {
    let answered = record.of("/x").filter(|seen| seen.sent > 0);
    answered
        .map(|seen| {
            let first = wanted(seen).0;
            first..first + seen.sent
        })
        .collect()
}

/// Returns the number of bytes of `/x` that the origin has sent more than once.
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

/// Waits until no fetch of the edge is running.
pub fn landed(edge: &Edge) {
    eventually("no fetch is under way", || edge.counter("flights_now") == 0);
}

/// Waits until the origin has sent at least this many bytes and no fetch of the edge is running.
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

/// Whether a fetch was so slow that another one took over a part of its range, as on a machine that pauses. The
/// origin may then have sent some bytes twice.
pub fn was_slow(edge: &Edge) -> bool {
    edge.counter("flights_taken_over") > 0
}

/// Asserts that the origin sends exactly this many bytes of `/x`, and no byte twice unless a fetch was too slow.
pub fn assert_sent_once(edge: &Edge, origin: &Origin, sent: u64) {
    settle(edge, origin, sent);
    let asked = asked(origin);
    let (total, again) = (
        origin.read_record(|record| record.sent_for("/x")),
        sent_again(origin),
    );
    assert_eq!(total - again, sent, "{asked:?}");
    assert!(again == 0 || was_slow(edge), "sent twice: {asked:?}");
}

/// Returns the version of these bytes, which begin at the offset `first`; `None` if they belong to
/// no version, or to several.
pub fn version_of(first: u64, body: &[u8]) -> Option<u32> {
    (0..=VERSIONS).find(|version| verify_version(*version, first, body).is_ok())
}

/// Asserts that a response is complete and of one version, and that it answers a request for the
/// bytes from `first` to `last`. Returns the version.
pub fn one_version(reply: &Reply, first: u64, last: u64) -> u32 {
    let status = cache_status(reply);
    let (first, count) = match reply.status {
        206 => {
            let range = reply.content_range().expect("a Content-Range");
            assert_eq!((range.first, range.last), (first, last), "{status}");
            (first, last - first + 1)
        }
        // A server may ignore Range and send the whole file (RFC 9110 14.2).
        200 => (0, FILE),
        other => panic!("status {other}: {status}"),
    };
    let came = reply.body.len();
    assert!(!reply.truncated(), "{first}: cut after {came}: {status}");
    assert_eq!(reply.body.len() as u64, count, "{status}");
    version_of(first, &reply.body).unwrap_or_else(|| panic!("mixed or wrong bytes: {status}"))
}
