//! The load of the disk on which a file is, as the kernel counts it for all programs.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Numbers of a disk, of which `iostat` shows the differences. Times are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLoad {
    /// Reads completed.
    pub reads: u64,
    /// Time taken by reads, summed over all reads.
    pub read_ms: u64,
    /// Writes completed.
    pub writes: u64,
    /// Time taken by writes, summed over all writes.
    pub write_ms: u64,
    /// Reads and writes in progress.
    pub in_flight: u64,
    /// Time during which a read or write was in progress.
    pub busy_ms: u64,
    /// Time taken by reads, writes and others, with the time in the queue, summed over all of them.
    pub queue_ms: u64,
}

/// Returns the load of the disk or partition on which the file is, or which is this block device. `None` if the kernel
/// counts none, as for file systems on several disks.
pub fn load_of(path: &Path) -> Option<DiskLoad> {
    let found = fs::metadata(path).ok()?;
    let device = match found.file_type().is_block_device() {
        true => found.rdev(),
        false => found.dev(),
    };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    parse(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
}

/// Parses the kernel's line (Documentation/block/stat.rst).
fn parse(text: &str) -> Option<DiskLoad> {
    let numbers = text.split_whitespace().map(|number| number.parse().ok());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let &[
        reads,
        _,
        _,
        read_ms,
        writes,
        _,
        _,
        write_ms,
        in_flight,
        busy_ms,
        queue_ms,
        ..,
    ] = numbers.as_slice()
    else {
        return None;
    };
    Some(DiskLoad {
        reads,
        read_ms,
        writes,
        write_ms,
        in_flight,
        busy_ms,
        queue_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_parsed() {
        let line = "  1  2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n";
        let load = parse(line).expect("a load");
        assert_eq!((load.reads, load.read_ms), (1, 4));
        assert_eq!((load.writes, load.write_ms), (5, 8));
        assert_eq!((load.in_flight, load.busy_ms, load.queue_ms), (9, 10, 11));
        assert_eq!(parse("1 2 3"), None);
        assert_eq!(parse("1 2 3 4 5 6 7 8 9 x 11"), None);
        assert_eq!(load_of(Path::new("/nowhere")), None);
    }
}
