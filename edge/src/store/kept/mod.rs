//! What is kept on volumes: which volumes get an object, and what is admitted.

pub mod placement;
mod volumes;

use std::time::Duration;

pub use placement::{Kind as PlacementKind, Placement};
pub use volumes::{NotLasting, Volumes};

/// How a cache uses volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Their names; none: everything is in memory alone.
    pub volumes: Vec<String>,
    /// Which of them get an object.
    pub placement: Placement,
    /// What nobody read for so long is dropped; zero: never.
    pub inactive: Duration,
    /// What is written at all.
    pub admit: Admit,
    /// Smallest content that is written, in bytes.
    pub admit_min: u64,
    /// Largest content that is written, in bytes; 0: no limit.
    pub admit_max: u64,
}

/// What is written to volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admit {
    /// Everything.
    #[default]
    All,
    /// What was asked for a second time.
    Second,
}
