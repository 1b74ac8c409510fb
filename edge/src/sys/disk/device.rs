//! A device: a file or block device of a fixed size, read and written at places.

use std::io;
use std::mem::MaybeUninit;

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

/// A file or block device of a fixed size.
pub trait Device: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

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
