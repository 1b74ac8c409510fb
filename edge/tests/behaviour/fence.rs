//! Tests of the fence: bytes of two responses are combined only if both responses prove to be of
//! one version. Each test has an origin with one kind of wrong behaviour, which begins with the
//! first response or after one correct response.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use sluice_lab::client::Reply;
use sluice_lab::offset::version_bytes;
use sluice_lab::origin::{Fault, Framing, Modified, Origin, Resource, Seen, Tag};

use crate::harness::{Edge, assert_hit, cache_status, fresh, origin, serving};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, asked, assert_sent_once, by_range, check_range, filling, good,
    one_version, version_of, wanted,
};

/// Maximum number of requests that `exercise` may cause. More requests mean that the edge retries
/// without end.
const REQUESTS_MAX: usize = 40;

/// The ranges that clients request one after another, as first and last byte.
const WANTS: [(u64, u64); 7] = [
    (1_200_000, 1_200_009),
    (1_200_000, 1_200_009),
    (100, 109),
    (900_000, 1_100_000),
    (FILE - 10, FILE - 1),
    (2_000_000, 2_000_009),
    (1_200_005, 1_500_000),
];

/// Requests many ranges, then the whole file. Each response must be complete and of one version.
///
/// If the origin refuses ranges, the response to a range may be the refusal.
fn exercise(edge: &Edge, origin: &Origin, case: &str, refuses: bool) {
    for (first, last) in WANTS {
        let reply = ask_range(edge, first, last);
        if refuses && reply.status == 416 {
            continue;
        }
        one_version(&reply, first, last);
    }
    let whole = edge.get("/x", &[]);
    assert_eq!(whole.status, 200, "{case}: {}", cache_status(&whole));
    one_version(&whole, 0, FILE - 1);
    let asked = asked(origin);
    assert!(asked.len() <= REQUESTS_MAX, "{case}: {asked:?}");
    let kept = edge.get("/x", &[]);
    one_version(&kept, 0, FILE - 1);
    assert_hit(&kept);
    let again = ask_range(edge, 700_000, 700_009);
    one_version(&again, 700_000, 700_009);
    assert_hit(&again);
}

/// Runs `exercise` with an edge in front of an origin that gives `good_first` correct responses and
/// then wrong ones.
fn misbehaving(
    mode: &str,
    good_first: usize,
    refuses: bool,
    bad: impl Fn(&Seen) -> Resource + Copy + Send + Sync + 'static,
) {
    let answered = AtomicUsize::new(0);
    let ranged = move |seen: &Seen| {
        if answered.fetch_add(1, Ordering::Relaxed) < good_first {
            return good(seen);
        }
        bad(seen)
    };
    let origin = serving("/x", by_range(ranged, good));
    let edge = filling(&origin, mode).start();
    let case = format!("{mode}, {good_first} good");
    exercise(&edge, &origin, &case, refuses);
}

/// Runs `exercise` with all fill policies, in front of an origin that gives wrong responses from
/// the first one on, and of one that gives a correct response first.
fn fence(bad: impl Fn(&Seen) -> Resource + Copy + Send + Sync + 'static) {
    for mode in MODES {
        for good_first in [0, 1] {
            misbehaving(mode, good_first, false, bad);
        }
    }
}

/// Runs `exercise` with all fill policies, in front of an origin that responds with 416. The
/// response to a range may then be the 416.
fn refusing(bad: impl Fn(&Seen) -> Resource + Copy + Send + Sync + 'static) {
    for mode in MODES {
        for good_first in [0, 1] {
            misbehaving(mode, good_first, true, bad);
        }
    }
}

/// Runs `exercise` with all fill policies, in front of an origin that always sends this response.
fn always(resource: &Resource) {
    for mode in MODES {
        let origin = serving("/x", resource.clone());
        let edge = filling(&origin, mode).start();
        exercise(&edge, &origin, mode, false);
    }
}

/// Returns a 206 with this Content-Range, and `count` bytes of version 0 from `first` on. The bytes
/// need not match the Content-Range.
fn raw_part(content_range: &str, first: u64, count: u64) -> Resource {
    let count = count.min(FILE - first) as usize;
    Resource::bytes(version_bytes(0, first, count))
        .with_status(206)
        .cache_control("max-age=3600")
        .header("Content-Range", content_range)
        .tag(Tag::Fixed(format!("\"v0-{FILE}\"")))
}

