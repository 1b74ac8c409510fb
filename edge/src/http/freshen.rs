//! Updates a stored response with the headers of a 304 (RFC 9111 3.2, 4.3.4).

use super::{FieldBlock, Fields, hop};

/// Largest size of an updated head in bytes. Without this limit, a head could grow with each 304.
pub const BYTES_MAX: usize = 256 << 10;

/// Headers of a 304 that do not update the stored response: those that describe the stored content
/// (RFC 9111 3.2), the ETag under which it is stored, and those that concern one message only.
const NOT_UPDATED: &[&str] = &[
    "content-encoding",
    "content-length",
    "content-md5",
    "content-range",
    "etag",
    "trailer",
];

/// Returns the headers of a stored response, updated by a 304: all lines of each name in the 304
/// are replaced, the others are kept.
///
/// Date and Age are taken from the 304. If the 304 has none, they are removed, because the stored
/// values describe the earlier response. The result can therefore be judged like a response that
/// has just arrived. Callers must not store Age. If the result would be larger than `BYTES_MAX`,
/// only Date and Age are updated.
pub fn freshen(stored: &FieldBlock, update: &Fields) -> Fields {
    let hop_by_hop = hop::HopByHop::of(update);
    let taken = |name: &[u8]| !hop::is_in(NOT_UPDATED, name) && !hop_by_hop.covers(name);
    let size = |(name, value): (&[u8], &[u8])| name.len() + value.len() + 4;
    let is_new = |name: &[u8]| update.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let replaced = |name: &[u8]| ends_with_message(name) || taken(name) && is_new(name);
    let kept_lines = || stored.iter().filter(|(name, _)| !replaced(name));
    let new_lines = || update.iter().filter(|(name, _)| taken(name));
    let bytes: usize = kept_lines().chain(new_lines()).map(size).sum();
    let mut fields = Fields::with_capacity(stored.text().len(), stored.len());
    if bytes > BYTES_MAX {
        for (name, value) in stored.iter().filter(|(name, _)| !ends_with_message(name)) {
            fields.append_bytes(name, value);
        }
        for (name, value) in update.iter().filter(|(name, _)| ends_with_message(name)) {
            fields.append_bytes(name, value);
        }
        return fields;
    }
    for (name, value) in kept_lines().chain(new_lines()) {
        fields.append_bytes(name, value);
    }
    fields
}

/// Whether a header (Date or Age) describes one message only, so that a stored value never applies
/// to a later 304.
fn ends_with_message(name: &[u8]) -> bool {
    hop::is_in(&["age", "date"], name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        lines.iter().copied().collect()
    }

    #[test]
    fn a_304_replaces_its_headers_except_those_of_the_content() {
        let stored = fields(&[
            ("Date", "1"),
            ("Age", "1"),
            ("ETag", "\"a\""),
            ("X-Kept", "1"),
            ("Content-Type", "1"),
            ("Set-Cookie", "a=1"),
            ("set-cookie", "b=1"),
            ("Content-Length", "5"),
            ("Cache-Control", "max-age=1"),
            ("X-Named", "1"),
        ]);
        let update = fields(&[
            ("cache-control", "max-age=2"),
            ("etag", "\"b\""),
            ("content-length", "0"),
            ("Content-Encoding", "gzip"),
            ("Content-MD5", "x"),
            ("Content-Range", "x"),
            ("Content-Location", "/x"),
            ("SET-COOKIE", "c=2"),
            ("content-type", "2"),
            ("Connection", "x-named, close"),
            ("X-Named", "2"),
            ("Keep-Alive", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Trailer", "x"),
            ("Date", "2"),
            ("Age", "2"),
            ("X-New", "1"),
            ("X-New", "2"),
        ]);
        let expected = "ETag: \"a\"\r\nX-Kept: 1\r\nContent-Length: 5\r\nX-Named: 1\r\n\
            cache-control: max-age=2\r\nContent-Location: /x\r\nSET-COOKIE: c=2\r\n\
            content-type: 2\r\nDate: 2\r\nAge: 2\r\nX-New: 1\r\nX-New: 2\r\n";
        let fresh = freshen(&(&stored).into(), &update);
        assert_eq!(String::from_utf8_lossy(fresh.text()), expected);
        let fresh = freshen(&(&stored).into(), &Fields::new());
        assert!(!fresh.contains("date") && !fresh.contains("age") && fresh.len() == 8);
    }

    #[test]
    fn heads_do_not_grow_without_bound() {
        let large = "x".repeat(BYTES_MAX - 100);
        let stored = fields(&[("a", &large), ("date", "1"), ("age", "1")]);
        let by = |update: &[(&str, &str)]| freshen(&(&stored).into(), &fields(update));
        assert_eq!(by(&[("b", "1")]), fields(&[("a", &large), ("b", "1")]));
        assert_eq!(by(&[("A", &large)]), fields(&[("A", &large)]));
        let update = [("b", &*large), ("a", "2"), ("Date", "2")];
        assert_eq!(
            by(&update),
            fields(&[("b", &large), ("a", "2"), ("Date", "2")])
        );
        let update = [("b", &*large), ("Date", "2"), ("Age", "2")];
        let expected = [("a", &*large), ("Date", "2"), ("Age", "2")];
        assert_eq!(by(&update), fields(&expected));
    }

    proptest! {
        #[test]
        fn applying_the_same_304_twice_changes_nothing_more(
            stored in prop::collection::vec(("[ab]|etag|date|age", "[a-c]{0,2}"), 0..6),
            update in prop::collection::vec(("[ab]|etag|date|connection", "[a-c]{0,2}"), 0..6),
        ) {
            let make = |lines: &[(String, String)]| {
                let mut fields = Fields::new();
                lines.iter().for_each(|(name, value)| fields.append(name, value));
                fields
            };
            let update = make(&update);
            let once = freshen(&(&make(&stored)).into(), &update);
            let twice = freshen(&(&once).into(), &update);
            prop_assert_eq!(once, twice);
        }
    }
}
