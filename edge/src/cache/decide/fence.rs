//! The fence: what a response that a flight brought means for the object it flew for.
//!
//! Bytes of two responses are put together only under the same strong validator and the same
//! complete length (RFC 9110 15.3.7.3, RFC 9111 3.4). That is judged by the response, whatever was
//! asked: origins ignore Range and If-Range, and answer other ranges than those asked for.

use std::ops::Range;

use crate::fill::OPEN;
use crate::handler::{Cause, Response};
use crate::http::conditional::{EntityTag, Validators};
use crate::http::key::KeyHash;
use crate::http::range::ContentRange;
use crate::http::{Fields, Status};
use crate::store::Head;

/// What a flight's response means.
#[derive(Debug, PartialEq)]
pub(in crate::cache) enum Meaning {
    /// The object's first: it opens with this head, and `content` comes.
    Open(Head, Range<u64>),
    /// The object's first, and not to be shared, for this reason.
    Refuse(&'static str),
    /// More of the version that is there.
    Join(Head, Range<u64>),
    /// Of another version, which takes the object's place.
    Supersede(Head, Range<u64>),
    /// The object is not to be used any more: what comes next is fetched anew.
    Retire(&'static str),
    /// The same, and this origin is not to be asked for ranges any more.
    Plain(&'static str),
    /// Nothing is learned; the same may be asked again.
    Fail(Cause),
}

/// What came, as far as its framing tells.
#[derive(Debug, PartialEq)]
pub(in crate::cache) enum Content {
    /// A whole representation, its length if known.
    Whole(Option<u64>),
    /// One range of a representation of known length (206).
    Part(Range<u64>, u64),
    /// 416, with the complete length if the origin says it.
    NotSatisfiable(Option<u64>),
    /// 206 of a kind that nothing can be made of: no Content-Range or a wrong one, several parts,
    /// an unknown complete length, another number of bytes than the range has.
    Unusable,
}

/// What the framing of a response says about its content.
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

/// Judges the response to an object's first fetch. `asked`: the range asked for, `None` for a plain
/// GET. `stored`: what it would be stored as.
pub(in crate::cache) fn first(
    asked: Option<&Range<u64>>,
    content: Content,
    stored: Result<Head, &'static str>,
) -> Meaning {
    match (asked, content) {
        (_, Content::Whole(length)) => match stored {
            Ok(head) => Meaning::Open(head, 0..length.unwrap_or(OPEN)),
            Err(word) => Meaning::Refuse(word),
        },
        // 206 and 416 to a request without Range say nothing that can be relied on.
        (None, _) => Meaning::Refuse("unexpected-status"),
        (Some(asked), Content::Part(range, _)) if range.contains(&asked.start) => match stored {
            Ok(head) => Meaning::Open(head, range),
            Err(word) => Meaning::Refuse(word),
        },
        (Some(_), Content::Part(..)) => Meaning::Plain("another-range"),
        (Some(_), Content::Unusable) => Meaning::Plain("unusable-part"),
        // An empty representation has no satisfiable range at all (RFC 9110 14.1.2).
        (Some(asked), Content::NotSatisfiable(_)) if asked.start == 0 => Meaning::Plain("empty"),
        (Some(_), Content::NotSatisfiable(_)) => Meaning::Refuse("not-satisfiable"),
    }
}

/// Judges the response to a further fetch for an object whose head is `is`.
pub(in crate::cache) fn further(
    asked: &Range<u64>,
    status: Status,
    content: Content,
    stored: Result<Head, &'static str>,
    is: &Head,
) -> Meaning {
    match (content, stored) {
        (Content::Whole(_), _) if status >= 500 || matches!(status, 408 | 429) => {
            Meaning::Fail(Cause::UnexpectedStatus)
        }
        (Content::Unusable, _) => Meaning::Plain("unusable-part"),
        (Content::NotSatisfiable(_), _) => Meaning::Retire("not-satisfiable"),
        (_, Err(word)) => Meaning::Retire(word),
        (Content::Part(range, _), Ok(head)) if !range.contains(&asked.start) => {
            match same_version(is, &head) {
                true => Meaning::Plain("another-range"),
                false => Meaning::Retire("changed"),
            }
        }
        (Content::Part(range, _), Ok(head)) => match same_version(is, &head) {
            true => Meaning::Join(head, range),
            false => Meaning::Supersede(head, range),
        },
        (Content::Whole(length), Ok(head)) => {
            let content = 0..length.unwrap_or(OPEN);
            match status == 200 && same_version(is, &head) {
                true => Meaning::Join(head, content),
                false => Meaning::Supersede(head, content),
            }
        }
    }
}

/// Whether bytes of the two may be put together: the same strong validator, the same length.
fn same_version(a: &Head, b: &Head) -> bool {
    a.generation != 0 && a.generation == b.generation && a.length == b.length
}

/// The id of a version: the same for the same key, strong validator and complete length, and
/// practically never otherwise; 0 where there is no strong validator or no length.
pub(in crate::cache) fn generation(primary: KeyHash, fields: &Fields, length: Option<u64>) -> u64 {
    let validators = Validators::of(fields);
    let (Some(length), true) = (length, validators.is_strong()) else {
        return 0;
    };
    let mut text = Vec::with_capacity(64);
    text.extend_from_slice(&length.to_le_bytes());
    // Some origins compress and keep the tag.
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
