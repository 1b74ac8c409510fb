//! The body of a file that is not held in memory. Parts in the page cache are sent at once; another
//! thread reads the others.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::handler::representation::Ranged;
use crate::handler::{BodyStream, Fault, FileRange, Frame};
use crate::reason::Reason;
use crate::sys::Clock;
use crate::sys::root::{self, How, Opened, Stamp};

/// Largest part that is sent at once, bytes.
const PART: u64 = 2 << 20;
/// Parts end at a multiple of this many bytes, the unit in which the kernel reads files.
const ALIGNED: u64 = 64 << 10;
/// Bytes that another thread reads at once, after which it requests readahead from the kernel. On
/// kernels that can't count cached pages, this is the largest range that can be checked.
const READ: u64 = root::PROBE_MAX;
/// Bytes of readahead.
const AHEAD: u64 = 1 << 20;

/// A file too large for memory, opened once for all responses.
pub(super) struct Large {
    pub opened: Opened,
    cached: CachedParts,
}

impl Large {
    pub fn new(opened: Opened) -> Arc<Large> {
        let cached = CachedParts::default();
        Arc::new(Large { opened, cached })
    }
}

/// Records which parts of a file were found in the page cache within the last second. A check takes
/// a twentieth of the time of sending, and pages that were just sent are the last to be evicted, so
/// the result may be reused. Parts with the same slot replace each other.
struct CachedParts([AtomicU64; PLACES]);

/// Slots per file.
const PLACES: usize = 64;

impl Default for CachedParts {
    fn default() -> CachedParts {
        CachedParts([const { AtomicU64::new(0) }; PLACES])
    }
}

impl CachedParts {
    /// Whether part `part` is in the page cache; `probe` performs the check.
    fn is(&self, part: u64, now_us: u64, probe: impl FnOnce() -> bool) -> bool {
        let place = &self.0[part as usize % PLACES];
        // The value of a slot: the second of the check, and the part's number plus one; 0 means an
        // empty slot.
        let seen = (now_us / 1_000_000) << 32 | ((part + 1) & 0xffff_ffff);
        if place.load(Ordering::Relaxed) == seen {
            return true;
        }
        let found = probe();
        if found {
            place.store(seen, Ordering::Relaxed);
        }
        found
    }
}

/// A body that sends a range of a file.
pub(super) struct FileBody {
    file: Arc<Large>,
    clock: Clock,
    range: Range<u64>,
    /// Largest frame of file data in bytes.
    longest: u64,
    reading: Option<JoinHandle<std::io::Result<Bytes>>>,
}

impl FileBody {
    /// Creates a body with all of the file.
    pub fn new(file: Arc<Large>, clock: Clock) -> FileBody {
        let range = 0..file.opened.stamp.size;
        FileBody {
            file,
            clock,
            range,
            longest: PART,
            reading: None,
        }
    }

    /// Whether the file is unchanged since it was opened. If somebody writes to a file while it is
    /// sent, the body fails, so that bytes of two versions are never mixed.
    fn is_unchanged(&self) -> bool {
        let opened = &self.file.opened;
        Stamp::now(&opened.file).is_ok_and(|now| opened.stamp.has_same_content(&now))
    }

    /// Returns the next range that can be sent without waiting for the disk. The range is shorter
    /// than usual if pages are missing.
    fn cached(&self) -> Option<Range<u64>> {
        let Range { start, end } = self.range;
        // Sending from the middle of a page costs more, so every range but the first begins at an
        // aligned offset.
        let next = match (start + self.longest) / ALIGNED * ALIGNED {
            most if most > start => start..most.min(end),
            _ => start..(start + self.longest).min(end),
        };
        if self.are_cached(&next) {
            return Some(next);
        }
        let piece = self.piece();
        self.probe(&piece).then_some(piece)
    }

    /// Whether all parts that a range touches are in the page cache. All responses of a file have
    /// the same part boundaries, and so share the results.
    fn are_cached(&self, range: &Range<u64>) -> bool {
        let now_us = self.clock.monotonic_us();
        (range.start / PART..range.end.div_ceil(PART)).all(|number| {
            let part = number * PART..((number + 1) * PART).min(self.size());
            let cached = &self.file.cached;
            cached.is(number, now_us, || self.probe(&part))
        })
    }

