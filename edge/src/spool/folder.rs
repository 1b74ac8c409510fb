//! The folder of temporary files, and the threads that alone wait for its disk.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::quota::Charge;
use super::shared::FILES_MAX;
use crate::reason::Reason;
use crate::sys::disk::pool::Pool;
use crate::sys::disk::temporary::TemporaryFile;

/// Number of threads that write and read the files.
const THREADS: usize = 4;
/// Longest time that opening the folder waits for its disk.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// Most jobs of one file that are queued at the same time: a write, a read, and the closing of the file.
const JOBS_PER_FILE: usize = 3;

/// The folder of temporary files. It stays open as long as a body has a file in it.
pub struct Folder {
    path: PathBuf,
    pool: Pool,
}

/// The temporary file of one body, which the first write creates.
pub(super) struct SpillFile {
    folder: Arc<Folder>,
    file: OnceLock<TemporaryFile>,
    charge: Mutex<FileCharge>,
}

/// The use of the limits by one file, until the file is closed.
pub(super) struct FileCharge {
    /// Bytes of the disk.
    pub bytes: Charge,
    /// One file.
    pub count: Charge,
}

/// A write or a read by another thread.
pub(super) struct Operation<T> {
    result: oneshot::Receiver<T>,
    timeout: Duration,
    /// The timer of `timeout`, set when the operation is first waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The checksum of the written bytes, and the charge of their memory. The charge goes back to the body with the result. If
/// the body is gone, the memory is released when the write has ended.
pub(super) type Written = (io::Result<u32>, Charge);
/// The bytes that were read, and the charge of their memory.
pub(super) type Read = (io::Result<Bytes>, Charge);

impl Folder {
    /// Starts the threads, and checks that files can be created. If the disk does not answer in time, logs that, and
    /// leaves the check to the first file.
    ///
    /// # Errors
    ///
    /// The folder does not exist, may not be written, its file system failed, or the system can't create a thread.
    pub fn open(path: &Path) -> io::Result<Arc<Folder>> {
        let jobs_max = JOBS_PER_FILE * FILES_MAX as usize;
        let pool = Pool::start("buffer files", THREADS, jobs_max)?;
        let checked = path.to_owned();
        let check = move || TemporaryFile::create(&checked).map(drop);
        match within(OPEN_MAX, &pool, check) {
            Some(result) => result?,
            None => tracing::error!(
                folder = %path.display(),
                "the disk of the folder in [buffers] does not answer; bodies that need a file fail until it does"
            ),
        }
        Ok(Arc::new(Folder {
            path: path.to_owned(),
            pool,
        }))
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the result of a job of these threads, or `None` if there is none within `time`.
fn within<T: Send + 'static>(
    time: Duration,
    pool: &Pool,
    job: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, result) = std::sync::mpsc::channel();
    pool.submit(Box::new(move || {
        // Sending fails if the job took too long.
        let _ = sender.send(job());
    }));
    result.recv_timeout(time).ok()
}

impl SpillFile {
    /// Creates the file of one body. The file system is not touched before the first write.
    pub(super) fn new(folder: &Arc<Folder>, charge: FileCharge) -> Arc<SpillFile> {
        Arc::new(SpillFile {
            folder: folder.clone(),
            file: OnceLock::new(),
            charge: Mutex::new(charge),
        })
    }

    /// Makes room for a file of this length. Returns false if a limit would be exceeded.
    pub(super) fn reserve(&self, length: u64) -> bool {
        let bytes = &mut self.charge.lock().bytes;
        let more = length.saturating_sub(bytes.amount());
        more == 0 || bytes.grow(more)
    }

    /// Has bytes written at this offset.
    pub(super) fn write(
        self: &Arc<SpillFile>,
        at: u64,
        chunks: Vec<Bytes>,
        charge: Charge,
        timeout: Duration,
    ) -> Operation<Written> {
        let file = self.clone();
        self.run(timeout, move || {
            let parts: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
            let written = file.opened().and_then(|file| file.write(at, &parts));
            let written = written.map(|()| checksum(&parts));
            // The memory is freed before its charge is released.
            drop(chunks);
            (written, charge)
        })
    }

    /// Has bytes read that were written before, and compared with the checksum `expected`.
    pub(super) fn read(
        self: &Arc<SpillFile>,
        at: u64,
        length: usize,
        expected: u32,
        charge: Charge,
        timeout: Duration,
    ) -> Operation<Read> {
        let file = self.clone();
        self.run(timeout, move || {
            let read = file.opened().and_then(|file| file.read(at, length));
            // After a write to the disk that failed in the background, the kernel may return other bytes without an error.
            let read = read.and_then(|bytes| match checksum(&[&bytes]) == expected {
                true => Ok(Bytes::from(bytes)),
                false => Err(io::ErrorKind::InvalidData.into()),
            });
            (read, charge)
        })
    }

    /// Queues a job for the threads of the folder.
    fn run<T: Send + 'static>(
        &self,
        timeout: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Operation<T> {
        let (sender, result) = oneshot::channel();
        // The queue has room for all jobs of all files. If it were full, the dropped channel would make the operation fail.
        self.folder.pool.submit(Box::new(move || {
            // A body that is gone needs no more bytes.
            if !sender.is_closed() {
                let _ = sender.send(job());
            }
        }));
        Operation {
            result,
            timeout,
            timer: None,
        }
    }

    /// Returns the file, which the first call creates. Only one job at a time writes, and reads follow writes, so two
    /// threads never create it at once.
    fn opened(&self) -> io::Result<&TemporaryFile> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = TemporaryFile::create(&self.folder.path)?;
        Ok(self.file.get_or_init(|| file))
    }
}

impl Drop for SpillFile {
    /// Has the file closed by a thread of the folder: freeing the space on the disk may take long. The space counts as
    /// used until then.
    fn drop(&mut self) {
        let Some(file) = self.file.take() else {
            return;
        };
        let mut charge = self.charge.lock();
        let FileCharge { bytes, count } = &mut *charge;
        let charges = (bytes.split(u64::MAX), count.split(u64::MAX));
        drop(charge);
        // The job keeps the folder, and so its threads, until the file is closed.
        let folder = self.folder.clone();
        self.folder.pool.submit(Box::new(move || {
            drop(file);
            drop((charges, folder));
        }));
    }
}

impl<T> Operation<T> {
    /// Waits for the result.
    ///
    /// # Errors
    ///
    /// `BufferDiskTimeout` if it takes longer than the timeout, `BufferDiskFailed` if the operation was lost.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Reason>> {
        if let Poll::Ready(result) = Pin::new(&mut self.result).poll(cx) {
            return Poll::Ready(result.map_err(|_| Reason::BufferDiskFailed));
        }
        let timeout = self.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        let passed = timer.as_mut().poll(cx);
        passed.map(|()| Err(Reason::BufferDiskTimeout))
    }
}

/// Returns the checksum of these bytes (CRC-32C).
fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    // The digest of a CRC with 32 bits has no more.
    digest.finalize() as u32
}

/// Returns the reason for which a body can't go on after an error of the file system.
pub(super) fn reason_of(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::BufferDiskFull,
        _ => Reason::BufferDiskFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_hangs_does_not_block_the_start() {
        let pool = Pool::start("test", 1, 2).expect("a thread");
        let (answer, disk) = std::sync::mpsc::channel();
        let hanging = move || disk.recv().is_ok();
        assert_eq!(within(Duration::from_millis(1), &pool, hanging), None);
        answer.send(()).expect("the job waits");
        assert_eq!(within(Duration::from_secs(60), &pool, || 7), Some(7));
    }
}
