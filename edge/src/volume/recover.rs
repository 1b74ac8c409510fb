//! Recovery: finds the end of the log on a device, scans the open segment, and loads the tables of the others.

use std::io;

use super::compose::Open;
use super::device_io::{read_block, read_exactly, shared};
use super::format::record::{Broken, HEADER, Header, Layout, Mark};
use super::format::segment::{Entry, Footer, Opening, RECORDS};
use super::format::superblock::Superblock;
use super::format::{BLOCK, up};
use super::index::RecordLocation;
use super::mounted::{LOADED, Mounted, Position, place};
use super::recency::Recency;
use super::reclaim::{open_record, read_table};
use crate::sys::buffer::Buffer;
use crate::sys::disk::device::Device;
use crate::volume::checksum::Salt;

/// Number of bytes per read when a segment is scanned.
const WINDOW: u64 = 4 << 20;

/// Finds the position of the log. The superblock is at most one segment behind the log, unless a newer superblock was damaged.
pub fn find_position(device: &dyn Device, superblock: &Superblock) -> io::Result<Position> {
    let (geometry, salt) = (&superblock.geometry, Salt::of(superblock.uuid));
    let mut position = Position {
        segment: superblock.open,
        lap: superblock.lap,
    };
    for _ in 0..geometry.segments {
        let next = position.next(geometry.segments);
        let begin = geometry.segment_place(position.segment);
        let last = read_block(device, begin + geometry.segment - BLOCK)?;
        let footer = Footer::decode(last.filled(), salt, geometry.segment);
        let is_sealed = footer.is_some_and(|footer| footer.lap == position.lap);
        let first = read_block(device, geometry.segment_place(next.segment))?;
        let opening = Opening::decode(first.filled(), salt);
        let is_begun = opening.is_some_and(|opening| is_of(&opening, next));
        if !is_sealed && !is_begun {
            break;
        }
        position = next;
    }
    Ok(position)
}

fn is_of(opening: &Opening, position: Position) -> bool {
    (opening.segment, opening.lap) == (position.segment, position.lap)
}

/// The result of scanning a segment record by record.
pub struct Scanned {
    /// Table entries for the records that were found.
    pub entries: Vec<Entry>,
    /// Offset at which the records end; 0 if the segment's first block is invalid.
    end: u64,
    /// Sequence number of the last record, if there is one.
    last_seq: Option<u64>,
}

/// Reads a segment record by record up to the first invalid one.
pub fn scan(mounted: &Mounted, position: Position) -> io::Result<Scanned> {
    let mut scanned = Scanned {
        entries: Vec::new(),
        end: 0,
        last_seq: None,
    };
    let begin = mounted.geometry.segment_place(position.segment);
    let first = read_block(&*mounted.device, begin)?;
    let opening = Opening::decode(first.filled(), mounted.salt);
    let Some(opening) = opening.filter(|opening| is_of(opening, position)) else {
        return Ok(scanned);
    };
    scanned.end = RECORDS;
    let mut window = Window::new(mounted, begin);
    // After a power failure, later records may be on the device although an earlier one was lost. Records written afterwards in place of
    // the lost one have greater sequence numbers, so the scan ends where the numbers decrease.
    let mut next_seq = opening.first_seq;
    while let Some(header) = window.header(mounted, position.lap, scanned.end)? {
        let layout = Layout::of(scanned.end, header.meta, header.data);
        let count = scanned.entries.len() as u64 + 1;
        let table = Footer::table_place(count, mounted.geometry.segment);
        if header.seq < next_seq || table.is_none_or(|table| layout.end > table) {
            break;
        }
        scanned.entries.push(Entry {
            mark: header.mark,
            id: header.id,
            born_seq: header.born_seq,
            offset: layout.at as u32,
            length: layout.length() as u32,
        });
        scanned.end = layout.end;
        scanned.last_seq = Some(header.seq);
        next_seq = header.seq + 1;
    }
    Ok(scanned)
}

/// The bytes of a part of a segment, in memory.
struct Window {
    begin: u64,
    at: u64,
    bytes: Buffer,
}

impl Window {
    fn new(mounted: &Mounted, begin: u64) -> Window {
        Window {
            begin,
            at: mounted.geometry.segment,
            bytes: Buffer::new(0),
        }
    }

    /// Decodes the header of the record at offset `at`; `None` if there is none.
    fn header(&mut self, mounted: &Mounted, lap: u64, at: u64) -> io::Result<Option<Header>> {
        let segment = mounted.geometry.segment;
        let mut need = HEADER;
        loop {
            let Some(bytes) = self.bytes(mounted, at, need)? else {
                return Ok(None);
            };
            match Header::decode(bytes, mounted.salt, lap, segment) {
                Ok(header) => return Ok(Some(header)),
                Err(Broken::Short(more)) if more > need => need = more,
                Err(_) => return Ok(None),
            }
        }
    }

    /// Returns at least `need` bytes from offset `at` on; `None` if the segment ends before.
    fn bytes(&mut self, mounted: &Mounted, at: u64, need: usize) -> io::Result<Option<&[u8]>> {
        let segment = mounted.geometry.segment;
        let end = at + need as u64;
        if end > segment {
            return Ok(None);
        }
        let known = self.at..self.at + self.bytes.filled().len() as u64;
        if at < known.start || end > known.end {
            self.at = at / BLOCK * BLOCK;
            let length = (segment - self.at).min(WINDOW.max(up(end - self.at, BLOCK)));
            self.bytes = read_exactly(&*mounted.device, self.begin + self.at, length as usize)?;
        }
        Ok(Some(&self.bytes.filled()[(at - self.at) as usize..]))
    }
}

