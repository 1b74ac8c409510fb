//! Range requests: Range, Content-Range and the parts of multipart/byteranges (RFC 9110 14).

#[cfg(test)]
mod tests;

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
