//! Tests of a file that the origin also sends in gzip, requested in ranges. No client may receive
//! bytes of both forms, or a coding that it does not accept.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Framing, Resource, Seen, Tag};

use crate::harness::{Setup, fresh, serving};
use crate::partial_objects::{FILE, MODES, ask_range, bytes, filling, good, one_version};

/// Returns bytes that represent the gzip form of the file. No test decodes them.
fn zipped() -> Vec<u8> {
    b"\x1f\x8b\x08zipped".repeat(30_000)
}

/// Asserts that a response is the file or a range of the file. If the client accepts gzip, the
/// response may also be the gzip form or a range of the gzip form.
fn plain_or_zipped(reply: &Reply, first: u64, last: u64, accepted: bool) {
    match reply.header("content-encoding") {
        None => drop(one_version(reply, first, last)),
        Some(coding) => {
            assert!(accepted && coding == "gzip", "{coding}");
            assert!(!reply.truncated());
            let zipped = zipped();
            let expected = match reply.content_range() {
                Some(range) => &zipped[range.first as usize..=range.last as usize],
                None => &zipped[..],
            };
            assert!(reply.body == expected, "wrong bytes of the coding");
        }
    }
}

/// Sends requests with and without gzip, for ranges and for the whole file, in several orders.
fn exercise_codings(setup: &Setup) {
    let gzip = ("Accept-Encoding", "gzip");
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let edge = setup.start();
        for step in [order, order].concat() {
            let (first, last) = (100_000, 100_099);
            let range = bytes(first, last);
            let range = ("Range", &*range);
            let (fields, last) = match step {
                0 => (vec![range], last),
                1 => (vec![range, gzip], last),
                2 => (vec![], FILE - 1),
                _ => (vec![gzip], FILE - 1),
            };
            let reply = edge.get("/x", &fields);
            let first = if step < 2 { first } else { 0 };
            plain_or_zipped(&reply, first, last, step % 2 == 1);
        }
    }
}

// The origin compresses during sending: chunked, without support for ranges, and with a weak entity
// tag.
#[test]
fn an_origin_that_compresses_on_the_fly_is_served_correctly() {
    let on_the_fly = |seen: &Seen| {
        let accepted = seen.header("accept-encoding").unwrap_or("");
        if !accepted.contains("gzip") {
            return good(seen).vary("Accept-Encoding");
        }
        Resource::bytes(zipped())
            .cache_control("max-age=3600")
            .vary("Accept-Encoding")
            .header("Content-Encoding", "gzip")
            .tag(Tag::Fixed(format!("W/\"v0-{FILE}\"")))
            .framing(Framing::Chunked(10_000))
            .ranges(false)
    };
    for mode in MODES {
        let origin = serving("/x", Resource::dynamic(on_the_fly));
        exercise_codings(&filling(&origin, mode));
    }
}

// The origin has stored both forms of the file, and serves ranges of each.
#[test]
fn an_origin_with_a_stored_gzip_file_is_served_correctly() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).encoded("gzip", zipped()));
        exercise_codings(&filling(&origin, mode));
    }
}

// The origin sends gzip although the edge requested `identity`. Offsets of its ranges are those of
// the compressed bytes.
#[test]
fn an_origin_that_compresses_unasked_is_served_correctly() {
    for mode in MODES {
        let coded = fresh(FILE).header("Content-Encoding", "gzip");
        let origin = serving("/x", coded);
        let edge = filling(&origin, mode).start();
        for (first, last) in [(1_200_000, 1_200_009), (100, 109), (900_000, 1_100_000)] {
            let reply = ask_range(&edge, first, last);
            one_version(&reply, first, last);
            assert_eq!(reply.header("content-encoding"), Some("gzip"));
        }
        one_version(&edge.get("/x", &[]), 0, FILE - 1);
    }
}