    /// Returns the next range for another thread to read.
    fn piece(&self) -> Range<u64> {
        self.range.start..(self.range.start + READ).min(self.range.end)
    }

    fn probe(&self, range: &Range<u64>) -> bool {
        root::is_cached(&self.file.opened.file, range.start, range.end - range.start)
    }

    fn size(&self) -> u64 {
        self.file.opened.stamp.size
    }

    /// Returns the next frame, a range of the file with at most `longest` bytes.
    fn give(&mut self, mut range: Range<u64>) -> Frame {
        range.end = range.end.min(range.start.saturating_add(self.longest));
        self.range.start = range.end;
        let file = self.file.opened.file.clone();
        Frame::File(FileRange { file, range })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Fault>> {
        let Some(reading) = &mut self.reading else {
            return Poll::Ready(Err(Reason::FileFailed.into()));
        };
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let unchanged = self.is_unchanged();
        Poll::Ready(match read {
            Ok(Ok(_)) if !unchanged => Err(Reason::FileChanged.into()),
            Ok(Ok(bytes)) if !bytes.is_empty() => {
                let range = self.range.start..self.range.start + bytes.len() as u64;
                // The page cache usually contains the range now, and sending it from there is
                // cheaper.
                Ok(match self.probe(&range) {
                    true => self.give(range),
                    false => {
                        self.range.start = range.end;
                        Frame::Data(bytes)
                    }
                })
            }
            Ok(Ok(_)) => Err(Reason::FileChanged.into()),
            Ok(Err(_)) => Err(Reason::FileFailed.into()),
            Err(_) => Err(Reason::Panic.into()),
        })
    }

    fn read(&mut self) {
        let (file, end) = (self.file.opened.file.clone(), self.range.end);
        let Range { start: at, end: to } = self.piece();
        let room = (to - at) as usize;
        self.reading = Some(spawn_blocking(move || {
            let mut bytes = Vec::new();
            root::read(&file, at, room, How::Wait, &mut bytes)?;
            let next = at + bytes.len() as u64;
            root::will_need(&file, next, (end - next).min(AHEAD));
            Ok(Bytes::from(bytes))
        }));
    }
}

impl BodyStream for FileBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if self.reading.is_some() {
            return self.poll_read(cx).map(Some);
        }
        if self.range.is_empty() {
            // The queued last part can still be replaced by an error if the file has changed.
            let is_whole = self.is_unchanged();
            return Poll::Ready((!is_whole).then(|| Err(Reason::FileChanged.into())));
        }
        let Some(range) = self.cached() else {
            self.read();
            return self.poll_read(cx).map(Some);
        };
        Poll::Ready(Some(match self.is_unchanged() {
            true => Ok(self.give(range)),
            false => Err(Reason::FileChanged.into()),
        }))
    }

    fn prefer_short(&mut self, bytes: u64) {
        self.longest = bytes.clamp(1, PART);
    }

    fn take_back(&mut self, bytes: u64) -> bool {
        self.range.start -= bytes;
        true
    }

    fn length(&self) -> Option<u64> {
        Some(self.range.end - self.range.start)
    }
}

impl Drop for FileBody {
    fn drop(&mut self) {
        // A read that has not started is cancelled.
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

impl Ranged for FileBody {
    fn limit(&mut self, range: Range<u64>) {
        let end = self.size();
        self.range = range.start.min(end)..range.end.min(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_cache_check_counts_for_its_second() {
        let seen = CachedParts::default();
        let second = 1_000_000;
        assert!(!seen.is(0, second, || false));
        assert!(seen.is(0, second, || true));
        assert!(seen.is(0, second, || false), "it was seen");
        assert!(!seen.is(0, 2 * second, || false), "a second ago");
        assert!(!seen.is(1, second, || false), "another part");
        assert!(seen.is(PLACES as u64, second, || true));
        assert!(!seen.is(0, second, || false), "in its place");
    }
}
