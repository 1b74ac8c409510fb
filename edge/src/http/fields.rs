//! The header lines of one message, in order, in one buffer that can be sent as it is.

use std::fmt;

/// Header lines (RFC 9110 5) in the order received, kept as the text `name: value\r\n…` so that
/// writing a head is one copy. Names compare without case. Values are bytes without CR, LF or NUL.
///
/// A lookup scans the lines: heads have few of them, and most requests look up only two or three
/// names, so a table would not pay off. An empty `Fields` owns no memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields {
    text: Vec<u8>,
    lines: Vec<Line>,
}

/// Position of one line in `text`: the name is `start..name_end`, the value `name_end + 2..end -
/// 2`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Line {
    start: u32,
    name_end: u32,
    end: u32,
}

impl Fields {
    /// No lines.
    pub const fn new() -> Fields {
        Fields {
            text: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Creates an empty value with memory for this many bytes of text and lines.
    pub fn with_capacity(text: usize, lines: usize) -> Fields {
        Fields {
            text: Vec::with_capacity(text),
            lines: Vec::with_capacity(lines),
        }
    }

    /// Removes all lines and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.lines.clear();
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the lines as they are sent: `name: value\r\n` each.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Appends a line. The caller has validated the name (a token) and the value (no CR, LF or
    /// NUL).
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.append_bytes(name.as_bytes(), value.as_ref());
    }

    /// Same as `append`, for a name in bytes, which the caller has validated as a token.
    pub fn append_bytes(&mut self, name: &[u8], value: &[u8]) {
        debug_assert!(is_token(name), "field name must be a token");
        debug_assert!(
            is_field_value(value),
            "field value must hold no CR, LF or NUL"
        );
        let start = self.text.len() as u32;
        self.text.reserve(name.len() + value.len() + 4);
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b"\r\n");
        self.lines.push(Line {
            start,
            name_end: start + name.len() as u32,
            end: self.text.len() as u32,
        });
    }

    /// Same as `append_bytes`, with the name in lower case.
    pub fn append_lower(&mut self, name: &[u8], value: &[u8]) {
        let start = self.text.len();
        self.append_bytes(name, value);
        self.text[start..start + name.len()].make_ascii_lowercase();
    }

    /// Replaces all lines of this name by one line.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.append(name, value);
    }

    /// Removes all lines of this name; returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.retain(|n, _| !n.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Keeps the lines for which `keep(name, value)` holds; returns whether any line was removed.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) -> bool {
        if self.iter().all(|(name, value)| keep(name, value)) {
            return false;
        }
        let old = std::mem::take(self);
        for (name, value) in old.iter() {
            if keep(name, value) {
                self.append_bytes(name, value);
            }
        }
        true
    }

    /// Returns the value of the first line of this name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// Returns the values of all lines of this name, in order.
    #[inline]
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.iter()
            .filter_map(move |(n, value)| n.eq_ignore_ascii_case(name.as_bytes()).then_some(value))
    }

    /// Whether there is a line of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns all lines of this name as one list: values joined by `, ` (RFC 9110 5.3).
    pub fn joined(&self, name: &str) -> Option<Vec<u8>> {
        let mut values = self.get_all(name);
        let mut joined = values.next()?.to_vec();
        for value in values {
            joined.extend_from_slice(b", ");
            joined.extend_from_slice(value);
        }
        Some(joined)
    }

    /// Returns the members of a comma-separated list over all lines of this name, trimmed and
    /// without empty members (RFC 9110 5.6.1). Not for lists that may contain quoted strings.
    pub fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.get_all(name)
            .flat_map(|value| value.split(|&b| b == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|member| !member.is_empty())
    }

    /// Returns the name and value of each line, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.lines.iter().map(|line| {
            let (start, name_end, end) = (
                line.start as usize,
                line.name_end as usize,
                line.end as usize,
            );
            (
                &self.text[start..name_end],
                &self.text[name_end + 2..end - 2],
            )
        })
    }

    /// Heap memory in bytes.
    pub fn memory(&self) -> usize {
        self.text.capacity() + self.lines.capacity() * size_of::<Line>()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(lines: I) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.append(name, value);
        }
        fields
    }
}

/// Returns the name and value of each line of a text made by `Fields::text`.
#[cfg(any(test, feature = "test-rigs"))]
pub fn lines_of(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|&b| b == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line.get(colon + 2..)?))
    })
}

/// Whether the bytes are a token (RFC 9110 5.6.2).
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&b| is_token_byte(b))
}

/// Whether a byte is permitted in a token.
pub fn is_token_byte(b: u8) -> bool {
    const PERMITTED: [bool; 256] = permitted_in_tokens();
    PERMITTED[usize::from(b)]
}

/// Returns for each byte whether it is permitted in a token (RFC 9110 5.6.2).
const fn permitted_in_tokens() -> [bool; 256] {
    let marks = b"!#$%&'*+-.^_`|~";
    let mut permitted = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        permitted[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        permitted[marks[mark] as usize] = true;
        mark += 1;
    }
    permitted
}

/// Whether the bytes are a valid field value: no CR, LF, NUL or other control characters except TAB
/// (RFC 9110 5.5).
pub fn is_field_value(value: &[u8]) -> bool {
    // Without an early end, the compiler checks many bytes at once.
    value.iter().fold(true, |valid, &b| {
        valid & (b == b'\t' || (b >= b' ' && b != 0x7f))
    })
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_order_and_names_compare_without_case() {
        let mut fields = Fields::new();
        fields.append("Via", "1.1 a");
        fields.append("host", "h");
        fields.append("VIA", "1.1 b");
        assert_eq!(fields.get("via"), Some(&b"1.1 a"[..]));
        assert_eq!(fields.joined("Via").as_deref(), Some(&b"1.1 a, 1.1 b"[..]));
        fields.set("via", "x");
        assert_eq!(fields.text(), b"host: h\r\nvia: x\r\n");
        assert!(!fields.remove("nothing"));
    }

    #[test]
    fn members_come_from_all_lines_without_empty_ones() {
        let mut fields = Fields::new();
        fields.append("connection", "close, , te");
        fields.append("connection", "x");
        let members: Vec<_> = fields.members("connection").collect();
        assert_eq!(members, [&b"close"[..], b"te", b"x"]);
    }
}
