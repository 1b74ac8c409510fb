//! A device: a file or block device, read and written at places.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use super::real::Real;

/// How to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Through the page cache, waiting for the disk.
    Wait,
    /// Only what is in memory: `WouldBlock` if that is nothing; it may be less than was asked for.
    /// `Unsupported` where the file system can't tell.
    AtHand,
    /// Past the page cache. Places, lengths and memory are aligned to `buffer::ALIGNED`.
    Direct,
}

/// A file or block device.
///
/// # Safety
/// When `read` gives `n`, the first `n` bytes of the pieces have been written to.
pub unsafe trait Device: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Makes a file exactly this long, with room on the disk for all of it. A block device can't be
    /// changed: it must be at least as large.
    ///
    /// # Errors
    /// There is not so much room.
    fn set_size(&self, bytes: u64) -> Result<(), OpenError>;

    /// Reads from `at` on into one piece after another; how many bytes. Less than asked for only at
    /// the end, and with `How::AtHand`.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, at: u64, into: &mut [&mut [MaybeUninit<u8>]], how: How) -> io::Result<usize>;

    /// Writes all pieces one after another from `at` on, past the page cache where that is possible:
    /// for that, place, lengths and memory are aligned to `buffer::ALIGNED`.
    ///
    /// # Errors
    /// What the system says; what was written then is not known.
    fn write(&self, at: u64, from: &[&[u8]]) -> io::Result<()>;

    /// Returns when all that was written would outlast a loss of power.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&self) -> io::Result<()>;
}

/// A device that nobody else has now, until it is dropped.
pub struct Opened {
    /// Itself; its size is what was found.
    pub device: Arc<dyn Device>,
    /// Whether it is an empty file, made just now or before.
    pub fresh: bool,
    /// Whether it is a block device.
    pub is_block: bool,
}

/// Opens a regular file or a block device and locks it; a file is made where there is none. Nothing
/// that is in it is changed.
///
/// # Errors
/// It is none of those, somebody else has it, or the system says no.
pub fn open(path: &Path) -> Result<Opened, OpenError> {
    let (real, fresh, is_block) = Real::open(path)?;
    Ok(Opened {
        device: Arc::new(real),
        fresh,
        is_block,
    })
}

/// Why a device can't be used. Each names the path, and what to do.
#[derive(Debug)]
pub enum OpenError {
    /// It would be the same the next time: the configuration is to be changed.
    Refused(String),
    /// The system failed; it may be better later.
    Failed(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (OpenError::Refused(text) | OpenError::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for OpenError {}
