//! Reading and verifying one record: a whole head, or some pages of data.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::sys::buffer::{ALIGNED, Buffer};
use crate::sys::disk::device::{Device, ReadMode};
use crate::volume::checksum::Salt;
use crate::volume::device_io::shared;
use crate::volume::format::record::{HEADER, Header, Layout, Mark, page_crc};
use crate::volume::format::{BLOCK, Geometry, up};
use crate::volume::types::{Found, HeadRead, Id, Kind, PAGE};

/// Number of pages read in one call from the page cache: 256 KiB are still in the CPU's cache when their checksums are computed.
const CACHED_READ_PAGES: usize = 4;

/// A device with a volume, from which records are read.
#[derive(Clone)]
pub struct LogDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Layout of the volume on the device.
    pub geometry: Geometry,
    /// Salt of the volume's checksums.
    pub salt: Salt,
}

/// The reason why a read did not complete.
#[derive(Debug)]
pub enum ReadError {
    /// Not all bytes are in the page cache, or the kernel can't tell.
    NotCached,
    /// A checksum or another check failed.
    Bad,
    /// The record is valid but is not the requested one.
    Other,
    /// The device failed.
    Io(io::Error),
}

/// A read that is first attempted from the page cache only, and then in ways that may wait for the device.
pub trait Read: Send + 'static {
    /// Type of the result of the read.
    type Output: Send + 'static;

    /// Continues the read in this way.
    ///
    /// # Errors
    ///
    /// The reason why the read did not complete.
    fn attempt(&mut self, source: &LogDevice, how: ReadMode) -> Result<(), ReadError>;

    /// Discards everything read so far.
    fn restart(&mut self);

    /// Returns the number of bytes read, and the result. May only be called after a successful attempt.
    fn finish(self) -> Option<(u64, Self::Output)>;
}

impl LogDevice {
    /// Fills these buffers, one after the other, with the bytes from offset `at` of a segment on.
    fn read(
        &self,
        found: &Found,
        at: u64,
        into: &mut [&mut [MaybeUninit<u8>]],
        how: ReadMode,
    ) -> Result<(), ReadError> {
        let at = self.geometry.segment_place(found.segment) + at;
        if how == ReadMode::Direct {
            return self.read_direct(at, into);
        }
        let wanted: usize = into.iter().map(|piece| piece.len()).sum();
        match self.device.read(at, into, how) {
            Ok(read) if read == wanted => Ok(()),
            // An error during a read from the page cache is not reported: the read is repeated from the device, which reports the error.
            _ if how == ReadMode::Cached => Err(ReadError::NotCached),
            Ok(_) => Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(ReadError::Io(error)),
        }
    }

