//! The field lines of a stored head, in a form from which every protocol version sends them without
//! parsing.

use std::fmt;

use bytes::Bytes;

use super::fields::{Fields, is_field_value, is_token};

/// Field lines shared by many responses: the text that HTTP/1.1 sends, and an index of its lines,
/// from which HTTP/2 and HTTP/3 take names in lower case.
///
/// The block is one allocation: first the text, then lower-case copies of the names that have
/// capital letters, then one index entry per line. A clone increments a reference count.
#[derive(Clone, Default)]
pub struct FieldBlock {
    bytes: Bytes,
    text: u32,
    lines: u32,
    /// Whether a line is named `date`: every response needs to know.
    has_date: bool,
}

/// Bytes of one entry of the index: where its line ends in the text (u32), and the length of its
/// name (u32) with the flag `COPIED`, both little-endian.
const ENTRY: usize = 8;

/// Flag of an entry whose name has capital letters and therefore a lower-case copy.
const COPIED: u32 = 1 << 31;

/// One line of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLine<'a> {
    /// The name as received.
    pub name: &'a [u8],
    /// The name in lower case.
    pub lower_name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl FieldBlock {
    /// Returns a block without lines.
    pub const fn new() -> FieldBlock {
        FieldBlock {
            bytes: Bytes::new(),
            text: 0,
            lines: 0,
            has_date: false,
        }
    }

    /// Builds a block. The caller guarantees that each line is a valid name (token) and a value
    /// without CR, LF and NUL.
    fn of_lines<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> FieldBlock {
        let (mut text, mut copied, mut count) = (0, 0, 0);
        for (name, value) in lines.clone() {
            text += name.len() + value.len() + 4;
            copied += if has_capitals(name) { name.len() } else { 0 };
            count += 1;
        }
        let mut bytes = Vec::with_capacity(text + copied + count * ENTRY);
        for (name, value) in lines.clone() {
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        for (name, _) in lines.clone().filter(|(name, _)| has_capitals(name)) {
            bytes.extend(name.iter().map(u8::to_ascii_lowercase));
        }
        let mut end = 0;
        for (name, value) in lines {
            end += name.len() + value.len() + 4;
            let flag = if has_capitals(name) { COPIED } else { 0 };
            bytes.extend_from_slice(&(end as u32).to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u32 | flag).to_le_bytes());
        }
        let block = FieldBlock {
            bytes: bytes.into(),
            text: text as u32,
            lines: count as u32,
            has_date: false,
        };
        block.with_date_noted()
    }

    /// Parses bytes made by `as_bytes`, with `text` bytes of text and `lines` lines. Returns `None`
    /// unless the bytes are exactly one valid block, so damaged bytes from a disk are detected.
    pub fn from_bytes(bytes: Bytes, text: u32, lines: u32) -> Option<FieldBlock> {
        let index = usize::try_from(lines).ok()?.checked_mul(ENTRY)?;
        let names = bytes.len().checked_sub(index)?;
        if usize::try_from(text).ok()? > names {
            return None;
        }
        let block = FieldBlock {
            bytes,
            text,
            lines,
            has_date: false,
        };
        let sound = block.is_sound(names);
        sound.then(|| block.with_date_noted())
    }

    fn with_date_noted(mut self) -> FieldBlock {
        self.has_date = self.contains("date");
        self
    }

    /// Whether each entry describes a line of the text, and each copy equals its name in lower
    /// case.
    fn is_sound(&self, names_end: usize) -> bool {
        let (mut start, mut copy) = (0, self.text as usize);
        for (end, name, is_copied) in self.entries() {
            let Some(line) = self.bytes[..self.text as usize].get(start..end) else {
                return false;
            };
            let sound = line.len() >= name.saturating_add(4)
                && is_token(&line[..name])
                && line[name..].starts_with(b": ")
                && is_field_value(&line[name + 2..line.len() - 2])
                && line.ends_with(b"\r\n")
                && has_capitals(&line[..name]) == is_copied;
            if !sound {
                return false;
            }
            if is_copied {
                let lower = self.bytes[..names_end].get(copy..copy + name);
                let is_copy = |lower: &[u8]| {
                    !has_capitals(lower) && lower.eq_ignore_ascii_case(&line[..name])
                };
                if !lower.is_some_and(is_copy) {
                    return false;
                }
                copy += name;
            }
            start = end;
        }
        start == self.text as usize && copy == names_end
    }

    /// Returns the complete block as bytes, from which `from_bytes` restores it, given
    /// `text().len()` and `len()`.
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the lines as HTTP/1.1 sends them: `name: value\r\n` each, names as received.
    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.bytes[..self.text as usize]
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.lines as usize
    }

    /// Returns the lines, in order.
    #[inline]
    pub fn lines(&self) -> impl Iterator<Item = FieldLine<'_>> + Clone {
        let (mut start, mut copy) = (0, self.text as usize);
        self.entries().map(move |(end, length, is_copied)| {
            let line = &self.bytes[start..end];
            let name = &line[..length];
            let lower_name = match is_copied {
                true => &self.bytes[copy..copy + length],
                false => name,
            };
            copy += if is_copied { length } else { 0 };
            start = end;
            FieldLine {
                name,
                lower_name,
                value: &line[length + 2..line.len() - 2],
            }
        })
    }

    /// Returns the name as received and value of each line, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.lines().map(|line| (line.name, line.value))
    }

    /// Returns the value of the first line of this name, which is in lower case.
    #[inline]
    pub fn get(&self, lower_name: &str) -> Option<&[u8]> {
        let mut lines = self.lines();
        let found = lines.find(|line| line.lower_name == lower_name.as_bytes());
        found.map(|line| line.value)
    }

    /// Whether there is a line of this name, which is in lower case.
    #[inline]
    pub fn contains(&self, lower_name: &str) -> bool {
        self.get(lower_name).is_some()
    }

    /// Whether there is a Date. Unlike `contains`, this does not search.
    #[inline]
    pub fn has_date(&self) -> bool {
        self.has_date
    }

    /// Returns a block of the lines for which `keep` is true.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&FieldLine<'_>) -> bool) -> FieldBlock {
        let lines = self.lines().filter(|line| keep(line));
        FieldBlock::of_lines(lines.map(|line| (line.name, line.value)))
    }

    /// Whether two values share one block in memory; two equal blocks in different memory are not
    /// the same.
    pub fn is_same(&self, other: &FieldBlock) -> bool {
        self.bytes.as_ptr() == other.bytes.as_ptr() && self.bytes.len() == other.bytes.len()
    }

    /// Returns the number of bytes of the text, the copies of names and the index.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the entries: end of the line, length of the name, and whether the name has a
    /// lower-case copy.
    #[inline]
    fn entries(&self) -> impl Iterator<Item = (usize, usize, bool)> + Clone {
        let index = &self.bytes[self.bytes.len() - self.lines as usize * ENTRY..];
        let (entries, _) = index.as_chunks::<ENTRY>();
        entries.iter().map(|entry| {
            let [a, b, c, d, e, f, g, h] = *entry;
            let name = u32::from_le_bytes([e, f, g, h]);
            (
                u32::from_le_bytes([a, b, c, d]) as usize,
                (name & !COPIED) as usize,
                name & COPIED != 0,
            )
        })
    }
}

