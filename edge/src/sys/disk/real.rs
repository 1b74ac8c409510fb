//! Real devices: regular files and block devices, each opened twice, with and without the page cache.

#[cfg(test)]
mod tests;

use std::ffi::c_int;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::device::{Device, OpenError, ReadMode};
use super::locks::lock_owner;
use crate::sys::buffer::{ALIGNED, Buffer};

/// Maximum number of parts in one system call (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// Number of bytes written in one call when a file is filled with zeros.
const ZEROS: usize = 1 << 20;

// Numbers of the file systems that are in memory (linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

pub(super) struct Real {
    path: PathBuf,
    is_block: bool,
    /// Whether this file was created when the device was opened.
    is_created: bool,
    size: AtomicU64,
    /// The descriptor that uses the page cache, and holds the lock on the file.
    buffered: File,
    /// A second descriptor of the file, which bypasses the page cache; `None` if the file system does not support that.
    direct: Option<File>,
    /// Whether direct reads and writes work. With some file systems, only the first use shows that they don't.
    is_direct: AtomicBool,
    /// Whether the file system is in memory, so that reads never wait.
    is_memory: bool,
    /// Whether the file system can tell which data is in memory. With some file systems, only the first use shows that it can't.
    knows_cached: AtomicBool,
}

impl Real {
    /// Opens and locks a device. Returns the device, whether it is an empty file, and whether it is a block device.
    pub(super) fn open(path: &Path) -> Result<(Real, bool, bool), OpenError> {
        let (buffered, is_created) = open_regular_or_block(path)?;
        lock(path, &buffered)?;
        let failed = |error| failed(path, "can't be examined", &error);
        let found = buffered.metadata().map_err(failed)?;
        let is_block = found.file_type().is_block_device();
        let size = match is_block {
            true => (&buffered).seek(SeekFrom::End(0)).map_err(failed)?,
            false => found.len(),
        };
        // Records are read individually, so the kernel's readahead is turned off.
        let _ = rustix::fs::fadvise(&buffered, 0, None, Advice::Random);
        let real = Real {
            path: path.to_owned(),
            is_block,
            is_created,
            size: AtomicU64::new(size),
            direct: open_direct(path, found.dev(), found.ino()),
            is_direct: AtomicBool::new(true),
            is_memory: is_memory(&buffered),
            knows_cached: AtomicBool::new(true),
            buffered,
        };
        Ok((real, !is_block && size == 0, is_block))
    }

    /// Whether the path still leads to this file, and the file is empty.
    fn is_at_path(&self) -> bool {
        let (own, found) = (self.buffered.metadata(), std::fs::metadata(&self.path));
        let is_same = |own: &Metadata, found: &Metadata| {
            (own.dev(), own.ino(), 0) == (found.dev(), found.ino(), found.len())
        };
        matches!((own, found), (Ok(own), Ok(found)) if is_same(&own, &found))
    }

    /// Returns the descriptor that bypasses the page cache, if direct reads and writes work.
    fn direct(&self) -> Option<&File> {
        let is_direct = self.is_direct.load(Ordering::Relaxed);
        self.direct.as_ref().filter(|_| is_direct)
    }

