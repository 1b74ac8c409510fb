//! An entry of the index: key, location and usage of a record, in 24 bytes.

use crate::volume::format;
use crate::volume::types::{Found, Kind};

/// Alignment of records in bytes.
pub const UNIT: u32 = format::UNIT as u32;

/// The part of a record's id that the index stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// For a head: a hash of cache and key alone, which all variants share. For a block: a hash of the complete id.
    pub(super) hash: u64,
    /// The low half of the version in the record's id.
    pub(super) tag: u32,
    pub(super) kind: Kind,
}

/// The location of a record on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// Number of the segment.
    pub segment: u16,
    /// Offset of the record in the segment, in units of 64 bytes.
    offset: u32,
    /// Length of the record in units of 64 bytes.
    pub(super) length: u32,
}

impl RecordLocation {
    /// Creates a location; returns `None` if the segment number or the range is out of bounds, or the offset is not a multiple of a unit.
    pub fn new(segment: u64, offset: u64, length: u64) -> Option<RecordLocation> {
        let units = 1 << UNITS_BITS;
        let unit = u64::from(UNIT);
        let (begin, takes) = (offset / unit, length.div_ceil(unit));
        let fits = offset.is_multiple_of(unit) && begin < units && takes < units;
        Some(RecordLocation {
            segment: u16::try_from(segment).ok()?,
            offset: fits.then_some(begin as u32)?,
            length: takes as u32,
        })
    }

    /// Returns the offset of the record in the segment, in bytes.
    pub fn offset(&self) -> u32 {
        self.offset * UNIT
    }

    /// Returns the length of the record up to the end of its last unit, in bytes.
    pub fn length(&self) -> u32 {
        self.length * UNIT
    }
}

impl From<&Found> for RecordLocation {
    fn from(found: &Found) -> RecordLocation {
        RecordLocation {
            segment: found.segment as u16,
            offset: found.offset / UNIT,
            length: found.length / UNIT,
        }
    }
}

/// The last use of a record, and whether it was a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Whether the record has been read since it was written.
    pub used: bool,
    /// Time of the last read or write, in seconds since the volume was created.
    pub atime: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) tag: u32,
    pub(super) atime: u32,
    pub(super) packed: Packed,
}

/// A location and a usage in 64 bits. Bit fields from the lowest bit on: segment 16, offset 20, length 20, class 4, kind 1, used 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed(u64);

const UNITS_BITS: u32 = 20;
const OFFSET_AT: u32 = 16;
const LENGTH_AT: u32 = OFFSET_AT + UNITS_BITS;
const CLASS_AT: u32 = LENGTH_AT + UNITS_BITS;
const HEAD_AT: u32 = CLASS_AT + 4;
const USED_AT: u32 = HEAD_AT + 1;
const PLACE_MASK: u64 = (1 << CLASS_AT) - 1;

impl Packed {
    pub(super) fn new(place: RecordLocation, class: usize, kind: Kind) -> Packed {
        Packed(
            Packed::bits(place)
                | (class as u64) << CLASS_AT
                | u64::from(kind == Kind::Head) << HEAD_AT,
        )
    }

    fn bits(place: RecordLocation) -> u64 {
        u64::from(place.segment)
            | u64::from(place.offset) << OFFSET_AT
            | u64::from(place.length) << LENGTH_AT
    }

    pub(super) fn location(self) -> RecordLocation {
        let units = (1 << UNITS_BITS) - 1;
        RecordLocation {
            segment: self.0 as u16,
            offset: (self.0 >> OFFSET_AT & units) as u32,
            length: (self.0 >> LENGTH_AT & units) as u32,
        }
    }

    pub(super) fn is_at(self, place: RecordLocation) -> bool {
        self.0 & PLACE_MASK == Packed::bits(place)
    }

    pub(super) fn class(self) -> usize {
        (self.0 >> CLASS_AT) as usize % 16
    }

    pub(super) fn kind(self) -> Kind {
        match self.0 >> HEAD_AT & 1 {
            1 => Kind::Head,
            _ => Kind::Block,
        }
    }

    pub(super) fn used(self) -> bool {
        self.0 >> USED_AT & 1 == 1
    }

    pub(super) fn set_used(&mut self, used: bool) {
        self.0 = self.0 & !(1 << USED_AT) | u64::from(used) << USED_AT;
    }

    pub(super) fn set_location(&mut self, place: RecordLocation) {
        self.0 = self.0 & !PLACE_MASK | Packed::bits(place);
    }
}

impl Entry {
    pub(super) fn is(&self, key: Key) -> bool {
        (self.hash, self.tag, self.packed.kind()) == (key.hash, key.tag, key.kind)
    }

    pub(super) fn key(&self) -> Key {
        Key {
            hash: self.hash,
            tag: self.tag,
            kind: self.packed.kind(),
        }
    }
}
