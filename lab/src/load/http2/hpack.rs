//! A decoder of field sections (RFC 7541) that keeps only the fields which matter to the load generator.
//!
//! The dynamic table has the full size of 4096 bytes that servers may use with every client. Of other fields than those
//! needed, the table keeps only the lengths, by which entries are evicted.

use std::collections::VecDeque;

use super::super::head::number;
use super::super::range::ContentRange;
use super::huffman;

/// Size of the dynamic table in bytes (RFC 9113 6.5.2).
const TABLE_SIZE: usize = 4096;
/// Bytes that each entry counts beyond its name and value (RFC 7541 4.1).
const ENTRY: usize = 32;

/// Lengths of the names in the static table (RFC 7541 Appendix A), of which the first has index 1.
const STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];
/// Statuses in the static table, of which the first has index 8.
const STATIC_STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
const STATUS: usize = 8;
const CONTENT_LENGTH: usize = 28;
const CONTENT_RANGE: usize = 30;

/// The head of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: Option<u16>,
    /// Value of Content-Length.
    pub(super) length: Option<u64>,
    pub(super) range: ContentRange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Status,
    Length,
    Range,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Status(u16),
    Length(u64),
    Range(ContentRange),
    Other,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    name: Name,
    name_length: usize,
    value_length: usize,
    field: Field,
}

/// The state of a connection's decoder.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The dynamic table, the newest entry first.
    entries: VecDeque<Entry>,
    size: usize,
    limit: usize,
    /// Decoded strings.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder {
            entries: VecDeque::new(),
            size: 0,
            limit: TABLE_SIZE,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Decodes a field section. Returns `None` if the section is invalid.
    pub(super) fn decode(&mut self, mut block: &[u8]) -> Option<Head> {
        let mut head = Head::default();
        while let Some(first) = block.first().copied() {
            let field = match first {
                0x80.. => self.indexed(integer(&mut block, 7)?)?.field,
                0x40..0x80 => {
                    let entry = self.literal(&mut block, 6)?;
                    self.insert(entry);
                    entry.field
                }
                0x20..0x40 => {
                    self.limit =
                        Some(integer(&mut block, 5)?).filter(|size| *size <= TABLE_SIZE)?;
                    self.evict();
                    continue;
                }
                _ => self.literal(&mut block, 4)?.field,
            };
            match field {
                Field::Status(status) => head.status = Some(status),
                // Two lengths that differ make the response malformed.
                Field::Length(length) if head.length.is_some_and(|known| known != length) => {
                    return None;
                }
                Field::Length(length) => head.length = Some(length),
                Field::Range(range) => head.range.add(range),
                Field::Other => {}
            }
        }
        Some(head)
    }

    /// Returns the entry with this index.
    fn indexed(&self, index: usize) -> Option<Entry> {
        let place = index.checked_sub(1)?;
        let Some(name_length) = STATIC_NAMES.get(place) else {
            return self.entries.get(place - STATIC_NAMES.len()).copied();
        };
        let name = match index {
            CONTENT_LENGTH => Name::Length,
            CONTENT_RANGE => Name::Range,
            index if status(index).is_some() => Name::Status,
            _ => Name::Other,
        };
        Some(Entry {
            name,
            name_length: usize::from(*name_length),
            // The length of a value matters only in the dynamic table.
            value_length: 0,
            field: status(index).map_or(Field::Other, Field::Status),
        })
    }

    /// Decodes a literal whose index of the name has a prefix of this many bits.
    fn literal(&mut self, block: &mut &[u8], prefix: u32) -> Option<Entry> {
        let (name, name_length) = match integer(block, prefix)? {
            0 => {
                string(block, &mut self.name)?;
                let name = match self.name.as_slice() {
                    b":status" => Name::Status,
                    b"content-length" => Name::Length,
                    b"content-range" => Name::Range,
                    _ => Name::Other,
                };
                (name, self.name.len())
            }
            index => {
                let entry = self.indexed(index)?;
                (entry.name, entry.name_length)
            }
        };
        string(block, &mut self.value)?;
        Some(Entry {
            name,
            name_length,
            value_length: self.value.len(),
            field: field(name, &self.value)?,
        })
    }

    fn insert(&mut self, entry: Entry) {
        self.size += entry.size();
        self.entries.push_front(entry);
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.limit
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size();
        }
    }
}