    /// Whether an error means that the file system does not support direct reads and writes. All offsets and memory are aligned, so nothing
    /// else can make an argument invalid.
    fn lacks_direct(&self, error: &io::Error) -> bool {
        let lacks = matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS)
        );
        if lacks {
            self.is_direct.store(false, Ordering::Relaxed);
        }
        lacks
    }

    fn read_cached(&self, at: u64, into: &mut [&mut [MaybeUninit<u8>]]) -> io::Result<usize> {
        if self.is_memory {
            return read_all(&self.buffered, at, into);
        }
        if !self.knows_cached.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let result = preadv2(&self.buffered, at, into, 0, libc::RWF_NOWAIT);
        if let Err(error) = &result
            && matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)
            )
        {
            self.knows_cached.store(false, Ordering::Relaxed);
            return Err(io::ErrorKind::Unsupported.into());
        }
        result
    }

    fn read_direct(&self, at: u64, into: &mut [&mut [MaybeUninit<u8>]]) -> io::Result<usize> {
        // A direct read is used when the cached pages may be wrong, so they are dropped from the page cache.
        let length: usize = into.iter().map(|piece| piece.len()).sum();
        let length = NonZeroU64::new(length as u64);
        let _ = rustix::fs::fadvise(&self.buffered, at, length, Advice::DontNeed);
        let pieces = into.iter().map(|piece| (piece.as_ptr(), piece.len()));
        if is_aligned(at, pieces)
            && let Some(direct) = self.direct()
        {
            match read_all(direct, at, into) {
                Err(error) if self.lacks_direct(&error) => {}
                result => return result,
            }
        }
        read_all(&self.buffered, at, into)
    }

    /// Returns the error of a full disk if the file system has too little free space to make the file this many bytes longer. Without this
    /// check, a failing `fallocate` would take all free space from other programs for a moment.
    fn check_free_space(&self, missing: u64) -> io::Result<()> {
        let all = rustix::fs::fstatvfs(&self.buffered)?;
        // A file system without a limit, such as tmpfs with `size=0`, reports 0 blocks in total.
        let is_limited = all.f_blocks > 0;
        let free = all.f_bavail.saturating_mul(all.f_frsize);
        match is_limited && missing > free {
            true => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{missing} more bytes are needed, and {free} are free"),
            )),
            false => Ok(()),
        }
    }

    /// Allocates disk space for the file.
    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        loop {
            // Allocation begins at the start of the file, because the parts before `from` may have holes, too.
            match rustix::fs::fallocate(&self.buffered, FallocateFlags::empty(), 0, to) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.fill_with_zeros(from, to),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn fill_with_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let mut zeros = Buffer::new(ZEROS);
        while zeros.append(&[0; ALIGNED]) > 0 {}
        let mut at = from;
        while at < to {
            let take = zeros.filled().len().min((to - at) as usize);
            self.write(at, &[&zeros.filled()[..take]])?;
            at += take as u64;
        }
        Ok(())
    }
}

// SAFETY: reads use `preadv2`, which returns the number of bytes that the kernel has written into the buffers, one buffer after the other.
unsafe impl Device for Real {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn set_size(&self, bytes: u64) -> Result<(), OpenError> {
        let (path, before) = (self.path.display(), self.size());
        if self.is_block {
            return match before >= bytes {
                true => Ok(()),
                false => Err(OpenError::Refused(format!(
                    "{path} has {before} bytes, fewer than the {bytes} of `size`: make `size` smaller or leave it out"
                ))),
            };
        }
        if before > bytes {
            rustix::fs::ftruncate(&self.buffered, bytes)
                .map_err(|error| failed(&self.path, "can't be truncated", &error.into()))?;
            self.size.store(bytes, Ordering::Relaxed);
        }
        let allocated = self
            .check_free_space(bytes.saturating_sub(before))
            .and_then(|()| self.allocate(before.min(bytes), bytes));
        if let Err(error) = allocated {
            // The file is cut to its old length, which releases the part of the space that was allocated.
            let _ = rustix::fs::ftruncate(&self.buffered, before.min(bytes));
            return Err(no_room(&self.path, bytes, &error));
        }
        self.size.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn read(
        &self,
        at: u64,
        into: &mut [&mut [MaybeUninit<u8>]],
        how: ReadMode,
    ) -> io::Result<usize> {
        match how {
            ReadMode::Wait => read_all(&self.buffered, at, into),
            ReadMode::Cached => self.read_cached(at, into),
            ReadMode::Direct => self.read_direct(at, into),
        }
    }

    fn write(&self, at: u64, from: &[&[u8]]) -> io::Result<()> {
        let pieces = from.iter().map(|piece| (piece.as_ptr(), piece.len()));
        if is_aligned(at, pieces)
            && let Some(direct) = self.direct()
        {
            match write_all(direct, at, from) {
                Err(error) if self.lacks_direct(&error) => {}
                result => return result,
            }
        }
        write_all(&self.buffered, at, from)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.buffered)?)
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        // A file that never got its size is of no use.
        if self.is_created && self.size() == 0 && self.is_at_path() {
            // Removing the file fails in the sandbox. The next try then uses it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens a path that can be a volume, and creates a file if the path does not exist. Returns the file, and whether it was created.
fn open_regular_or_block(path: &Path) -> Result<(File, bool), OpenError> {
    let mut is_created = false;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // The type is checked before the path is opened, because opening a pipe or a character device can have side effects.
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        // With O_EXCL, the kernel opens a block device only if no one else has opened it in this way and it is not mounted.
        Ok(found) if found.file_type().is_block_device() => {
            options.custom_flags(libc::O_EXCL);
        }
        Ok(_) => {
            return Err(OpenError::Refused(format!(
                "{} is neither a regular file nor a block device: give the volume another `path`",
                path.display()
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            options.create(true);
            is_created = true;
        }
        Err(error) => return Err(failed(path, "can't be examined", &error)),
    }
    let opened = options.open(path).map_err(|error| {
        let at = path.display();
        match error.raw_os_error() {
            Some(libc::EBUSY) => OpenError::Refused(format!(
                "{at} is in use, mounted or part of something else: a volume needs its own device"
            )),
            Some(libc::ENOENT) => OpenError::Failed(format!(
                "{at} can't be created, because its folder does not exist: create the folder or mount its disk"
            )),
            _ => failed(path, "can't be opened to read and write", &error),
        }
    });
    Ok((opened?, is_created))
}

fn lock(path: &Path, file: &File) -> Result<(), OpenError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(OpenError::Refused(in_use(path))),
        Err(error) => Err(failed(path, "can't be locked", &error.into())),
    }
}

/// Describes the process that has locked a volume.
fn in_use(path: &Path) -> String {
    let at = path.display();
    match lock_owner(path) {
        Some(owner) if owner.pid == std::process::id() => format!(
            "{at} is in use by another volume of this process, or by a removed one: the log says when a removed one is closed"
        ),
        Some(owner) => format!(
            "{at} is in use by {} (process {}): give each volume a `path` of its own",
            owner.name, owner.pid
        ),
        None => format!("{at} is in use by another process: give each volume a `path` of its own"),
    }
}

/// Opens the same file again without the page cache, if its file system supports that.
fn open_direct(path: &Path, dev: u64, ino: u64) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = options.custom_flags(libc::O_DIRECT).open(path).ok()?;
    let found = file.metadata().ok()?;
    // The path may lead to another file by now: then it is not used.
    ((found.dev(), found.ino()) == (dev, ino)).then_some(file)
}

fn is_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file)
        .is_ok_and(|found| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&(found.f_type as u64)))
}

