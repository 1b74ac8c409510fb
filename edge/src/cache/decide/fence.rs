//! The fence: decides whether a response may add bytes to the object that it was fetched for.
//!
//! Bytes of two responses are put together only under the same strong validator and the same
//! complete length (RFC 9110 15.3.7.3, RFC 9111 3.4). The decision depends on the response and not
//! on the request: origins ignore Range and If-Range, and send other ranges than those requested.

use std::ops::Range;

use super::shared_request::Carries;
use super::storing::Content;
use crate::fill::OPEN;
use crate::http::Status;
use crate::http::conditional::EntityTag;
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

impl Meaning {
    /// The reason why the response may not be stored, or not be used for the object.
    pub(in crate::cache) fn reason(&self) -> Option<Reason> {
        match self {
            Meaning::Refuse(reason)
            | Meaning::Retire(reason)
            | Meaning::Plain(reason)
            | Meaning::Fail(reason) => Some(*reason),
            Meaning::Open(..) | Meaning::Join(..) | Meaning::Finish(_) | Meaning::Supersede(..) => {
                None
            }
        }
    }
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
    let without_range = |reason| match ranged {
        true => Meaning::Plain(reason),
        false => Meaning::Retire(reason),
    };
    match (content, stored) {
        (Content::Whole(_), _) if ranged && refuses_ranges(status) => {
            without_range(Reason::NoRanges)
        }
        (Content::Whole(_), _) if status >= 500 || matches!(status, 408 | 429) => {
            Meaning::Fail(Reason::UnexpectedStatus)
        }
        (Content::Unusable, _) => without_range(Reason::UnusablePart),
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
                true => without_range(Reason::AnotherRange),
                // One of the two declared lengths is wrong. A fetch without Range shows which.
                false if same_tag(is, &head) => without_range(Reason::AnotherLength),
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

/// The circumstances under which a response was fetched, as far as they say whom it is about.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Source {
    pub(in crate::cache) carries: Carries,
    /// Whether a response is stored that other clients can use or are receiving.
    pub(in crate::cache) stored: bool,
}

/// Whether a response may be about the client of the fetch, and not about the resource. Then it
/// must change nothing for other clients: neither what is stored, nor what is known of the resource.
///
/// A fetch that carried something of a client changes nothing that is stored, except that it adds
/// bytes of the same version. Nothing but content is learned from such a fetch: an origin or a
/// firewall refuses a request for its credentials, its forwarded headers, or a value of Accept (400,
/// 403, 404, 406, 431, 501, …), or answers it with a page of its own (200 with `no-store`).
pub(in crate::cache) fn is_about_client(source: Source, status: Status, meaning: &Meaning) -> bool {
    let Source { carries, stored } = source;
    // A response without content never replaces stored content for others.
    let has_content =
        |head: &Head| head.status < 400 && !(stored && matches!(head.status, 204 | 205));
    let (is_stored, is_content) = match meaning {
        // The validator shows that the bytes are of the stored version.
        Meaning::Join(..) | Meaning::Finish(_) => return false,
        // A validation carries nothing of a client but credentials, and then the response permits
        // sharing (RFC 9111 3.5), or headers that the origin needs.
        Meaning::Open(head, _) => (true, has_content(head)),
        Meaning::Supersede(head, _) => (true, has_content(head) && carries != Carries::Client),
        Meaning::Refuse(_) | Meaning::Retire(_) | Meaning::Plain(_) | Meaning::Fail(_) => {
            (false, false)
        }
    };
    let missing = matches!(status, 404 | 410);
    match carries {
        _ if is_content => false,
        // The loop is in the way of this request (RFC 8586), and may be made up by its client.
        _ if status == 508 => true,
        // Requests with credentials may still get what is stored (RFC 9110 15.5.2).
        Carries::Nothing => stored && status == 401,
        // The origin may need the header that was left out. A fetch without Range comes first.
        Carries::Incomplete if !stored && matches!(meaning, Meaning::Plain(_)) => false,
        Carries::Incomplete => is_refusal(status) || (is_stored && !missing),
        // A full store, or a range beyond the end, says nothing to remember.
        Carries::Choices => {
            stored || !matches!(meaning, Meaning::Refuse(reason) if !reason.remembered())
        }
        Carries::Client => true,
    }
}

/// Whether a response with this status may refuse a request for its client or its headers. Other
/// statuses describe the resource or the origin.
pub(in crate::cache) fn is_refusal(status: Status) -> bool {
    matches!(status, 400..=403 | 405..=409 | 411..=415 | 417..=499 | 501)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::storing::{content_of, version};
    use super::*;
    use crate::handler::{Body, Response};
    use crate::http::Fields;
    use crate::http::key::KeyHash;

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
    fn a_refusal_is_about_the_resource_only_if_nothing_of_a_client_was_sent() {
        let about = |carries, stored, status, meaning: &Meaning| {
            let source = Source { carries, stored };
            is_about_client(source, status, meaning)
        };
        let refuse = Meaning::Refuse(Reason::NoStore);
        let beyond = Meaning::Refuse(Reason::NotSatisfiable);
        let newer = Meaning::Supersede(head(1, 10), 0..10);
        let error = Meaning::Open(
            Head {
                status: 403,
                ..Head::default()
            },
            0..1,
        );
        let missing = Meaning::Open(
            Head {
                status: 404,
                ..Head::default()
            },
            0..1,
        );
        let other = Meaning::Open(head(1, 10), 0..10);
        for (carries, stored, status, meaning, expected) in [
            (Carries::Nothing, true, 403, &refuse, false),
            (Carries::Nothing, true, 401, &refuse, true),
            (Carries::Nothing, false, 401, &refuse, false),
            (Carries::Nothing, false, 403, &error, false),
            (Carries::Choices, false, 403, &refuse, true),
            (Carries::Choices, false, 403, &error, true),
            (Carries::Choices, false, 200, &refuse, true),
            (Carries::Choices, true, 200, &refuse, true),
            (Carries::Choices, false, 404, &refuse, true),
            (Carries::Choices, true, 404, &refuse, true),
            (Carries::Incomplete, true, 404, &refuse, false),
            (Carries::Incomplete, false, 404, &missing, false),
            (Carries::Incomplete, false, 403, &refuse, true),
            (Carries::Incomplete, false, 403, &error, true),
            (Carries::Incomplete, true, 403, &refuse, true),
            (Carries::Incomplete, true, 200, &refuse, false),
            (Carries::Choices, false, 416, &beyond, false),
            (Carries::Choices, true, 416, &beyond, true),
            (Carries::Incomplete, true, 416, &refuse, false),
            (Carries::Client, false, 200, &refuse, true),
            (Carries::Client, false, 404, &error, true),
            (Carries::Client, true, 404, &error, true),
            (Carries::Client, false, 200, &other, false),
            (Carries::Client, true, 200, &other, false),
            (Carries::Nothing, true, 508, &refuse, true),
            (Carries::Nothing, true, 200, &newer, false),
            (Carries::Incomplete, true, 200, &newer, false),
            (Carries::Client, true, 200, &newer, true),
        ] {
            let is = about(carries, stored, status, meaning);
            assert_eq!(is, expected, "{carries:?} {stored} {status}");
        }
        let content = Meaning::Join(head(1, 10), 0..10);
        assert!(!about(Carries::Client, true, 206, &content));
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
        let of = |lines: &[(&str, &str)], length| version(KeyHash(1), &fields(lines), length);
        let strong = of(&[("etag", "\"a\"")], Some(5));
        assert_ne!(strong, 0);
        assert_eq!(strong, of(&[("etag", "\"a\"")], Some(5)));
        for other in [
            of(&[("etag", "\"b\"")], Some(5)),
            of(&[("etag", "\"a\"")], Some(6)),
            of(&[("etag", "\"a\""), ("content-encoding", "gzip")], Some(5)),
            version(KeyHash(2), &fields(&[("etag", "\"a\"")]), Some(5)),
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
