//! The recency of records: when each record was last read. Written to the device when a volume is closed, and read when it is opened.

use bytes::Bytes;

use super::format::{BLOCK, UNIT, put, u32_at, u64_at};
use super::index::{RecordLocation, Use};
use super::mounted::Mounted;

/// Number of bytes that describe the recency of one record.
const ENTRY_BYTES: usize = 12;
/// Maximum number of bytes in one recency record on the device.
const RECORD_BYTES_MAX: usize = ENTRY_BYTES << 14;

/// Returns the maximum number of bytes for recency on a volume of this size.
fn most(size: u64) -> u64 {
    (size / 64).min(64 << 20)
}

/// Encodes the time of the last read for as many records as the limit allows. Each item is the content of one recency record.
pub fn of(mounted: &Mounted) -> Vec<Bytes> {
    let most = most(mounted.geometry.size()) as usize;
    let mut all = Vec::new();
    mounted.index.for_each(|_, place, usage| {
        if all.len() < most {
            let mut bytes = [0; ENTRY_BYTES];
            put(&mut bytes, 0, &number(place).to_le_bytes());
            let time = usage.atime << 1 | u32::from(usage.used);
            put(&mut bytes, 8, &time.to_le_bytes());
            all.extend_from_slice(&bytes);
        }
    });
    let all = Bytes::from(all);
    let begins = (0..all.len()).step_by(RECORD_BYTES_MAX);
    begins
        .map(|at| all.slice(at..all.len().min(at + RECORD_BYTES_MAX)))
        .collect()
}

/// The last reads of records, by the location of the record.
pub struct Recency {
    uses: Vec<(u64, u32)>,
    /// Number of bytes of recency records that may still be read.
    room: u64,
}

impl Recency {
    /// Creates an empty `Recency` for a volume of this size.
    pub fn new(size: u64) -> Recency {
        let pieces = most(size).div_ceil(RECORD_BYTES_MAX as u64);
        Recency {
            uses: Vec::new(),
            // The header and the alignment of a recency record take at most two blocks.
            room: pieces * (RECORD_BYTES_MAX as u64 + 2 * BLOCK),
        }
    }

    /// Whether a recency record of this length may be read within the limit. Reduces the limit by the length: called once for each recency
    /// record, before it is read.
    pub fn takes(&mut self, length: u64) -> bool {
        let left = self.room.checked_sub(length.max(BLOCK));
        self.room = left.unwrap_or(0);
        left.is_some()
    }

    /// Adds the content of one recency record.
    pub fn add(&mut self, piece: &[u8]) {
        let (each, _) = piece.as_chunks::<ENTRY_BYTES>();
        let read = each
            .iter()
            .map(|bytes| (u64_at(bytes, 0), u32_at(bytes, 8)));
        self.uses.extend(read);
    }

    /// Sorts the entries for `of`; called after all recency records have been added.
    pub fn sort(&mut self) {
        self.uses.sort_unstable();
    }

    /// Returns the last read of the record at this location.
    pub fn of(&self, place: RecordLocation) -> Option<Use> {
        let number = number(place);
        let at = self
            .uses
            .binary_search_by_key(&number, |each| each.0)
            .ok()?;
        let time = self.uses[at].1;
        Some(Use {
            used: time & 1 == 1,
            atime: time >> 1,
        })
    }
}

fn number(place: RecordLocation) -> u64 {
    u64::from(place.segment) << 32 | u64::from(place.offset() / UNIT as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_the_written_recency_is_read() {
        let size = 1 << 30;
        let pieces = most(size).div_ceil(RECORD_BYTES_MAX as u64);
        let mut recency = Recency::new(size);
        for _ in 0..pieces {
            assert!(recency.takes(RECORD_BYTES_MAX as u64 + 2 * BLOCK));
        }
        assert!(!recency.takes(RECORD_BYTES_MAX as u64 + 2 * BLOCK));
        assert!(!recency.takes(1), "nothing behind it, either");
        assert!(!Recency::new(size).takes(u64::MAX));
    }
}
