//! Compares and derives options of volumes.

use crate::volume::{Options, default_segment};

/// Whether an open volume with the options `is` can be used with the options `read`, which may
/// differ in `overwrite` only.
pub fn goes_on(is: &Options, read: &Options) -> bool {
    let read = Options {
        overwrite: is.overwrite,
        ..read.clone()
    };
    *is == read
}

/// Returns the size of each segment in bytes.
pub fn segment_of(options: &Options) -> u64 {
    match options.segment {
        0 => default_segment(options.size),
        bytes => bytes,
    }
}
