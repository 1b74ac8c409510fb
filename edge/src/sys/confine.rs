//! Shutting the process in, by Landlock: it reaches the files it needs, and no others, for good.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope,
};

/// The newest rules that are asked for; a kernel that knows fewer keeps those.
const NEWEST: ABI = ABI::V6;

/// What may be done with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A file is read, or a folder and all below it.
    Read,
    /// A file or block device is read and written.
    ReadWrite,
    /// In a folder files are made and written to.
    Append,
}

/// Something that may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Where it is.
    pub path: PathBuf,
    /// What may be done with it.
    pub reach: Reach,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confined {
    /// All of it is in force.
    Fully,
    /// The kernel knows only some of the rules.
    Partly,
    /// The kernel knows none.
    Not,
}

/// From now on this thread, and all that it starts, reach nothing but this: they listen on no other TCP
/// port than `ports`, signal only each other, and gain no rights. It has to be the only thread: others
/// would stay free. What is not there is left out.
///
/// # Errors
/// When there are other threads, or the kernel fails.
pub fn confine(allowed: &[Allowed], ports: &[u16]) -> io::Result<Confined> {
    if threads()? != 1 {
        return Err(io::Error::other(
            "there are threads already, which could not be confined",
        ));
    }
    rules(allowed, ports)
        .and_then(RulesetCreated::restrict_self)
        .map(|status| match status.ruleset {
            RulesetStatus::FullyEnforced => Confined::Fully,
            RulesetStatus::PartiallyEnforced => Confined::Partly,
            RulesetStatus::NotEnforced => Confined::Not,
        })
        .map_err(io::Error::other)
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

/// What is only for folders is no right that a file can have.
fn rights(reach: Reach, is_folder: bool) -> BitFlags<AccessFs> {
    match reach {
        Reach::Read if is_folder => AccessFs::ReadFile | AccessFs::ReadDir,
        Reach::Read => AccessFs::ReadFile.into(),
        Reach::ReadWrite => {
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
        }
        Reach::Append => AccessFs::WriteFile | AccessFs::MakeReg,
    }
}

fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// A path without symbolic links, as far as there is something at it.
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

/// What of `wanted` lies beyond what is allowed.
pub fn beyond<'a>(wanted: &'a [Allowed], allowed: &[Allowed]) -> Vec<&'a Path> {
    let covers = |one: &Allowed, wanted: &Allowed, at: &Path| {
        let enough = one.reach == wanted.reach;
        let below = match one.reach {
            Reach::ReadWrite => at == real(&one.path),
            Reach::Read | Reach::Append => at.starts_with(real(&one.path)),
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
    fn what_lies_below_a_folder_is_covered_and_links_are_followed() -> io::Result<()> {
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
    fn a_process_of_several_threads_is_not_confined() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || held.recv().is_err());
        let error = confine(&[], &[]).expect_err("there are others");
        assert!(error.to_string().contains("threads already"), "{error}");
        drop(hold);
        assert!(other.join().expect("it ends"));
    }
}
