//! Reclaiming the oldest segment. Records that have been read since they were written are copied to the open segment, then the oldest
//! segment is overwritten.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::checksum::Salt;
use super::compose::{Origin, Pages, Record};
use super::device_io::{read_block, read_exactly, shared};
use super::format::record::{Header, Layout, Mark, page_crc};
use super::format::segment::{ENTRY, Entry, Footer, RECORDS, entries, table_crc};
use super::format::{BLOCK, up};
use super::index::{RecordLocation, Use};
use super::mounted::{Mounted, Position, place};
use super::reclaim_budget::ReclaimBudget;
use super::types::{Id, PAGE};

/// Number of bytes per read from the device; records next to one another are read together.
const WINDOW: u64 = 1 << 20;

/// Longest time to wait until the reads in a segment have finished.
const PINNED_MAX: Duration = Duration::from_secs(1);

/// The segment that is overwritten next, and its records that are copied before.
pub struct Reclaim {
    /// The position of the log when the segment is overwritten.
    next: Position,
    /// Ids and locations of the segment's records; `None` if its table can't be read.
    entries: Option<Vec<(Id, RecordLocation)>>,
    /// Records to copy. Before `is_chosen` is set: all records of the segment that still exist.
    wanted: VecDeque<Entry>,
    is_chosen: bool,
    /// Number of bytes of the records that still existed when the table was read.
    there: u64,
    /// Size in bytes of the largest record that still exists, used as an estimate for new records.
    largest: u64,
    /// Number of bytes that may still be copied.
    budget: ReclaimBudget,
    window: Option<(u64, Bytes)>,
}

/// Reads the footer and the table of a full segment that was written in the pass `lap` over the volume; `None` if they are missing or
/// damaged.
pub fn read_table(
    mounted: &Mounted,
    segment: u32,
    lap: u64,
) -> std::io::Result<Option<(Footer, Vec<Entry>)>> {
    let (device, geometry) = (&*mounted.device, &mounted.geometry);
    let begin = geometry.segment_place(segment);
    let block = read_block(device, begin + geometry.segment - BLOCK)?;
    let footer = Footer::decode(block.filled(), mounted.salt, geometry.segment);
    let Some(footer) = footer.filter(|footer| footer.lap == lap) else {
        return Ok(None);
    };
    let count = u64::from(footer.count);
    let Some(at) = Footer::table_place(count, geometry.segment).filter(|_| count > 0) else {
        return Ok(Some((footer, Vec::new())));
    };
    let length = count as usize * ENTRY;
    let bytes = read_exactly(device, begin + at, up(length as u64, BLOCK) as usize)?;
    let table = &bytes.filled()[..length];
    if table_crc(mounted.salt, lap, table) != footer.table_crc {
        return Ok(None);
    }
    let entries: Option<Vec<Entry>> = entries(table, footer.end).collect();
    Ok(entries.map(|entries| (footer, entries)))
}

impl Reclaim {
    /// Reads the table of the segment that `next` will overwrite, and selects the records that still exist.
    pub fn begin(mounted: &Mounted, next: Position) -> std::io::Result<Reclaim> {
        let lap = mounted.index.lap(next.segment as u16);
        let table = match lap {
            0 => None,
            lap => read_table(mounted, next.segment, lap)?,
        };
        let mut reclaim = Reclaim {
            next,
            // The lap of a segment is the number of the pass over the volume in which it was written: 0 means never, so there are no
            // records.
            entries: (lap == 0).then(Vec::new),
            wanted: VecDeque::new(),
            is_chosen: false,
            there: 0,
            largest: 0,
            budget: ReclaimBudget::of(mounted.geometry.segment, 0),
            window: None,
        };
        if let Some((_, entries)) = table {
            let stored = |entry: &&Entry| matches!(entry.mark, Mark::Stored(_));
            let is_there = |entry: &&Entry| usage(mounted, next.segment, entry).is_some();
            let there = entries.iter().filter(stored).filter(is_there);
            reclaim.wanted = there.copied().collect();
            reclaim.there = reclaim.wanted.iter().map(cost).sum();
            reclaim.largest = entries.iter().map(cost).max().unwrap_or(0);
            reclaim.budget = ReclaimBudget::of(mounted.geometry.segment, reclaim.largest);
            let place = |entry: &Entry| Some((entry.id, place_of(next.segment, entry)?));
            reclaim.entries = Some(entries.iter().filter_map(place).collect());
        }
        Ok(reclaim)
    }

    /// Whether records should be copied now, with `room` bytes left in the open segment.
    pub fn is_time(&self, room: u64) -> bool {
        self.is_chosen || self.budget.is_time(room, self.there, self.largest)
    }