/// Returns the first and the last byte that a request wants of a file of this length.
fn ends(seen: &Seen) -> (u64, u64) {
    let (first, last) = wanted(seen);
    (first, last.unwrap_or(FILE - 1).min(FILE - 1))
}

#[test]
fn an_origin_that_ignores_range_is_served_correctly() {
    fence(|seen| good(seen).ranges(false));
}

// The origin declares with `Accept-Ranges: none` that it does not support ranges.
#[test]
fn an_origin_without_range_support_receives_one_request() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).ranges(false));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        check_range(&edge, 0, 9);
        check_range(&edge, FILE - 10, FILE - 1);
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
        // The edge may give up the fetch of a range that the origin answers with the whole file,
        // and fetch the whole file instead, but only once.
        assert!(origin.requests().len() <= 2, "{mode}: {:?}", asked(&origin));
    }
}

// The origin ignores If-Range: it sends the range of a version other than the one that If-Range
// names.
#[test]
fn an_origin_that_ignores_if_range_is_served_correctly() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).conditional(false));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        assert_sent_once(&edge, &origin, BLOCK);
        assert!(origin.set_version("/x", 1));
        exercise(&edge, &origin, mode, false);
        let whole = edge.get("/x", &[]);
        assert_eq!(one_version(&whole, 0, FILE - 1), 1, "{mode}");
    }
}

#[test]
fn an_origin_that_sends_a_later_range_is_served_correctly() {
    fence(|seen| good(seen).fault(Fault::ShiftRange(1000)));
}

#[test]
fn an_origin_that_sends_a_distant_range_is_served_correctly() {
    fence(|seen| good(seen).fault(Fault::ShiftRange(700_000)));
}

#[test]
fn an_origin_that_sends_an_earlier_range_is_served_correctly() {
    fence(|seen| good(seen).fault(Fault::ShiftRange(-1000)));
}

// The origin sends fewer bytes than requested, with a correct Content-Range. The edge has to
// request the rest.
#[test]
fn an_origin_that_sends_a_shorter_range_is_served_correctly() {
    fence(|seen| good(seen).fault(Fault::ShortRange(100_000)));
}

// The origin sends fewer bytes than Content-Range announces.
#[test]
fn an_origin_that_sends_less_than_announced_is_served_correctly() {
    fence(|seen| {
        let (first, last) = ends(seen);
        let content_range = format!("bytes {first}-{last}/{FILE}");
        raw_part(&content_range, first, (last - first).div_ceil(2))
    });
}

// The origin sends more bytes than requested, with a correct Content-Range.
#[test]
fn an_origin_that_sends_a_longer_range_is_served_correctly() {
    fence(|seen| good(seen).fault(Fault::LongRange(300_000)));
}

#[test]
fn an_origin_that_sends_everything_to_the_end_is_served_correctly() {
    fence(|seen| good(seen).fault(Fault::LongRange(FILE)));
}

// The origin sends more bytes than Content-Range announces.
#[test]
fn an_origin_that_sends_more_than_announced_is_served_correctly() {
    fence(|seen| {
        let (first, last) = ends(seen);
        let content_range = format!("bytes {first}-{last}/{FILE}");
        raw_part(&content_range, first, last - first + 1 + 50_000)
    });
}

// The origin responds with 416 without the length of the file.
#[test]
fn an_origin_that_responds_416_is_served_correctly() {
    refusing(|seen| good(seen).fault(Fault::Unsatisfiable));
}

#[test]
fn an_origin_that_responds_416_with_the_true_length_is_served_correctly() {
    refusing(|seen| {
        let length = Fault::ContentRange(format!("bytes */{FILE}"));
        good(seen).fault(Fault::Unsatisfiable).fault(length)
    });
}

#[test]
fn an_origin_that_responds_416_with_another_length_is_served_correctly() {
    refusing(|seen| {
        let length = Fault::ContentRange("bytes */1000".to_owned());
        good(seen).fault(Fault::Unsatisfiable).fault(length)
    });
}

#[test]
fn a_content_range_at_another_position_is_rejected() {
    fence(|seen| good(seen).fault(Fault::ContentRange(format!("bytes 0-9/{FILE}"))));
}

