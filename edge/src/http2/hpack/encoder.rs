//! The encoder of header blocks (RFC 7541 6).
//!
//! Most fields are literals without indexing, whose bytes do not depend on the connection: `append_independent` encodes
//! the fields of a stored head once for all responses. The dynamic table is small, since it serves only the few fields
//! that are made per message and repeated: Date, the name of Cache-Status, Via.

use super::dynamic_table::{DEFAULT_TABLE_SIZE, DynamicTable};
use super::{huffman, integer, static_table};

/// The way in which a field is encoded that is not in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// The field is added to the dynamic table, since it will be repeated.
    Field,
    /// The field is added to the dynamic table if its name is in no table, since only the name will be repeated.
    Name,
    /// The field is not added to the table.
    Without,
    /// No recipient may add the field to a table (RFC 7541 7.1.3). Its value is not looked up either.
    Never,
}

/// The encoder of one connection.
pub struct Encoder {
    table: DynamicTable,
    /// Largest size that this side uses, whatever the peer permits.
    wanted: u32,
    /// The size of the table that the peer assumes at most.
    announced: u32,
    /// The smallest limit since the last block, if it is below `announced`.
    least: Option<u32>,
    /// The peer's present limit.
    limit: u32,
}

impl Encoder {
    /// Creates an encoder whose table has at most `wanted` bytes.
    pub fn new(wanted: u32) -> Encoder {
        Encoder {
            table: DynamicTable::new(wanted.min(DEFAULT_TABLE_SIZE)),
            wanted,
            announced: DEFAULT_TABLE_SIZE,
            least: None,
            limit: DEFAULT_TABLE_SIZE,
        }
    }

    /// Takes over the peer's SETTINGS_HEADER_TABLE_SIZE.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        if limit < self.least.unwrap_or(self.announced) {
            self.least = Some(limit);
            self.table.set_size_max(self.wanted.min(limit));
        }
    }

    /// Begins a block: appends the changes of the table's size that the peer must know (RFC 7541 4.2).
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(least) = self.least.take() {
            let least = least.min(self.wanted);
            integer::append(out, 0x20, 5, least as usize);
            self.announced = least;
        }
        let size = self.wanted.min(self.limit);
        if size > self.announced {
            integer::append(out, 0x20, 5, size as usize);
            self.announced = size;
            self.table.set_size_max(size);
        }
    }

    /// Appends a field, whose name is in lower case.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8], indexing: Indexing) {
        let known = static_table::name_index(name);
        if indexing != Indexing::Never
            && let Some(index) = known.and_then(|first| static_table::with_value(first, value))
        {
            return integer::append(out, 0x80, 7, index);
        }
        let adds = match indexing {
            Indexing::Without | Indexing::Never => {
                return append_literal(out, known, name, value, indexing);
            }
            Indexing::Field => true,
            Indexing::Name => known.is_none(),
        };
        let (same, same_name) = self.find(name, value);
        if let Some(index) = same {
            return integer::append(out, 0x80, 7, index);
        }
        let known = known.or(same_name);
        if adds && (indexing == Indexing::Field || same_name.is_none()) {
            integer::append(out, 0x40, 6, known.unwrap_or(0));
            append_strings(out, known, name, value);
            let start = self.table.prepare();
            self.table.log().extend_from_slice(name);
            self.table.log().extend_from_slice(value);
            self.table.insert(start, name.len(), true);
        } else {
            append_literal(out, known, name, value, indexing);
        }
    }

    /// Returns the indices of an entry with this name and value, and of one with this name. The table has few entries.
    fn find(&self, name: &[u8], value: &[u8]) -> (Option<usize>, Option<usize>) {
        let mut same_name = None;
        for at in 0..self.table.len() {
            let Some(found) = self.table.get(at) else {
                break;
            };
            if self.table.bytes(found.name) == name {
                let index = static_table::LENGTH + 1 + at;
                if self.table.bytes(found.value) == value {
                    return (Some(index), same_name);
                }
                same_name.get_or_insert(index);
            }
        }
        (None, same_name)
    }

    /// Appends `:status`, which is one byte for common statuses.
    #[inline]
    pub fn status(&mut self, out: &mut Vec<u8>, status: u16) {
        match status {
            200 => out.push(0x88),
            204 => out.push(0x89),
            206 => out.push(0x8a),
            304 => out.push(0x8b),
            400 => out.push(0x8c),
            404 => out.push(0x8d),
            500 => out.push(0x8e),
            _ => {
                let mut digits = itoa::Buffer::new();
                append_independent(
                    out,
                    b":status",
                    digits.format(status).as_bytes(),
                    Indexing::Without,
                );
            }
        }
    }

    /// Returns the heap memory of the table in bytes.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }
}

/// Appends a field without reference to a dynamic table, so that the bytes are valid on every connection, at any place
/// in a block after its first field. `indexing` is `Without` or `Never`.
pub fn append_independent(out: &mut Vec<u8>, name: &[u8], value: &[u8], indexing: Indexing) {
    let known = static_table::name_index(name);
    match known.and_then(|first| static_table::with_value(first, value)) {
        Some(index) if indexing != Indexing::Never => integer::append(out, 0x80, 7, index),
        _ => append_literal(out, known, name, value, indexing),
    }
}

/// Appends a literal that is not added to the table (RFC 7541 6.2.2, 6.2.3).
fn append_literal(
    out: &mut Vec<u8>,
    known: Option<usize>,
    name: &[u8],
    value: &[u8],
    indexing: Indexing,
) {
    let first = if indexing == Indexing::Never { 0x10 } else { 0 };
    integer::append(out, first, 4, known.unwrap_or(0));
    append_strings(out, known, name, value);
}

/// Appends the name, unless its index is known, and the value.
fn append_strings(out: &mut Vec<u8>, known: Option<usize>, name: &[u8], value: &[u8]) {
    if known.is_none() {
        append_string(out, name);
    }
    append_string(out, value);
}

/// Appends a string, in Huffman code if that is shorter (RFC 7541 5.2).
fn append_string(out: &mut Vec<u8>, text: &[u8]) {
    let coded = huffman::coded_length(text);
    if coded < text.len() {
        integer::append(out, 0x80, 7, coded);
        huffman::encode(text, out);
    } else {
        integer::append(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}
