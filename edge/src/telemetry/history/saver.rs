//! Saves the history in a file of a folder: a whole file now and then, and in between the new points at its end.

use std::io::{self, BufReader, Read};
use std::path::Path;

use parking_lot::RwLock;

use super::file::Damage;
use super::members::History;
use super::scope::Scope;
use crate::sys::disk::private::PrivateFolder;

/// Name of the file in the folder.
const FILE: &str = "points";
/// Longest file that is read. The file is written as a whole long before.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Bytes appended to the file, besides as many as the whole file had, after which it is written as a whole.
const APPENDED_BYTES: u64 = 4 << 20;
/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// The file of a saved history, which one process uses at a time.
pub struct Saver {
    folder: PrivateFolder,
    /// Length of the file when it was last written as a whole. `None`: the next save writes the whole file.
    whole_bytes: Option<u64>,
}

impl Saver {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// The folder can't be used, or another process uses it (`ResourceBusy`).
    pub fn open(path: &Path) -> io::Result<Saver> {
        Ok(Saver {
            folder: PrivateFolder::open(path)?,
            whole_bytes: None,
        })
    }

    /// Adds the saved points to `history`. Returns the reason why some or all of them can't be used.
    pub fn restore(&mut self, history: &mut History, now_s: u64) -> Option<Damage> {
        match self.folder.reader(FILE) {
            Ok(None) => None,
            Ok(Some(file)) => history.restore(
                BufReader::with_capacity(BUFFER_BYTES, file.take(FILE_BYTES_MAX)),
                now_s,
            ),
            Err(error) => Some(Damage::Io(error)),
        }
    }

    /// Writes the points that were not saved yet. After a failure, the next call writes the whole file.
    ///
    /// # Errors
    ///
    /// The file system failed.
    pub fn save(&mut self, history: &RwLock<History>) -> io::Result<()> {
        let whole_bytes = self.whole_bytes.take();
        self.whole_bytes = Some(match whole_bytes {
            None => self.write_whole(history)?,
            Some(whole_bytes) => {
                let bytes = self.append(history)?;
                match bytes > 2 * whole_bytes + APPENDED_BYTES {
                    true => self.write_whole(history)?,
                    false => whole_bytes,
                }
            }
        });
        Ok(())
    }

    /// Replaces the file. Returns its length.
    fn write_whole(&self, history: &RwLock<History>) -> io::Result<u64> {
        let mut file = self.folder.replace(FILE)?;
        let mut out = Vec::new();
        history.read().write_beginning(&mut out);
        for (scope, name) in members(history) {
            history.write().write_points(scope, &name, true, &mut out);
            if out.len() >= BUFFER_BYTES {
                file.write(&out)?;
                out.clear();
            }
        }
        file.write(&out)?;
        file.finish()
    }

    /// Appends the new points. Returns the length of the file.
    fn append(&self, history: &RwLock<History>) -> io::Result<u64> {
        let mut out = Vec::new();
        for (scope, name) in members(history) {
            history.write().write_points(scope, &name, false, &mut out);
        }
        self.folder.append(FILE, &out)
    }
}

fn members(history: &RwLock<History>) -> Vec<(Scope, String)> {
    let history = history.read();
    let names = |scope| {
        history
            .names(scope)
            .map(move |name| (scope, name.to_owned()))
    };
    Scope::ALL.into_iter().flat_map(names).collect()
}
