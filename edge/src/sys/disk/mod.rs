//! Files and devices: reading small files, appending to logs, opening volumes. No other code opens files by name.

pub mod access;
pub mod device;
pub mod load;
mod locks;
pub mod path_info;
pub mod pool;
pub mod private;
mod real;
#[cfg(test)]
pub mod simulated;
pub mod temporary;

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use device::{OpenError, Opened};
pub use locks::lock_owner;
use real::Real;

/// Reads a text file of at most `bytes_max` bytes.
///
/// # Errors
///
/// The file system failed, or the path names a pipe, a socket or a device, which could make the caller wait for ever.
/// `FileTooLarge` if the file is longer, `InvalidData` if it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    // NONBLOCK: opening a pipe must not wait for a writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("this is no regular file"));
    }
    read_all(file, bytes_max)
}

/// Reads a text file or a pipe to its end, at most `bytes_max` bytes. Waits for the writer of a pipe.
///
/// # Errors
///
/// The file system failed. `FileTooLarge` if the text is longer, `InvalidData` if it is not UTF-8.
pub fn read_text_or_pipe(path: &Path, bytes_max: u64) -> io::Result<String> {
    read_all(File::open(path)?, bytes_max)
}

/// Opens a file or a pipe for reading. Waits for the writer of a pipe.
///
/// # Errors
///
/// The file system failed.
pub fn open_or_pipe(path: &Path) -> io::Result<impl BufRead + use<>> {
    Ok(BufReader::new(File::open(path)?))
}

/// Reads standard input to its end, at most `bytes_max` bytes.
///
/// # Errors
///
/// Reading failed. `FileTooLarge` if the input is longer, `InvalidData` if it is not UTF-8.
pub fn read_input(bytes_max: u64) -> io::Result<String> {
    read_all(io::stdin().lock(), bytes_max)
}

fn read_all(from: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    let mut from = from.take(bytes_max.saturating_add(1));
    let read = from.read_to_string(&mut text)?;
    if read as u64 > bytes_max {
        let message = format!("the file is longer than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// Reads at most the first `bytes_max` bytes of a file or block device.
///
/// # Errors
///
/// The file system failed.
pub fn read_start(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut start)?;
    Ok(start)
}

/// Writes a text file, in place of its former content.
///
/// # Errors
///
/// The file system failed.
pub fn write_text(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    open_without_waiting(&mut options, path)?.write_all(text.as_bytes())
}

/// Opens a file for appending, and creates it if necessary, readable by its owner and group only: logs contain addresses and URLs of
/// clients. A named pipe must have a reader already, because the call does not wait for
/// one.
///
/// # Errors
///
/// The file system failed.
pub fn open_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    open_without_waiting(&mut options, path)
}

/// Opens a file. The call does not wait for a reader of a named pipe.
fn open_without_waiting(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(|error| match error {
        error if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
            io::Error::other("no process reads from this pipe, or it is not a file")
        }
        error => error,
    })?;
    // NONBLOCK was needed only to open a pipe without waiting; later writes may block.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens and locks a regular file or a block device, and creates an empty file if the path does not exist. The content is not changed.
///
/// # Errors
///
/// The path is something else, another process uses it, or the file system failed.
pub fn open_device(path: &Path) -> Result<Opened, OpenError> {
    let (real, fresh, is_block) = Real::open(path)?;
    Ok(Opened {
        device: Arc::new(real),
        fresh,
        is_block,
    })
}

/// Checks that a file can be opened for reading.
///
/// # Errors
///
/// The reason why the file can't be opened.
pub fn look_at(path: &Path) -> io::Result<()> {
    File::open(path).map(drop)
}

/// Creates a folder and those above it, as far as they do not exist.
///
/// # Errors
///
/// The file system failed.
pub fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Creates an empty file if the path does not exist.
///
/// # Errors
///
/// The file system failed.
pub fn make_if_missing(path: &Path) -> io::Result<()> {
    match path.try_exists()? {
        true => Ok(()),
        false => open_append(path).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::device::{Device, ReadMode};
    use super::*;
    use crate::sys::buffer::Buffer;

    /// Reads this many bytes of a device, or fewer at its end.
    pub(super) fn read(
        device: &dyn Device,
        at: u64,
        length: usize,
        how: ReadMode,
    ) -> io::Result<Vec<u8>> {
        let mut buffer = Buffer::new(length);
        let n = device.read(at, &mut [&mut buffer.spare()[..length]], how)?;
        // SAFETY: `read` has written to the first `n` bytes.
        unsafe { buffer.set_filled(n) };
        Ok(buffer.filled().to_vec())
    }

    #[test]
    fn a_file_is_appended_to_and_read_within_the_limit() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        open_append(&path)?.write_all(b"one ")?;
        open_append(&path)?.write_all(b"two")?;
        assert_eq!(read_text(&path, 7)?, "one two");
        let error = read_text(&path, 6).expect_err("the file is a byte too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        Ok(())
    }

    // Nobody writes to the pipe, so reading it would wait for ever.
    #[test]
    fn a_pipe_is_no_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into())?;
        assert!(read_text(&path, 7).is_err());
        assert!(read_text(Path::new("/dev/zero"), 7).is_err());
        // Nor does anybody read from it.
        assert!(write_text(&path, "x").is_err());
        Ok(())
    }
}
