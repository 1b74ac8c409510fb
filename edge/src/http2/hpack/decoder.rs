//! The decoder of header blocks (RFC 7541 3, 6).

use std::ops::Range;

use super::dynamic_table::{DEFAULT_TABLE_SIZE, DynamicTable, FIELD_OVERHEAD, Found};
use super::error::DecodeError;
use super::{huffman, integer, static_table};
use crate::http2::field;

/// A field of a header section, as it is passed to the caller of `Decoder::decode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether `field::is_valid` holds for the name and value. The table remembers the result, so that repeated fields
    /// are not checked again.
    pub is_valid: bool,
    /// Whether the field must never be put into a table when it is forwarded (RFC 7541 6.2.3).
    pub never_indexed: bool,
}

/// A header list that is this many times larger than its limit, and than its block, is a bomb.
const BOMB: u64 = 4;

/// The result of decoding a whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Size of the header list (RFC 9113 6.5.2).
    pub list_size: u64,
    /// Whether the list is over the limit, so that fields were left out.
    pub is_over: bool,
}

/// The decoder of one connection, with its dynamic table.
pub struct Decoder {
    table: DynamicTable,
    /// Largest size to which the peer may set the table.
    limit: u32,
    /// The table's largest size that the peer must set at the start of its next block.
    demanded: Option<u32>,
}

