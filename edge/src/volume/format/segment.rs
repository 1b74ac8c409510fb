//! The bytes of a segment on a device. The first block has the segment's number and its lap (the number of the pass over the volume in
//! which the segment was written). Records follow. A full segment ends with a table of its records and a footer.

use crate::volume::checksum::Salt;
use crate::volume::types::Id;

use super::record::Mark;
use super::{BLOCK, NUMBER_MAX, UNIT, put, u32_at, u64_at, u128_at, up};

const HEADER_MAGIC: u32 = 0x6765_7353; // "Sseg"
const FOOTER_MAGIC: u32 = 0x746f_6f46; // "Foot"
const HEADER_LENGTH: usize = 40;
const FOOTER_LENGTH: usize = 64;

/// Offset of the first record in a segment.
pub const RECORDS: u64 = BLOCK;

/// Length of an entry of the table in bytes.
pub const ENTRY: usize = 52;

const HEADER_SALT: u64 = 0x6765_7300;
const TABLE_SALT: u64 = 0x6261_7400;

/// The first block of a segment, with the segment's number and the number of the pass over the volume in which it was written (its lap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Number of the segment.
    pub segment: u32,
    /// Lap of the segment: the pass over all segments of the volume in which this one was written.
    pub lap: u64,
    /// Smallest sequence number that a record in the segment can have.
    pub first_seq: u64,
}

impl Opening {
    /// Encodes the opening block.
    pub fn encode(&self, volume: Salt) -> [u8; BLOCK as usize] {
        let mut block = [0; BLOCK as usize];
        put(&mut block, 0, &HEADER_MAGIC.to_le_bytes());
        put(&mut block, 8, &self.lap.to_le_bytes());
        put(&mut block, 16, &self.first_seq.to_le_bytes());
        put(&mut block, 24, &self.segment.to_le_bytes());
        let crc = volume.with(HEADER_SALT).crc(&block[8..HEADER_LENGTH]);
        put(&mut block, 4, &crc.to_le_bytes());
        block
    }

    /// Decodes an opening block; returns `None` if the bytes are not an opening block of this volume.
    pub fn decode(block: &[u8], volume: Salt) -> Option<Opening> {
        let ours = block.len() >= HEADER_LENGTH
            && u32_at(block, 0) == HEADER_MAGIC
            && volume.with(HEADER_SALT).crc(&block[8..HEADER_LENGTH]) == u32_at(block, 4);
        let opening = ours.then(|| Opening {
            lap: u64_at(block, 8),
            first_seq: u64_at(block, 16),
            segment: u32_at(block, 24),
        });
        opening.filter(|opening| opening.lap.max(opening.first_seq) <= NUMBER_MAX)
    }
}

/// The last block of a full segment, which describes the table before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Lap of the segment: the pass over all segments of the volume in which this one was written.
    pub lap: u64,
    /// Offset at which the segment's records end, in bytes.
    pub end: u32,
    /// Number of entries of the table, which ends where the footer begins.
    pub count: u32,
    /// Checksum of the table.
    pub table_crc: u32,
}

impl Footer {
    /// Returns the offset of the table in a segment of `segment` bytes; `None` if the segment is too small for `count` entries.
    pub fn table_place(count: u64, segment: u64) -> Option<u64> {
        (segment - BLOCK).checked_sub(up(count * ENTRY as u64, BLOCK))
    }

    /// Encodes the footer.
    pub fn encode(&self, volume: Salt) -> [u8; BLOCK as usize] {
        let mut block = [0; BLOCK as usize];
        put(&mut block, 0, &FOOTER_MAGIC.to_le_bytes());
        put(&mut block, 8, &self.lap.to_le_bytes());
        put(&mut block, 32, &self.end.to_le_bytes());
        put(&mut block, 36, &self.count.to_le_bytes());
        put(&mut block, 40, &self.table_crc.to_le_bytes());
        let crc = volume.with(TABLE_SALT).crc(&block[8..FOOTER_LENGTH]);
        put(&mut block, 4, &crc.to_le_bytes());
        block
    }

    /// Decodes the footer of a segment of `segment` bytes; returns `None` if the bytes are not a footer of this volume.
    pub fn decode(block: &[u8], volume: Salt, segment: u64) -> Option<Footer> {
        let ours = block.len() >= FOOTER_LENGTH
            && u32_at(block, 0) == FOOTER_MAGIC
            && volume.with(TABLE_SALT).crc(&block[8..FOOTER_LENGTH]) == u32_at(block, 4);
        if !ours {
            return None;
        }
        let footer = Footer {
            lap: u64_at(block, 8),
            end: u32_at(block, 32),
            count: u32_at(block, 36),
            table_crc: u32_at(block, 40),
        };
        let table = Footer::table_place(u64::from(footer.count), segment)?;
        let is_sound =
            footer.lap <= NUMBER_MAX && (RECORDS..=table).contains(&u64::from(footer.end));
        is_sound.then_some(footer)
    }
}

/// Returns the checksum of a segment's table.
pub fn table_crc(volume: Salt, lap: u64, table: &[u8]) -> u32 {
    volume.with(TABLE_SALT).with(lap).crc(table)
}

