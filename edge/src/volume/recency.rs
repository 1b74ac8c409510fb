//! How lately each record was read: written when a volume is closed, and read when it is opened.

use bytes::Bytes;

use super::format::{UNIT, put, u32_at, u64_at};
use super::index::{Place, Use};
use super::mounted::Mounted;

/// Bytes for a record.
const EACH: usize = 12;
/// Bytes in a piece.
const PIECE: usize = EACH << 14;

/// The use of all records, in pieces; of as many as there is reasonable room for.
pub fn of(mounted: &Mounted) -> Vec<Bytes> {
    let most = (mounted.geometry.size() / 64).min(64 << 20) as usize;
    let mut all = Vec::new();
    mounted.index.for_each(|_, place, usage| {
        if all.len() < most {
            let mut bytes = [0; EACH];
            put(&mut bytes, 0, &number(place).to_le_bytes());
            let time = usage.atime << 1 | u32::from(usage.used);
            put(&mut bytes, 8, &time.to_le_bytes());
            all.extend_from_slice(&bytes);
        }
    });
    let all = Bytes::from(all);
    let begins = (0..all.len()).step_by(PIECE);
    begins
        .map(|at| all.slice(at..all.len().min(at + PIECE)))
        .collect()
}

/// The use of records by their places.
#[derive(Default)]
pub struct Recency(Vec<(u64, u32)>);

impl Recency {
    /// Takes in a piece.
    pub fn add(&mut self, piece: &[u8]) {
        let (each, _) = piece.as_chunks::<EACH>();
        let read = each
            .iter()
            .map(|bytes| (u64_at(bytes, 0), u32_at(bytes, 8)));
        self.0.extend(read);
    }

    /// To be called when all pieces are in.
    pub fn sort(&mut self) {
        self.0.sort_unstable();
    }

    /// What is known about a record.
    pub fn of(&self, place: Place) -> Option<Use> {
        let number = number(place);
        let at = self.0.binary_search_by_key(&number, |each| each.0).ok()?;
        let time = self.0[at].1;
        Some(Use {
            used: time & 1 == 1,
            atime: time >> 1,
        })
    }
}

fn number(place: Place) -> u64 {
    u64::from(place.segment) << 32 | u64::from(place.offset() / UNIT as u32)
}
