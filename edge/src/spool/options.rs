//! Options of `[buffers]`.

use std::path::PathBuf;
use std::time::Duration;

/// Options of `[buffers]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most bytes of memory that all buffers take. The buffers of one client take at most half of it.
    pub memory: u64,
    /// The files in which long bodies go on. `None`: bodies are only in memory.
    pub disk: Option<DiskOptions>,
}

/// Options of the temporary files of bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder in whose file system the files are.
    pub folder: PathBuf,
    /// Bytes of a body in memory from which on it goes on in a file.
    pub memory_per_body: u64,
    /// Most bytes that all files take. The files of one client take at most half of it.
    pub bytes: u64,
    /// Most bytes that the file of one body takes.
    pub bytes_per_body: u64,
    /// Longest time for one read or write, with the time in the queue.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 128 << 20,
            disk: None,
        }
    }
}

impl DiskOptions {
    /// Returns the default options of files in this folder.
    pub fn new(folder: PathBuf) -> DiskOptions {
        DiskOptions {
            folder,
            memory_per_body: 256 << 10,
            bytes: 10 << 30,
            bytes_per_body: 1 << 30,
            timeout: Duration::from_secs(30),
        }
    }
}
