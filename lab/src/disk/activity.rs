//! Counters of a disk, and the figures that iostat computes from two readings of them.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use rustix::fs::{major, minor};
use serde::Serialize;

/// Counters of a disk since the disk was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Number of completed reads.
    pub reads: u64,
    /// Number of completed writes.
    pub writes: u64,
    /// Number of bytes read.
    pub read_bytes: u64,
    /// Number of bytes written.
    pub written_bytes: u64,
    /// Sum of the times that all completed requests took from arrival to completion.
    pub waited: Duration,
    /// Total time in which at least one request was in progress.
    pub busy: Duration,
}

/// The figures that iostat prints for a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Number of reads per second.
    pub reads: f64,
    /// Number of writes per second.
    pub writes: f64,
    /// Number of bytes read per second.
    pub read_bytes: f64,
    /// Number of bytes written per second.
    pub written_bytes: f64,
    /// Mean time of requests from arrival to completion, in milliseconds.
    pub wait_ms: f64,
    /// Share of the time, 0 to 1, in which at least one request was in progress.
    pub utilization: f64,
}

impl Activity {
    /// Returns the figures for the period between the reading `earlier` and this one, `seconds` later.
    pub fn since(&self, earlier: &Activity, seconds: f64) -> Usage {
        let seconds = seconds.max(1e-9);
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let (reads, writes) = (
            per_second(self.reads, earlier.reads),
            per_second(self.writes, earlier.writes),
        );
        let requests = (reads + writes) * seconds;
        let waited = self.waited.saturating_sub(earlier.waited);
        let busy = self.busy.saturating_sub(earlier.busy);
        Usage {
            reads,
            writes,
            read_bytes: per_second(self.read_bytes, earlier.read_bytes),
            written_bytes: per_second(self.written_bytes, earlier.written_bytes),
            wait_ms: match requests > 0.0 {
                true => waited.as_secs_f64() * 1000.0 / requests,
                false => 0.0,
            },
            utilization: (busy.as_secs_f64() / seconds).min(1.0),
        }
    }
}

/// Size in bytes of a sector as /proc/diskstats counts, whatever the disk's own sector size.
const SECTOR: u64 = 512;

/// Reads the counters of the disk that contains a file or folder.
///
/// Errors: the path is not on a disk, but for example on tmpfs.
pub fn of_path(path: &Path) -> anyhow::Result<Activity> {
    let place = path.display();
    let device = fs::metadata(path)
        .with_context(|| format!("{place}"))?
        .st_dev();
    let table = fs::read_to_string("/proc/diskstats").context("/proc/diskstats")?;
    read_table(&table, major(device), minor(device))
        .with_context(|| format!("{place} is on no disk listed in /proc/diskstats"))
}

/// Parses /proc/diskstats for the disk with these device numbers. The columns after major, minor and name are: reads,
/// reads merged, sectors read, ms reading; writes, writes merged, sectors written, ms writing; in flight; ms busy; …
/// (Documentation/admin-guide/iostats.rst in the kernel).
fn read_table(table: &str, major: u32, minor: u32) -> Option<Activity> {
    let line = table.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let its = words.next()?.parse() == Ok(major) && words.next()?.parse() == Ok(minor);
        its.then(|| words.skip(1).filter_map(|word| word.parse::<u64>().ok()))
    })?;
    let numbers: Vec<u64> = line.collect();
    let [
        reads,
        _,
        sectors_read,
        read_ms,
        writes,
        _,
        sectors_written,
        write_ms,
        _,
        busy_ms,
        ..,
    ] = numbers[..]
    else {
        return None;
    };
    Some(Activity {
        reads,
        writes,
        read_bytes: sectors_read * SECTOR,
        written_bytes: sectors_written * SECTOR,
        waited: Duration::from_millis(read_ms + write_ms),
        busy: Duration::from_millis(busy_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_disk_is_parsed() {
        let table = "   7       0 loop0 1 0 2 3 4 0 5 6 0 7 8\n 254       0 vda 100 1 2000 30 40 2 4096 500 0 60 530 0 0\n";
        let activity = read_table(table, 254, 0).expect("its line");
        assert_eq!(
            activity,
            Activity {
                reads: 100,
                writes: 40,
                read_bytes: 1_024_000,
                written_bytes: 2 << 20,
                waited: Duration::from_millis(530),
                busy: Duration::from_millis(60),
            }
        );
        assert_eq!(read_table(table, 254, 1), None);
    }

    #[test]
    fn two_readings_give_the_figures_of_iostat() {
        let earlier = Activity {
            writes: 10,
            written_bytes: 1000,
            ..Activity::default()
        };
        let later = Activity {
            reads: 10,
            writes: 40,
            read_bytes: 500,
            written_bytes: 5000,
            waited: Duration::from_millis(80),
            busy: Duration::from_secs(1),
        };
        let usage = later.since(&earlier, 2.0);
        assert_eq!((usage.reads, usage.writes), (5.0, 15.0));
        assert_eq!((usage.read_bytes, usage.written_bytes), (250.0, 2000.0));
        assert_eq!((usage.wait_ms, usage.utilization), (2.0, 0.5));
        assert_eq!(earlier.since(&earlier, 1.0).wait_ms, 0.0);
    }
}
