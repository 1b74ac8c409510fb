//! One record, read and checked: its head at once, or some of its pages.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::sys::buffer::{ALIGNED, Buffer};
use crate::sys::disk::device::{Device, How};
use crate::volume::checksum::Salt;
use crate::volume::device_io::shared;
use crate::volume::format::record::{HEADER, Header, Layout, Mark, page_crc};
use crate::volume::format::{BLOCK, Geometry, up};
use crate::volume::types::{Found, HeadRead, Id, Kind, PAGE};

/// Pages that are read at a time when they are in memory: 256 KiB are still in the processor's cache
/// when their checksums are computed.
const PAGES_AT_HAND: usize = 4;

/// Where records are read from.
#[derive(Clone)]
pub struct LogDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Where on it everything is.
    pub geometry: Geometry,
    /// What its checksums are mixed with.
    pub salt: Salt,
}

/// Why a read is not done.
#[derive(Debug)]
pub enum Trouble {
    /// Not all of it is in memory, or nobody can tell.
    NotAtHand,
    /// A check failed.
    Bad,
    /// The record is in order, and is not the one that was asked for.
    Other,
    /// The device failed.
    Io(io::Error),
}

/// A read that can be tried in several ways.
pub trait Read: Send + 'static {
    /// What it brings.
    type Output: Send + 'static;

    /// Goes on with it, in this way.
    ///
    /// # Errors
    /// Why it is not done.
    fn attempt(&mut self, source: &LogDevice, how: How) -> Result<(), Trouble>;

    /// Begins anew.
    fn restart(&mut self);

    /// What it brought: how many bytes, and what. Only after an attempt that succeeded.
    fn finish(self) -> Option<(u64, Self::Output)>;
}

