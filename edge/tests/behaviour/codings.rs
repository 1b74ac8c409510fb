//! Files that have a gzip coding beside themselves, asked for in pieces: nobody gets bytes of both, nor a
//! coding that he does not accept.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Framing, Resource, Seen, Tag};

use crate::harness::{Setup, fresh, serving};
use crate::pieces::{FILE, MODES, ask_range, bytes, filling, good, one_version};

/// What stands for the gzip coding of the file; nobody here has to decode it.
fn zipped() -> Vec<u8> {
    b"\x1f\x8b\x08zipped".repeat(30_000)
}

/// Asserts that a reply is the file or a range of it, or its gzip coding or a range of that where
/// that is accepted.
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

/// Asks with and without gzip, for ranges and for all, in several orders.
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

// "gzip on the fly": from a server that compresses into chunks without ranges, under a weak tag.
#[test]
fn gzip_on_the_fly() {
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

// The same from one that keeps both, with ranges of each.
#[test]
fn gzip_kept_beside_the_plain_file() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).encoded("gzip", zipped()));
        exercise_codings(&filling(&origin, mode));
    }
}

// And from one that compresses although `identity` was asked for: its ranges are of what it sends.
#[test]
fn a_coding_that_nobody_asked_for() {
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
