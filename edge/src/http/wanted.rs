//! Evaluates a request's conditions and ranges against a representation.

use std::ops::Range;

use smallvec::SmallVec;

use super::conditional::{self, Decision, EntityTag, Validators};
use super::range::{self, PART_OVERHEAD, Resolved};
use super::{Fields, Method};

/// Ranges of one response, in the order of the request.
pub type Parts = SmallVec<[Range<u64>; 1]>;

/// The response that a request's conditions and ranges select.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// 304 (Not Modified).
    NotModified,
    /// 412 (Precondition Failed).
    PreconditionFailed,
    /// 416 (Range Not Satisfiable), with the complete length of the representation.
    NotSatisfiable(u64),
    /// The head without content, for HEAD.
    HeadOnly,
    /// The complete content.
    All,
    /// 206 (Partial Content) with these ranges, and the complete length of the representation.
    Parts(Parts, u64),
}

/// Evaluates a GET or HEAD request against a response with this status, these validators and, if
/// known, this length. Conditions are evaluated first (RFC 9110 13.2.2), then Range (14.2). Without
/// a known length Range is ignored, which RFC 9110 permits.
pub fn judge<'v>(
    method: &Method,
    fields: &Fields,
    status: super::Status,
    validators: impl FnOnce() -> Validators<'v>,
    length: Option<u64>,
) -> Wanted {
    let mut ignore_range = *method != Method::Get || status != 200;
    if status == 200 && has_condition_or_range(fields) {
        match conditional::evaluate(method, fields, &validators()) {
            Decision::NotModified => return Wanted::NotModified,
            Decision::PreconditionFailed => return Wanted::PreconditionFailed,
            Decision::Proceed {
                ignore_range: ignore,
            } => ignore_range |= ignore,
        }
    }
    if *method != Method::Get {
        return Wanted::HeadOnly;
    }
    ranges(fields, length.filter(|_| !ignore_range))
}

fn ranges(fields: &Fields, length: Option<u64>) -> Wanted {
    let (Some(value), Some(length)) = (only_range(fields), length) else {
        return Wanted::All;
    };
    match range::parse(value).map(|specs| specs.resolve(length, PART_OVERHEAD)) {
        Some(Resolved::Satisfiable(parts)) => Wanted::Parts(parts, length),
        Some(Resolved::NotSatisfiable) => Wanted::NotSatisfiable(length),
        Some(Resolved::Ignore) | None => Wanted::All,
    }
}

/// Adjusts the result of `judge` for a resource that is available in several content codings. All
/// of them share one Last-Modified, so a date in If-Range does not identify the coding of the
/// client's part (RFC 9110 13.1.5, 8.8.2.2), and the complete content is sent.
pub fn for_several_codings(wanted: Wanted, fields: &Fields) -> Wanted {
    let is_part = matches!(wanted, Wanted::Parts(..) | Wanted::NotSatisfiable(_));
    let mut conditions = fields.get_all("if-range");
    match is_part && conditions.any(|value| EntityTag::parse(value).is_none()) {
        true => Wanted::All,
        false => wanted,
    }
}

/// Returns the Range field's value, if the request has exactly one Range line.
pub fn only_range(fields: &Fields) -> Option<&[u8]> {
    let mut lines = fields.get_all("range");
    let value = lines.next()?;
    lines.next().is_none().then_some(value)
}

/// Whether the headers contain a condition (`If-…`) or a Range.
#[inline]
pub fn has_condition_or_range(fields: &Fields) -> bool {
    fields.iter().any(|(name, _)| {
        matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]) || name.eq_ignore_ascii_case(b"range")
    })
}