/// A name or value in the memory in which it was found.
enum Text<'b> {
    Static(&'static [u8]),
    Block(&'b [u8]),
    /// A range of the table's log.
    Log(Range<usize>),
}

impl Decoder {
    /// Creates a decoder with the table size that both sides assume at first (RFC 9113 6.5.2).
    pub fn new() -> Decoder {
        Decoder {
            table: DynamicTable::new(DEFAULT_TABLE_SIZE),
            limit: DEFAULT_TABLE_SIZE,
            demanded: None,
        }
    }

    /// Changes the limit of the table, once the peer has acknowledged the SETTINGS_HEADER_TABLE_SIZE with it. Limits above
    /// 65,535 count as 65,535.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.min(u32::from(u16::MAX));
        let least = self.demanded.unwrap_or(self.table.size_max());
        if self.limit < least {
            self.demanded = Some(self.limit);
        }
    }

    /// Decodes a complete block and passes its fields to `sink`, in order. Once the header list is larger than `list_max`,
    /// `sink` gets no further field, but the rest is still decoded, which keeps the table equal to that of the peer, unless
    /// it is a bomb.
    ///
    /// # Errors
    ///
    /// The block cannot be decoded. The connection has to be closed, since the tables may differ.
    pub fn decode(
        &mut self,
        block: &[u8],
        list_max: u64,
        mut sink: impl FnMut(Field<'_>),
    ) -> Result<Decoded, DecodeError> {
        let mut rest = block;
        self.take_sizes(&mut rest)?;
        let mut list_size = 0;
        let bomb = list_max.max(block.len() as u64).saturating_mul(BOMB);
        while let Some(&first) = rest.first() {
            if list_size > bomb {
                return Err(DecodeError::Bomb);
            }
            let mut count = |field: Field<'_>| {
                list_size += (field.name.len() + field.value.len() + FIELD_OVERHEAD) as u64;
                if list_size <= list_max {
                    sink(field);
                }
            };
            match first {
                0x80.. => self.indexed(&mut rest, &mut count)?,
                0x40.. => self.indexing(&mut rest, &mut count)?,
                0x20.. => return Err(DecodeError::LateTableSize),
                _ => self.literal(&mut rest, &mut count)?,
            }
        }
        self.table.trim();
        Ok(Decoded {
            list_size,
            is_over: list_size > list_max,
        })
    }

    /// Takes the changes of the table's size at the start of a block (RFC 7541 6.3).
    fn take_sizes(&mut self, rest: &mut &[u8]) -> Result<(), DecodeError> {
        while let Some(0x20..=0x3f) = rest.first() {
            let size = integer::take(rest, 5)?;
            if size > self.limit {
                return Err(DecodeError::TableSize);
            }
            if self.demanded.is_some_and(|least| size <= least) {
                self.demanded = None;
            }
            self.table.set_size_max(size);
        }
        match self.demanded {
            Some(_) => Err(DecodeError::MissingTableSize),
            None => Ok(()),
        }
    }

    /// Decodes an indexed field (RFC 7541 6.1).
    #[inline]
    fn indexed(
        &self,
        rest: &mut &[u8],
        sink: &mut impl FnMut(Field<'_>),
    ) -> Result<(), DecodeError> {
        let index = integer::take(rest, 7)? as usize;
        if let Some((name, value)) = static_table::get(index) {
            sink(Field {
                name,
                value,
                is_valid: true,
                never_indexed: false,
            });
            return Ok(());
        }
        let found = self.dynamic(index)?;
        sink(Field {
            name: self.table.bytes(found.name),
            value: self.table.bytes(found.value),
            is_valid: found.is_valid,
            never_indexed: false,
        });
        Ok(())
    }

    /// Returns the entry of the dynamic table at an index beyond the static one.
    #[inline]
    fn dynamic(&self, index: usize) -> Result<Found, DecodeError> {
        let index = index.checked_sub(static_table::LENGTH + 1);
        let found = index.and_then(|index| self.table.get(index));
        found.ok_or(DecodeError::Index)
    }

    /// Decodes a literal field with incremental indexing (RFC 7541 6.2.1). Name and value are written to the place of the
    /// new entry at once.
    fn indexing(
        &mut self,
        rest: &mut &[u8],
        sink: &mut impl FnMut(Field<'_>),
    ) -> Result<(), DecodeError> {
        let start = self.table.prepare();
        let index = integer::take(rest, 6)? as usize;
        match index {
            0 => take_string(rest, self.table.log())?,
            _ => match static_table::get(index) {
                Some((name, _)) => self.table.log().extend_from_slice(name),
                None => {
                    let name = self.dynamic(index)?.name;
                    self.table.log().extend_from_within(name);
                }
            },
        }
        let middle = self.table.log().len();
        take_string(rest, self.table.log())?;
        let end = self.table.log().len();
        let (name, value) = (
            self.table.bytes(start..middle),
            self.table.bytes(middle..end),
        );
        let is_valid = field::is_valid(name, value);
        sink(Field {
            name,
            value,
            is_valid,
            never_indexed: false,
        });
        self.table.insert(start, middle - start, is_valid);
        Ok(())
    }

    /// Decodes a literal field that is not added to the table (RFC 7541 6.2.2, 6.2.3).
    fn literal(
        &mut self,
        rest: &mut &[u8],
        sink: &mut impl FnMut(Field<'_>),
    ) -> Result<(), DecodeError> {
        let start = self.table.prepare();
        let never_indexed = rest.first().is_some_and(|first| first & 0x10 != 0);
        let index = integer::take(rest, 4)? as usize;
        let name = match index {
            0 => self.find_string(rest)?,
            _ => match static_table::get(index) {
                Some((name, _)) => Text::Static(name),
                None => Text::Log(self.dynamic(index)?.name),
            },
        };
        let value = self.find_string(rest)?;
        let (name, value) = (self.text(&name), self.text(&value));
        sink(Field {
            name,
            value,
            is_valid: field::is_valid(name, value),
            never_indexed,
        });
        self.table.log().truncate(start);
        Ok(())
    }

    /// Takes a string from `rest`. Huffman code is decoded to the end of the log.
    fn find_string<'b>(&mut self, rest: &mut &'b [u8]) -> Result<Text<'b>, DecodeError> {
        let (is_coded, bytes) = take_bytes(rest)?;
        if !is_coded {
            return Ok(Text::Block(bytes));
        }
        let log = self.table.log();
        let start = log.len();
        huffman::decode(bytes, log)?;
        Ok(Text::Log(start..log.len()))
    }

    fn text<'a>(&'a self, text: &'a Text<'_>) -> &'a [u8] {
        match text {
            Text::Static(bytes) => bytes,
            Text::Block(bytes) => bytes,
            Text::Log(range) => self.table.bytes(range.clone()),
        }
    }

    /// Returns the heap memory of the table in bytes.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Returns the entries of the dynamic table, the newest first.
    #[cfg(any(test, feature = "test-rigs"))]
    pub fn entries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let all = (0..self.table.len()).filter_map(|index| self.table.get(index));
        let bytes = |range| self.table.bytes(range).to_vec();
        all.map(|found| (bytes(found.name), bytes(found.value)))
            .collect()
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

/// Takes a string (RFC 7541 5.2) from `rest` without decoding it, and returns whether it is in Huffman code.
#[inline]
fn take_bytes<'b>(rest: &mut &'b [u8]) -> Result<(bool, &'b [u8]), DecodeError> {
    let is_coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer::take(rest, 7)? as usize;
    let (bytes, after) = rest
        .split_at_checked(length)
        .ok_or(DecodeError::Truncated)?;
    *rest = after;
    Ok((is_coded, bytes))
}

/// Takes a string from `rest` and appends it to `out`.
#[inline]
fn take_string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let (is_coded, bytes) = take_bytes(rest)?;
    match is_coded {
        true => huffman::decode(bytes, out),
        false => {
            out.extend_from_slice(bytes);
            Ok(())
        }
    }
}
