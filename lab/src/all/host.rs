//! Detection of the rights and programs that experiments need.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::{env, thread};

use super::plan::Host;
use crate::LOAD_CORE;
use crate::report::machine::{free_bytes, memory};

/// Folders of programs that are not in every user's PATH.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/bin"];

/// Returns the properties of this machine.
pub(super) fn detect() -> Host {
    Host {
        cores: thread::available_parallelism().map_or(1, usize::from),
        is_root: rustix::process::geteuid().is_root(),
        has_lab: cfg!(feature = "lab"),
        has_fuse: can_open(Path::new("/dev/fuse")),
        has_fusermount: is_installed("fusermount3"),
        has_fio: is_installed("fio"),
        has_mkfs_btrfs: is_installed("mkfs.btrfs"),
        has_loop: can_open(Path::new("/dev/loop-control")),
        has_strict_limit: has_strict_limit(Path::new("/sys/class/bdi")),
        has_ip: is_installed("ip"),
        has_tun: Path::new("/dev/net/tun").exists(),
        free: free_bytes(&env::temp_dir()),
        memory: memory(),
    }
}

/// Returns the core of the clients, if this process may use it.
pub(super) fn load_core() -> Option<usize> {
    let cores = rustix::thread::sched_getaffinity(None).ok()?;
    cores.is_set(LOAD_CORE).then_some(LOAD_CORE)
}

/// Whether this process may read and write a device. The device may exist and belong to others.
fn can_open(device: &Path) -> bool {
    let opened = OpenOptions::new().read(true).write(true).open(device);
    opened.is_ok()
}

/// Whether the kernel can limit the unwritten bytes of one file system. All file systems in this folder have the setting,
/// or none.
fn has_strict_limit(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut settings = entries.map(|entry| entry.path().join("strict_limit"));
    settings.any(|setting| setting.exists())
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(FOLDERS.iter().map(Into::into));
    folders
        .into_iter()
        .any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_must_exist_and_be_writable() {
        assert!(can_open(Path::new("/dev/null")));
        assert!(!can_open(Path::new("/dev/no-such-device")));
        // A folder exists, and can't be opened for writing, not even by root.
        assert!(!can_open(Path::new("/dev")));
    }

    #[test]
    fn the_kernels_limit_of_a_file_system_is_found_by_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let one = folder.path().join("8:0");
        fs::create_dir(&one).expect("a folder");
        fs::write(one.join("max_ratio"), "100").expect("written");
        assert!(!has_strict_limit(folder.path()));
        fs::write(one.join("strict_limit"), "0").expect("written");
        assert!(has_strict_limit(folder.path()));
        assert!(!has_strict_limit(&folder.path().join("none")));
    }
}
