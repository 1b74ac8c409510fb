//! Reads parts of files into memory, for transports that cannot send files. A worker never waits
//! for the disk: bytes that are not in the page cache are read by the runtime's blocking threads.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::handler::{Fault, FileRange};
use crate::reason::Reason;
use crate::sys::root::{self, How};

/// Most bytes read at once, and thus the most that one exchange holds.
const READ_MAX: u64 = 64 << 10;

/// Reads one part of a file. `part` is what has not been read yet.
pub struct FileReader {
    part: FileRange,
    /// The read in progress on another thread.
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl FileReader {
    /// Creates a reader of this part.
    pub fn new(part: FileRange) -> FileReader {
        FileReader {
            part,
            reading: None,
        }
    }

    /// Whether all bytes have been returned.
    pub fn is_done(&self) -> bool {
        self.part.range.is_empty()
    }

    /// Returns the next bytes, at least one. If the file has become too short, fails.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Fault>> {
        let failed = |_| Fault::from(Reason::FileFailed);
        let bytes = match &mut self.reading {
            Some(reading) => {
                let read = ready!(Pin::new(reading).poll(cx));
                self.reading = None;
                read.map_err(|_| Fault::from(Reason::Panic))?
                    .map_err(failed)?
            }
            None => match self.read_cached().map_err(failed)? {
                Some(bytes) => bytes,
                None => {
                    self.reading = Some(self.read_elsewhere());
                    return self.poll(cx);
                }
            },
        };
        if bytes.is_empty() {
            return Poll::Ready(Err(Reason::FileChanged.into()));
        }
        self.part.range.start += bytes.len() as u64;
        Poll::Ready(Ok(bytes.into()))
    }

    fn length(&self) -> usize {
        let range = &self.part.range;
        (range.end - range.start).min(READ_MAX) as usize
    }

    /// Reads from the page cache. Returns `None` if the bytes are not in it.
    fn read_cached(&self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let (file, at) = (&self.part.file, self.part.range.start);
        let read = root::read(file, at, self.length(), How::Cached, &mut bytes)?;
        Ok(read.map(|_| bytes))
    }

    fn read_elsewhere(&self) -> JoinHandle<io::Result<Vec<u8>>> {
        let (file, at, length) = (
            Arc::clone(&self.part.file),
            self.part.range.start,
            self.length(),
        );
        spawn_blocking(move || {
            let mut bytes = Vec::new();
            root::read(&file, at, length, How::Wait, &mut bytes)?;
            Ok(bytes)
        })
    }
}

impl Drop for FileReader {
    fn drop(&mut self) {
        // Cancels a read that no thread has begun.
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    fn file(content: &[u8]) -> Arc<OwnedFd> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(content).expect("written");
        Arc::new(OwnedFd::from(file))
    }

    fn on_runtime<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::LocalRuntime::new()
            .expect("a runtime")
            .block_on(test)
    }

    #[test]
    fn a_part_is_read_in_bounded_pieces_whether_cached_or_not() {
        let content: Vec<u8> = (0..3 * READ_MAX + 7).map(|i| (i % 251) as u8).collect();
        let range = 5..content.len() as u64 - 1;
        let expected = &content[5..content.len() - 1];
        let file = file(&content);
        on_runtime(async {
            for elsewhere in [false, true] {
                let mut reader = FileReader::new(FileRange {
                    file: file.clone(),
                    range: range.clone(),
                });
                let mut got = Vec::new();
                while !reader.is_done() {
                    if elsewhere {
                        reader.reading = Some(reader.read_elsewhere());
                    }
                    let bytes = poll_fn(|cx| reader.poll(cx))
                        .await
                        .expect("the file's bytes");
                    assert!(!bytes.is_empty() && bytes.len() as u64 <= READ_MAX);
                    got.extend_from_slice(&bytes);
                }
                assert!(got == expected, "read elsewhere: {elsewhere}");
            }
        });
    }

    #[test]
    fn a_file_that_has_become_shorter_is_a_fault() {
        let file = file(b"abc");
        on_runtime(async {
            let mut reader = FileReader::new(FileRange { file, range: 1..9 });
            let first = poll_fn(|cx| reader.poll(cx)).await;
            assert_eq!(first.as_deref(), Ok(&b"bc"[..]));
            let second = poll_fn(|cx| reader.poll(cx)).await;
            assert_eq!(
                second.map_err(|fault| fault.reason),
                Err(Reason::FileChanged)
            );
        });
    }
}
