//! The open segment: where the next record goes, and the table of those that are in it.

use bytes::Bytes;
use smallvec::SmallVec;

use super::batch::{Batch, Packer, Told};
use super::device_io::pad;
use super::format::record::{Header, Layout, Mark};
use super::format::segment::{ENTRY, Entry, Footer, Opening, RECORDS, table_crc};
use super::format::{BLOCK, UNIT, up};
use super::index::RecordLocation;
use super::mounted::{Mounted, Position, place};
use super::{Id, PAGE, Source};
use crate::sys::buffer::Buffer;

/// What a segment holds beyond the largest record: its ends, a table of one, the header, alignment.
pub const OVERHEAD: u64 = 32 << 10;

/// Full pages and the rest: of data of any length that a record may have.
pub type Pages = SmallVec<[Bytes; 16]>;

/// A record that is to be placed.
pub struct Record {
    /// What it is.
    pub mark: Mark,
    /// Whose.
    pub id: Id,
    /// How old.
    pub born_seq: u64,
    /// Its meta.
    pub meta: Bytes,
    /// Its data.
    pub data: Pages,
    /// Who is told.
    pub origin: Origin,
}

/// Who is told when a record is written.
pub enum Origin {
    /// Who put it.
    Put {
        /// Its place in line.
        ticket: u64,
        /// What it counted for.
        weight: u64,
        /// Who brought it.
        source: Box<dyn Source>,
    },
    /// Who forgot it, with that place in line.
    Tombstone(u64),
    /// The index: it was there before.
    Moved(RecordLocation),
    /// Nobody.
    Own,
}

/// The segment that is written to.
pub struct Open {
    /// Which, and its lap.
    pub position: Position,
    /// Where the next record goes.
    at: u64,
    /// What is in its block before it.
    tail: Vec<u8>,
    /// Entries, as they are stored.
    table: Vec<u8>,
    last_seq: u64,
}

impl Open {
    /// A segment into which nothing was written.
    pub fn empty(position: Position, last_seq: u64) -> Open {
        Open {
            position,
            at: 0,
            tail: Vec::new(),
            table: Vec::new(),
            last_seq,
        }
    }

    /// A segment with these records, which end there; `tail` is what is in that block before.
    pub fn with(position: Position, entries: &[Entry], at: u64, tail: Vec<u8>, seq: u64) -> Open {
        Open {
            position,
            at,
            tail,
            table: entries.iter().flat_map(Entry::encode).collect(),
            last_seq: seq,
        }
    }

    /// How many thousandths of it are full.
    pub fn fullness(&self, segment: u64) -> u64 {
        self.at * 1000 / segment
    }

    /// Bytes that are left for records and their entries in the table.
    pub fn room(&self, segment: u64) -> u64 {
        let count = (self.table.len() / ENTRY) as u64 + 1;
        let table = Footer::table_place(count, segment).unwrap_or(0);
        table.saturating_sub(self.at.max(RECORDS))
    }

    /// Begins a batch behind what was written.
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

    /// Ends a batch. If nothing was put into it, it need not be written.
    pub fn end(&mut self, mounted: &Mounted, packer: &mut Packer, batch: &mut Batch) {
        let (pieces, tail) = packer.finish();
        let begin = self.at - tail.len() as u64;
        let length: u64 = pieces.iter().map(|piece| piece.bytes().len() as u64).sum();
        let begin_of_all = begin + if tail.is_empty() { 0 } else { BLOCK } - length;
        batch.place = mounted.geometry.segment_place(self.position.segment) + begin_of_all;
        batch.pieces = pieces;
        self.tail = tail;
        if batch.told.is_empty() && self.table.is_empty() {
            // Not even the segment's first block is there.
            self.at = 0;
            self.tail.clear();
        }
    }

    /// Puts a record behind what is there; gives it back if there is no room.
    ///
    /// The record must be one that `fits`.
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

    /// Table and footer, and where in the segment they go.
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

    /// The number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }
}

/// Whether a record of this content can be written at all.
pub fn fits(segment: u64, meta: usize, data: &[Bytes]) -> bool {
    let data: u64 = data.iter().map(|page| page.len() as u64).sum();
    meta as u64 + data <= segment - OVERHEAD
}

/// Data in pages, as it is stored; copied only if it came in other pieces.
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
