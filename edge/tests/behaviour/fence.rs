//! The fence: bytes of two responses are put together only where both prove to be of one version,
//! whatever an origin does with ranges. Each test is one way to misbehave, from the first range on and
//! after one that was answered well.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use sluice_lab::client::Reply;
use sluice_lab::offset::version_bytes;
use sluice_lab::origin::{Fault, Framing, Modified, Origin, Resource, Seen, Tag};

use crate::harness::{Edge, assert_hit, cache_status, fresh, origin, serving};
use crate::pieces::{
    BLOCK, FILE, MODES, ask_range, asked, assert_sent_once, by_range, check_range, filling, good,
    one_version, version_of, wanted,
};

/// More requests than this for what `exercise` asks are a sign of one who tries for ever.
const REQUESTS_MAX: usize = 40;

/// What clients ask for, one after another, both ends included.
const WANTS: [(u64, u64); 7] = [
    (1_200_000, 1_200_009),
    (1_200_000, 1_200_009),
    (100, 109),
    (900_000, 1_100_000),
    (FILE - 10, FILE - 1),
    (2_000_000, 2_000_009),
    (1_200_005, 1_500_000),
];

/// Asks for all sorts of ranges, then for the whole: each must come, uncut, and of one version.
///
/// Where the origin refuses ranges, its refusal may be what a range gets.
fn exercise(edge: &Edge, origin: &Origin, told: &str, refuses: bool) {
    for (first, last) in WANTS {
        let reply = ask_range(edge, first, last);
        if refuses && reply.status == 416 {
            continue;
        }
        one_version(&reply, first, last);
    }
    let whole = edge.get("/x", &[]);
    assert_eq!(whole.status, 200, "{told}: {}", cache_status(&whole));
    one_version(&whole, 0, FILE - 1);
    let asked = asked(origin);
    assert!(asked.len() <= REQUESTS_MAX, "{told}: {asked:?}");
    let kept = edge.get("/x", &[]);
    one_version(&kept, 0, FILE - 1);
    assert_hit(&kept);
    let again = ask_range(edge, 700_000, 700_009);
    one_version(&again, 700_000, 700_009);
    assert_hit(&again);
}

/// Exercises an edge before an origin that answers ranges badly after `good_first` good answers.
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
    let told = format!("{mode}, {good_first} good");
    exercise(&edge, &origin, &told, refuses);
}

/// The same in all modes, from the first range on and after one that was answered well.
fn fence(bad: impl Fn(&Seen) -> Resource + Copy + Send + Sync + 'static) {
    for mode in MODES {
        for good_first in [0, 1] {
            misbehaving(mode, good_first, false, bad);
        }
    }
}

/// The same for an origin that answers 416.
fn refusing(bad: impl Fn(&Seen) -> Resource + Copy + Send + Sync + 'static) {
    for mode in MODES {
        for good_first in [0, 1] {
            misbehaving(mode, good_first, true, bad);
        }
    }
}

/// Exercises an edge before an origin that always answers so.
fn always(resource: &Resource) {
    for mode in MODES {
        let origin = serving("/x", resource.clone());
        let edge = filling(&origin, mode).start();
        exercise(&edge, &origin, mode, false);
    }
}

/// A 206 with this Content-Range and these bytes of version 0, whether they fit or not.
fn raw_part(content_range: &str, first: u64, count: u64) -> Resource {
    let count = count.min(FILE - first) as usize;
    Resource::bytes(version_bytes(0, first, count))
        .with_status(206)
        .cache_control("max-age=3600")
        .header("Content-Range", content_range)
        .tag(Tag::Fixed(format!("\"v0-{FILE}\"")))
}

/// What a request asks for as an origin sees it: first and last byte of a file of this length.
fn ends(seen: &Seen) -> (u64, u64) {
    let (first, last) = wanted(seen);
    (first, last.unwrap_or(FILE - 1).min(FILE - 1))
}

// "origins that ignore Range"
#[test]
fn an_origin_that_ignores_range() {
    fence(|seen| good(seen).ranges(false));
}

