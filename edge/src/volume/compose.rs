//! The open segment: assigns positions to records and collects the entries of their table.

use bytes::Bytes;
use smallvec::SmallVec;

use super::batch::{Batch, Packer, Told};
use super::device_io::pad;
use super::format::record::{Header, Layout, Mark};
use super::format::segment::{ENTRY, Entry, Footer, Opening, RECORDS, table_crc};
use super::format::{BLOCK, UNIT, up};
use super::index::RecordLocation;
use super::mounted::{Mounted, Position, place};
use super::types::{Id, PAGE, RecordSource};
use crate::sys::buffer::Buffer;

/// Bytes of a segment that the largest record can't use: opening block, footer, a table with one
/// entry, header, alignment.
pub const OVERHEAD: u64 = 32 << 10;

/// Full pages and a last partial one: the data of any record.
pub type Pages = SmallVec<[Bytes; 16]>;

/// A record to be written.
pub struct Record {
    /// Type of the record.
    pub mark: Mark,
    /// Id of the record.
    pub id: Id,
    /// Number at which the oldest fetch began that contributed bytes to the record.
    pub born_seq: u64,
    /// Metadata.
    pub meta: Bytes,
    /// Data.
    pub data: Pages,
    /// The component that is notified.
    pub origin: Origin,
}

/// The component that is notified when a record has been written.
pub enum Origin {
    /// A caller that queued a record.
    Put {
        /// Position in the queue.
        ticket: u64,
        /// Bytes charged to the queue.
        weight: u64,
        /// The source of the record's bytes.
        source: Box<dyn RecordSource>,
    },
    /// A caller that queued a tombstone, with its position in the queue.
    Tombstone(u64),
    /// The index: the record was moved from this location.
    Moved(RecordLocation),
    /// No component: the volume wrote the record for itself.
    Own,
}

/// The segment to which records are written.
pub struct Open {
    /// Segment number and lap.
    pub position: Position,
    /// Offset of the next record.
    at: u64,
    /// The bytes before that offset in the same block.
    tail: Vec<u8>,
    /// The encoded entries of the table.
    table: Vec<u8>,
    last_seq: u64,
}

impl Open {
    /// An empty segment.
    pub fn empty(position: Position, last_seq: u64) -> Open {
        Open {
            position,
            at: 0,
            tail: Vec::new(),
            table: Vec::new(),
            last_seq,
        }
    }

    /// A segment with these records, which end at `at`; `tail` contains the bytes before that in
    /// the same block.
    pub fn with(position: Position, entries: &[Entry], at: u64, tail: Vec<u8>, seq: u64) -> Open {
        Open {
            position,
            at,
            tail,
            table: entries.iter().flat_map(Entry::encode).collect(),
            last_seq: seq,
        }
    }

    /// How full the segment is, in thousandths.
    pub fn fullness(&self, segment: u64) -> u64 {
        self.at * 1000 / segment
    }

    /// Bytes left for records and their entries in the table.
    pub fn room(&self, segment: u64) -> u64 {
        let count = (self.table.len() / ENTRY) as u64 + 1;
        let table = Footer::table_place(count, segment).unwrap_or(0);
        table.saturating_sub(self.at.max(RECORDS))
    }

    /// Begins a batch after the last written record.
    pub fn begin(&mut self, mounted: &Mounted, packer: &mut Packer) {
        if self.at == 0 {
            let opening = Opening {
                segment: self.position.segment,
                lap: self.position.lap,
                first_seq: self.last_seq + 1,
            };
            packer.copy(&opening.encode(mounted.salt));
            self.at = RECORDS;
        } else {
            packer.copy(&self.tail);
        }
    }

    /// Ends a batch. An empty batch need not be written.
    pub fn end(&mut self, mounted: &Mounted, packer: &mut Packer, batch: &mut Batch) {
        let (pieces, tail) = packer.finish();
        let begin = self.at - tail.len() as u64;
        let length: u64 = pieces.iter().map(|piece| piece.bytes().len() as u64).sum();
        let begin_of_all = begin + if tail.is_empty() { 0 } else { BLOCK } - length;
        batch.place = mounted.geometry.segment_place(self.position.segment) + begin_of_all;
        batch.pieces = pieces;
        self.tail = tail;
        if batch.told.is_empty() && self.table.is_empty() {
            // The segment's first block has not been written either.
            self.at = 0;
            self.tail.clear();
        }
    }

