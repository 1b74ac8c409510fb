//! Devices: files and block devices, which are read and written at given offsets.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Way of reading: through the page cache or past it, with or without waiting for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Read through the page cache, and wait for the disk.
    Wait,
    /// Read only data in memory, which may be fewer bytes than requested. Fails with `WouldBlock` if none is in memory, and with
    /// `Unsupported` if the file system can't tell.
    Cached,
    /// Bypass the page cache. Offsets, lengths and memory are aligned to `buffer::ALIGNED`.
    Direct,
}

/// A file or block device.
///
/// # Safety
///
/// If `read` returns `n`, the first `n` bytes of the buffers have been written to.
pub unsafe trait Device: Send + Sync {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Sets a file's exact length in bytes, and allocates all of its disk space. The size of a block device can't be changed; a block
    /// device must be at least as large.
    ///
    /// # Errors
    ///
    /// There is not enough space.
    fn set_size(&self, bytes: u64) -> Result<(), OpenError>;

    /// Reads from offset `at` on into one buffer after another, and returns the number of bytes. Fewer bytes than requested are returned
    /// only at the end of the device, or with `ReadMode::Cached`.
    ///
    /// # Errors
    ///
    /// The system failed.
    fn read(
        &self,
        at: u64,
        into: &mut [&mut [MaybeUninit<u8>]],
        how: ReadMode,
    ) -> io::Result<usize>;

    /// Writes all buffers one after another, from offset `at` on. The write bypasses the page cache if offset, lengths and memory are
    /// aligned to `buffer::ALIGNED` and the file system permits it.
    ///
    /// # Errors
    ///
    /// The system failed; an unknown part was written.
    fn write(&self, at: u64, from: &[&[u8]]) -> io::Result<()>;

    /// Waits until everything written would survive a loss of power.
    ///
    /// # Errors
    ///
    /// The system failed.
    fn sync(&self) -> io::Result<()>;
}

/// A device locked for exclusive use until it is dropped.
pub struct Opened {
    /// The device, with the size that was found.
    pub device: Arc<dyn Device>,
    /// Whether the device is an empty file, newly created or not.
    pub fresh: bool,
    /// Whether the device is a block device.
    pub is_block: bool,
}

/// The reason why a device can't be used. Each message names the path and a remedy.
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
