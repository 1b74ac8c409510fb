//! Temporary files without a name. Nothing of them is left when the process ends, even if it crashes.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::real::{read_all, write_all};

/// Number of names to try if the file system supports no files without a name.
const NAMES_MAX: usize = 16;

/// A file without a name, which only this process can read and write.
#[derive(Debug)]
pub struct TemporaryFile(File);

impl TemporaryFile {
    /// Creates an empty file on the file system of this folder.
    ///
    /// # Errors
    ///
    /// The folder does not exist or may not be written, or its file system failed.
    pub fn create(folder: &Path) -> io::Result<TemporaryFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(TemporaryFile(file.into())),
            // EISDIR is the answer of kernels that do not know O_TMPFILE.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS) => create_and_unlink(folder),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes all bytes, beginning at this offset.
    ///
    /// # Errors
    ///
    /// The file system failed or is full. Some of the bytes may have been written.
    pub fn write(&self, at: u64, from: &[&[u8]]) -> io::Result<()> {
        write_all(&self.0, at, from)
    }

    /// Reads this many bytes, beginning at this offset.
    ///
    /// # Errors
    ///
    /// The file system failed. `UnexpectedEof` if the file is shorter.
    pub fn read(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes: Vec<u8> = Vec::with_capacity(length);
        let spare: &mut [MaybeUninit<u8>] = &mut bytes.spare_capacity_mut()[..length];
        let read = read_all(&self.0, at, &mut [spare])?;
        if read < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the capacity is at least `length`, and `read_all` has written as many bytes as it returned, which are
        // `length`.
        unsafe { bytes.set_len(length) };
        Ok(bytes)
    }
}

/// Creates a file with a name that no other file has, and removes the name at once.
fn create_and_unlink(folder: &Path) -> io::Result<TemporaryFile> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    // With O_EXCL (`create_new`), the kernel follows no symbolic link that another user may have put there.
    options.read(true).write(true).create_new(true).mode(0o600);
    for _ in 0..NAMES_MAX {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".sluice-{}-{number}", std::process::id()));
        match options.open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(TemporaryFile(file));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_has_no_name_and_keeps_what_is_written() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        for create in [TemporaryFile::create, create_and_unlink] {
            let file = create(folder.path())?;
            assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
            file.write(0, &[b"hello ", b"world"])?;
            file.write(6, &[b"there"])?;
            assert_eq!(file.read(0, 11)?, b"hello there");
            let error = file.read(6, 6).expect_err("a byte is missing");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        let missing = TemporaryFile::create(&folder.path().join("none"));
        assert_eq!(
            missing.expect_err("no folder").kind(),
            io::ErrorKind::NotFound
        );
        Ok(())
    }

    #[test]
    fn a_name_that_is_taken_is_not_used() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let taken = |n| {
            folder
                .path()
                .join(format!(".sluice-{}-{n}", std::process::id()))
        };
        for n in 0..1000 {
            std::fs::write(taken(n), "mine")?;
        }
        let error = create_and_unlink(folder.path()).expect_err("all names are taken");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(taken(0))?, b"mine");
        Ok(())
    }

    #[test]
    fn a_full_disk_is_an_error() -> io::Result<()> {
        let full = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/full")?;
        let error = TemporaryFile(full)
            .write(0, &[b"a"])
            .expect_err("it is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        Ok(())
    }
}
