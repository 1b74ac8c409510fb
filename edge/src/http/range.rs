//! Range requests: Range, Content-Range and the parts of multipart/byteranges (RFC 9110 14).

use std::ops::Range;

use smallvec::SmallVec;

/// Largest number of range-specs in a Range field. A field with more is ignored (RFC 9110 14.2,
/// 17.15).
pub const SPECS_MAX: usize = 64;

/// Largest number of range-specs that overlap an earlier one. A field with more is ignored. RFC
/// 9110 14.2 calls more than two overlaps a sign of a broken client or an attack; this limit is
/// more lenient.
pub const OVERLAPS_MAX: usize = 8;

/// One range-spec (RFC 9110 14.1.2). Numbers beyond `u64` are parsed as `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spec {
    /// `first-last`, both included, `first <= last`.
    Closed {
        /// Position of the first byte.
        first: u64,
        /// Position of the last byte.
        last: u64,
    },
    /// `first-`: to the end.
    From(u64),
    /// `-n`: the last n bytes.
    Suffix(u64),
}

/// The range-specs of a Range field in the order of the field: at least one, at most `SPECS_MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specs(SmallVec<[Spec; 1]>);

/// The result of applying range-specs to a representation of known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Respond with 206 and these ranges: none is empty, all are inside the representation, they
    /// are disjoint and in the order of the request.
    Satisfiable(SmallVec<[Range<u64>; 1]>),
    /// Respond with 416 (RFC 9110 15.5.17).
    NotSatisfiable,
    /// Respond with 200 and the complete content, as if there were no Range.
    Ignore,
}

/// Parses a Range field's value. Returns `None` if the field must be ignored: another unit than
/// bytes, malformed syntax, a first position after the last, or too many specs (RFC 9110 14.2).
pub fn parse(value: &[u8]) -> Option<Specs> {
    let equals = memchr::memchr(b'=', value)?;
    if !value[..equals].eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = SmallVec::new();
    for member in value[equals + 1..].split(|&b| b == b',') {
        let member = member.trim_ascii();
        if member.is_empty() {
            continue; // Lists may have empty members (RFC 9110 5.6.1.2).
        }
        if specs.len() == SPECS_MAX {
            return None;
        }
        specs.push(parse_spec(member)?);
    }
    (!specs.is_empty()).then_some(Specs(specs))
}

fn parse_spec(member: &[u8]) -> Option<Spec> {
    let dash = memchr::memchr(b'-', member)?;
    let (first, last) = (&member[..dash], &member[dash + 1..]);
    match (first.is_empty(), last.is_empty()) {
        (true, _) => Some(Spec::Suffix(saturating_number(last)?)),
        (false, true) => Some(Spec::From(saturating_number(first)?)),
        (false, false) => {
            let (first, last) = (saturating_number(first)?, saturating_number(last)?);
            (first <= last).then_some(Spec::Closed { first, last })
        }
    }
}

/// Parses 1*DIGIT; a number beyond `u64` becomes `u64::MAX`.
fn saturating_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0u64, |number, &digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

/// Parses 1*DIGIT; `None` for a number beyond `u64`.
fn exact_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Spec {
    /// Returns the bytes that this spec selects from a representation of `length` bytes; `None` if
    /// it is unsatisfiable.
    fn resolve(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            Spec::Closed { first, last } => first..last.saturating_add(1).min(length),
            Spec::From(first) => first..length,
            Spec::Suffix(count) => length.saturating_sub(count)..length,
        };
        (!range.is_empty()).then_some(range)
    }
}

impl Specs {
    /// Returns the specs, in the order of the field.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Spec> + '_ {
        self.0.iter().copied()
    }

    /// Applies the specs to a representation of `length` bytes. Ranges that overlap, or are less
    /// than `gap` bytes apart, are joined into one at the position of the earlier one (RFC 9110
    /// 15.3.7.2). A gap of 0 joins ranges that overlap or touch. `PART_OVERHEAD` is a useful gap.
    pub fn resolve(&self, length: u64, gap: u64) -> Resolved {
        // A suffix of an empty representation selects all of it (RFC 9110 14.1.2). No Content-Range
        // can express that, so the response is a 200.
        if length == 0 && self.iter().any(|s| matches!(s, Spec::Suffix(n) if n > 0)) {
            return Resolved::Ignore;
        }
        let mut parts: SmallVec<[Range<u64>; 1]> = SmallVec::new();
        let mut overlaps = 0;
        for range in self.iter().filter_map(|spec| spec.resolve(length)) {
            if parts
                .iter()
                .any(|p| p.start < range.end && range.start < p.end)
            {
                overlaps += 1;
            }
            join(&mut parts, range, gap);
        }
        match parts.len() {
            _ if overlaps > OVERLAPS_MAX => Resolved::Ignore,
            0 => Resolved::NotSatisfiable,
            _ => Resolved::Satisfiable(parts),
        }
    }
}

