//! The bytes of an object that a request wants: a guess before the head is known, exact afterwards.

use std::ops::Range;

use crate::fill::OPEN;
use crate::handler::Head as RequestHead;
use crate::http::Method;
use crate::http::conditional::{EntityTag, Validators};
use crate::http::range::{self, Resolved, Spec};
use crate::http::wanted::{self, Wanted, only_range};
use crate::store::{Head, Object};

/// Checks whether an object has the bytes that a request wants.
pub(in crate::cache) trait WantedOf {
    /// Whether all wanted bytes are stored, in memory or on a volume.
    fn is_stored_in(&self, object: &Object) -> bool;
    /// Whether all wanted bytes are in memory.
    fn is_in_memory(&self, object: &Object) -> bool;
    /// Whether all wanted bytes are stored or being fetched.
    fn is_arriving(&self, object: &Object) -> bool;
    /// Whether the first wanted byte is in memory.
    fn begins_in_memory(&self, object: &Object) -> bool;
    /// The first range to be sent, `None` if the response has no content.
    fn first(&self) -> Option<Range<u64>>;
}

impl WantedOf for Wanted {
    fn is_stored_in(&self, object: &Object) -> bool {
        match self {
            Wanted::Parts(parts, _) => parts.iter().cloned().all(|part| object.has(part)),
            _ => object.has(0..OPEN),
        }
    }

    fn is_in_memory(&self, object: &Object) -> bool {
        match self {
            Wanted::Parts(parts, _) => parts.iter().cloned().all(|part| object.covers(part)),
            _ => object.covers(0..OPEN),
        }
    }

    fn is_arriving(&self, object: &Object) -> bool {
        let missing = object.missing();
        match self {
            Wanted::Parts(parts, _) => !parts.iter().any(|part| missing.intersects(part)),
            Wanted::All => missing.is_empty(),
            _ => true,
        }
    }

    fn begins_in_memory(&self, object: &Object) -> bool {
        let first = self.first();
        first.is_some_and(|first| object.covers(first.start..first.start.saturating_add(1)))
    }

    fn first(&self) -> Option<Range<u64>> {
        match self {
            Wanted::All => Some(0..OPEN),
            Wanted::Parts(parts, _) => parts.first().cloned(),
            _ => None,
        }
    }
}

/// Guesses the bytes that a request wants before the representation is known. The position of a
/// suffix range depends on the length. For such a range the first byte is fetched, since the
/// response to that states the length.
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
    // The range is empty if it begins at the largest position that a number can hold.
    if wanted.is_empty() { all } else { wanted }
}

/// Whether the 416 for the first range of a request is also the response to the request, which has no
/// conditions. `length` is the length of the content, if the 416 states it.
pub(in crate::cache) fn is_beyond_end(request: &RequestHead, length: Option<u64>) -> bool {
    let conditional = |name: &[u8]| name.len() > 3 && name[..3].eq_ignore_ascii_case(b"if-");
    let beyond = only_range(&request.fields).and_then(range::parse);
    let beyond = beyond.is_some_and(|specs| match (specs.iter().len(), specs.iter().next()) {
        // The fetch began at the first byte of this range, or before it. If no content follows there,
        // the range can't be satisfied either (RFC 9110 14.1.2).
        (1, Some(Spec::Closed { .. } | Spec::From(_))) => true,
        _ => length.is_some_and(|length| specs.resolve(length, 0) == Resolved::NotSatisfiable),
    });
    beyond
        && request.method == Method::Get
        && !request.fields.iter().any(|(name, _)| conditional(name))
}

/// Applies a request's conditions and ranges to a stored response.
pub(in crate::cache) fn judge(request: &RequestHead, head: &Head, length: Option<u64>) -> Wanted {
    judge_as(request, head, head.etag.as_deref(), length)
}

/// Applies a request's conditions and ranges to the encoded content of a stored response, which has
/// an entity tag and a length of its own.
pub(in crate::cache) fn judge_as(
    request: &RequestHead,
    head: &Head,
    etag: Option<&[u8]>,
    length: Option<u64>,
) -> Wanted {
    let validators = || Validators {
        etag: etag.and_then(EntityTag::parse),
        last_modified_s: head.last_modified_s,
        undated: match head.last_modified_s {
            None => head.fields.get("last-modified"),
            Some(_) => None,
        },
        date_s: Some(head.date_s),
    };
    wanted::judge(
        &request.method,
        &request.fields,
        head.status,
        validators,
        length,
    )
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
    fn the_wanted_bytes_are_guessed_from_the_first_range() {
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
