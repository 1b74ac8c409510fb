//! The purge log of a volume. The log has two halves on the device, of which the newer one is used. When a call returns, its entry survives
//! a power failure.

use std::collections::{BTreeMap, HashSet};
use std::io;

use super::checksum::Salt;
use super::device_io::{read_block, read_exactly, write_aligned};
use super::format::{BLOCK, Geometry, put, u32_at, u64_at, up};
use super::types::{LogError, Logged};
use crate::sys::disk::device::Device;

const HALF_MAGIC: u32 = 0x676c_6f47; // "Golg"
const ENTRY_MAGIC: u32 = 0x6567_7570; // "puge"
const HALF_HEADER: usize = 32;
/// Number of bytes of an entry before its text.
const ENTRY_HEADER: usize = 32;
const HALF_SALT: u64 = 0x676c_6f00;
const ENTRY_SALT: u64 = 0x6567_7500;
/// Alignment of entries in bytes.
const ALIGN: u64 = 8;

/// Number of bytes of obsolete entries after which the log is compacted at the latest.
const DROPPED_MAX: u64 = 256 << 10;

/// Maximum length in bytes of a rule's text.
pub(super) const TEXT_MAX: usize = 8192;

const RULE: u32 = 1;
const MARK: u32 = 2;

/// The purges of one cache in the log.
#[derive(Default)]
struct Space {
    rules: Vec<Logged>,
    upto: u64,
}

impl Space {
    /// Drops rules that a newer rule with the same text repeats.
    fn drop_repeated(&mut self) {
        self.rules.sort_by_key(|rule| rule.number);
        let mut texts = HashSet::new();
        let is_last: Vec<bool> = (self.rules.iter().rev())
            .map(|rule| texts.insert(&rule.text))
            .collect();
        let mut is_last = is_last.into_iter().rev();
        self.rules.retain(|_| is_last.next().unwrap_or(true));
    }
}

/// The purge log of a volume, with its entries in memory.
pub struct PurgeLog {
    geometry: Geometry,
    volume: Salt,
    spaces: BTreeMap<u64, Space>,
    half: usize,
    generation: u64,
    /// Salt of the checksums of the entries in the half that is used.
    salt: Salt,
    /// Offset of the next entry in the half, in bytes.
    at: u64,
    /// The bytes between the beginning of the block that contains `at` and `at`.
    tail: Vec<u8>,
    /// Number of bytes of obsolete entries in the half.
    dropped: u64,
}

/// Error: the log is damaged, so rules may be missing.
pub struct Damaged;

impl PurgeLog {
    /// Creates a log that contains only these marks. The log is written to the device, but not synced.
    pub fn make(
        device: &dyn Device,
        geometry: Geometry,
        volume: Salt,
        (generation, nonce): (u64, u64),
        marks: &BTreeMap<u64, u64>,
    ) -> io::Result<PurgeLog> {
        let mut log = PurgeLog {
            geometry,
            volume,
            spaces: BTreeMap::new(),
            half: 0,
            generation,
            salt: entry_salt(volume, generation, nonce),
            at: BLOCK,
            tail: Vec::new(),
            dropped: 0,
        };
        let mut bytes = half_header(volume, generation, nonce).to_vec();
        bytes.resize(BLOCK as usize, 0);
        let room = (geometry.half - BLOCK) as usize / entry_length(0);
        for (space, number) in marks.iter().take(room) {
            encode(MARK, *space, *number, &[], log.salt, &mut bytes);
            log.note(MARK, *space, *number, &[]);
        }
        write_aligned(device, geometry.half_place(0), &bytes)?;
        log.at = bytes.len() as u64;
        log.tail = bytes.split_off(bytes.len() / BLOCK as usize * BLOCK as usize);
        Ok(log)
    }

    /// Reads the log from a device. The log's generation must be at least the given one.
    pub fn read(
        device: &dyn Device,
        geometry: Geometry,
        volume: Salt,
        generation: u64,
    ) -> io::Result<Result<PurgeLog, Damaged>> {
        let mut newest: Option<(u64, u64, usize)> = None;
        for half in 0..2 {
            let block = read_block(device, geometry.half_place(half))?;
            if let Some((found, nonce)) = read_half_header(block.filled(), volume)
                && found >= generation
                && newest.is_none_or(|(newest, ..)| found > newest)
            {
                newest = Some((found, nonce, half));
            }
        }
        let Some((generation, nonce, half)) = newest else {
            return Ok(Err(Damaged));
        };
        let mut log = PurgeLog {
            geometry,
            volume,
            spaces: BTreeMap::new(),
            half,
            generation,
            salt: entry_salt(volume, generation, nonce),
            at: BLOCK,
            tail: Vec::new(),
            dropped: 0,
        };
        let bytes = read_exactly(device, geometry.half_place(half), geometry.half as usize)?;
        Ok(log.replay(bytes.filled()).map(|()| log))
    }

