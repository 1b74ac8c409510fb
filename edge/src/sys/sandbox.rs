//! The sandbox: Landlock permanently restricts the process to the files that it needs.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope,
};

/// The newest Landlock version that is requested. An older kernel enforces the rules that it knows.
const NEWEST: ABI = ABI::V6;

/// Access to a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Read a file, or a folder and everything below it.
    Read,
    /// Read and write a file or block device.
    ReadWrite,
    /// Create and write files in a folder.
    Append,
    /// Create, write, read and remove files in a folder.
    Temporary,
    /// Do the same and replace files, also in folders below it, which may be created and listed.
    Folder,
}

/// A permitted file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Path of the file or folder.
    pub path: PathBuf,
    /// The permitted access.
    pub reach: Reach,
}

/// The result of starting the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// All rules are in force.
    Fully,
    /// The kernel supports only some of the rules.
    Partly,
    /// The kernel does not support Landlock.
    Not,
}

/// Restricts this thread, and all threads and processes that it starts, to these files. They can listen on no TCP ports except `ports`,
/// signal only each other, and gain no privileges. There must be no other threads, because the restrictions would not apply to them. Paths
/// that don't exist are skipped.
///
/// # Errors
///
/// There are other threads, or the kernel reported an error.
pub fn enter(allowed: &[Allowed], ports: &[u16]) -> io::Result<Enforcement> {
    if threads()? != 1 {
        return Err(io::Error::other(
            "other threads are already running, which the sandbox would not cover",
        ));
    }
    rules(allowed, ports)
        .and_then(RulesetCreated::restrict_self)
        .map(|status| match status.ruleset {
            RulesetStatus::FullyEnforced => Enforcement::Fully,
            RulesetStatus::PartiallyEnforced => Enforcement::Partly,
            RulesetStatus::NotEnforced => Enforcement::Not,
        })
        .map_err(io::Error::other)
}

/// Whether the kernel supports Landlock.
pub fn is_supported() -> bool {
    let oldest = AccessFs::from_all(ABI::V1);
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    rules
        .handle_access(oldest)
        .and_then(Ruleset::create)
        .is_ok()
}

fn rules(allowed: &[Allowed], ports: &[u16]) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for Allowed { path, reach } in allowed {
        if let Ok(at) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(at, rights(*reach, path.is_dir())))?;
        }
    }
    for port in ports {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    Ok(rules)
}

/// Converts an access into Landlock rights. For a file, rights that apply only to folders are left out.
fn rights(reach: Reach, is_folder: bool) -> BitFlags<AccessFs> {
    match reach {
        Reach::Read if is_folder => AccessFs::ReadFile | AccessFs::ReadDir,
        Reach::Read => AccessFs::ReadFile.into(),
        Reach::ReadWrite => {
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
        }
        Reach::Append => AccessFs::WriteFile | AccessFs::MakeReg,
        Reach::Temporary => {
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile
        }
        Reach::Folder => {
            rights(Reach::Temporary, is_folder)
                | AccessFs::ReadDir
                | AccessFs::MakeDir
                | AccessFs::Truncate
        }
    }
}

fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Resolves symbolic links in the existing part of a path.
pub fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if folder.as_os_str().is_empty() => real_of(".", name),
        (Some(folder), Some(name)) => real_of(folder, name),
        _ => path.to_owned(),
    }
}

fn real_of(folder: impl AsRef<Path>, name: &std::ffi::OsStr) -> PathBuf {
    let folder = folder.as_ref();
    let real = folder.canonicalize();
    real.unwrap_or_else(|_| folder.to_owned()).join(name)
}

/// Returns the paths of `wanted` to which `allowed` does not permit access.
pub fn beyond<'a>(wanted: &'a [Allowed], allowed: &[Allowed]) -> Vec<&'a Path> {
    let covers = |one: &Allowed, wanted: &Allowed, at: &Path| {
        let enough = one.reach == wanted.reach;
        let below = match one.reach {
            Reach::ReadWrite => at == real(&one.path),
            Reach::Read | Reach::Append | Reach::Temporary | Reach::Folder => {
                at.starts_with(real(&one.path))
            }
        };
        enough && below
    };
    let is_beyond = |wanted: &&Allowed| {
        let at = real(&wanted.path);
        !allowed.iter().any(|one| covers(one, wanted, &at))
    };
    let beyond = wanted.iter().filter(is_beyond);
    beyond.map(|wanted| wanted.path.as_path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(path: &Path, reach: Reach) -> Allowed {
        Allowed {
            path: path.to_owned(),
            reach,
        }
    }

    #[test]
    fn a_folder_covers_everything_below_it_and_links_are_resolved() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (at, sub) = (folder.path(), folder.path().join("www/sub"));
        std::fs::create_dir_all(&sub)?;
        std::os::unix::fs::symlink(&sub, at.join("link"))?;
        let given = [
            allowed(&at.join("www"), Reach::Read),
            allowed(&at.join("volume"), Reach::ReadWrite),
        ];
        for (wanted, reach, covered) in [
            (at.join("www"), Reach::Read, true),
            (at.join("link"), Reach::Read, true),
            (at.join("www2"), Reach::Read, false),
            (at.join("www/sub"), Reach::Append, false),
            (at.join("volume"), Reach::ReadWrite, true),
            (at.join("volume2"), Reach::ReadWrite, false),
        ] {
            let wanted = [allowed(&wanted, reach)];
            assert_eq!(beyond(&wanted, &given).is_empty(), covered, "{wanted:?}");
        }
        Ok(())
    }

    #[test]
    fn a_process_with_several_threads_is_refused() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || held.recv().is_err());
        let error = enter(&[], &[]).expect_err("there are others");
        assert!(error.to_string().contains("already running"), "{error}");
        drop(hold);
        assert!(other.join().expect("it ends"));
    }
}
