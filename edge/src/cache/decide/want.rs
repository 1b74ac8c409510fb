//! Which bytes a request wants: guessed before the object's head is known, exact afterwards.

use std::ops::Range;

use smallvec::SmallVec;

use crate::fill::OPEN;
use crate::handler::Head as RequestHead;
use crate::http::conditional::{self, Decision, EntityTag, Validators};
use crate::http::range::{self, PART_OVERHEAD, Resolved, Spec};
use crate::http::{Fields, Method};
use crate::store::{Head, Object};

/// Ranges of one response, in the order asked for.
pub(in crate::cache) type Parts = SmallVec<[Range<u64>; 1]>;

/// What a request comes to against a stored head.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cache) enum Wanted {
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
    /// Whether all bytes to be sent are stored.
    pub(in crate::cache) fn is_there(&self, object: &Object) -> bool {
        match self {
            Wanted::Parts(parts, _) => parts.iter().cloned().all(|part| object.has(part)),
            _ => object.has(0..OPEN),
        }
    }

    /// Whether all of them are in memory.
    pub(in crate::cache) fn is_at_hand(&self, object: &Object) -> bool {
        match self {
            Wanted::Parts(parts, _) => parts.iter().cloned().all(|part| object.covers(part)),
            _ => object.covers(0..OPEN),
        }
    }

    /// Whether all bytes to be sent are stored or on their way.
    pub(in crate::cache) fn is_coming(&self, object: &Object) -> bool {
        let missing = object.missing();
        match self {
            Wanted::Parts(parts, _) => !parts.iter().any(|part| missing.intersects(part)),
            Wanted::All => missing.is_empty(),
            _ => true,
        }
    }

    /// Bytes of content to be sent, of an object of this length.
    pub(in crate::cache) fn bytes(&self, length: Option<u64>) -> u64 {
        match self {
            Wanted::Parts(parts, _) => parts.iter().map(|part| part.end - part.start).sum(),
            Wanted::All => length.unwrap_or(0),
            _ => 0,
        }
    }

    /// The first bytes to be sent; `None` where no content is.
    pub(in crate::cache) fn first(&self) -> Option<Range<u64>> {
        match self {
            Wanted::All => Some(0..OPEN),
            Wanted::Parts(parts, _) => parts.first().cloned(),
            _ => None,
        }
    }
}

/// What a request wants, before anything is known of the representation. A suffix can't be placed
/// without the length, so its beginning is asked for, which brings that.
pub(in crate::cache) fn guess(request: &RequestHead) -> Range<u64> {
    let all = 0..OPEN;
    if request.method != Method::Get {
        return all;
    }
    let specs = only_range(&request.fields).and_then(range::parse);
    let wanted = match specs.and_then(|specs| specs.iter().next()) {
        None => return all,
        Some(Spec::Closed { first, last }) => first..last.saturating_add(1),
        Some(Spec::From(first)) => first..OPEN,
        Some(Spec::Suffix(_)) => 0..1,
    };
    // Nothing lies behind the last position there is.
    if wanted.is_empty() { all } else { wanted }
}

/// What a request comes to: conditions first (RFC 9110 13.2.2), then Range (14.2). Without a known
/// length Range is ignored, as it may be.
pub(in crate::cache) fn judge(request: &RequestHead, head: &Head, length: Option<u64>) -> Wanted {
    let mut ignore_range = request.method != Method::Get || head.status != 200;
    if head.status == 200 && asks_for_less(&request.fields) {
        let validators = Validators {
            etag: head.etag.as_deref().and_then(EntityTag::parse),
            last_modified_s: head.last_modified_s,
            date_s: Some(head.date_s),
        };
        match conditional::evaluate(&request.method, &request.fields, &validators) {
            Decision::NotModified => return Wanted::NotModified,
            Decision::PreconditionFailed => return Wanted::PreconditionFailed,
            Decision::Proceed {
                ignore_range: ignore,
            } => ignore_range |= ignore,
        }
    }
    if request.method != Method::Get {
        return Wanted::HeadOnly;
    }
    ranges(request, length.filter(|_| !ignore_range))
}

fn ranges(request: &RequestHead, length: Option<u64>) -> Wanted {
    let (Some(value), Some(length)) = (only_range(&request.fields), length) else {
        return Wanted::All;
    };
    match range::parse(value).map(|specs| specs.resolve(length, PART_OVERHEAD)) {
        Some(Resolved::Satisfiable(parts)) => Wanted::Parts(parts, length),
        Some(Resolved::NotSatisfiable) => Wanted::NotSatisfiable(length),
        Some(Resolved::Ignore) | None => Wanted::All,
    }
}

/// The Range field, where there is one and no second.
fn only_range(fields: &Fields) -> Option<&[u8]> {
    let mut lines = fields.get_all("range");
    let value = lines.next()?;
    lines.next().is_none().then_some(value)
}

/// Whether a condition or a range is among the fields.
#[inline]
pub(in crate::cache) fn asks_for_less(fields: &Fields) -> bool {
    fields.iter().any(|(name, _)| {
        matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]) || name.eq_ignore_ascii_case(b"range")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(range: &str) -> RequestHead {
        let mut head = RequestHead::new();
        if !range.is_empty() {
            head.fields.append("range", range);
        }
        head
    }

    #[test]
    fn a_want_is_guessed_from_the_first_range_alone() {
        assert_eq!(guess(&get("")), 0..OPEN);
        assert_eq!(guess(&get("bytes=5000000-5000009")), 5_000_000..5_000_010);
        assert_eq!(guess(&get("bytes=7-")), 7..OPEN);
        assert_eq!(guess(&get("bytes=-5")), 0..1);
        assert_eq!(guess(&get("bytes=9-9,0-0")), 9..10);
        assert_eq!(guess(&get("pages=1-2")), 0..OPEN);
        let largest = u64::MAX.to_string();
        assert!(!guess(&get(&format!("bytes={largest}-"))).is_empty());
        assert_eq!(guess(&get(&format!("bytes={largest}-{largest}"))), 0..OPEN);
    }
}