    /// Reads the entries of a half into memory.
    fn replay(&mut self, half: &[u8]) -> Result<(), Damaged> {
        let mut at = BLOCK as usize;
        while let Some((kind, space, number, text)) = decode(&half[at..], self.salt) {
            at += entry_length(text.len());
            self.note(kind, space, number, text);
        }
        self.at = at as u64;
        self.tail = half[at / BLOCK as usize * BLOCK as usize..at].to_vec();
        // Each entry was synced before the next one was written. If an invalid entry is the last one, it was therefore never acknowledged.
        // If a valid entry follows, the log is damaged.
        let behind = (at..half.len()).step_by(ALIGN as usize);
        let mut behind = behind.skip(1);
        match behind.any(|at| decode(&half[at..], self.salt).is_some()) {
            true => Err(Damaged),
            false => Ok(()),
        }
    }

    fn note(&mut self, kind: u32, space: u64, number: u64, text: &[u8]) {
        let space = self.spaces.entry(space).or_default();
        space.upto = space.upto.max(number);
        if kind == RULE {
            space.rules.push(Logged {
                number,
                text: text.into(),
            });
        }
    }

    /// Returns the rules of a cache, oldest first.
    pub fn rules(&self, space: u64) -> Vec<Logged> {
        self.spaces
            .get(&space)
            .map_or(Vec::new(), |space| space.rules.clone())
    }

    /// Returns the greatest number of a cache's rules and marks; `None` for an unknown cache.
    pub fn upto(&self, space: u64) -> Option<u64> {
        self.spaces.get(&space).map(|space| space.upto)
    }

    /// Returns the generation of the log: how often it has been rewritten.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Logs a rule. When this returns, the rule survives a power failure.
    pub fn log_rule(
        &mut self,
        device: &dyn Device,
        space: u64,
        number: u64,
        text: &[u8],
        nonce: u64,
    ) -> Result<(), LogError> {
        if text.len() > TEXT_MAX {
            return Err(LogError::Full);
        }
        self.append(device, (RULE, space, number, text), nonce)
    }

    /// Logs a mark: no record of this cache on the device is older than this number.
    pub fn log_mark(
        &mut self,
        device: &dyn Device,
        space: u64,
        number: u64,
        nonce: u64,
    ) -> Result<(), LogError> {
        self.append(device, (MARK, space, number, &[]), nonce)
    }

    /// Drops obsolete rules of a cache, with numbers up to `upto`. The log on the device becomes shorter at the next compaction.
    pub fn drop_upto(&mut self, space: u64, upto: u64) {
        if let Some(space) = self.spaces.get_mut(&space) {
            let dropped = &mut self.dropped;
            space.rules.retain(|rule| {
                let keep = rule.number > upto;
                if !keep {
                    *dropped += entry_length(rule.text.len()) as u64;
                }
                keep
            });
        }
    }

    /// Whether so much of the log is obsolete that it should be compacted.
    pub fn wants_compaction(&self) -> bool {
        self.dropped > (self.geometry.half / 4).min(DROPPED_MAX)
    }

    /// Returns the number of the newest purge of each cache.
    pub fn marks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.spaces.iter().map(|(space, its)| (*space, its.upto))
    }

    fn append(
        &mut self,
        device: &dyn Device,
        (kind, space, number, text): (u32, u64, u64, &[u8]),
        nonce: u64,
    ) -> Result<(), LogError> {
        let length = entry_length(text.len()) as u64;
        if self.at + length > self.geometry.half {
            self.compact(device, nonce)?;
            if self.at + length > self.geometry.half {
                return Err(LogError::Full);
            }
        }
        let mut bytes = std::mem::take(&mut self.tail);
        let begin = self.at - bytes.len() as u64;
        encode(kind, space, number, text, self.salt, &mut bytes);
        let place = self.geometry.half_place(self.half) + begin;
        write_aligned(device, place, &bytes).map_err(LogError::Io)?;
        device.sync().map_err(LogError::Io)?;
        self.at += length;
        self.tail = bytes.split_off(bytes.len() / BLOCK as usize * BLOCK as usize);
        self.note(kind, space, number, text);
        Ok(())
    }

    /// Writes the needed entries into the other half, which is used from then on.
    pub fn compact(&mut self, device: &dyn Device, nonce: u64) -> Result<(), LogError> {
        let generation = self.generation + 1;
        let salt = entry_salt(self.volume, generation, nonce);
        let mut bytes = Vec::new();
        for (number, space) in &mut self.spaces {
            space.drop_repeated();
            encode(MARK, *number, space.upto, &[], salt, &mut bytes);
            for rule in &space.rules {
                encode(RULE, *number, rule.number, &rule.text, salt, &mut bytes);
            }
        }
        if bytes.len() as u64 + BLOCK > self.geometry.half {
            return Err(LogError::Full);
        }
        let half = 1 - self.half;
        let place = self.geometry.half_place(half);
        // The entries are synced before the header that makes the half valid is written.
        write_aligned(device, place + BLOCK, &bytes).map_err(LogError::Io)?;
        device.sync().map_err(LogError::Io)?;
        let header = half_header(self.volume, generation, nonce);
        write_aligned(device, place, &header).map_err(LogError::Io)?;
        device.sync().map_err(LogError::Io)?;
        (self.half, self.generation, self.salt) = (half, generation, salt);
        self.at = BLOCK + bytes.len() as u64;
        self.tail = bytes.split_off(bytes.len() / BLOCK as usize * BLOCK as usize);
        self.dropped = 0;
        Ok(())
    }
}

