//! The place of accounts, certificates and their keys. Another place, such as one that several edges share, only needs
//! this trait.

use std::io;
use std::path::Path;

use crate::sys::disk::private::PrivateFolder;

/// Longest text that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A place for small texts by name, which one process uses at a time.
pub trait Storage: Send + Sync {
    /// Returns a text; `None` if there is none with this name.
    ///
    /// # Errors
    ///
    /// The place failed.
    fn read(&self, name: &str) -> io::Result<Option<String>>;

    /// Replaces a text as a whole. When this returns, the text outlives a crash.
    ///
    /// # Errors
    ///
    /// The place failed. The earlier text is still there.
    fn write(&self, name: &str, text: &str) -> io::Result<()>;

    /// Removes a text, if there is one.
    ///
    /// # Errors
    ///
    /// The place failed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns the last parts of the names that begin with `folder` and a slash.
    ///
    /// # Errors
    ///
    /// The place failed.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
}

impl Storage for PrivateFolder {
    fn read(&self, name: &str) -> io::Result<Option<String>> {
        PrivateFolder::read(self, name, TEXT_BYTES_MAX)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        PrivateFolder::write(self, name, text)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        PrivateFolder::remove(self, name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        PrivateFolder::list(self, folder)
    }
}

/// Opens the storage in a folder, for this process alone.
///
/// # Errors
///
/// The folder can't be used, or another process uses it (`ResourceBusy`).
pub fn in_folder(path: &Path) -> io::Result<Box<dyn Storage>> {
    Ok(Box::new(PrivateFolder::open(path)?))
}

/// Opens the storage in a folder for reading, also while another process uses it.
pub fn read_only(path: &Path) -> Box<dyn Storage> {
    Box::new(PrivateFolder::read_only(path))
}