#[test]
fn a_content_range_beyond_its_own_length_is_rejected() {
    fence(|seen| {
        let (first, last) = ends(seen);
        let value = format!("bytes {first}-{last}/{last}");
        good(seen).fault(Fault::ContentRange(value))
    });
}

#[test]
fn a_content_range_with_another_length_is_rejected() {
    for mode in MODES {
        misbehaving(mode, 1, false, |seen| {
            let (first, last) = ends(seen);
            let value = format!("bytes {first}-{last}/9999999");
            good(seen).fault(Fault::ContentRange(value))
        });
    }
}

#[test]
fn a_content_range_without_a_length_is_rejected() {
    fence(|seen| {
        let (first, last) = ends(seen);
        let value = format!("bytes {first}-{last}/*");
        good(seen).fault(Fault::ContentRange(value))
    });
}

#[test]
fn malformed_content_ranges_are_rejected() {
    for (mode, garbage) in [
        ("slice", "bytes x-y/z"),
        ("auto", "bytes 5-2/9"),
        ("slice", "lines 0-9/2500000"),
        (
            "auto",
            "bytes 18446744073709551615-18446744073709551616/18446744073709551617",
        ),
        ("slice", ""),
    ] {
        for good_first in [0, 1] {
            misbehaving(mode, good_first, false, move |seen| {
                good(seen).fault(Fault::ContentRange(garbage.to_owned()))
            });
        }
    }
}

#[test]
fn a_206_without_content_range_is_rejected() {
    fence(|seen| good(seen).fault(Fault::NoContentRange));
}

// The origin responds with `multipart/byteranges` to a request for one range.
#[test]
fn an_origin_that_sends_multipart_for_one_range_is_served_correctly() {
    fence(|seen| good(seen).fault(Fault::AlwaysMultipart));
}

// A chunked 206 has no Content-Length. Its Content-Range tells the position of its last byte.
#[test]
fn chunked_206_responses_are_used() {
    fence(|seen| good(seen).framing(Framing::Chunked(10_000)));
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).framing(Framing::Chunked(10_000)));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        assert_sent_once(&edge, &origin, BLOCK);
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
    }
}

// The first 206 has a validator and the second one has none. Their bytes may be of different
// versions.
#[test]
fn a_206_without_validators_is_not_joined_to_one_with_them() {
    fence(|seen| {
        let other = good(seen).version(1);
        other.tag(Tag::None).modified(Modified::None)
    });
}

// The first 206 has an entity tag and a date. The second one has only the date, which is not
// enough.
#[test]
fn a_206_with_only_a_date_is_not_joined_to_one_with_an_entity_tag() {
    fence(|seen| {
        let first = "Thu, 01 Jan 2026 00:00:00 GMT".to_owned();
        let other = good(seen).version(1);
        other.tag(Tag::None).modified(Modified::Fixed(first))
    });
}

// The first 206 has a strong entity tag. The second one has a weak tag with the same text, which is
// not enough.
#[test]
fn a_206_with_a_weak_entity_tag_is_not_joined_to_one_with_a_strong_tag() {
    fence(|seen| {
        let weak = Tag::Fixed(format!("W/\"v0-{FILE}\""));
        good(seen).version(1).tag(weak).modified(Modified::None)
    });
}

/// Runs `exercise` with a file without a strong validator whose content changes meanwhile. Its
/// length stays the same, so the length does not show the change.
fn never_mixes(resource: impl Fn() -> Resource) {
    always(&resource());
    for mode in MODES {
        let origin = serving("/x", resource());
        let edge = filling(&origin, mode).start();
        one_version(
            &ask_range(&edge, 1_200_000, 1_200_009),
            1_200_000,
            1_200_009,
        );
        assert!(origin.set_version("/x", 1));
        for (first, last) in WANTS {
            one_version(&ask_range(&edge, first, last), first, last);
        }
        one_version(&edge.get("/x", &[]), 0, FILE - 1);
        assert!(origin.set_version("/x", 2));
        one_version(&edge.get("/x", &[]), 0, FILE - 1);
        one_version(&ask_range(&edge, 5, 600_000), 5, 600_000);
        assert!(
            origin.requests().len() <= REQUESTS_MAX,
            "{:?}",
            asked(&origin)
        );
    }
}

#[test]
fn responses_with_a_weak_entity_tag_are_not_joined() {
    let weak = Tag::Fixed("W/\"same\"".to_owned());
    never_mixes(|| fresh(FILE).tag(weak.clone()).modified(Modified::None));
}

