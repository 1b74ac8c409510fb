//! The content of a file that is not in memory: parts of it that the kernel has at hand, and others
//! that another thread reads.

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

/// Sent at once.
const PART: u64 = 2 << 20;
/// Parts end at a multiple of this: what the kernel takes from a file at a time.
const ALIGNED: u64 = 64 << 10;
/// Read at once by another thread, which then has the kernel read on. Of no more it can be told whether it
/// is at hand where the kernel does not count pages.
const READ: u64 = root::LOOKED_AT;
/// So far.
const AHEAD: u64 = 1 << 20;

/// A file that is too large for memory, open for all who send it.
pub(super) struct Large {
    pub opened: Opened,
    at_hand: AtHand,
}

impl Large {
    pub fn new(opened: Opened) -> Arc<Large> {
        let at_hand = AtHand::default();
        Arc::new(Large { opened, at_hand })
    }
}

/// Which parts were seen in the page cache in the last second: looking takes a twentieth of what
/// sending does, and pages that were just sent are the last ones to be thrown out. Parts whose numbers
/// fall on the same place push each other out.
struct AtHand([AtomicU64; PLACES]);

/// Parts that are remembered of a file.
const PLACES: usize = 64;

impl Default for AtHand {
    fn default() -> AtHand {
        AtHand([const { AtomicU64::new(0) }; PLACES])
    }
}

impl AtHand {
    /// Whether part `part` is at hand; `look` looks.
    fn is(&self, part: u64, now_us: u64, look: impl FnOnce() -> bool) -> bool {
        let place = &self.0[part as usize % PLACES];
        // The second it is true in, and which part it is told of, plus one: 0 tells of none.
        let told = (now_us / 1_000_000) << 32 | ((part + 1) & 0xffff_ffff);
        if place.load(Ordering::Relaxed) == told {
            return true;
        }
        let found = look();
        if found {
            place.store(told, Ordering::Relaxed);
        }
        found
    }
}

/// A range of a file.
pub(super) struct FileBody {
    file: Arc<Large>,
    clock: Clock,
    range: Range<u64>,
    /// Most bytes that are given as they lie in the file.
    longest: u64,
    reading: Option<JoinHandle<std::io::Result<Bytes>>>,
}

impl FileBody {
    /// All of a file.
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

    /// Whether the file is still what it was: bytes of two versions are never mixed, whoever writes
    /// into a file that is being sent.
    fn is_unchanged(&self) -> bool {
        let opened = &self.file.opened;
        Stamp::now(&opened.file).is_ok_and(|now| opened.stamp.has_same_content(&now))
    }

    /// What can be sent next without waiting for the disk; less, where pages are missing.
    fn at_hand(&self) -> Option<Range<u64>> {
        let Range { start, end } = self.range;
        // What does not begin at a page's beginning costs more to send: only the first part does not.
        let next = match (start + self.longest) / ALIGNED * ALIGNED {
            most if most > start => start..most.min(end),
            _ => start..(start + self.longest).min(end),
        };
        if self.are_at_hand(&next) {
            return Some(next);
        }
        let piece = self.piece();
        self.look(&piece).then_some(piece)
    }

    /// Whether all parts that a range touches are at hand: all who send the file look at the same ones.
    fn are_at_hand(&self, range: &Range<u64>) -> bool {
        let now_us = self.clock.monotonic_us();
        (range.start / PART..range.end.div_ceil(PART)).all(|number| {
            let part = number * PART..((number + 1) * PART).min(self.size());
            let at_hand = &self.file.at_hand;
            at_hand.is(number, now_us, || self.look(&part))
        })
    }

    /// What is read at once.
    fn piece(&self) -> Range<u64> {
        self.range.start..(self.range.start + READ).min(self.range.end)
    }

    fn look(&self, range: &Range<u64>) -> bool {
        root::is_at_hand(&self.file.opened.file, range.start, range.end - range.start)
    }

    fn size(&self) -> u64 {
        self.file.opened.stamp.size
    }

    /// The next bytes, as they lie in the file.
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
                // The page cache has them now, as a rule: sending them from there costs less.
                Ok(match self.look(&range) {
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
            // What was sent last is on its way, and can be stopped still.
            let is_whole = self.is_unchanged();
            return Poll::Ready((!is_whole).then(|| Err(Reason::FileChanged.into())));
        }
        let Some(range) = self.at_hand() else {
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
        // Reading that has not begun never does.
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
    fn what_was_seen_is_believed_for_its_second() {
        let seen = AtHand::default();
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