/// Adds a range to the disjoint `parts`. Parts that overlap the range, or are less than `gap` bytes
/// away from it, are joined with it into one part.
fn join(parts: &mut SmallVec<[Range<u64>; 1]>, range: Range<u64>, gap: u64) {
    let near = |a: &Range<u64>, b: &Range<u64>| {
        let apart = a.start.max(b.start).saturating_sub(a.end.min(b.end));
        apart == 0 || apart < gap
    };
    let Some(first) = parts.iter().position(|p| near(p, &range)) else {
        parts.push(range);
        return;
    };
    let mut joined = range;
    while let Some(at) = parts.iter().position(|p| near(p, &joined)) {
        let part = parts.remove(at);
        joined = joined.start.min(part.start)..joined.end.max(part.end);
    }
    parts.insert(first.min(parts.len()), joined);
}

/// A Content-Range field (RFC 9110 14.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/length`, or `/*`.
    Part {
        /// The bytes of the part, never empty.
        range: Range<u64>,
        /// The complete length, if known; greater than the last position.
        length: Option<u64>,
    },
    /// `bytes */length`, with 416.
    Unsatisfied {
        /// The complete length.
        length: u64,
    },
}

impl ContentRange {
    /// Parses the field's value. Returns `None` for another unit and for any malformed value, so
    /// that bytes are only stored at positions that the origin clearly stated.
    pub fn parse(value: &[u8]) -> Option<ContentRange> {
        let space = memchr::memchr(b' ', value)?;
        if !value[..space].eq_ignore_ascii_case(b"bytes") {
            return None;
        }
        let rest = value[space + 1..].trim_ascii();
        let slash = memchr::memchr(b'/', rest)?;
        let (range, length) = (&rest[..slash], &rest[slash + 1..]);
        if range == b"*" {
            let length = exact_number(length)?;
            return Some(ContentRange::Unsatisfied { length });
        }
        let length = match length {
            b"*" => None,
            digits => Some(exact_number(digits)?),
        };
        let dash = memchr::memchr(b'-', range)?;
        let first = exact_number(&range[..dash])?;
        let end = exact_number(&range[dash + 1..])?.checked_add(1)?;
        let valid = first < end && length.is_none_or(|length| end <= length);
        valid.then_some(ContentRange::Part {
            range: first..end,
            length,
        })
    }

    /// Appends the field's value.
    pub fn render(&self, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"bytes ");
        let length = match self {
            ContentRange::Part { range, length } => {
                out.extend_from_slice(number.format(range.start).as_bytes());
                out.push(b'-');
                let last = range.end.saturating_sub(1);
                out.extend_from_slice(number.format(last).as_bytes());
                *length
            }
            ContentRange::Unsatisfied { length } => {
                out.push(b'*');
                Some(*length)
            }
        };
        out.push(b'/');
        match length {
            Some(length) => out.extend_from_slice(number.format(length).as_bytes()),
            None => out.push(b'*'),
        }
    }
}

/// Approximate bytes that one more part adds to a multipart/byteranges response. Ranges that are
/// closer than this are cheaper to send as one (RFC 9110 15.3.7.2 mentions 80 bytes).
pub const PART_OVERHEAD: u64 = 80;

/// The framing of the parts of one multipart/byteranges response (RFC 9110 14.6, RFC 2046 5.1.1).
#[derive(Clone, Copy, Debug)]
pub struct Multipart<'a> {
    /// The boundary: 1 to 70 letters and digits that can't occur in the content.
    pub boundary: &'a str,
    /// Content-Type of the representation, repeated in each part.
    pub content_type: Option<&'a [u8]>,
    /// Complete length of the representation.
    pub length: u64,
}