// A Last-Modified that is only one second before Date is not a strong validator (RFC 9110 8.8.2.2).
#[test]
fn responses_with_a_recent_date_are_not_joined() {
    let now = httpdate::fmt_http_date(SystemTime::now());
    never_mixes(|| {
        let dated = fresh(FILE).header("Date", &now);
        dated.tag(Tag::None).modified(Modified::Fixed(now.clone()))
    });
}

// An object without a strong validator has one flight, so its bytes come from one response.
#[test]
fn responses_without_validators_are_not_joined() {
    never_mixes(|| fresh(FILE).tag(Tag::None).modified(Modified::None));
}

#[test]
fn responses_with_a_malformed_entity_tag_are_not_joined() {
    let bare = Tag::Fixed("same".to_owned());
    never_mixes(|| fresh(FILE).tag(bare.clone()).modified(Modified::None));
}

// A Last-Modified that is long before Date is a strong validator, so blocks are fetched separately.
#[test]
fn an_old_date_is_a_strong_validator() {
    always(&fresh(FILE).tag(Tag::None));
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).tag(Tag::None));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        assert_sent_once(&edge, &origin, BLOCK);
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
        // The new version has another date, so its blocks are not combined with the stored ones.
        assert!(origin.set_version("/x", 1));
        for (first, last) in WANTS {
            one_version(&ask_range(&edge, first, last), first, last);
        }
        let whole = edge.get("/x", &[]);
        assert_eq!(one_version(&whole, 0, FILE - 1), 1, "{mode}");
    }
}

// Two servers of one upstream have different entity tags for the same file. The edge must not retry
// without end.
#[test]
fn two_servers_with_different_entity_tags_are_never_mixed() {
    for mode in MODES {
        let (one, other) = (
            serving("/x", fresh(FILE)),
            serving("/x", fresh(FILE).version(1)),
        );
        let edge = filling(&one, mode).also(&other).start();
        for n in 0..20 {
            // The range lies within one block. A longer one could be cut off where the next block
            // comes from the other server.
            let first = n * 7 % 9 * BLOCK + n * 10_000;
            one_version(&ask_range(&edge, first, first + 9), first, first + 9);
        }
        let whole = whole_at_last(&edge);
        one_version(&whole, 0, FILE - 1);
        assert_hit(&edge.get("/x", &[]));
        assert_hit(&ask_range(&edge, 5, 9));
        let requests = one.requests().len() + other.requests().len();
        assert!(requests <= 100, "{mode}: {requests} requests");
    }
}

/// Requests the whole file until a response is complete. Some responses may be cut off because the
/// version changes.
fn whole_at_last(edge: &Edge) -> Reply {
    for _ in 0..5 {
        let whole = edge.get("/x", &[]);
        assert_eq!(whole.status, 200);
        assert!(version_of(0, &whole.body).is_some(), "mixed");
        if !whole.truncated() {
            return whole;
        }
    }
    panic!("cut each time");
}

// The server sends a new entity tag with every response, so bytes of two responses must not be
// combined.
#[test]
fn an_entity_tag_that_always_changes_joins_nothing() {
    for mode in MODES {
        let changing = |seen: &Seen| {
            let tag = Tag::Fixed(format!("\"{}\"", seen.id));
            fresh(FILE).tag(tag).modified(Modified::None)
        };
        let origin = serving("/x", Resource::dynamic(changing));
        let edge = filling(&origin, mode).start();
        for n in 0..20 {
            let first = n * 7 % 9 * BLOCK + n * 10_000;
            one_version(&ask_range(&edge, first, first + 9), first, first + 9);
        }
        one_version(&whole_at_last(&edge), 0, FILE - 1);
        assert!(origin.requests().len() <= 100, "{:?}", asked(&origin));
    }
}

// The origin responds to range requests with an error, and to other requests with the whole file.
#[test]
fn an_origin_that_fails_on_ranges_is_served_correctly() {
    for status in [400, 501] {
        for mode in MODES {
            let origin = origin();
            origin.serve("/x", by_range(move |_| Resource::status(status), good));
            let edge = filling(&origin, mode).start();
            edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
            assert!(asked(&origin).len() <= REQUESTS_MAX);
            one_version(&ask_range(&edge, 5, 9), 5, 9);
        }
    }
}
