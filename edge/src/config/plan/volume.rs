//! Functions on the options of volumes.

use crate::volume::{Options, default_segment};

/// Whether a running volume fits new options, which may differ in `overwrite` only.
pub fn goes_on(is: &Options, read: &Options) -> bool {
    let read = Options {
        overwrite: is.overwrite,
        ..read.clone()
    };
    *is == read
}

/// Bytes of each segment.
pub fn segment_of(options: &Options) -> u64 {
    match options.segment {
        0 => default_segment(options.size),
        bytes => bytes,
    }
}
