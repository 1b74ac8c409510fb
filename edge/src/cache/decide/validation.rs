//! Validating a stored response (RFC 9111 4.3): what the origin is asked, and what its answer means.

use crate::handler::Response;
use crate::http::conditional::EntityTag;
use crate::http::fields::lines_of;
use crate::http::{Fields, date};
use crate::store::Head;

use super::reuse::is_failure;

/// What an answer means for the stored response that was to be validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum Outcome {
    /// 304: it is what the origin has.
    Confirmed,
    /// The origin fails, and the stored response may be given all the same.
    Failure,
    /// Nothing can be made of it: what is stored is dropped, and all of it asked for.
    Again,
    /// It is a response by itself.
    Other,
}

/// The conditions under which the origin is to send the content again (RFC 9111 4.3.1): the
/// validators as they came.
pub(in crate::cache) fn conditions(head: &Head, out: &mut Fields) {
    if let Some(etag) = tag(head) {
        out.append("if-none-match", etag);
    }
    if let Some(modified) = modified(head) {
        out.append("if-modified-since", modified);
    }
}

/// Whether there is anything to ask by.
fn has_conditions(head: &Head) -> bool {
    tag(head).is_some() || modified(head).is_some()
}

fn tag(head: &Head) -> Option<&[u8]> {
    let tag = head.etag.as_deref()?;
    EntityTag::parse(tag).is_some().then_some(tag)
}

fn modified(head: &Head) -> Option<&[u8]> {
    let mut lines = lines_of(&head.fields);
    let (_, value) = lines.find(|(name, _)| name.eq_ignore_ascii_case(b"last-modified"))?;
    date::parse(value).is_some().then_some(value)
}

/// Judges the answer. `stands_in`: whether the stored response may be given where the origin fails.
///
/// A 304 confirms what was asked about, whatever entity tag it carries itself; that is not taken
/// over.
pub(in crate::cache) fn outcome(head: &Head, response: &Response, stands_in: bool) -> Outcome {
    match response.status {
        304 if has_conditions(head) => Outcome::Confirmed,
        304 => Outcome::Again,
        status if stands_in && is_failure(status) => Outcome::Failure,
        _ => Outcome::Other,
    }
}
