//! For the fuzzer: decodes arbitrary bytes as every structure that a device contains.

use super::checksum::{Salt, crc};
use super::format::record::{HEADER, Header, Layout, Mark, lap_salt};
use super::format::segment::{Entry, Footer, Opening, entries};
use super::format::superblock::Superblock;
use super::format::{BLOCK, Geometry, SIZE_MAX};
use super::index::RecordLocation;
use super::purges;
use super::recency::Recency;
use super::types::{Id, Kind};

const SEGMENT: u64 = 1 << 20;
const LAP: u64 = 3;

/// Decodes `input` as each structure of a device: without a change, and with the checksum replaced by a valid one.
///
/// # Panics
///
/// If a decoded value is outside of its permitted range.
pub fn exercise(input: &[u8]) {
    let salt = Salt::of(77);
    superblocks(input);
    records(input, salt);
    segments(input, salt);
    purge_log(input, salt);
    let mut recency = Recency::new(1 << 32);
    recency.add(input);
    recency.sort();
    if let Some(place) = RecordLocation::new(1, 64, 64) {
        let _ = recency.of(place);
    }
}

/// Decodes a superblock in which a few bytes are replaced by `input`.
fn superblocks(input: &[u8]) {
    const CRC_AT: usize = 124;
    let Ok(geometry) = Geometry::of(64 << 20, 0) else {
        return;
    };
    let sound = Superblock {
        uuid: 77,
        generation: 1,
        geometry,
        sequence: 1,
        clean: false,
        open: 0,
        lap: LAP,
        log_generation: 1,
        made_s: 1,
    };
    let mut block = sound.encode();
    overwrite(&mut block[..CRC_AT], input);
    let fitting = crc(&block[..CRC_AT]);
    block[CRC_AT..][..4].copy_from_slice(&fitting.to_le_bytes());
    for bytes in [&block, input] {
        if let Ok(superblock) = Superblock::newest([bytes, input]) {
            let geometry = superblock.geometry;
            // The volume's size is compared with the device's size later. Here, computing the size must only not overflow.
            assert!(geometry.size() <= SIZE_MAX + (1 << 27));
            assert!(geometry.segment_place(superblock.open) < geometry.size());
            assert!(superblock.lap > 0);
        }
    }
}

fn records(input: &[u8], salt: Salt) {
    let _ = Header::decode(input, salt, LAP, SEGMENT);
    let header = Header {
        mark: Mark::Stored(Kind::Block),
        id: Id {
            space: 1,
            key: 2,
            version: 3,
            part: 4,
            kind: Kind::Block,
        },
        seq: 5,
        born_seq: 6,
        meta: 7,
        data: 200_000,
        meta_crc: 8,
    };
    let length = header.length();
    let mut bytes = vec![0; length + 4 * 16];
    header.encode(salt, LAP, &[9; 4], &mut bytes);
    overwrite(&mut bytes[8..], input);
    // The header's length depends on the data length, which `input` may have changed.
    let data = u32::from_le_bytes([bytes[76], bytes[77], bytes[78], bytes[79]]);
    let length = Header { data, ..header }.length().min(bytes.len());
    let fitting = lap_salt(salt, LAP).crc(&bytes[8..length]);
    bytes[4..8].copy_from_slice(&fitting.to_le_bytes());
    if let Ok(header) = Header::decode(&bytes, salt, LAP, SEGMENT) {
        assert!(header.length() <= bytes.len() && header.length() >= HEADER);
        let layout = Layout::of(0, header.meta, header.data);
        assert!(layout.end <= SEGMENT && layout.data_end <= layout.end);
        assert!(layout.meta + u64::from(header.meta) <= layout.data);
        assert_eq!(header.mark.kind(), header.id.kind);
    }
}

fn segments(input: &[u8], salt: Salt) {
    let _ = Opening::decode(input, salt);
    if let Some(footer) = Footer::decode(input, salt, SEGMENT) {
        assert!(u64::from(footer.end) <= SEGMENT);
    }
    for end in [SEGMENT as u32, 9000] {
        for entry in entries(input, end).flatten() {
            assert!(u64::from(entry.offset) + u64::from(entry.length) <= u64::from(end));
            assert_eq!(Entry::decode(&entry.encode(), end), Some(entry));
            let (offset, length) = (u64::from(entry.offset), u64::from(entry.length));
            assert!(
                RecordLocation::new(0, offset, length).is_some(),
                "the index holds it"
            );
        }
    }
}

/// Decodes `input` as a purge log, and as the text of a rule that precedes `input` in a log.
fn purge_log(input: &[u8], salt: Salt) {
    let _ = purges::decode(input, salt);
    let text = &input[..input.len().min(BLOCK as usize)];
    let mut log = Vec::new();
    purges::encode(1, 2, 3, text, salt, &mut log);
    log.extend_from_slice(input);
    assert_eq!(purges::decode(&log, salt), Some((1, 2, 3, text)));
}

/// Overwrites `bytes` at the places that `input` gives: each three bytes of `input` are an offset and a value.
fn overwrite(bytes: &mut [u8], input: &[u8]) {
    let (changes, _) = input.as_chunks::<3>();
    for [low, high, byte] in changes.iter().take(64) {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % bytes.len();
        bytes[at] = *byte;
    }
}