impl Multipart<'_> {
    /// Returns the Content-Type of the multipart response.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    /// Appends the delimiter and headers before a part's bytes. The first part has no line end
    /// before its delimiter.
    pub fn render_head(&self, out: &mut Vec<u8>, first: bool, range: &Range<u64>) {
        out.extend_from_slice(if first { b"--" } else { b"\r\n--" });
        out.extend_from_slice(self.boundary.as_bytes());
        if let Some(content_type) = self.content_type {
            out.extend_from_slice(b"\r\nContent-Type: ");
            out.extend_from_slice(content_type);
        }
        out.extend_from_slice(b"\r\nContent-Range: ");
        let content_range = ContentRange::Part {
            range: range.clone(),
            length: Some(self.length),
        };
        content_range.render(out);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends the closing delimiter.
    pub fn render_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary.as_bytes());
        out.extend_from_slice(b"--\r\n");
    }

    /// Content-Length of a multipart response with these parts.
    pub fn total(&self, ranges: &[Range<u64>]) -> u64 {
        let mut framing = Vec::new();
        let mut total = 0u64;
        for (i, range) in ranges.iter().enumerate() {
            framing.clear();
            self.render_head(&mut framing, i == 0, range);
            total = total.saturating_add(framing.len() as u64 + (range.end - range.start));
        }
        framing.clear();
        self.render_end(&mut framing);
        total.saturating_add(framing.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smallvec::smallvec;

    use super::*;

    fn resolved(value: &str, length: u64) -> Option<Resolved> {
        parse(value.as_bytes()).map(|specs| specs.resolve(length, 0))
    }

    fn parts(ranges: &[Range<u64>]) -> Option<Resolved> {
        Some(Resolved::Satisfiable(ranges.iter().cloned().collect()))
    }

    #[test]
    #[allow(
        clippy::single_range_in_vec_init,
        reason = "lists of one range are meant"
    )]
    fn resolves_what_the_rfc_shows() {
        let cases: &[(&str, &[Range<u64>])] = &[
            ("bytes=0-499", &[0..500]),
            ("bytes=500-999", &[500..1000]),
            ("bytes=-500", &[9500..10000]),
            ("bytes=9500-", &[9500..10000]),
            ("bytes=0-0,-1", &[0..1, 9999..10000]),
            ("BYTES=500-600,601-999", &[500..1000]),
            ("bytes=500-700,601-999", &[500..1000]),
            (
                "bytes= 0-999, 4500-5499, -1000",
                &[0..1000, 4500..5500, 9000..10000],
            ),
            ("bytes=,,0-1,,", &[0..2]),
            ("bytes=0-", &[0..10000]),
            ("bytes=-20000", &[0..10000]),
            ("bytes=9999-20000", &[9999..10000]),
            ("bytes=0-99999999999999999999999999", &[0..10000]),
            ("bytes=20000-,5-9", &[5..10]),
            ("bytes=007-008", &[7..9]),
        ];
        for (value, ranges) in cases {
            assert_eq!(resolved(value, 10000), parts(ranges), "{value}");
        }
    }

    #[test]
    fn unsatisfiable_and_empty_representations() {
        for value in ["bytes=10000-", "bytes=-0", "bytes=10000-10001,-0"] {
            assert_eq!(resolved(value, 10000), Some(Resolved::NotSatisfiable));
        }
        let beyond = "bytes=99999999999999999999999999-99999999999999999999999999";
        assert_eq!(resolved(beyond, u64::MAX), Some(Resolved::NotSatisfiable));
        assert_eq!(resolved("bytes=0-", 0), Some(Resolved::NotSatisfiable));
        assert_eq!(resolved("bytes=-5", 0), Some(Resolved::Ignore));
    }

    #[test]
    fn malformed_ranges_are_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=1-2x",
            "bytes=0x1-2",
            "bytes=+1-2",
            "bytes=--1",
            "bytes=1-2-3",
            "bytes=1 -2",
            "bytes=1-2;3-4",
            "bytes=0-1,x",
            "lines=1-2",
            "bytes =1-2",
            "=1-2",
            "bytes=\u{661}-2",
        ] {
            assert_eq!(parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn the_numbers_of_specs_and_overlaps_are_bounded() {
        let many = |n: u64, step: u64, size: u64| {
            let specs: Vec<_> = (0..n)
                .map(|i| format!("{}-{}", i * step, i * step + size - 1))
                .collect();
            format!("bytes={}", specs.join(","))
        };
        assert!(matches!(
            resolved(&many(64, 10, 1), 10000),
            Some(Resolved::Satisfiable(parts)) if parts.len() == 64
        ));
        assert_eq!(resolved(&many(65, 10, 1), 10000), None);
        assert_eq!(
            resolved(&many(9, 10, 20), 10000),
            Some(Resolved::Satisfiable(smallvec![0..100]))
        );
        assert_eq!(resolved(&many(10, 10, 20), 10000), Some(Resolved::Ignore));
        assert_eq!(resolved(&many(64, 0, 1), 10000), Some(Resolved::Ignore));
    }

    #[test]
    fn near_parts_are_joined_at_the_earliest_position() {
        let specs = parse(b"bytes=900-909,100-109,500-509,115-119").expect("valid");
        let joined: SmallVec<[Range<u64>; 1]> = smallvec![900..910, 100..120, 500..510];
        assert_eq!(specs.resolve(1000, 6), Resolved::Satisfiable(joined));
        let bridge = parse(b"bytes=300-309,0-99,200-209,90-299").expect("valid");
        assert_eq!(
            bridge.resolve(1000, 0),
            Resolved::Satisfiable(smallvec![0..310])
        );
    }

    #[test]
    fn content_range_is_parsed_and_rendered() {
        let part = |range, length| Some(ContentRange::Part { range, length });
        for (value, expected) in [
            ("bytes 0-9/100", part(0..10, Some(100))),
            ("bytes 5-5/*", part(5..6, None)),
            ("bytes */7", Some(ContentRange::Unsatisfied { length: 7 })),
        ] {
            let parsed = ContentRange::parse(value.as_bytes());
            assert_eq!(parsed, expected, "{value}");
            let mut out = Vec::new();
            parsed.expect("valid").render(&mut out);
            assert_eq!(out, value.as_bytes());
        }
        for value in [
            "",
            "bytes",
            "bytes 0-9",
            "bytes 9-0/10",
            "bytes 0-9/9",
            "bytes */*",
            "bytes -9/10",
            "bytes 0-/10",
            "bytes 0-9/99999999999999999999999",
            "bytes=0-9/10",
            "items 0-9/10",
            "bytes 0-18446744073709551615/*",
            "bytes 0-9/10, 0-9/10",
            "bytes +0-9/10",
        ] {
            assert_eq!(ContentRange::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn multipart_is_framed_as_rfc_2046_says() {
        let multipart = Multipart {
            boundary: "b0",
            content_type: Some(b"text/plain"),
            length: 26,
        };
        let content = b"abcdefghijklmnopqrstuvwxyz";
        let ranges = [0..2u64, 20..26];
        let mut body = Vec::new();
        for (i, range) in ranges.iter().enumerate() {
            multipart.render_head(&mut body, i == 0, range);
            body.extend_from_slice(&content[range.start as usize..range.end as usize]);
        }
        multipart.render_end(&mut body);
        let expected = "--b0\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/26\r\n\r\nab\
            \r\n--b0\r\nContent-Type: text/plain\r\nContent-Range: bytes 20-25/26\r\n\r\nuvwxyz\
            \r\n--b0--\r\n";
        assert_eq!(String::from_utf8_lossy(&body), expected);
        assert_eq!(multipart.total(&ranges), body.len() as u64);
        assert_eq!(
            multipart.content_type(),
            "multipart/byteranges; boundary=b0"
        );
    }

    fn a_spec() -> impl Strategy<Value = String> {
        prop_oneof![
            (0..120u64, 0..120u64).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            (0..120u64).prop_map(|a| format!("{a}-")),
            (0..120u64).prop_map(|n| format!("-{n}")),
        ]
    }

    proptest! {
        #[test]
        fn parts_are_disjoint_and_contain_the_requested_ranges(
            specs in prop::collection::vec(a_spec(), 1..8), length in 0..100u64, gap in 0..20u64,
        ) {
            let specs = parse(format!("bytes={}", specs.join(",")).as_bytes()).expect("valid");
            if let Resolved::Satisfiable(parts) = specs.resolve(length, gap) {
                for (i, part) in parts.iter().enumerate() {
                    prop_assert!(part.start < part.end && part.end <= length);
                    for other in &parts[i + 1..] {
                        let apart = other.start.max(part.start)
                            .saturating_sub(other.end.min(part.end));
                        prop_assert!(apart > 0 && apart >= gap);
                    }
                }
                for wanted in specs.iter().filter_map(|spec| spec.resolve(length)) {
                    prop_assert!(parts.iter().any(|p| p.start <= wanted.start && wanted.end <= p.end));
                }
            } else {
                prop_assert!(length == 0 || specs.iter().all(|s| s.resolve(length).is_none()));
            }
        }
    }
}