    /// Appends a record. Returns the record if the segment has no space for it.
    ///
    /// The record must satisfy `fits`.
    pub fn append(
        &mut self,
        mounted: &Mounted,
        packer: &mut Packer,
        record: Record,
    ) -> Result<Told, Box<Record>> {
        let data: u64 = record.data.iter().map(|page| page.len() as u64).sum();
        let layout = Layout::of(self.at, record.meta.len() as u32, data as u32);
        let count = (self.table.len() / ENTRY) as u64 + 1;
        let table = Footer::table_place(count, mounted.geometry.segment);
        let at = place(self.position.segment, layout.at, layout.length());
        let (Some(at), true) = (at, table.is_some_and(|table| layout.end <= table)) else {
            return Err(Box::new(record));
        };
        self.last_seq += 1;
        self.write(mounted, packer, &record, data as u32);
        self.at = layout.end;
        mounted.note_born(self.position.segment, record.born_seq);
        let entry = Entry {
            mark: record.mark,
            id: record.id,
            born_seq: record.born_seq,
            offset: layout.at as u32,
            length: layout.length() as u32,
        };
        self.table.extend_from_slice(&entry.encode());
        Ok(told(record, at))
    }

    fn write(&self, mounted: &Mounted, packer: &mut Packer, record: &Record, data: u32) {
        let (salt, lap, seq) = (mounted.salt, self.position.lap, self.last_seq);
        let crcs: SmallVec<[u32; 16]> = (0..)
            .zip(&record.data)
            .map(|(page, bytes)| Header::crc_of_page(salt, lap, seq, page, bytes))
            .collect();
        let header = Header {
            mark: record.mark,
            id: record.id,
            seq,
            born_seq: record.born_seq,
            meta: record.meta.len() as u32,
            data,
            meta_crc: Header::crc_of_meta(salt, lap, seq, &record.meta),
        };
        let mut bytes: SmallVec<[u8; 256]> = smallvec::smallvec![0; header.length()];
        header.encode(salt, lap, &crcs, &mut bytes);
        packer.copy(&bytes);
        packer.copy(&record.meta);
        if u64::from(data) > PAGE {
            packer.align(BLOCK);
        }
        for page in &record.data {
            packer.share(page);
        }
        packer.align(UNIT);
    }

    /// The table and footer, and their offset in the segment.
    pub fn seal(&self, mounted: &Mounted) -> (u64, Buffer) {
        let segment = mounted.geometry.segment;
        let count = (self.table.len() / ENTRY) as u64;
        let footer = Footer {
            lap: self.position.lap,
            end: self.at.max(RECORDS) as u32,
            count: count as u32,
            table_crc: table_crc(mounted.salt, self.position.lap, &self.table),
        };
        let length = up(self.table.len() as u64, BLOCK) + BLOCK;
        let mut bytes = Buffer::new(length as usize);
        bytes.append(&self.table);
        pad(&mut bytes);
        bytes.append(&footer.encode(mounted.salt));
        (segment - length, bytes)
    }

    /// The sequence number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }
}

/// Whether a record with this content can be written into a segment of this size.
pub fn fits(segment: u64, meta: usize, data: &[Bytes]) -> bool {
    let data: u64 = data.iter().map(|page| page.len() as u64).sum();
    meta as u64 + data <= segment - OVERHEAD
}

/// Splits data into pages as they are stored. Copies only if it was split differently.
pub fn in_pages(data: Pages) -> Pages {
    let page = PAGE as usize;
    let full = data.len().saturating_sub(1);
    let is_paged = data[..full].iter().all(|piece| piece.len() == page)
        && data
            .last()
            .is_none_or(|last| (1..=page).contains(&last.len()));
    if is_paged {
        return data;
    }
    let all = Bytes::from(data.concat());
    (0..all.len())
        .step_by(page)
        .map(|at| all.slice(at..all.len().min(at + page)))
        .collect()
}

fn told(record: Record, at: RecordLocation) -> Told {
    let id = record.id;
    match record.origin {
        Origin::Put {
            ticket,
            weight,
            source,
        } => Told::Put {
            ticket,
            weight,
            id,
            place: at,
            source,
        },
        Origin::Tombstone(ticket) => Told::Tombstone { ticket, id },
        Origin::Moved(from) => Told::Moved { id, from, to: at },
        Origin::Own => Told::Nobody,
    }
}