fn failed(path: &Path, what: &str, error: &io::Error) -> OpenError {
    OpenError::Failed(format!("{} {what}: {error}", path.display()))
}

fn no_room(path: &Path, bytes: u64, error: &io::Error) -> OpenError {
    let what = format!("can't be extended to {bytes} bytes");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            OpenError::Failed(format!(
                "{} {what}: {error}; make `size` smaller or free space on its file system",
                path.display()
            ))
        }
        _ => failed(path, &what, error),
    }
}

/// Whether the offset and the buffers are aligned for direct reads and writes.
fn is_aligned<T>(at: u64, pieces: impl Iterator<Item = (*const T, usize)>) -> bool {
    let mut bits = at as usize;
    for (memory, length) in pieces {
        bits |= memory as usize | length;
    }
    bits.is_multiple_of(ALIGNED)
}

type Iovecs = SmallVec<[libc::iovec; 18]>;

/// Returns the buffers without their first `done` bytes, at most as many as one system call accepts.
fn iovecs(into: &mut [&mut [MaybeUninit<u8>]], done: usize) -> Iovecs {
    let mut skip = done;
    let mut pieces = Iovecs::new();
    for piece in into.iter_mut() {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let piece = &mut piece[std::mem::take(&mut skip)..];
        pieces.push(libc::iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: piece.len(),
        });
        if pieces.len() == PIECES_MAX {
            break;
        }
    }
    pieces
}

/// Performs one read into possibly uninitialised memory: into the buffers, after their first `done` bytes.
fn preadv2(
    file: &File,
    at: u64,
    into: &mut [&mut [MaybeUninit<u8>]],
    done: usize,
    flags: c_int,
) -> io::Result<usize> {
    let at = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    let pieces = iovecs(into, done);
    // SAFETY: the descriptor is open while `file` is borrowed, and `pieces` contains the stated number of iovecs. Each iovec describes a
    // part of `into` with its exact length. `into` is borrowed exclusively until this function returns, and the kernel only writes to it.
    let read = unsafe {
        libc::preadv2(
            file.as_raw_fd(),
            pieces.as_ptr(),
            pieces.len() as c_int,
            at,
            flags,
        )
    };
    match read {
        0.. => Ok(read as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads until all buffers are full, or to the end of the file.
pub(super) fn read_all(
    file: &File,
    at: u64,
    into: &mut [&mut [MaybeUninit<u8>]],
) -> io::Result<usize> {
    let length: usize = into.iter().map(|piece| piece.len()).sum();
    let mut done = 0;
    while done < length {
        match preadv2(file, at + done as u64, into, done, 0) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all bytes, beginning at this offset.
pub(super) fn write_all(file: &File, at: u64, from: &[&[u8]]) -> io::Result<()> {
    let mut pieces: SmallVec<[IoSlice<'_>; 18]> =
        from.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut left = &mut pieces[..];
    let mut at = at;
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let now = left.len().min(PIECES_MAX);
        match rustix::io::pwritev(file, &left[..now], at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                at += written as u64;
                IoSlice::advance_slices(&mut left, written);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
