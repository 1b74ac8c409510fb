//! Slow and failing disks: a file system in memory, mounted through FUSE, with a configurable rate, latency and
//! failures. btrfs may join several of them. Also reads the activity of any disk, as iostat does.

mod activity;
#[cfg(feature = "lab")]
mod files;
#[cfg(feature = "lab")]
mod joined;
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
pub use joined::{JoinedDisks, Profile};
#[cfg(feature = "lab")]
pub use slow::{Condition, Pace, SlowDisk};
