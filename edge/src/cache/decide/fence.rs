//! The fence: decides whether a response may add bytes to the object that it was fetched for.
//!
//! Bytes of two responses are put together only under the same strong validator and the same
//! complete length (RFC 9110 15.3.7.3, RFC 9111 3.4). The decision depends on the response and not
//! on the request: origins ignore Range and If-Range, and send other ranges than those requested.

use std::ops::Range;

use crate::fill::OPEN;
use crate::handler::Response;
use crate::http::conditional::{EntityTag, Validators};
use crate::http::key::KeyHash;
use crate::http::range::ContentRange;
use crate::http::{Fields, Status};
use crate::reason::Reason;
use crate::store::Head;

/// Decision about a response, given the object that it was fetched for.
#[derive(Debug, PartialEq)]
pub(in crate::cache) enum Meaning {
    /// The first response of the object. The object gets this head, and the response contains this
    /// range of the content.
    Open(Head, Range<u64>),
    /// The first response of the object may not be shared, for this reason.
    Refuse(Reason),
    /// The response contains more bytes of the stored version, at this range.
    Join(Head, Range<u64>),
    /// The response contains more bytes of the stored version, at this range, but may not be
    /// stored: the bytes are for the object's current readers only.
    Finish(Range<u64>),
    /// The response is of another version, which replaces the object.
    Supersede(Head, Range<u64>),
    /// The object may not be used any more, so that the next request fetches it again.
    Retire(Reason),
    /// The object may not be used any more, and further fetches of the resource request no ranges.
    Plain(Reason),
    /// The response says nothing about the object, so the fetch has failed and may be repeated.
    Fail(Reason),
}

/// The content of a response, as its status and framing describe it.
#[derive(Debug, PartialEq)]
pub(in crate::cache) enum Content {
    /// A whole representation, with its length if the response declares it.
    Whole(Option<u64>),
    /// One range of a representation of known length (206).
    Part(Range<u64>, u64),
    /// A 416, with the complete length if the origin states it.
    NotSatisfiable(Option<u64>),
    /// A 206 that can't be used: Content-Range is missing or wrong, there are several parts, the
    /// complete length is unknown, or the number of bytes differs from that of the range.
    Unusable,
}

/// Describes the content of a response by its status and framing.
pub(in crate::cache) fn content_of(response: &Response) -> Content {
    let range = single(&response.fields, "content-range").and_then(ContentRange::parse);
    let declared = response.content_length();
    match (response.status, range) {
        (206, Some(ContentRange::Part { range, length })) => match length {
            Some(length) if declared.is_none_or(|bytes| bytes == range.end - range.start) => {
                Content::Part(range, length)
            }
            _ => Content::Unusable,
        },
        (206, _) => Content::Unusable,
        (416, Some(ContentRange::Unsatisfied { length })) => Content::NotSatisfiable(Some(length)),
        (416, _) => Content::NotSatisfiable(None),
        _ => Content::Whole(declared),
    }
}

