//! The bytes of a record on a device: a header, a checksum per page of data, metadata, data.

use crate::volume::checksum::Salt;
use crate::volume::types::{Id, Kind, PAGE};

use super::{BLOCK, UNIT, put, u32_at, u64_at, u128_at, up};

const MAGIC: u32 = 0x6365_7253; // "Srec"

/// Length of a header in bytes.
pub const HEADER: usize = 88;

/// Maximum length in bytes of a header with its pages' checksums: for as many pages as fit into a segment.
pub const HEADER_MAX: u64 = HEADER as u64 + 4 * (super::SEGMENT_MAX / PAGE);

/// The type of a record: a head or block, a tombstone, or recency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A stored head or block.
    Stored(Kind),
    /// A tombstone, which says that older records with this id are deleted.
    Tombstone(Kind),
    /// The recency of many records, written when a volume is closed.
    Recency,
}

impl Mark {
    /// Returns the code of the type on the device.
    pub fn code(self) -> u8 {
        match self {
            Mark::Stored(Kind::Head) => 1,
            Mark::Stored(Kind::Block) => 2,
            Mark::Tombstone(Kind::Head) => 3,
            Mark::Tombstone(Kind::Block) => 4,
            Mark::Recency => 5,
        }
    }

    /// Returns the type with this code; `None` if there is none.
    pub fn from_code(code: u8) -> Option<Mark> {
        Some(match code {
            1 => Mark::Stored(Kind::Head),
            2 => Mark::Stored(Kind::Block),
            3 => Mark::Tombstone(Kind::Head),
            4 => Mark::Tombstone(Kind::Block),
            5 => Mark::Recency,
            _ => return None,
        })
    }

    /// Returns the kind in the id of a record of this type.
    pub fn kind(self) -> Kind {
        match self {
            Mark::Stored(kind) | Mark::Tombstone(kind) => kind,
            Mark::Recency => Kind::Head,
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the record.
    pub mark: Mark,
    /// Id of the record. The kind in the id matches `mark`.
    pub id: Id,
    /// Sequence number of the record; records written later in the same segment have greater ones.
    pub seq: u64,
    /// Smallest sequence number of the fetches that contributed bytes to the record.
    pub born_seq: u64,
    /// Length of the metadata in bytes.
    pub meta: u32,
    /// Length of the data in bytes.
    pub data: u32,
    /// Checksum of the metadata.
    pub meta_crc: u32,
}

/// The layout of a record: offsets of its parts from the beginning of its segment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Offset of the header.
    pub at: u64,
    /// Offset of the pages' checksums, four bytes each.
    pub crcs: u64,
    /// Offset of the metadata.
    pub meta: u64,
    /// Offset of the data. Data of more than one page begins at a multiple of a block.
    pub data: u64,
    /// Offset of the end of the data.
    pub data_end: u64,
    /// Offset at which the next record may begin.
    pub end: u64,
}

impl Layout {
    /// Computes the layout of a record that begins at offset `at`, with `meta` bytes of metadata and `data` bytes of data.
    pub fn of(at: u64, meta: u32, data: u32) -> Layout {
        let crcs = at + HEADER as u64;
        let meta_at = crcs + 4 * u64::from(data).div_ceil(PAGE);
        let meta_end = meta_at + u64::from(meta);
        let data_at = if u64::from(data) > PAGE {
            up(meta_end, BLOCK)
        } else {
            meta_end
        };
        let data_end = data_at + u64::from(data);
        Layout {
            at,
            crcs,
            meta: meta_at,
            data: data_at,
            data_end,
            end: up(data_end, UNIT),
        }
    }

    /// Returns the number of bytes that the record takes.
    pub fn length(&self) -> u64 {
        self.end - self.at
    }
}

/// The reason why a header can't be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// More bytes are needed: this many in total.
    Short(usize),
    /// The bytes are not a header, belong to another volume or an earlier pass over it, or are damaged.
    Bad,
}

/// Returns the salt of the checksums of headers that are written in the pass `lap` over the volume.
pub fn lap_salt(volume: Salt, lap: u64) -> Salt {
    volume.with(lap)
}

impl Header {
    /// Returns the number of pages of data.
    pub fn pages(&self) -> u64 {
        u64::from(self.data).div_ceil(PAGE)
    }

    /// Returns the length of the header and the pages' checksums in bytes.
    pub fn length(&self) -> usize {
        HEADER + 4 * self.pages() as usize
    }

    /// Writes the header and the checksums of the pages to the beginning of `into`.
    ///
    /// # Panics
    /// If `into` is too short, or the number of checksums differs from the number of pages.
    pub fn encode(&self, volume: Salt, lap: u64, crcs: &[u32], into: &mut [u8]) {
        assert_eq!(
            crcs.len() as u64,
            self.pages(),
            "each page has its checksum"
        );
        let length = self.length();
        put(into, 0, &MAGIC.to_le_bytes());
        put(into, 8, &lap.to_le_bytes());
        put(into, 16, &self.seq.to_le_bytes());
        put(into, 24, &self.born_seq.to_le_bytes());
        put(into, 32, &self.id.space.to_le_bytes());
        put(into, 40, &self.id.key.to_le_bytes());
        put(into, 56, &self.id.version.to_le_bytes());
        put(into, 64, &self.id.part.to_le_bytes());
        put(into, 68, &u32::from(self.mark.code()).to_le_bytes());
        put(into, 72, &self.meta.to_le_bytes());
        put(into, 76, &self.data.to_le_bytes());
        put(into, 80, &self.meta_crc.to_le_bytes());
        put(into, 84, &[0; 4]);
        for (crc, at) in crcs.iter().zip((HEADER..).step_by(4)) {
            put(into, at, &crc.to_le_bytes());
        }
        let crc = lap_salt(volume, lap).crc(&into[8..length]);
        put(into, 4, &crc.to_le_bytes());
    }

