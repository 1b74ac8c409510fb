//! A folder with its options and the cache of its paths.

use std::io;
use std::sync::Arc;

use super::lookup_slots::LookupSlots;
use super::options::Options;
use super::table::Table;
use crate::sys::Clock;
use crate::sys::root::Root;
use crate::telemetry::FilesNumbers;

/// A folder and the table of its known paths, shared by all workers.
pub struct Shared {
    pub(super) lookups: Arc<LookupSlots>,
    pub(super) options: Options,
    pub(super) root: Root,
    pub(super) table: Table,
    pub(super) clock: Clock,
}

impl Shared {
    /// Opens the folder.
    ///
    /// # Errors
    /// See `Root::open`.
    pub fn open(options: Options, clock: Clock) -> io::Result<Arc<Shared>> {
        Ok(Arc::new(Shared {
            root: Root::open(&options.root, options.symlinks)?,
            table: Table::new(options.memory, options.open_files),
            lookups: Arc::default(),
            options,
            clock,
        }))
    }

    /// Returns the current numbers of the folder's table, for metrics.
    pub fn numbers(&self) -> FilesNumbers {
        FilesNumbers {
            limit: self.options.memory,
            ..self.table.numbers()
        }
    }

    /// Returns the options of the folder.
    pub fn options(&self) -> &Options {
        &self.options
    }
}