fn single<'a>(fields: &'a Fields, name: &'static str) -> Option<&'a [u8]> {
    let mut values = fields.get_all(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Judges the response to an object's first fetch. `asked` is the requested range, `None` for a
/// plain GET. `stored` is the head to store, or the reason why the response can't be stored.
pub(in crate::cache) fn first(
    asked: Option<&Range<u64>>,
    status: Status,
    content: Content,
    stored: Result<Head, Reason>,
) -> Meaning {
    match (asked, content) {
        (Some(_), Content::Whole(_)) if refuses_ranges(status) => Meaning::Plain(Reason::NoRanges),
        (_, Content::Whole(length)) => match stored {
            Ok(head) => Meaning::Open(head, 0..length.unwrap_or(OPEN)),
            Err(reason) => Meaning::Refuse(reason),
        },
        // A 206 or 416 to a request without Range can't be relied on.
        (None, _) => Meaning::Refuse(Reason::PartialContent),
        (Some(asked), Content::Part(range, _)) if range.contains(&asked.start) => match stored {
            Ok(head) => Meaning::Open(head, range),
            Err(reason) => Meaning::Refuse(reason),
        },
        (Some(_), Content::Part(..)) => Meaning::Plain(Reason::AnotherRange),
        (Some(_), Content::Unusable) => Meaning::Plain(Reason::UnusablePart),
        // An empty representation has no satisfiable range (RFC 9110 14.1.2).
        (Some(asked), Content::NotSatisfiable(_)) if asked.start == 0 => {
            Meaning::Plain(Reason::EmptyRepresentation)
        }
        (Some(_), Content::NotSatisfiable(_)) => Meaning::Refuse(Reason::NotSatisfiable),
    }
}

/// Statuses by which an origin may refuse the Range rather than the request.
fn refuses_ranges(status: Status) -> bool {
    matches!(status, 400 | 403 | 405 | 406 | 412 | 501)
}

/// The properties of a response to a further fetch, apart from its content.
pub(in crate::cache) struct Further {
    /// The position of the first wanted byte.
    pub(in crate::cache) wanted: u64,
    pub(in crate::cache) status: Status,
    /// Whether a range was requested.
    pub(in crate::cache) ranged: bool,
    /// The version that the response belongs to.
    pub(in crate::cache) generation: u64,
}

/// Judges the response to a further fetch for an object whose head is `is`. `stored` is the head to
/// store, or the reason why the response can't be stored.
pub(in crate::cache) fn further(
    further: &Further,
    content: Content,
    stored: Result<Head, Reason>,
    is: &Head,
) -> Meaning {
    let &Further {
        wanted,
        status,
        ranged,
        generation,
    } = further;
    // A fetch without Range that failed is not repeated, since no simpler request exists.
    let plainly = |reason| match ranged {
        true => Meaning::Plain(reason),
        false => Meaning::Retire(reason),
    };
    match (content, stored) {
        (Content::Whole(_), _) if ranged && refuses_ranges(status) => plainly(Reason::NoRanges),
        (Content::Whole(_), _) if status >= 500 || matches!(status, 408 | 429) => {
            Meaning::Fail(Reason::UnexpectedStatus)
        }
        (Content::Unusable, _) => plainly(Reason::UnusablePart),
        (Content::NotSatisfiable(_), _) => Meaning::Retire(Reason::NotSatisfiable),
        // The response may not be stored, but it is of the same version and not private.
        (Content::Part(range, _), Err(reason))
            if reason.same_version_usable()
                && range.contains(&wanted)
                && generation != 0
                && generation == is.generation =>
        {
            Meaning::Finish(range)
        }
        (_, Err(reason)) => Meaning::Retire(reason),
        (Content::Part(range, _), Ok(head)) => {
            let here = range.contains(&wanted);
            match same_version(is, &head) {
                true if here => Meaning::Join(head, range),
                true => plainly(Reason::AnotherRange),
                // One of the two declared lengths is wrong. A fetch without Range shows which.
                false if same_tag(is, &head) => plainly(Reason::AnotherLength),
                false if here => Meaning::Supersede(head, range),
                false => Meaning::Retire(Reason::Changed),
            }
        }
        (Content::Whole(length), Ok(head)) => {
            let content = 0..length.unwrap_or(OPEN);
            match status == 200 && same_version(is, &head) {
                true => Meaning::Join(head, content),
                false => Meaning::Supersede(head, content),
            }
        }
    }
}

/// Whether bytes of two responses may be put together: both have the same strong validator and
/// length, and select the same variant (RFC 9111 4.1).
fn same_version(a: &Head, b: &Head) -> bool {
    a.generation != 0 && a.generation == b.generation && a.length == b.length && a.vary == b.vary
}

/// Whether both heads carry the same strong entity tag.
fn same_tag(a: &Head, b: &Head) -> bool {
    let (a, b) = (a.etag.as_deref(), b.etag.as_deref());
    match (a.and_then(EntityTag::parse), b.and_then(EntityTag::parse)) {
        (Some(a), Some(b)) => a.strong_eq(&b),
        _ => false,
    }
}

/// Returns the id of a version: a hash of key, strong validator and complete length. The id is 0
/// without a strong validator or a length.
pub(in crate::cache) fn generation(primary: KeyHash, fields: &Fields, length: Option<u64>) -> u64 {
    let validators = Validators::of(fields);
    let (Some(length), true) = (length, validators.is_strong()) else {
        return 0;
    };
    let mut text = Vec::with_capacity(64);
    text.extend_from_slice(&length.to_le_bytes());
    // Some origins compress content without changing its entity tag.
    text.extend_from_slice(fields.get("content-encoding").unwrap_or_default());
    match (validators.etag, validators.strong_date_s()) {
        (Some(EntityTag { opaque, .. }), _) => {
            text.push(b'"');
            text.extend_from_slice(opaque);
        }
        (None, modified_s) => text.extend_from_slice(&modified_s.unwrap_or(0).to_le_bytes()),
    }
    primary.variant(&text).low().max(1)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::handler::Body;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        lines.iter().copied().collect()
    }

    fn response(status: Status, bytes: usize, lines: &[(&str, &str)]) -> Response {
        let mut response = Response::new(status);
        response.fields = fields(lines);
        response.body = Body::Bytes(Bytes::from(vec![0; bytes]));
        response
    }

    fn head(generation: u64, length: u64) -> Head {
        Head {
            status: 200,
            length: Some(length),
            generation,
            joinable: true,
            ..Head::default()
        }
    }

    #[test]
    fn only_a_single_valid_range_of_a_known_length_is_a_part() {
        let of =
            |bytes, value: &str| content_of(&response(206, bytes, &[("content-range", value)]));
        assert_eq!(of(10, "bytes 5-14/100"), Content::Part(5..15, 100));
        for (bytes, value) in [
            (9, "bytes 5-14/100"),
            (10, "bytes 5-14/*"),
            (10, "bytes 5-14/14"),
            (10, "bytes */100"),
            (10, "items 5-14/100"),
            (10, "bytes 14-5/100"),
            (10, ""),
        ] {
            assert_eq!(of(bytes, value), Content::Unusable, "{value}");
        }
        let twice = [
            ("content-range", "bytes 0-9/100"),
            ("content-range", "bytes 0-9/100"),
        ];
        assert_eq!(content_of(&response(206, 10, &twice)), Content::Unusable);
        assert_eq!(content_of(&response(206, 10, &[])), Content::Unusable);
        assert_eq!(content_of(&response(200, 7, &[])), Content::Whole(Some(7)));
        let unsatisfied = response(416, 0, &[("content-range", "bytes */42")]);
        assert_eq!(content_of(&unsatisfied), Content::NotSatisfiable(Some(42)));
        let silent = response(416, 0, &[]);
        assert_eq!(content_of(&silent), Content::NotSatisfiable(None));
    }

    #[test]
    fn a_first_response_opens_the_object_with_its_content() {
        let asked = 5..15;
        let open =
            |asked: Option<&Range<u64>>, content| first(asked, 206, content, Ok(head(1, 100)));
        let part = || Content::Part(5..12, 100);
        assert_eq!(
            open(Some(&asked), part()),
            Meaning::Open(head(1, 100), 5..12)
        );
        let whole = open(Some(&asked), Content::Whole(Some(100)));
        assert_eq!(whole, Meaning::Open(head(1, 100), 0..100));
        assert_eq!(
            open(None, Content::Whole(None)),
            Meaning::Open(head(1, 100), 0..OPEN)
        );
        assert!(matches!(open(None, part()), Meaning::Refuse(_)));
        let elsewhere = open(Some(&asked), Content::Part(6..12, 100));
        assert!(matches!(elsewhere, Meaning::Plain(_)));
        assert!(matches!(
            open(Some(&asked), Content::Unusable),
            Meaning::Plain(_)
        ));
        let beyond = |asked| {
            first(
                Some(&asked),
                416,
                Content::NotSatisfiable(None),
                Err(Reason::StatusNotStorable),
            )
        };
        assert!(matches!(beyond(5..15), Meaning::Refuse(_)));
        assert!(matches!(beyond(0..15), Meaning::Plain(_)));
    }

    #[test]
    fn a_further_response_joins_only_under_the_same_validator_and_length() {
        let is = head(7, 100);
        let by = |status, generation| Further {
            wanted: 5,
            status,
            ranged: true,
            generation,
        };
        let judged =
            |content, head: Head| further(&by(206, head.generation), content, Ok(head), &is);
        let part = || Content::Part(5..15, 100);
        assert!(matches!(judged(part(), head(7, 100)), Meaning::Join(..)));
        assert!(matches!(
            judged(part(), head(8, 100)),
            Meaning::Supersede(..)
        ));
        assert!(matches!(
            judged(part(), head(0, 100)),
            Meaning::Supersede(..)
        ));
        let longer = judged(Content::Part(5..15, 101), head(9, 101));
        assert!(matches!(longer, Meaning::Supersede(..)));
        let elsewhere = judged(Content::Part(0..5, 100), head(7, 100));
        assert!(matches!(elsewhere, Meaning::Plain(_)));
        let answered = |status, content, stored| further(&by(status, 7), content, stored, &is);
        let whole = || Content::Whole(Some(100));
        assert!(matches!(
            answered(200, whole(), Ok(head(7, 100))),
            Meaning::Join(..)
        ));
        assert!(matches!(
            answered(200, whole(), Ok(head(8, 100))),
            Meaning::Supersede(..)
        ));
        assert!(matches!(
            answered(206, part(), Err(Reason::NoStore)),
            Meaning::Retire(Reason::NoStore)
        ));
        assert!(matches!(
            answered(503, whole(), Err(Reason::StatusNotStorable)),
            Meaning::Fail(_)
        ));
        assert!(matches!(
            answered(404, whole(), Err(Reason::NoLifetime)),
            Meaning::Retire(_)
        ));
        let gone = answered(
            416,
            Content::NotSatisfiable(Some(3)),
            Err(Reason::StatusNotStorable),
        );
        assert!(matches!(gone, Meaning::Retire(_)));
    }

    #[test]
    fn a_fetch_without_range_that_is_refused_is_not_repeated() {
        let is = head(7, 100);
        let by = |ranged, status| Further {
            wanted: 5,
            status,
            ranged,
            generation: 7,
        };
        let forbidden = |ranged| {
            let whole = Content::Whole(Some(9));
            further(&by(ranged, 403), whole, Err(Reason::NoLifetime), &is)
        };
        assert!(matches!(forbidden(true), Meaning::Plain(_)));
        assert!(matches!(forbidden(false), Meaning::Retire(_)));
        let unusable = further(
            &by(false, 206),
            Content::Unusable,
            Err(Reason::PartialContent),
            &is,
        );
        assert!(matches!(unusable, Meaning::Retire(_)));
    }

    #[test]
    fn an_expired_response_of_the_same_version_is_for_current_readers() {
        let is = head(7, 100);
        let expired = |generation| {
            let by = Further {
                wanted: 5,
                status: 206,
                ranged: true,
                generation,
            };
            further(&by, Content::Part(5..15, 100), Err(Reason::Expired), &is)
        };
        assert_eq!(expired(7), Meaning::Finish(5..15));
        assert!(matches!(expired(8), Meaning::Retire(_)));
        assert!(matches!(expired(0), Meaning::Retire(_)));
    }

    #[test]
    fn weak_validators_have_no_generation() {
        const EARLY: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
        const LATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        let of = |lines: &[(&str, &str)], length| generation(KeyHash(1), &fields(lines), length);
        let strong = of(&[("etag", "\"a\"")], Some(5));
        assert_ne!(strong, 0);
        assert_eq!(strong, of(&[("etag", "\"a\"")], Some(5)));
        for other in [
            of(&[("etag", "\"b\"")], Some(5)),
            of(&[("etag", "\"a\"")], Some(6)),
            of(&[("etag", "\"a\""), ("content-encoding", "gzip")], Some(5)),
            generation(KeyHash(2), &fields(&[("etag", "\"a\"")]), Some(5)),
        ] {
            assert!(other != 0 && other != strong);
        }
        assert_ne!(of(&[("last-modified", EARLY), ("date", LATE)], Some(5)), 0);
        for weak in [
            of(&[("etag", "W/\"a\"")], Some(5)),
            of(&[("last-modified", LATE), ("date", LATE)], Some(5)),
            of(&[("last-modified", EARLY)], Some(5)),
            of(&[("etag", "\"a\"")], None),
            of(&[], Some(5)),
        ] {
            assert_eq!(weak, 0);
        }
    }

    proptest! {
        #[test]
        fn bytes_are_never_joined_across_versions(
            a in 0..4u64, b in 0..4u64, lengths in (90..110u64, 90..110u64),
            status in prop::sample::select(vec![200u16, 206]), start in 0..20u64,
        ) {
            let content = match status {
                206 => Content::Part(start..start + 10, lengths.1),
                _ => Content::Whole(Some(lengths.1)),
            };
            let is = head(a, lengths.0);
            let by = Further {
                wanted: 5,
                status,
                ranged: true,
                generation: b,
            };
            let meaning = further(&by, content, Ok(head(b, lengths.1)), &is);
            if matches!(meaning, Meaning::Join(..)) {
                prop_assert!(a != 0 && a == b && lengths.0 == lengths.1);
            }
        }
    }
}
