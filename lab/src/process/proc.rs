//! Parsers of /proc/PID files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::Memory;

/// Field numbers in /proc/PID/stat, counted from the field after the name (proc_pid_stat(5), minus 3).
pub(super) const PARENT: usize = 1;
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const CHILDREN_USER_TIME: usize = 13;
const CHILDREN_SYSTEM_TIME: usize = 14;

/// Field number of the time in clock ticks from the start of the machine to that of the process.
const START_TIME: usize = 19;

/// Field number in the line `cpu` of /proc/stat.
const STOLEN_TIME: usize = 7;

pub(super) fn stat_fields(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain spaces and parentheses; the last parenthesis ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.to_owned())
}

pub(super) fn field(stat: &str, place: usize) -> Option<u64> {
    stat.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// A process, which another one with the same number is not mistaken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pid: u32,
    /// Start time in ticks.
    started: u64,
}

impl Identity {
    /// Returns the process with this number, if it exists.
    pub(crate) fn of(pid: u32) -> Option<Identity> {
        let started = field(&stat_fields(pid)?, START_TIME)?;
        Some(Identity { pid, started })
    }

    /// Whether the process has not ended. A zombie has.
    pub(crate) fn is_running(&self) -> bool {
        let Some(stat) = stat_fields(self.pid) else {
            return false;
        };
        let has_ended = stat.trim_start().starts_with(['Z', 'X']);
        field(&stat, START_TIME) == Some(self.started) && !has_ended
    }

    /// Sends a signal to the process if it is running.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid().filter(|_| self.is_running()) {
            // Sending fails if the process has just ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// Lets the kernel forget the process if it is a child of this one and has ended.
    pub(crate) fn reap(&self) {
        if let Some(pid) = self.pid() {
            // Waiting fails for a process that is no child of this one.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }
}

/// Whether a process ignores a signal, as one that `nohup` has started ignores SIGHUP.
pub fn ignores(pid: u32, signal: Signal) -> bool {
    let ignored = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let set = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))?;
        let set = u64::from_str_radix(set.trim(), 16).ok()?;
        let bit = u32::try_from(signal.as_raw() - 1).ok()?;
        Some(set & 1u64.checked_shl(bit)? != 0)
    };
    ignored().unwrap_or(false)
}

/// Returns the CPU time of a process. The scheduler counts each live thread in nanoseconds; `stat` counts the whole
/// process in ticks, including ended threads. The larger value is the more complete one.
pub(super) fn cpu_of(pid: u32) -> Option<Duration> {
    let stat = stat_fields(pid)?;
    let tick = tick()?;
    let ticks = |place| field(&stat, place).and_then(|ticks| u32::try_from(ticks).ok());
    let own = tick * (ticks(USER_TIME)? + ticks(SYSTEM_TIME)?);
    let children = tick * (ticks(CHILDREN_USER_TIME)? + ticks(CHILDREN_SYSTEM_TIME)?);
    Some(threads_cpu(pid).unwrap_or_default().max(own) + children)
}

/// Returns the CPU time of the children of this process that have ended and were waited for.
pub(crate) fn children_cpu() -> Duration {
    let sum = || {
        let stat = stat_fields(std::process::id())?;
        let ticks = field(&stat, CHILDREN_USER_TIME)? + field(&stat, CHILDREN_SYSTEM_TIME)?;
        tick()?.checked_mul(u32::try_from(ticks).ok()?)
    };
    sum().unwrap_or_default()
}

/// Returns the unit in which the kernel counts CPU time.
fn tick() -> Option<Duration> {
    let per_second = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Duration::from_secs(1).checked_div(per_second)
}

/// Returns the CPU time that the hypervisor has taken from this machine's cores since the start (see
/// proc_stat(5)).
pub(crate) fn stolen() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let total = text.lines().next()?.strip_prefix("cpu ")?;
    tick()?.checked_mul(u32::try_from(field(total, STOLEN_TIME)?).ok()?)
}

fn threads_cpu(pid: u32) -> Option<Duration> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let path: PathBuf = thread.ok()?.path().join("schedstat");
        nanoseconds += read_number(&path)?;
    }
    Some(Duration::from_nanos(nanoseconds))
}

fn read_number(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

pub(super) fn memory_of(pid: u32) -> Option<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes << 10)
    };
    Some(Memory {
        rss: bytes("Rss:")?,
        pss: bytes("Pss:")?,
        anonymous: bytes("Anonymous:")?,
    })
}
