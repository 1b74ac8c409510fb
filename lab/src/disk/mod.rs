//! Slow and failing disks: a file system of ours in memory, mounted through FUSE, that takes its time and fails when it
//! is told to. And what any disk does, as iostat shows it.

mod activity;
#[cfg(feature = "lab")]
mod files;
#[cfg(feature = "lab")]
mod mount;
#[cfg(feature = "lab")]
mod pacer;
#[cfg(feature = "lab")]
mod queue;
#[cfg(feature = "lab")]
mod slow;

pub use activity::{Activity, Usage, of_path};
#[cfg(feature = "lab")]
pub use slow::{Condition, Pace, SlowDisk};
