//! Control of the memory allocator, and the memory of this machine.

use std::ffi::{c_int, c_long};
use std::fs;
use std::path::{Path, PathBuf};

/// Index of mimalloc's option for the time in milliseconds after which freed memory goes back to the
/// kernel (`mi_option_purge_delay` in mimalloc.h, the same in its versions 2 and 3).
const PURGE_DELAY: c_int = 15;
/// mimalloc's default of this option.
const PURGE_DELAY_MS: c_long = 1000;

/// Returns memory that this thread has freed to the kernel. The allocator does so only during
/// further allocations, so without this call an idle process would keep its memory after a busy
/// period.
pub fn give_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc is linked in, and any thread may call `mi_collect` at any time: it affects
    // only unused memory.
    unsafe { mi_collect(true) }
}

/// Calls a function that needs much memory for a short time, and returns this memory to the kernel.
/// Meanwhile, no other thread should be busy, since freed memory is not kept for it.
pub fn for_a_short_time<T>(function: impl FnOnce() -> T) -> T {
    // Memory that another thread frees is returned only if that happens at once.
    set_purge_delay(0);
    let result = function();
    give_back();
    set_purge_delay(PURGE_DELAY_MS);
    result
}

fn set_purge_delay(milliseconds: c_long) {
    unsafe extern "C" {
        fn mi_option_set(option: c_int, value: c_long);
    }
    // SAFETY: mimalloc is linked in and has this option. Any thread may set it at any time.
    unsafe { mi_option_set(PURGE_DELAY, milliseconds) }
}

/// Returns the memory in bytes that this process can use at most: that of the machine, or less if a
/// control group limits it.
pub fn available() -> Option<u64> {
    let machine = machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(limit(Path::new("/sys/fs/cgroup"), &groups).map_or(machine, |limit| limit.min(machine)))
}

/// Returns the memory of the machine in bytes, from the text of `/proc/meminfo`.
fn machine(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the smallest memory limit in bytes of a control group and those above it (cgroups(7),
/// version 2). `groups` is the text of `/proc/self/cgroup`.
fn limit(root: &Path, groups: &str) -> Option<u64> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own: PathBuf = root.join(own);
    let folders = own
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    let limits = folders.filter_map(|folder| {
        let text = fs::read_to_string(folder.join("memory.max")).ok()?;
        text.trim().parse().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_machine_and_control_groups_counts() -> std::io::Result<()> {
        assert_eq!(
            machine("MemFree: 1 kB\nMemTotal:       2048 kB\n"),
            Some(2 << 20)
        );
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        fs::create_dir_all(root.join("a/b"))?;
        fs::write(root.join("a/memory.max"), "4096\n")?;
        fs::write(root.join("a/b/memory.max"), "max\n")?;
        assert_eq!(limit(root, "1:cpu:/x\n0::/a/b\n"), Some(4096));
        assert_eq!(limit(root, "0::/\n"), None);
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
        Ok(())
    }
}