// An origin that says that it has no ranges is asked once for all of it, and for no more.
#[test]
fn an_origin_without_ranges_is_asked_for_all_of_it_once() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).ranges(false));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        check_range(&edge, 0, 9);
        check_range(&edge, FILE - 10, FILE - 1);
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
        // A fetch that was begun as a range may be given up and begun anew, but only once.
        assert!(origin.requests().len() <= 2, "{mode}: {:?}", asked(&origin));
    }
}

// "… or If-Range": it sends the range of another version than that whose validator it was told.
#[test]
fn an_origin_that_ignores_if_range() {
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

// "another range": further on, …
#[test]
fn an_origin_that_answers_a_range_further_on() {
    fence(|seen| good(seen).fault(Fault::ShiftRange(1000)));
}

// … far from what was asked, …
#[test]
fn an_origin_that_answers_a_range_far_away() {
    fence(|seen| good(seen).fault(Fault::ShiftRange(700_000)));
}

// … and before it.
#[test]
fn an_origin_that_answers_a_range_further_back() {
    fence(|seen| good(seen).fault(Fault::ShiftRange(-1000)));
}

// "fewer bytes": truthfully, so that the rest has to be asked for.
#[test]
fn an_origin_that_answers_less_than_asked() {
    fence(|seen| good(seen).fault(Fault::ShortRange(100_000)));
}

// … or not: what is said to come is more than what comes.
#[test]
fn an_origin_that_sends_less_than_it_says() {
    fence(|seen| {
        let (first, last) = ends(seen);
        let content_range = format!("bytes {first}-{last}/{FILE}");
        raw_part(&content_range, first, (last - first).div_ceil(2))
    });
}

// More than was asked for: truthfully, …
#[test]
fn an_origin_that_answers_more_than_asked() {
    fence(|seen| good(seen).fault(Fault::LongRange(300_000)));
}

// … with all that follows, …
#[test]
fn an_origin_that_answers_all_that_follows() {
    fence(|seen| good(seen).fault(Fault::LongRange(FILE)));
}

// … or more than it says.
#[test]
fn an_origin_that_sends_more_than_it_says() {
    fence(|seen| {
        let (first, last) = ends(seen);
        let content_range = format!("bytes {first}-{last}/{FILE}");
        raw_part(&content_range, first, last - first + 1 + 50_000)
    });
}

// "416": without a length, …
#[test]
fn an_origin_that_refuses_ranges() {
    refusing(|seen| good(seen).fault(Fault::Unsatisfiable));
}

// … with the true one, …
#[test]
fn an_origin_that_refuses_ranges_of_a_file_that_has_them() {
    refusing(|seen| {
        let length = Fault::ContentRange(format!("bytes */{FILE}"));
        good(seen).fault(Fault::Unsatisfiable).fault(length)
    });
}

// … and with another.
#[test]
fn an_origin_that_refuses_ranges_of_a_shorter_file() {
    refusing(|seen| {
        let length = Fault::ContentRange("bytes */1000".to_owned());
        good(seen).fault(Fault::Unsatisfiable).fault(length)
    });
}

// "a wrong Content-Range": of another place than the bytes, …
#[test]
fn a_content_range_of_another_place() {
    fence(|seen| good(seen).fault(Fault::ContentRange(format!("bytes 0-9/{FILE}"))));
}

// … beyond the length that it names itself, …
#[test]
fn a_content_range_beyond_its_length() {
    fence(|seen| {
        let (first, last) = ends(seen);
        let value = format!("bytes {first}-{last}/{last}");
        good(seen).fault(Fault::ContentRange(value))
    });
}

// … with another length than before, …
#[test]
fn a_content_range_with_another_length() {
    for mode in MODES {
        misbehaving(mode, 1, false, |seen| {
            let (first, last) = ends(seen);
            let value = format!("bytes {first}-{last}/9999999");
            good(seen).fault(Fault::ContentRange(value))
        });
    }
}

// … with no length, …
#[test]
fn a_content_range_without_length() {
    fence(|seen| {
        let (first, last) = ends(seen);
        let value = format!("bytes {first}-{last}/*");
        good(seen).fault(Fault::ContentRange(value))
    });
}

// … nonsense, …
#[test]
fn content_ranges_that_are_none() {
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

// … or none.
#[test]
fn a_part_without_content_range() {
    fence(|seen| good(seen).fault(Fault::NoContentRange));
}

// "multipart/byteranges" where one range was asked for.
#[test]
fn an_origin_that_answers_in_parts() {
    fence(|seen| good(seen).fault(Fault::AlwaysMultipart));
}

// A part in chunks is as good as any: its Content-Range tells where it ends.
#[test]
fn parts_in_chunks() {
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

// A 206 that proves nothing of its version, after one that did: its bytes are those of another.
#[test]
fn a_part_without_validators_after_one_with() {
    fence(|seen| {
        let other = good(seen).version(1);
        other.tag(Tag::None).modified(Modified::None)
    });
}

// The same with the date of the first, which an entity tag outranks.
#[test]
fn a_part_with_the_date_only_after_one_with_a_tag() {
    fence(|seen| {
        let first = "Thu, 01 Jan 2026 00:00:00 GMT".to_owned();
        let other = good(seen).version(1);
        other.tag(Tag::None).modified(Modified::Fixed(first))
    });
}

// And with the same opaque tag, but weak.
#[test]
fn a_part_with_the_tag_made_weak() {
    fence(|seen| {
        let weak = Tag::Fixed(format!("W/\"v0-{FILE}\""));
        good(seen).version(1).tag(weak).modified(Modified::None)
    });
}

/// Exercises a file that gives no strong validator, and changes it on the way: in its length
/// nothing shows that, and bytes of both must not meet.
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

// "a weak ETag"
#[test]
fn a_weak_tag_joins_nothing() {
    let weak = Tag::Fixed("W/\"same\"".to_owned());
    never_mixes(|| fresh(FILE).tag(weak.clone()).modified(Modified::None));
}

// "a date only": one as old as a second is no strong validator (RFC 9110 8.8.2.2).
#[test]
fn a_date_of_just_now_joins_nothing() {
    let now = httpdate::fmt_http_date(SystemTime::now());
    never_mixes(|| {
        let dated = fresh(FILE).header("Date", &now);
        dated.tag(Tag::None).modified(Modified::Fixed(now.clone()))
    });
}

// "Without a strong validator an object has exactly one flight"
#[test]
fn without_validators_nothing_is_joined() {
    never_mixes(|| fresh(FILE).tag(Tag::None).modified(Modified::None));
}

// A tag that is not one proves nothing either.
#[test]
fn a_tag_that_is_none_joins_nothing() {
    let bare = Tag::Fixed("same".to_owned());
    never_mixes(|| fresh(FILE).tag(bare.clone()).modified(Modified::None));
}

// An old date is a strong one: blocks are fetched one by one, …
#[test]
fn an_old_date_alone_is_a_validator() {
    always(&fresh(FILE).tag(Tag::None));
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).tag(Tag::None));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        assert_sent_once(&edge, &origin, BLOCK);
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
        // … and those of another date are not joined to them.
        assert!(origin.set_version("/x", 1));
        for (first, last) in WANTS {
            one_version(&ask_range(&edge, first, last), first, last);
        }
        let whole = edge.get("/x", &[]);
        assert_eq!(one_version(&whole, 0, FILE - 1), 1, "{mode}");
    }
}

// "two servers with different ETags": nobody gets a mixture, and it does not go on for ever.
#[test]
fn two_servers_that_disagree() {
    for mode in MODES {
        let (one, other) = (
            serving("/x", fresh(FILE)),
            serving("/x", fresh(FILE).version(1)),
        );
        let edge = filling(&one, mode).also(&other).start();
        for n in 0..20 {
            // Within one block, so that none is cut where the next block is of the other server.
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

/// The whole, which may be cut a few times where the version changes under it.
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

// A server that gives every answer another tag: what it says of one response holds for that alone.
#[test]
fn a_tag_that_is_never_the_same() {
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

// An origin that has nothing to answer ranges with but a plain error still has the whole.
#[test]
fn an_origin_whose_ranges_fail() {
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