/// The entry of a record in a segment's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type of the record.
    pub mark: Mark,
    /// Id of the record.
    pub id: Id,
    /// Smallest sequence number of the fetches that contributed bytes to the record.
    pub born_seq: u64,
    /// Offset of the record in the segment, in bytes.
    pub offset: u32,
    /// Number of bytes that the record takes in the segment.
    pub length: u32,
}

impl Entry {
    /// Encodes the entry.
    pub fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        put(&mut bytes, 0, &self.id.key.to_le_bytes());
        put(&mut bytes, 16, &self.id.space.to_le_bytes());
        put(&mut bytes, 24, &self.id.version.to_le_bytes());
        put(&mut bytes, 32, &self.born_seq.to_le_bytes());
        put(&mut bytes, 40, &self.id.part.to_le_bytes());
        let units = self.offset / UNIT as u32;
        let place = u32::from(self.mark.code()) << 24 | units;
        put(&mut bytes, 44, &place.to_le_bytes());
        put(&mut bytes, 48, &(self.length / UNIT as u32).to_le_bytes());
        bytes
    }

    /// Decodes an entry of the table of a segment whose records end at `end`; returns `None` if the entry is invalid.
    pub fn decode(bytes: &[u8; ENTRY], end: u32) -> Option<Entry> {
        let place = u32_at(bytes, 44);
        let mark = Mark::from_code((place >> 24) as u8)?;
        let units = u64::from(place & 0xff_ffff);
        let length = u64::from(u32_at(bytes, 48));
        let (offset, length) = (units * UNIT, length * UNIT);
        if offset < RECORDS || length == 0 || offset + length > u64::from(end) {
            return None;
        }
        Some(Entry {
            mark,
            id: Id {
                key: u128_at(bytes, 0),
                space: u64_at(bytes, 16),
                version: u64_at(bytes, 24),
                part: u32_at(bytes, 40),
                kind: mark.kind(),
            },
            born_seq: u64_at(bytes, 32),
            offset: offset as u32,
            length: length as u32,
        })
    }
}

/// Decodes the entries of a table in the order in which they were written. An item is `None` if its entry is invalid.
pub fn entries(table: &[u8], end: u32) -> impl DoubleEndedIterator<Item = Option<Entry>> {
    let (entries, _) = table.as_chunks::<ENTRY>();
    entries.iter().map(move |bytes| Entry::decode(bytes, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEGMENT: u64 = 1 << 20;

    proptest! {
        #[test]
        fn an_encoded_entry_is_decoded(code in 1u8..=5, offset in 64u32..10_000, length in 1u32..3000,
                                              numbers: (u64, u128, u32), born_seq: u64) {
            let mark = Mark::from_code(code).expect("a mark");
            let written = Entry {
                mark,
                id: Id { space: numbers.0, key: numbers.1, version: !numbers.0, part: numbers.2, kind: mark.kind() },
                born_seq,
                offset: offset * 64,
                length: length * 64,
            };
            let read = Entry::decode(&written.encode(), SEGMENT as u32);
            prop_assert_eq!(read, Some(written));
            let end = (offset + length) * 64;
            prop_assert_eq!(Entry::decode(&written.encode(), end), Some(written));
            prop_assert_eq!(Entry::decode(&written.encode(), end - 1), None, "it would lie behind the records");
        }

        #[test]
        fn encoded_opening_and_footer_are_decoded(lap in 0..NUMBER_MAX, seq in 0..NUMBER_MAX, segment: u32, bit in 0usize..FOOTER_LENGTH * 8) {
            let salt = Salt::of(u128::from(lap) << 3);
            let opening = Opening { segment, lap, first_seq: seq };
            prop_assert_eq!(Opening::decode(&opening.encode(salt), salt), Some(opening));
            prop_assert_eq!(Opening::decode(&opening.encode(salt), Salt::of(5)), None);
            let footer = Footer { lap, end: 8192, count: 3, table_crc: segment };
            let mut block = footer.encode(salt);
            prop_assert_eq!(Footer::decode(&block, salt, SEGMENT), Some(footer));
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Footer::decode(&block, salt, SEGMENT), None);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), end: u32) {
            prop_assert_eq!(Opening::decode(&bytes, Salt::of(1)), None);
            prop_assert_eq!(Footer::decode(&bytes, Salt::of(1), SEGMENT), None);
            for entry in entries(&bytes, end).flatten() {
                prop_assert!(u64::from(entry.offset) + u64::from(entry.length) <= u64::from(end));
            }
        }

        #[test]
        fn an_impossible_footer_is_refused(end: u32, count: u32) {
            let footer = Footer { lap: 1, end, count, table_crc: 1 };
            if let Some(footer) = Footer::decode(&footer.encode(Salt::of(1)), Salt::of(1), SEGMENT) {
                let table = Footer::table_place(u64::from(footer.count), SEGMENT).expect("it fits");
                prop_assert!(u64::from(footer.end) <= table && table + u64::from(footer.count) * 52 <= SEGMENT);
            }
        }
    }
}