impl Entry {
    fn size(&self) -> usize {
        self.name_length + self.value_length + ENTRY
    }
}

/// Returns the status of an entry of the static table.
fn status(index: usize) -> Option<u16> {
    let place = index.checked_sub(STATUS)?;
    STATIC_STATUSES.get(place).copied()
}

/// Returns the field; `None` if a needed value is invalid.
fn field(name: Name, value: &[u8]) -> Option<Field> {
    Some(match name {
        Name::Other => Field::Other,
        Name::Length => Field::Length(number(value)?),
        Name::Status => {
            let status = u16::try_from(number(value)?).ok();
            Field::Status(status.filter(|status| (100..1000).contains(status))?)
        }
        Name::Range => Field::Range(ContentRange::parse(value)),
    })
}

/// Decodes an integer with a prefix of this many bits (RFC 7541 5.1), of at most 2^28.
fn integer(block: &mut &[u8], prefix: u32) -> Option<usize> {
    let (first, mut rest) = block.split_first()?;
    let most = (1 << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        let mut shift = 0;
        loop {
            let (next, after) = rest.split_first()?;
            rest = after;
            value += (usize::from(*next) & 0x7f) << shift;
            if next & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 21 {
                return None;
            }
        }
    }
    *block = rest;
    Some(value)
}

/// Decodes a string (RFC 7541 5.2).
fn string(block: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    let is_coded = block.first()? & 0x80 != 0;
    let length = integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length)?;
    *block = rest;
    out.clear();
    match is_coded {
        true => huffman::decode(bytes, out),
        false => {
            out.extend_from_slice(bytes);
            Some(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two responses in RFC 7541 C.6, of which the second refers to the dynamic table of the first. The size
    /// of the table is 256 bytes there, so entries are evicted.
    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        let hex = |text: &str| -> Vec<u8> {
            let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
            let byte = |two: &[u8]| {
                let two = std::str::from_utf8(two).expect("digits");
                u8::from_str_radix(two, 16).expect("digits")
            };
            digits.chunks(2).map(byte).collect()
        };
        let mut decoder = Decoder::new();
        decoder.limit = 256;
        let first = hex(
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d \
             29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        );
        let status = |head: Option<Head>| head.and_then(|head| head.status);
        assert_eq!(status(decoder.decode(&first)), Some(302));
        assert_eq!((decoder.entries.len(), decoder.size), (4, 222));
        let second = hex("4883 640e ffc1 c0bf");
        assert_eq!(status(decoder.decode(&second)), Some(307));
        assert_eq!((decoder.entries.len(), decoder.size), (4, 222));
    }

    #[test]
    fn lengths_are_taken_from_literals() {
        let mut block = vec![0x88, 0x0f, 0x0d, 2, b'1', b'7', 0];
        block.extend_from_slice(b"\x0dcontent-range\x0cbytes 0-1/99");
        let head = Decoder::new().decode(&block).expect("valid");
        assert_eq!(head.status, Some(200));
        assert_eq!((head.length, head.range.whole()), (Some(17), Some(99)));
    }

    #[test]
    fn invalid_sections_are_refused() {
        for wrong in [
            &[0x80][..],
            &[0xbe],
            &[0x40],
            &[0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f],
            &[0x3f, 0xe2, 0x1f],
            &[0x08, 1, b'x'],
            &[0x0f, 0x0d, 1, b'5', 0x0f, 0x0d, 1, b'6'],
            &[0x0f, 0x0d, 2, b'+', b'5'],
            &[0x00, 0x7f, 0xff, 0xff, 0xff, 0x7f],
        ] {
            assert_eq!(Decoder::new().decode(wrong), None, "{wrong:x?}");
        }
    }
}
