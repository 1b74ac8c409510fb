//! Locks on files: which process holds one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::sys::port::Owner;

/// Returns the process that has locked a file with `flock`, as a process has that uses the file as a
/// volume.
pub fn lock_owner(path: &Path) -> Option<Owner> {
    let found = fs::metadata(path).ok()?;
    let (major, minor) = (
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev()),
    );
    let file = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let table = fs::read_to_string("/proc/locks").ok()?;
    owner(&table, &file).map(Owner::of)
}

/// Finds the process that has locked a file, in the text of `/proc/locks` (proc_locks(5)).
fn owner(table: &str, file: &str) -> Option<u32> {
    let lines = table.lines().map(|line| line.split_ascii_whitespace());
    lines
        .filter_map(|mut fields| {
            let is_flock = fields.nth(1)? == "FLOCK";
            let pid = fields.nth(2)?.parse().ok()?;
            (is_flock && fields.next()? == file).then_some(pid)
        })
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_with_the_lock_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("volume");
        let opened = super::super::open_device(&path).expect("opened");
        let pid = lock_owner(&path).map(|owner| owner.pid);
        assert_eq!(pid, Some(std::process::id()));
        drop(opened);
        assert_eq!(lock_owner(&path), None);
        let table = "1: POSIX  ADVISORY  READ 5 08:01:9 128 128\n1: -> FLOCK ADVISORY WRITE 6 08:01:9 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 7 08:01:9 0 EOF\n";
        assert_eq!(owner(table, "08:01:9"), Some(7));
    }
}