    /// Fills these buffers with the bytes from offset `at` of the device on. The read bypasses the page cache through an aligned buffer.
    fn read_direct(&self, at: u64, into: &mut [&mut [MaybeUninit<u8>]]) -> Result<(), ReadError> {
        let wanted: usize = into.iter().map(|piece| piece.len()).sum();
        let skip = (at % BLOCK) as usize;
        let mut aligned = Buffer::new((skip + wanted).next_multiple_of(ALIGNED));
        let read = self
            .device
            .read(at - skip as u64, &mut [aligned.spare()], ReadMode::Direct)
            .map_err(ReadError::Io)?;
        if read < skip + wanted {
            return Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        // SAFETY: the device has written to this many bytes (contract of `Device`).
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

    fn decode(&self, found: &Found, bytes: &[u8]) -> Result<Header, ReadError> {
        Header::decode(bytes, self.salt, found.lap, self.geometry.segment)
            .map_err(|_| ReadError::Bad)
    }

    /// Whether a page matches its checksum. `head` begins with the record's header and the pages' checksums.
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

/// Returns the maximum length of the header and the pages' checksums of a record of this length.
fn head_room(found: &Found) -> usize {
    let pages = u64::from(found.length).div_ceil(PAGE) as usize;
    (HEADER + 4 * pages).min(found.length as usize)
}

fn page_length(header: &Header, page: u32) -> usize {
    let begin = u64::from(page) * PAGE;
    u64::from(header.data).saturating_sub(begin).min(PAGE) as usize
}

/// A read of the whole record of a head, which must belong to this cache and key.
pub struct WholeHead {
    found: Found,
    space: u64,
    key: u128,
    read: Option<HeadRead>,
}

impl WholeHead {
    /// Creates a read that has not begun.
    pub fn new(found: Found, space: u64, key: u128) -> WholeHead {
        WholeHead {
            found,
            space,
            key,
            read: None,
        }
    }

    fn check(&self, source: &LogDevice, record: &[u8]) -> Result<(Header, Layout), ReadError> {
        let header = source.decode(&self.found, record)?;
        let id = &header.id;
        if header.mark != Mark::Stored(Kind::Head) || (id.space, id.key) != (self.space, self.key) {
            return Err(ReadError::Other);
        }
        // `record` contains only the record, so offsets from here on are relative to its beginning. The layout still needs the record's
        // offset in the segment, since the alignment of the data depends on it.
        let layout = Layout::of(u64::from(self.found.offset), header.meta, header.data);
        if layout.length() > record.len() as u64 {
            return Err(ReadError::Bad);
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
            false => Err(ReadError::Bad),
        }
    }
}

/// Returns the range within a record's bytes for a range of the segment.
fn span(layout: &Layout, begin: u64, length: u64) -> std::ops::Range<usize> {
    let begin = (begin - layout.at) as usize;
    begin..begin + length as usize
}

impl Read for WholeHead {
    type Output = HeadRead;

    fn attempt(&mut self, source: &LogDevice, how: ReadMode) -> Result<(), ReadError> {
        let length = self.found.length as usize;
        let mut record = Buffer::new(length);
        let at = u64::from(self.found.offset);
        let into = &mut record.spare()[..length];
        source.read(&self.found, at, &mut [into], how)?;
        // SAFETY: `LogDevice::read` has filled `length` bytes of `record`.
        unsafe { record.set_filled(length) };
        let (header, layout) = self.check(source, record.filled())?;
        let record = shared(record);
        self.read = Some(HeadRead {
            id: header.id,
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

/// A read of some pages of a record's data, one into each buffer.
pub struct SomePages {
    found: Found,
    id: Id,
    first: u32,
    buffers: Vec<Buffer>,
    /// Number of pages read and verified.
    done: usize,
    /// The header and the pages' checksums, once they were read and verified.
    head: Option<(Header, Buffer)>,
}

impl SomePages {
    /// Creates a read that has not begun. Returns `None` if a buffer other than the last one does not have the size of a page.
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

    /// Reads the header and, if the first page is wanted, also `at_once` pages. The offset of the data is guessed from the record's length;
    /// the pages are used only if the guess was right.
    fn read_head(
        &mut self,
        source: &LogDevice,
        how: ReadMode,
        at_once: usize,
    ) -> Result<(), ReadError> {
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
        // SAFETY: `LogDevice::read` has filled `gap` bytes of `head`.
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

    fn check_head(&self, source: &LogDevice, head: &[u8]) -> Result<Header, ReadError> {
        let header = source.decode(&self.found, head)?;
        if header.mark != Mark::Stored(self.id.kind) || header.id != self.id {
            return Err(ReadError::Other);
        }
        // The offset comes from the index, not from the device, so it is known to be within the segment.
        let layout = Layout::of(u64::from(self.found.offset), header.meta, header.data);
        if layout.end > source.geometry.segment {
            return Err(ReadError::Bad);
        }
        let end = u64::from(self.first) + self.buffers.len() as u64;
        let last = self.buffers.last().map_or(0, Buffer::capacity);
        match end <= header.pages() && page_length(&header, end as u32 - 1) <= last {
            true => Ok(header),
            // The record has fewer pages or a longer last page than the caller expects.
            false => Err(ReadError::Other),
        }
    }

    /// Reads and verifies up to `at_once` of the remaining pages.
    fn read_pages(
        &mut self,
        source: &LogDevice,
        how: ReadMode,
        at_once: usize,
    ) -> Result<(), ReadError> {
        let Some((header, _)) = &self.head else {
            return Err(ReadError::Bad);
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

    /// Verifies the next `count` pages, all bytes of which were just read.
    fn check_pages(&mut self, source: &LogDevice, count: usize) -> Result<(), ReadError> {
        let Some((header, head)) = &self.head else {
            return Err(ReadError::Bad);
        };
        for buffer in &mut self.buffers[self.done..][..count] {
            let page = self.first + self.done as u32;
            // SAFETY: the callers have read `page_length` bytes into each of these buffers.
            unsafe { buffer.set_filled(page_length(header, page)) };
            if !source.is_page(&self.found, header, head.filled(), page, buffer.filled()) {
                return Err(ReadError::Bad);
            }
            self.done += 1;
        }
        Ok(())
    }
}

impl Read for SomePages {
    type Output = Vec<Buffer>;

    fn attempt(&mut self, source: &LogDevice, how: ReadMode) -> Result<(), ReadError> {
        let at_once = match how {
            ReadMode::Cached => CACHED_READ_PAGES,
            ReadMode::Wait | ReadMode::Direct => usize::MAX,
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

/// Guesses the offset and the length of a record's data. The guess is right for all records without metadata, and for most records with
/// little metadata.
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