fn entry_salt(volume: Salt, generation: u64, nonce: u64) -> Salt {
    volume.with(ENTRY_SALT).with(generation).with(nonce)
}

fn half_header(volume: Salt, generation: u64, nonce: u64) -> [u8; HALF_HEADER] {
    let mut block = [0; HALF_HEADER];
    put(&mut block, 0, &HALF_MAGIC.to_le_bytes());
    put(&mut block, 8, &generation.to_le_bytes());
    put(&mut block, 16, &nonce.to_le_bytes());
    let crc = volume.with(HALF_SALT).crc(&block[8..]);
    put(&mut block, 4, &crc.to_le_bytes());
    block
}

/// Returns the generation and nonce from the header of a half.
fn read_half_header(block: &[u8], volume: Salt) -> Option<(u64, u64)> {
    let ours = block.len() >= HALF_HEADER
        && u32_at(block, 0) == HALF_MAGIC
        && volume.with(HALF_SALT).crc(&block[8..HALF_HEADER]) == u32_at(block, 4);
    ours.then(|| (u64_at(block, 8), u64_at(block, 16)))
}

fn entry_length(text: usize) -> usize {
    up((ENTRY_HEADER + text) as u64, ALIGN) as usize
}

pub(super) fn encode(
    kind: u32,
    space: u64,
    number: u64,
    text: &[u8],
    salt: Salt,
    into: &mut Vec<u8>,
) {
    let begin = into.len();
    into.resize(begin + entry_length(text.len()), 0);
    let entry = &mut into[begin..];
    put(entry, 0, &ENTRY_MAGIC.to_le_bytes());
    put(entry, 8, &space.to_le_bytes());
    put(entry, 16, &number.to_le_bytes());
    put(entry, 24, &kind.to_le_bytes());
    put(entry, 28, &(text.len() as u32).to_le_bytes());
    put(entry, ENTRY_HEADER, text);
    let crc = salt.crc(&entry[8..]);
    put(entry, 4, &crc.to_le_bytes());
}

/// Decodes the entry at the beginning of the bytes: its kind, cache, number and text.
pub(super) fn decode(bytes: &[u8], salt: Salt) -> Option<(u32, u64, u64, &[u8])> {
    if bytes.len() < ENTRY_HEADER || u32_at(bytes, 0) != ENTRY_MAGIC {
        return None;
    }
    let (kind, text) = (u32_at(bytes, 24), u32_at(bytes, 28) as usize);
    // The length is checked before it is used, since `decode` is called with any bytes: after the last entry, decoding is attempted at
    // every offset.
    let most = match kind {
        RULE => TEXT_MAX,
        MARK => 0,
        _ => return None,
    };
    let entry = bytes.get(8..entry_length(text.min(most)))?;
    if text > most || salt.crc(entry) != u32_at(bytes, 4) {
        return None;
    }
    let text = &bytes[ENTRY_HEADER..ENTRY_HEADER + text];
    Some((kind, u64_at(bytes, 8), u64_at(bytes, 16), text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_encoded_entry_is_decoded(space: u64, number: u64, text in prop::collection::vec(any::<u8>(), 0..100),
                                              kind in 1u32..=2, bit: prop::sample::Index) {
            let salt = entry_salt(Salt::of(u128::from(space)), number, 3);
            let text = if kind == MARK { Vec::new() } else { text };
            let mut bytes = Vec::new();
            encode(kind, space, number, &text, salt, &mut bytes);
            prop_assert_eq!(bytes.len(), entry_length(text.len()));
            prop_assert_eq!(decode(&bytes, salt), Some((kind, space, number, &text[..])));
            prop_assert_eq!(decode(&bytes, salt.with(1)), None);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(&bytes, salt), None);
        }

        #[test]
        fn a_text_that_is_too_long_is_refused(more in 0usize..100) {
            let mut bytes = Vec::new();
            for (kind, most) in [(RULE, TEXT_MAX), (MARK, 0)] {
                let mut bytes = Vec::new();
                encode(kind, 1, 2, &vec![7; most], Salt::of(1), &mut bytes);
                prop_assert!(decode(&bytes, Salt::of(1)).is_some());
                bytes.clear();
                encode(kind, 1, 2, &vec![7; most + 1 + more], Salt::of(1), &mut bytes);
                prop_assert_eq!(decode(&bytes, Salt::of(1)), None);
            }
            encode(3, 1, 2, &[], Salt::of(1), &mut bytes);
            prop_assert_eq!(decode(&bytes, Salt::of(1)), None);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), ours: bool) {
            if ours && bytes.len() >= 4 {
                put(&mut bytes, 0, &ENTRY_MAGIC.to_le_bytes());
            }
            prop_assert_eq!(decode(&bytes, Salt::of(1)), None);
            prop_assert_eq!(read_half_header(&bytes, Salt::of(1)), None);
        }
    }
}