#[inline]
fn has_capitals(name: &[u8]) -> bool {
    name.iter().any(u8::is_ascii_uppercase)
}

impl From<&Fields> for FieldBlock {
    fn from(fields: &Fields) -> FieldBlock {
        FieldBlock::of_lines(fields.iter())
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for FieldBlock {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(lines: I) -> FieldBlock {
        FieldBlock::from(&lines.into_iter().collect::<Fields>())
    }
}

/// Blocks with the same text are equal, because the text determines everything else.
impl PartialEq for FieldBlock {
    fn eq(&self, other: &FieldBlock) -> bool {
        self.text() == other.text()
    }
}

impl Eq for FieldBlock {}

impl fmt::Debug for FieldBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.text()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some_lines() -> impl Strategy<Value = Vec<(String, String)>> {
        prop::collection::vec(("[A-Za-z0-9_-]{1,12}", "[ -~\t]{0,20}"), 0..8)
    }

    fn block(lines: &[(String, String)]) -> FieldBlock {
        let lines = lines.iter().map(|(name, value)| (&**name, &**value));
        lines.collect()
    }

    #[test]
    fn names_are_found_in_lower_case_and_sent_as_received() {
        let block: FieldBlock = [("ETag", "\"a\""), ("date", "now"), ("X-A", "")]
            .into_iter()
            .collect();
        assert_eq!(block.text(), b"ETag: \"a\"\r\ndate: now\r\nX-A: \r\n");
        assert_eq!(block.get("etag"), Some(&b"\"a\""[..]));
        assert_eq!(block.get("x-a"), Some(&b""[..]));
        assert!(block.contains("date") && !block.contains("dat"));
        assert!(block.has_date());
        let lower: Vec<_> = block.lines().map(|line| line.lower_name).collect();
        assert_eq!(lower, [&b"etag"[..], b"date", b"x-a"]);
        let without = block.filtered(|line| line.lower_name != b"etag");
        assert_eq!(without.text(), b"date: now\r\nX-A: \r\n");
        assert!(!block.filtered(|line| line.lower_name != b"date").has_date());
    }

    #[test]
    fn a_block_without_lines_has_no_text() {
        let block = FieldBlock::new();
        assert!(block.len() == 0 && block.text().is_empty() && block.lines().next().is_none());
        assert_eq!(FieldBlock::from(&Fields::new()), block);
        assert!(FieldBlock::from_bytes(Bytes::new(), 0, 0).is_some());
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_parsing_the_text(lines in some_lines()) {
            let block = block(&lines);
            let parsed = crate::http::fields::lines_of(block.text());
            prop_assert!(parsed.eq(block.iter()));
            prop_assert_eq!(block.len(), lines.len());
            for (line, (name, value)) in block.lines().zip(&lines) {
                prop_assert_eq!(line.name, name.as_bytes());
                let lower = name.to_ascii_lowercase();
                prop_assert_eq!(line.lower_name, lower.as_bytes());
                prop_assert_eq!(line.value, value.as_bytes());
            }
        }

        #[test]
        fn a_written_block_is_read_back_and_refused_if_a_byte_of_its_index_changes(
            lines in some_lines(), at: prop::sample::Index, byte: u8
        ) {
            let block = block(&lines);
            let (text, count) = (block.text().len() as u32, block.len() as u32);
            let read = |bytes: &[u8]| FieldBlock::from_bytes(Bytes::copy_from_slice(bytes), text, count);
            let bytes = block.as_bytes();
            let same = read(bytes).expect("what was written");
            prop_assert!(same.lines().eq(block.lines()));
            prop_assert_eq!(same.has_date(), block.contains("date"));
            if !bytes.is_empty() {
                let mut changed = bytes.to_vec();
                let at = at.index(changed.len());
                changed[at] = byte;
                // A changed letter of a value results in a different block. A changed byte after
                // the text makes the block invalid.
                if let Some(other) = read(&changed) {
                    prop_assert!(at < text as usize || changed == bytes[..]);
                    prop_assert!(other.lines().eq(FieldBlock::of_lines(other.iter()).lines()));
                }
            }
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_are_a_block(
            bytes in prop::collection::vec(any::<u8>(), 0..100), text in 0u32..100, lines in 0u32..10
        ) {
            if let Some(block) = FieldBlock::from_bytes(bytes.into(), text, lines) {
                prop_assert!(block.lines().eq(FieldBlock::of_lines(block.iter()).lines()));
            }
        }
    }
}
