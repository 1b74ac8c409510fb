//! The name of this machine.

use std::path::Path;

use super::disk;

/// Longest name that is read, in bytes. Linux permits 64.
const NAME_BYTES_MAX: u64 = 256;

/// Returns the name of this machine, as `uname -n` prints it. Returns `None` if the name can't be read or is empty.
pub fn host_name() -> Option<String> {
    let text = disk::read_text(Path::new("/proc/sys/kernel/hostname"), NAME_BYTES_MAX);
    let name = text.ok()?.trim().to_owned();
    (!name.is_empty() && name != "(none)").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_name_of_one_line() {
        assert!(host_name().is_none_or(|name| !name.contains('\n')));
    }
}
