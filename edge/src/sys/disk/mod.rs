//! Files and devices: reading small files, appending to logs, opening volumes. No other code opens files by name.

pub mod device;
pub mod path_info;
mod real;
#[cfg(test)]
pub mod simulated;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use device::{OpenError, Opened};
use real::Real;

/// Reads a text file of at most `bytes_max` bytes.
///
/// # Errors
///
/// The file system failed. `InvalidData` if the file is longer or is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?
        .take(bytes_max.saturating_add(1))
        .read_to_string(&mut text)?;
    if read as u64 > bytes_max {
        let message = format!("the file is longer than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(text)
}

/// Opens a file for appending, and creates it if necessary. A named pipe must have a reader already, because the call does not wait for
/// one.
///
/// # Errors
///
/// The file system failed.
pub fn open_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
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

    use super::*;

    #[test]
    fn a_file_is_appended_to_and_read_within_the_limit() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        open_append(&path)?.write_all(b"one ")?;
        open_append(&path)?.write_all(b"two")?;
        assert_eq!(read_text(&path, 7)?, "one two");
        let error = read_text(&path, 6).expect_err("the file is a byte too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        Ok(())
    }
}
