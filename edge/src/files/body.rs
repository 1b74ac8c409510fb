//! The content of a file that is not in memory: parts of it that the kernel has at hand, and others
//! that another thread reads.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::handler::representation::Ranged;
use crate::handler::{BodyStream, Cause, Fault, FileRange, Frame};
use crate::sys::root::{self, How, Opened, Stamp};

/// Sent at once.
const PART: u64 = 2 << 20;
/// Read at once by another thread, which then has the kernel read on.
const READ: u64 = 256 << 10;
/// So far.
const AHEAD: u64 = 1 << 20;

/// A range of a file.
pub(super) struct FileBody {
    opened: Opened,
    range: Range<u64>,
    reading: Option<JoinHandle<std::io::Result<Bytes>>>,
}

impl FileBody {
    /// All of a file.
    pub fn new(opened: Opened) -> FileBody {
        let range = 0..opened.stamp.size;
        FileBody {
            opened,
            range,
            reading: None,
        }
    }

    /// Whether the file is still what it was: bytes of two versions are never mixed, whoever writes
    /// into a file that is being sent.
    fn is_unchanged(&self) -> bool {
        Stamp::now(&self.opened.file).is_ok_and(|now| self.opened.stamp.has_same_content(&now))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Fault>> {
        let Some(reading) = &mut self.reading else {
            return Poll::Ready(Err(Cause::FileFailed.into()));
        };
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let unchanged = self.is_unchanged();
        Poll::Ready(match read {
            Ok(Ok(_)) if !unchanged => Err(Cause::FileChanged.into()),
            Ok(Ok(bytes)) if !bytes.is_empty() => {
                self.range.start += bytes.len() as u64;
                Ok(Frame::Data(bytes))
            }
            Ok(Ok(_)) => Err(Cause::FileChanged.into()),
            Ok(Err(_)) => Err(Cause::FileFailed.into()),
            Err(_) => Err(Cause::Panic.into()),
        })
    }

    fn read(&mut self) {
        let (file, at) = (self.opened.file.clone(), self.range.start);
        let end = self.range.end;
        let room = (end - at).min(READ) as usize;
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
            return Poll::Ready(None);
        }
        let (at, length) = (
            self.range.start,
            (self.range.end - self.range.start).min(PART),
        );
        if !root::is_at_hand(&self.opened.file, at, length) {
            self.read();
            return self.poll_read(cx).map(Some);
        }
        if !self.is_unchanged() {
            return Poll::Ready(Some(Err(Cause::FileChanged.into())));
        }
        self.range.start += length;
        Poll::Ready(Some(Ok(Frame::File(FileRange {
            file: self.opened.file.clone(),
            range: at..at + length,
        }))))
    }

    fn length(&self) -> Option<u64> {
        Some(self.range.end - self.range.start)
    }
}

impl Ranged for FileBody {
    fn limit(&mut self, range: Range<u64>) {
        let end = self.opened.stamp.size;
        self.range = range.start.min(end)..range.end.min(end);
    }
}