    /// Returns the next record to copy.
    pub fn next_record(&mut self, mounted: &Mounted) -> std::io::Result<Option<Record>> {
        if !self.is_chosen {
            self.is_chosen = true;
            let segment = self.next.segment;
            self.wanted
                .retain(|entry| is_wanted(mounted, segment, entry));
        }
        while let Some(entry) = self.wanted.pop_front() {
            let Some(from) = place_of(self.next.segment, &entry) else {
                continue;
            };
            let key = mounted.index.key(&entry.id);
            // No record is copied while a newer one with the same id is queued: if the copy were written last, the next start would take it
            // for the newer one.
            let is_there = mounted.index.usage(key, from).is_some();
            if !is_there || mounted.queue.is_pending(&entry.id) || !self.budget.take(cost(&entry)) {
                continue;
            }
            let lap = mounted.index.lap(self.next.segment as u16);
            let bytes = self.read(mounted, &entry)?;
            match open_record(&bytes, mounted.salt, lap, mounted.geometry.segment, &entry) {
                Some((meta, data)) => {
                    return Ok(Some(Record {
                        mark: entry.mark,
                        id: entry.id,
                        born_seq: entry.born_seq,
                        meta,
                        data,
                        origin: Origin::Moved(from),
                    }));
                }
                None => {
                    if mounted.index.lose(key, from) {
                        mounted.context.counters.damaged.add(1);
                    }
                }
            }
        }
        self.window = None;
        Ok(None)
    }

    /// Reads the bytes of a record, together with those of records next to it.
    fn read(&mut self, mounted: &Mounted, entry: &Entry) -> std::io::Result<Bytes> {
        let (from, to) = (
            u64::from(entry.offset),
            u64::from(entry.offset) + u64::from(entry.length),
        );
        if let Some((begin, bytes)) = &self.window
            && *begin <= from
            && to <= begin + bytes.len() as u64
        {
            return Ok(bytes.slice((from - begin) as usize..(to - begin) as usize));
        }
        let begin = from / BLOCK * BLOCK;
        let together = self
            .wanted
            .iter()
            .map(|next| u64::from(next.offset) + u64::from(next.length))
            .take_while(|end| *end <= begin + WINDOW)
            .last();
        let end = up(together.unwrap_or(to).max(to), BLOCK);
        let place = mounted.geometry.segment_place(self.next.segment) + begin;
        let bytes = shared(read_exactly(
            &*mounted.device,
            place,
            (end - begin) as usize,
        )?);
        let record = bytes.slice((from - begin) as usize..(to - begin) as usize);
        self.window = Some((begin, bytes));
        Ok(record)
    }

    /// Removes the segment's remaining records from the index, and waits until the reads in the segment have finished.
    pub fn finish(self, mounted: &Mounted) {
        let segment = self.next.segment;
        let _reclaiming = mounted.reclaiming.lock();
        match self.entries {
            Some(entries) => mounted.index.drop_segment(entries.into_iter()),
            None => mounted.index.drop_all_of(segment as u16),
        }
        // The segment's lap (pass over the volume) must change before its pins are checked: see `Pins`.
        mounted.index.set_lap(segment as u16, self.next.lap);
        mounted.pins.wait(segment, PINNED_MAX);
        mounted.set_oldest(segment, u64::MAX);
    }
}

fn place_of(segment: u32, entry: &Entry) -> Option<RecordLocation> {
    place(segment, u64::from(entry.offset), u64::from(entry.length))
}

/// Whether a record still exists at this location, and has either been read since it was written, or has its object in memory.
fn is_wanted(mounted: &Mounted, segment: u32, entry: &Entry) -> bool {
    usage(mounted, segment, entry)
        .is_some_and(|usage| usage.used || mounted.is_witnessed(&entry.id))
}

/// Returns when the record was last read, if it still exists at this location.
fn usage(mounted: &Mounted, segment: u32, entry: &Entry) -> Option<Use> {
    let key = mounted.index.key(&entry.id);
    place_of(segment, entry).and_then(|place| mounted.index.usage(key, place))
}

/// Returns the number of bytes that a record takes in a segment, including its entry in the table.
fn cost(entry: &Entry) -> u64 {
    u64::from(entry.length) + ENTRY as u64
}

/// Decodes and checks a record. Returns its metadata and data if the bytes are valid.
pub fn open_record(
    bytes: &Bytes,
    salt: Salt,
    lap: u64,
    segment: u64,
    entry: &Entry,
) -> Option<(Bytes, Pages)> {
    let header = Header::decode(bytes, salt, lap, segment).ok()?;
    if header.id != entry.id || header.mark != entry.mark {
        return None;
    }
    let at = u64::from(entry.offset);
    let layout = Layout::of(at, header.meta, header.data);
    if layout.data_end > at + bytes.len() as u64 || at < RECORDS {
        return None;
    }
    let slice = |from: u64, to: u64| bytes.slice((from - at) as usize..(to - at) as usize);
    let meta = slice(layout.meta, layout.meta + u64::from(header.meta));
    if Header::crc_of_meta(salt, lap, header.seq, &meta) != header.meta_crc {
        return None;
    }
    let mut pages = Pages::new();
    for page in 0..header.pages() {
        let from = layout.data + page * PAGE;
        let data = slice(from, layout.data_end.min(from + PAGE));
        let crc = Header::crc_of_page(salt, lap, header.seq, page as u32, &data);
        if page_crc(bytes, page as u32) != Some(crc) {
            return None;
        }
        pages.push(data);
    }
    Some((meta, pages))
}
