//! Devices: files and block devices, read and written at given positions.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// How to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Through the page cache, waiting for the disk.
    Wait,
    /// Read only data in memory. Fails with `WouldBlock` if there is none, may return fewer bytes
    /// than requested, and fails with `Unsupported` if the file system can't tell.
    AtHand,
    /// Bypass the page cache. Positions, lengths and memory are aligned to `buffer::ALIGNED`.
    Direct,
}

/// A file or block device.
///
/// # Safety
/// If `read` returns `n`, the first `n` bytes of the pieces have been written to.
pub unsafe trait Device: Send + Sync {
    /// The size in bytes.
    fn size(&self) -> u64;

    /// Sets a file's exact length and allocates all of its disk space. A block device can't be
    /// changed and must be at least as large.
    ///
    /// # Errors
    /// There is not enough space.
    fn set_size(&self, bytes: u64) -> Result<(), OpenError>;

    /// Reads from position `at` into one piece after another; returns the number of bytes. Fewer
    /// bytes than requested are returned only at the end, or with `How::AtHand`.
    ///
    /// # Errors
    /// The system failed.
    fn read(&self, at: u64, into: &mut [&mut [MaybeUninit<u8>]], how: How) -> io::Result<usize>;

    /// Writes all pieces one after another from position `at`, bypassing the page cache if
    /// possible. For that, position, lengths and memory are aligned to `buffer::ALIGNED`.
    ///
    /// # Errors
    /// The system failed; an unknown part was written.
    fn write(&self, at: u64, from: &[&[u8]]) -> io::Result<()>;

    /// Returns when everything written would survive a loss of power.
    ///
    /// # Errors
    /// The system failed.
    fn sync(&self) -> io::Result<()>;
}

/// A device locked for exclusive use until it is dropped.
pub struct Opened {
    /// The device, with the size that was found.
    pub device: Arc<dyn Device>,
    /// Whether it is an empty file, newly created or not.
    pub fresh: bool,
    /// Whether it is a block device.
    pub is_block: bool,
}

/// Why a device can't be used. Each message names the path and a remedy.
#[derive(Debug)]
pub enum OpenError {
    /// A permanent error that requires a change of the configuration.
    Refused(String),
    /// A failure of the system that may be temporary.
    Failed(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (OpenError::Refused(text) | OpenError::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for OpenError {}