    /// Decodes the header at the beginning of `bytes`, of a record that was written in the pass `lap` over the volume. The checksums of the
    /// record's pages follow from offset `HEADER` on.
    ///
    /// # Errors
    ///
    /// The bytes are not a header, or more bytes are needed: at most a block, and in addition one byte per 16 KiB of `segment`, the size of
    /// a segment.
    pub fn decode(bytes: &[u8], volume: Salt, lap: u64, segment: u64) -> Result<Header, Broken> {
        if bytes.len() < HEADER {
            return Err(Broken::Short(HEADER));
        }
        if u32_at(bytes, 0) != MAGIC || u64_at(bytes, 8) != lap {
            return Err(Broken::Bad);
        }
        let code = u32_at(bytes, 68);
        let mark = u8::try_from(code).ok().and_then(Mark::from_code);
        let header = Header {
            mark: mark.ok_or(Broken::Bad)?,
            seq: u64_at(bytes, 16),
            born_seq: u64_at(bytes, 24),
            id: Id {
                space: u64_at(bytes, 32),
                key: u128_at(bytes, 40),
                version: u64_at(bytes, 56),
                part: u32_at(bytes, 64),
                kind: mark.ok_or(Broken::Bad)?.kind(),
            },
            meta: u32_at(bytes, 72),
            data: u32_at(bytes, 76),
            meta_crc: u32_at(bytes, 80),
        };
        let fits = Layout::of(0, header.meta, header.data).end <= segment;
        if !fits || header.seq > super::NUMBER_MAX {
            return Err(Broken::Bad);
        }
        let length = header.length();
        if bytes.len() < length {
            return Err(Broken::Short(length));
        }
        if lap_salt(volume, lap).crc(&bytes[8..length]) != u32_at(bytes, 4) {
            return Err(Broken::Bad);
        }
        Ok(header)
    }

    /// Returns the checksum of a record's metadata.
    pub fn crc_of_meta(volume: Salt, lap: u64, seq: u64, meta: &[u8]) -> u32 {
        lap_salt(volume, lap).with(seq).with(u64::MAX).crc(meta)
    }

    /// Returns the checksum of a page of a record's data.
    #[inline]
    pub fn crc_of_page(volume: Salt, lap: u64, seq: u64, page: u32, bytes: &[u8]) -> u32 {
        let salt = lap_salt(volume, lap).with(seq);
        salt.with(u64::from(page)).crc(bytes)
    }
}

/// Returns the checksum that is stored for a page, from bytes that `Header::decode` has accepted.
pub fn page_crc(bytes: &[u8], page: u32) -> Option<u32> {
    let at = HEADER + 4 * page as usize;
    (bytes.len() >= at + 4).then(|| u32_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEGMENT: u64 = 1 << 20;

    fn header(mark: Mark, meta: u32, data: u32, numbers: (u64, u128, u32)) -> Header {
        Header {
            mark,
            id: Id {
                space: numbers.0,
                key: numbers.1,
                version: numbers.0.rotate_left(7),
                part: numbers.2,
                kind: mark.kind(),
            },
            seq: numbers.0 >> 2,
            born_seq: numbers.0 ^ 6,
            meta,
            data,
            meta_crc: numbers.2 ^ 9,
        }
    }

    proptest! {
        #[test]
        fn an_encoded_header_is_decoded(code in 1u8..=5, meta in 0u32..5000, data in 0u32..900_000,
                                   numbers: (u64, u128, u32), lap: u64, bit: prop::sample::Index) {
            let written = header(Mark::from_code(code).expect("a mark"), meta, data, numbers);
            let salt = Salt::of(numbers.1);
            let crcs: Vec<u32> = (0..written.pages() as u32).map(|page| page ^ numbers.2).collect();
            let mut bytes = vec![0xaa; written.length()];
            written.encode(salt, lap, &crcs, &mut bytes);
            let read = Header::decode(&bytes, salt, lap, SEGMENT);
            prop_assert_eq!(read, Ok(written));
            for (page, crc) in crcs.iter().enumerate() {
                prop_assert_eq!(page_crc(&bytes, page as u32), Some(*crc));
            }
            prop_assert_eq!(page_crc(&bytes, crcs.len() as u32), None);
            prop_assert_eq!(Header::decode(&bytes, salt, lap ^ 1, SEGMENT), Err(Broken::Bad));
            let short = Header::decode(&bytes[..bytes.len() - 1], salt, lap, SEGMENT);
            prop_assert_eq!(short, Err(Broken::Short(bytes.len())));
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes, salt, lap, SEGMENT).is_err());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), ours: bool) {
            if ours && bytes.len() >= 16 {
                put(&mut bytes, 0, &MAGIC.to_le_bytes());
                put(&mut bytes, 8, &7u64.to_le_bytes());
            }
            prop_assert!(Header::decode(&bytes, Salt::of(1), 7, SEGMENT).is_err());
        }

        #[test]
        fn the_parts_of_a_record_are_in_order(at in 0u64..10_000, meta in 0u32..100_000, data in 0u32..1_000_000) {
            let at = at * UNIT;
            let layout = Layout::of(at, meta, data);
            prop_assert!(layout.at < layout.crcs && layout.crcs <= layout.meta && layout.meta <= layout.data);
            prop_assert!(layout.data_end <= layout.end && layout.end.is_multiple_of(UNIT));
            prop_assert!(u64::from(data) <= PAGE || layout.data.is_multiple_of(BLOCK));
            prop_assert!(layout.length() < u64::from(meta) + u64::from(data) + 2 * BLOCK);
        }
    }
}
