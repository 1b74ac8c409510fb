//! The open segment: assigns offsets to records, and collects the entries of the segment's table.

use bytes::Bytes;
use smallvec::SmallVec;

use super::batch::{Batch, Completion, Packer};
use super::device_io::pad;
use super::format::record::{Header, Layout, Mark};
use super::format::segment::{ENTRY, Entry, Footer, Opening, RECORDS, table_crc};
use super::format::{BLOCK, UNIT, up};
use super::index::RecordLocation;
use super::mounted::{Mounted, Position, place};
use super::types::{Id, PAGE, RecordSource};
use crate::sys::buffer::Buffer;

/// Number of bytes of a segment that its largest record can't use: opening block, footer, a table with one entry, header, alignment.
pub const OVERHEAD: u64 = 32 << 10;

/// The data of a record: full pages, and a last page that may be shorter.
pub type Pages = SmallVec<[Bytes; 16]>;

/// A record to be written.
pub struct Record {
    /// Type of the record.
    pub mark: Mark,
    /// Id of the record.
    pub id: Id,
    /// Smallest sequence number of the fetches that contributed bytes to the record.
    pub born_seq: u64,
    /// Metadata: for a head's record, the encoded head.
    pub meta: Bytes,
    /// Data: content of the object.
    pub data: Pages,
    /// Origin of the record: the queue, another segment, or the volume itself. The origin determines what happens after the write.
    pub origin: Origin,
}

/// Origin of a record, which determines what happens after it was written.
pub enum Origin {
    /// A new record from the queue.
    Put {
        /// Number of the record in the order in which items were queued.
        ticket: u64,
        /// Number of bytes charged to the queue for the record.
        weight: u64,
        /// Receives the result of the write.
        source: Box<dyn RecordSource>,
    },
    /// A tombstone from the queue, with its number in the order in which items were queued.
    Tombstone(u64),
    /// A record that is copied from this location before its segment is overwritten.
    Moved(RecordLocation),
    /// A record that the volume writes for itself, such as the recency of records; nothing happens after the write.
    Own,
}

/// The open segment: the one to which records are appended.
pub struct Open {
    /// Number of the segment, and number of the pass over the volume in which it is written (its lap).
    pub position: Position,
    /// Offset of the next record in the segment, in bytes.
    at: u64,
    /// The bytes between the beginning of the block that contains `at` and `at`.
    tail: Vec<u8>,
    /// The encoded entries of the segment's table so far.
    table: Vec<u8>,
    last_seq: u64,
}

impl Open {
    /// Creates an open segment without records.
    pub fn empty(position: Position, last_seq: u64) -> Open {
        Open {
            position,
            at: 0,
            tail: Vec::new(),
            table: Vec::new(),
            last_seq,
        }
    }

    /// Creates an open segment with these records, which end at `at`. `tail` contains the bytes between the beginning of the block that
    /// contains `at` and `at`.
    pub fn with(position: Position, entries: &[Entry], at: u64, tail: Vec<u8>, seq: u64) -> Open {
        Open {
            position,
            at,
            tail,
            table: entries.iter().flat_map(Entry::encode).collect(),
            last_seq: seq,
        }
    }

    /// Returns how full the segment is, in thousandths.
    pub fn fullness(&self, segment: u64) -> u64 {
        self.at * 1000 / segment
    }

    /// Returns the number of bytes left for records and their entries in the table.
    pub fn room(&self, segment: u64) -> u64 {
        let count = (self.table.len() / ENTRY) as u64 + 1;
        let table = Footer::table_place(count, segment).unwrap_or(0);
        table.saturating_sub(self.at.max(RECORDS))
    }

    /// Begins a batch with the bytes that must precede its first record: the opening block, or the beginning of the present block.
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

    /// Ends a batch, and sets its offset and parts. An empty batch need not be written.
    pub fn end(&mut self, mounted: &Mounted, packer: &mut Packer, batch: &mut Batch) {
        let (pieces, tail) = packer.finish();
        let begin = self.at - tail.len() as u64;
        let length: u64 = pieces.iter().map(|piece| piece.bytes().len() as u64).sum();
        let begin_of_all = begin + if tail.is_empty() { 0 } else { BLOCK } - length;
        batch.place = mounted.geometry.segment_place(self.position.segment) + begin_of_all;
        batch.pieces = pieces;
        self.tail = tail;
        if batch.completions.is_empty() && self.table.is_empty() {
            // The opening block was to be written with this empty batch, so the next batch must begin with it again.
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
    ) -> Result<Completion, Box<Record>> {
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
        Ok(completion(record, at))
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

    /// Returns the encoded table and footer, and their offset in the segment.
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

    /// Returns the sequence number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }
}

/// Whether a record with this content can be written into a segment of this size.
pub fn fits(segment: u64, meta: usize, data: &[Bytes]) -> bool {
    let data: u64 = data.iter().map(|page| page.len() as u64).sum();
    meta as u64 + data <= segment - OVERHEAD
}

/// Splits data into pages as they are stored. Data that is already split in this way is not copied.
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

fn completion(record: Record, at: RecordLocation) -> Completion {
    let id = record.id;
    match record.origin {
        Origin::Put {
            ticket,
            weight,
            source,
        } => Completion::Put {
            ticket,
            weight,
            id,
            place: at,
            source,
        },
        Origin::Tombstone(ticket) => Completion::Tombstone { ticket, id },
        Origin::Moved(from) => Completion::Moved { id, from, to: at },
        Origin::Own => Completion::None,
    }
}
