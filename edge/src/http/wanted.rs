//! What a request comes to against a representation: conditions first, then ranges.

use std::ops::Range;

use smallvec::SmallVec;

use super::conditional::{self, Decision, EntityTag, Validators};
use super::range::{self, PART_OVERHEAD, Resolved};
use super::{Fields, Method};

/// Ranges of one response, in the order asked for.
pub type Parts = SmallVec<[Range<u64>; 1]>;

/// What a request comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
    /// 416, of a representation of this length.
    NotSatisfiable(u64),
    /// The head alone.
    HeadOnly,
    /// All of the content.
    All,
    /// 206 with these, of a representation of this length.
    Parts(Parts, u64),
}

impl Wanted {
    /// Bytes of content to be sent, of a representation of this length.
    pub fn bytes(&self, length: Option<u64>) -> u64 {
        match self {
            Wanted::Parts(parts, _) => parts.iter().map(|part| part.end - part.start).sum(),
            Wanted::All => length.unwrap_or(0),
            _ => 0,
        }
    }
}

/// What a GET or HEAD with these fields comes to, against a response with this status, these
/// validators and, if known, this length: conditions first (RFC 9110 13.2.2), then Range (14.2).
/// Without a known length Range is ignored, as it may be.
pub fn judge<'v>(
    method: &Method,
    fields: &Fields,
    status: super::Status,
    validators: impl FnOnce() -> Validators<'v>,
    length: Option<u64>,
) -> Wanted {
    let mut ignore_range = *method != Method::Get || status != 200;
    if status == 200 && asks_for_less(fields) {
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

/// The same of a resource that is given in several codings: all of them have one Last-Modified, so a
/// date in If-Range does not tell whether the client's part is of this one (RFC 9110 13.1.5, 8.8.2.2).
pub fn of_several_codings(wanted: Wanted, fields: &Fields) -> Wanted {
    let is_part = matches!(wanted, Wanted::Parts(..) | Wanted::NotSatisfiable(_));
    let mut conditions = fields.get_all("if-range");
    match is_part && conditions.any(|value| EntityTag::parse(value).is_none()) {
        true => Wanted::All,
        false => wanted,
    }
}

/// The Range field, where there is one and no second.
pub fn only_range(fields: &Fields) -> Option<&[u8]> {
    let mut lines = fields.get_all("range");
    let value = lines.next()?;
    lines.next().is_none().then_some(value)
}

/// Whether a condition or a range is among the fields.
#[inline]
pub fn asks_for_less(fields: &Fields) -> bool {
    fields.iter().any(|(name, _)| {
        matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]) || name.eq_ignore_ascii_case(b"range")
    })
}