/// Scans the open segment, so that writing can continue after its last record, and adds its records to the index.
pub fn open_segment(mounted: &Mounted) -> io::Result<(Open, Recency)> {
    let position = mounted.begin;
    let mut recency = Recency::new(mounted.geometry.size());
    let scanned = match mounted.loaded() {
        LOADED => None,
        _ => Some(scan(mounted, position)?).filter(|scanned| scanned.end > 0),
    };
    let Some(scanned) = scanned else {
        read_recency(mounted, &[], &mut recency)?;
        return Ok((Open::empty(position, mounted.sequence), recency));
    };
    read_recency(mounted, &scanned.entries, &mut recency)?;
    let begin = mounted.geometry.segment_place(position.segment);
    let mut tail = Vec::new();
    if !scanned.end.is_multiple_of(BLOCK) {
        let block = read_block(&*mounted.device, begin + scanned.end / BLOCK * BLOCK)?;
        tail = block.filled()[..(scanned.end % BLOCK) as usize].to_vec();
    }
    let seq = mounted.sequence.max(scanned.last_seq.unwrap_or(0));
    let open = Open::with(position, &scanned.entries, scanned.end, tail, seq);
    take_in(mounted, position.segment, &scanned.entries, &recency);
    Ok((open, recency))
}

/// Reads the recency records, which the last run of the program wrote as the last records of the log.
fn read_recency(mounted: &Mounted, open: &[Entry], recency: &mut Recency) -> io::Result<()> {
    let Some(run) = mounted.clean_run else {
        return Ok(());
    };
    let mut position = mounted.begin;
    let mut entries = open.to_vec();
    loop {
        let is_noted = |entry: &&Entry| entry.mark == Mark::Recency && entry.id.version == run;
        let noted: Vec<Entry> = entries.iter().filter(is_noted).copied().collect();
        for entry in &noted {
            read_piece(mounted, position, entry, recency)?;
        }
        // The recency records may begin in a segment before the open one.
        let is_over = noted.is_empty() && !entries.is_empty();
        position = position.before(mounted.geometry.segments);
        if is_over || position.lap == 0 || position.segment == mounted.begin.segment {
            break;
        }
        match read_table(mounted, position.segment, position.lap)? {
            Some((_, table)) => entries = table,
            None => break,
        }
    }
    recency.sort();
    Ok(())
}

fn read_piece(
    mounted: &Mounted,
    position: Position,
    entry: &Entry,
    recency: &mut Recency,
) -> io::Result<()> {
    if !recency.takes(u64::from(entry.length)) {
        return Ok(());
    }
    let (from, to) = (
        u64::from(entry.offset),
        u64::from(entry.offset + entry.length),
    );
    let begin = from / BLOCK * BLOCK;
    let place = mounted.geometry.segment_place(position.segment) + begin;
    let length = up(to - begin, BLOCK) as usize;
    let bytes = shared(read_exactly(&*mounted.device, place, length)?);
    let record = bytes.slice((from - begin) as usize..(to - begin) as usize);
    let size = mounted.geometry.segment;
    if let Some((_, pages)) = open_record(&record, mounted.salt, position.lap, size, entry) {
        recency.add(&pages.concat());
    }
    Ok(())
}

/// Loads the tables of all full segments, the newest first; ends early if the volume is closed or fails.
pub fn load_tables(mounted: &Mounted, recency: &Recency) -> io::Result<()> {
    if mounted.loaded() == LOADED {
        return Ok(());
    }
    let segments = mounted.geometry.segments;
    let mut position = mounted.begin;
    for done in 1..segments {
        position = position.before(segments);
        if mounted.is_ended() || position.lap == 0 {
            break;
        }
        load_segment(mounted, position, recency)?;
        mounted.set_loaded((u64::from(done) * 1000 / u64::from(segments)) as u32);
    }
    mounted.index.set_loaded();
    mounted.set_loaded(LOADED);
    Ok(())
}

fn load_segment(mounted: &Mounted, position: Position, recency: &Recency) -> io::Result<()> {
    let is_there = || mounted.index.lap(position.segment as u16) == position.lap;
    if !is_there() {
        return Ok(());
    }
    let entries = match read_table(mounted, position.segment, position.lap)? {
        Some((_, entries)) => entries,
        None => scan(mounted, position)?.entries,
    };
    let _reclaiming = mounted.reclaiming.lock();
    if is_there() {
        take_in(mounted, position.segment, &entries, recency);
    }
    Ok(())
}

/// Adds the records of a segment to the index. Segments are loaded from the newest to the oldest, so these records do not replace those
/// that were added or removed before.
fn take_in(mounted: &Mounted, segment: u32, entries: &[Entry], recency: &Recency) {
    let nowhere = place(0, 0, 0);
    for entry in entries.iter().rev() {
        let at = place(segment, u64::from(entry.offset), u64::from(entry.length));
        let (Some(at), Some(nowhere)) = (at, nowhere) else {
            continue;
        };
        let id = &entry.id;
        match entry.mark {
            Mark::Stored(_) => load_record(mounted, entry, at, recency),
            // No record is at `nowhere`, so nothing is removed: the call only records that older records with this id are deleted.
            Mark::Tombstone(_) => drop(mounted.index.remove_if(mounted.index.key(id), nowhere)),
            Mark::Recency => {}
        }
        mounted.note_born(segment, entry.born_seq);
    }
}

fn load_record(mounted: &Mounted, entry: &Entry, at: RecordLocation, recency: &Recency) {
    let usage = recency.of(at);
    let atime = usage.map_or_else(|| mounted.now(), |usage| usage.atime);
    if mounted.index.insert_if_absent(&entry.id, at, atime)
        && let Some(usage) = usage
    {
        mounted
            .index
            .set_use(mounted.index.key(&entry.id), at, usage);
    }
}