impl LogDevice {
    /// Fills these pieces, all of them, from this place of a segment on.
    fn read(
        &self,
        found: &Found,
        at: u64,
        into: &mut [&mut [MaybeUninit<u8>]],
        how: How,
    ) -> Result<(), Trouble> {
        let at = self.geometry.segment_place(found.segment) + at;
        if how == How::Direct {
            return self.read_direct(at, into);
        }
        let wanted: usize = into.iter().map(|piece| piece.len()).sum();
        match self.device.read(at, into, how) {
            Ok(read) if read == wanted => Ok(()),
            // An error is told by the read that waits.
            _ if how == How::AtHand => Err(Trouble::NotAtHand),
            Ok(_) => Err(Trouble::Io(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(Trouble::Io(error)),
        }
    }

    /// The same past the page cache, by way of memory that is aligned.
    fn read_direct(&self, at: u64, into: &mut [&mut [MaybeUninit<u8>]]) -> Result<(), Trouble> {
        let wanted: usize = into.iter().map(|piece| piece.len()).sum();
        let skip = (at % BLOCK) as usize;
        let mut aligned = Buffer::new((skip + wanted).next_multiple_of(ALIGNED));
        let read = self
            .device
            .read(at - skip as u64, &mut [aligned.spare()], How::Direct)
            .map_err(Trouble::Io)?;
        if read < skip + wanted {
            return Err(Trouble::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        // SAFETY: the device has written to so many (contract of `Device`).
        unsafe { aligned.set_filled(read) };
        let mut from = &aligned.filled()[skip..];
        for piece in into.iter_mut() {
            let (now, rest) = from.split_at(piece.len());
            for (to, from) in piece.iter_mut().zip(now) {
                to.write(*from);
            }
            from = rest;
        }
        Ok(())
    }

    fn decode(&self, found: &Found, bytes: &[u8]) -> Result<Header, Trouble> {
        Header::decode(bytes, self.salt, found.lap, self.geometry.segment).map_err(|_| Trouble::Bad)
    }

    /// Whether a page is what was written; `head` begins with the record's header and checksums.
    fn is_page(
        &self,
        found: &Found,
        header: &Header,
        head: &[u8],
        page: u32,
        bytes: &[u8],
    ) -> bool {
        let crc = Header::crc_of_page(self.salt, found.lap, header.seq, page, bytes);
        page_crc(head, page) == Some(crc)
    }
}

/// Bytes of a record of this length that may be header and checksums.
fn head_room(found: &Found) -> usize {
    let pages = u64::from(found.length).div_ceil(PAGE) as usize;
    (HEADER + 4 * pages).min(found.length as usize)
}

fn page_length(header: &Header, page: u32) -> usize {
    let begin = u64::from(page) * PAGE;
    u64::from(header.data).saturating_sub(begin).min(PAGE) as usize
}

/// All of a record, with a head in it of this cache and key.
pub struct WholeHead {
    found: Found,
    space: u64,
    key: u128,
    read: Option<HeadRead>,
}

impl WholeHead {
    /// Nothing is read yet.
    pub fn new(found: Found, space: u64, key: u128) -> WholeHead {
        WholeHead {
            found,
            space,
            key,
            read: None,
        }
    }

    fn check(&self, source: &LogDevice, record: &[u8]) -> Result<(Header, Layout), Trouble> {
        let header = source.decode(&self.found, record)?;
        let id = &header.id;
        if header.mark != Mark::Stored(Kind::Head) || (id.space, id.key) != (self.space, self.key) {
            return Err(Trouble::Other);
        }
        // Places in the record are its own from here on; where data begins depends on the segment.
        let layout = Layout::of(u64::from(self.found.offset), header.meta, header.data);
        if layout.length() > record.len() as u64 {
            return Err(Trouble::Bad);
        }
        let meta = &record[span(&layout, layout.meta, u64::from(header.meta))];
        let crc = Header::crc_of_meta(source.salt, self.found.lap, header.seq, meta);
        let mut pages = (0..header.pages() as u32).map(|page| {
            let begin = layout.data + u64::from(page) * PAGE;
            let bytes = &record[span(&layout, begin, page_length(&header, page) as u64)];
            source.is_page(&self.found, &header, record, page, bytes)
        });
        match crc == header.meta_crc && pages.all(|good| good) {
            true => Ok((header, layout)),
            false => Err(Trouble::Bad),
        }
    }
}

/// Where in a record's bytes these are.
fn span(layout: &Layout, begin: u64, length: u64) -> std::ops::Range<usize> {
    let begin = (begin - layout.at) as usize;
    begin..begin + length as usize
}

impl Read for WholeHead {
    type Output = HeadRead;

    fn attempt(&mut self, source: &LogDevice, how: How) -> Result<(), Trouble> {
        let length = self.found.length as usize;
        let mut record = Buffer::new(length);
        let at = u64::from(self.found.offset);
        let into = &mut record.spare()[..length];
        source.read(&self.found, at, &mut [into], how)?;
        // SAFETY: `LogDevice::read` has filled the whole piece.
        unsafe { record.set_filled(length) };
        let (header, layout) = self.check(source, record.filled())?;
        let record = shared(record);
        self.read = Some(HeadRead {
            id: header.id,
            born_seq: header.born_seq,
            meta: record.slice(span(&layout, layout.meta, u64::from(header.meta))),
            data: record.slice(span(&layout, layout.data, u64::from(header.data))),
        });
        Ok(())
    }

    fn restart(&mut self) {
        self.read = None;
    }

    fn finish(self) -> Option<(u64, HeadRead)> {
        let length = u64::from(self.found.length);
        self.read.map(|read| (length, read))
    }
}

/// Some pages of a record's data, one into each buffer.
pub struct SomePages {
    found: Found,
    id: Id,
    first: u32,
    buffers: Vec<Buffer>,
    /// How many of them are read and checked.
    done: usize,
    /// The header with the pages' checksums behind it, once it is read and checked.
    head: Option<(Header, Buffer)>,
}

impl SomePages {
    /// Nothing is read yet. `None` if the buffers are not of a page each, but for the last one.
    pub fn new(found: Found, id: &Id, first: u32, mut buffers: Vec<Buffer>) -> Option<SomePages> {
        for buffer in &mut buffers {
            buffer.clear();
        }
        let (_, all_but_last) = buffers.split_last()?;
        let full = all_but_last.iter().all(|b| b.capacity() as u64 >= PAGE);
        full.then_some(SomePages {
            found,
            id: *id,
            first,
            buffers,
            done: 0,
            head: None,
        })
    }

    /// Reads the header and, if the first page is wanted, as many pages as are read at a time: where
    /// data begins is guessed from the record's length. Pages count only if that was right.
    fn read_head(&mut self, source: &LogDevice, how: How, at_once: usize) -> Result<(), Trouble> {
        let (gap, data) = match self.first {
            0 => guess_data(&self.found),
            _ => (head_room(&self.found), 0),
        };
        let mut head = Buffer::new(gap);
        let mut into: SmallVec<[&mut [MaybeUninit<u8>]; 18]> = SmallVec::new();
        into.push(&mut head.spare()[..gap]);
        let mut left = data;
        for buffer in self.buffers.iter_mut().take(at_once) {
            let take = left.min(PAGE as usize).min(buffer.capacity());
            into.push(&mut buffer.spare()[..take]);
            left -= take;
        }
        source.read(&self.found, u64::from(self.found.offset), &mut into, how)?;
        let taken: SmallVec<[usize; 18]> = into[1..].iter().map(|piece| piece.len()).collect();
        drop(into);
        // SAFETY: `LogDevice::read` has filled the whole piece.
        unsafe { head.set_filled(gap) };
        let header = self.check_head(source, head.filled())?;
        let layout = Layout::of(u64::from(self.found.offset), header.meta, header.data);
        self.head = Some((header, head));
        if layout.data - layout.at == gap as u64 {
            let whole = (0..).zip(&taken).take_while(|(page, taken)| {
                **taken > 0 && **taken >= page_length(&header, self.first + page)
            });
            let whole = whole.count();
            self.check_pages(source, whole)?;
        }
        Ok(())
    }

    fn check_head(&self, source: &LogDevice, head: &[u8]) -> Result<Header, Trouble> {
        let header = source.decode(&self.found, head)?;
        if header.mark != Mark::Stored(self.id.kind) || header.id != self.id {
            return Err(Trouble::Other);
        }
        // Places are counted on from where the index has it.
        let layout = Layout::of(u64::from(self.found.offset), header.meta, header.data);
        if layout.end > source.geometry.segment {
            return Err(Trouble::Bad);
        }
        let end = u64::from(self.first) + self.buffers.len() as u64;
        let last = self.buffers.last().map_or(0, Buffer::capacity);
        match end <= header.pages() && page_length(&header, end as u32 - 1) <= last {
            true => Ok(header),
            // Another length than whoever asks knows of.
            false => Err(Trouble::Other),
        }
    }

    /// Reads so many pages more.
    fn read_pages(&mut self, source: &LogDevice, how: How, at_once: usize) -> Result<(), Trouble> {
        let Some((header, _)) = &self.head else {
            return Err(Trouble::Bad);
        };
        let layout = Layout::of(u64::from(self.found.offset), header.meta, header.data);
        let page = self.first + self.done as u32;
        let mut into: SmallVec<[&mut [MaybeUninit<u8>]; 18]> = SmallVec::new();
        for (buffer, page) in self.buffers[self.done..]
            .iter_mut()
            .take(at_once)
            .zip(page..)
        {
            into.push(&mut buffer.spare()[..page_length(header, page)]);
        }
        let count = into.len();
        let at = layout.data + u64::from(page) * PAGE;
        source.read(&self.found, at, &mut into, how)?;
        drop(into);
        self.check_pages(source, count)
    }

    /// Checks so many pages more, which have just been written to in all of their length.
    fn check_pages(&mut self, source: &LogDevice, count: usize) -> Result<(), Trouble> {
        let Some((header, head)) = &self.head else {
            return Err(Trouble::Bad);
        };
        for buffer in &mut self.buffers[self.done..][..count] {
            let page = self.first + self.done as u32;
            // SAFETY: the callers have read `page_length` bytes into each of these buffers.
            unsafe { buffer.set_filled(page_length(header, page)) };
            if !source.is_page(&self.found, header, head.filled(), page, buffer.filled()) {
                return Err(Trouble::Bad);
            }
            self.done += 1;
        }
        Ok(())
    }
}

impl Read for SomePages {
    type Output = Vec<Buffer>;

    fn attempt(&mut self, source: &LogDevice, how: How) -> Result<(), Trouble> {
        let at_once = match how {
            How::AtHand => PAGES_AT_HAND,
            How::Wait | How::Direct => usize::MAX,
        };
        while self.head.is_none() || self.done < self.buffers.len() {
            match self.head {
                None => self.read_head(source, how, at_once)?,
                Some(_) => self.read_pages(source, how, at_once)?,
            }
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.head = None;
        self.done = 0;
        for buffer in &mut self.buffers {
            buffer.clear();
        }
    }

    fn finish(self) -> Option<(u64, Vec<Buffer>)> {
        let lengths = self.buffers.iter().map(|buffer| buffer.filled().len());
        let bytes: usize = lengths.sum();
        (self.done == self.buffers.len()).then_some((bytes as u64, self.buffers))
    }
}

/// How many bytes into a record its data probably begins, and about how many bytes that has: right
/// for all records without meta, and for most with a little.
fn guess_data(found: &Found) -> (usize, usize) {
    let (at, length) = (u64::from(found.offset), u64::from(found.length));
    let most = length.div_ceil(PAGE);
    for pages in [most, most.saturating_sub(1)] {
        let head = HEADER as u64 + 4 * pages;
        let gap = match pages {
            0 | 1 => head,
            _ => up(at + head, BLOCK) - at,
        };
        let data = length.saturating_sub(gap);
        if data > 0 && data.div_ceil(PAGE) == pages {
            return (gap as usize, data as usize);
        }
    }
    (head_room(found), 0)
}
