//! Checks whether files and folders can be used, without opening or changing them.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Permissions with which a file's group and all users may read the file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// Checks that a path is a folder whose files this user may read.
///
/// # Errors
///
/// The path does not exist, is not a folder, or this user may not read it.
pub fn folder(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

/// Checks that a path is a folder in which this user may create files.
///
/// # Errors
///
/// The path does not exist, is not a folder, or this user may not create files in it.
pub fn create_in(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Checks that a path is a file that this user may run.
///
/// # Errors
///
/// The path does not exist, is no file, or this user may not run it.
pub fn execute(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

/// Most symbolic links that the kernel follows in one path.
const LINKS_MAX: usize = 40;

/// Follows symbolic links at the end of a path, also to a file that does not exist.
pub fn link_target(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        // An absolute target replaces the whole path.
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Whether a path leads to a named pipe.
pub fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Checks that this user may append to a file, or create it. `path` is not a symbolic link to a file
/// that does not exist: `link_target` replaces such a path.
///
/// # Errors
///
/// The path is a folder or a socket, its folder does not exist, or this user may not write.
pub fn append(path: &Path) -> io::Result<()> {
    open(path, Access::WRITE_OK)
}

/// Checks that this user may read and write a file, or create it.
///
/// # Errors
///
/// The path is a folder, its folder does not exist, or this user may not read or write.
pub fn read_write(path: &Path) -> io::Result<()> {
    open(path, Access::READ_OK | Access::WRITE_OK)
}

/// Whether other users than the owner of a file may read it, as its permissions say.
///
/// # Errors
///
/// The path does not exist, or this user may not see it.
pub fn is_readable_by_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.mode() & READABLE_BY_OTHERS != 0)
}

fn open(path: &Path, rights: Access) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.file_type().is_socket() => Err(io::Error::other("a socket, not a file")),
        // Such a path can only be that of a folder.
        Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            Err(ErrorKind::IsADirectory.into())
        }
        Ok(_) => Ok(access(path, rights)?),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            create_in(folder)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_that_can_be_used_are_known() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let kind = |result: io::Result<()>| result.err().map(|error| error.kind());
        let file = root.path().join("a");
        assert_eq!(kind(folder(root.path())), None);
        assert_eq!(kind(folder(&file)), Some(ErrorKind::NotFound));
        assert_eq!(kind(append(&file)), None);
        assert!(!file.exists());
        fs::write(&file, "")?;
        assert_eq!(kind(append(&file)), None);
        assert_eq!(kind(folder(&file)), Some(ErrorKind::NotADirectory));
        assert_eq!(kind(append(root.path())), Some(ErrorKind::IsADirectory));
        let missing = root.path().join("b/c");
        assert_eq!(kind(append(&missing)), Some(ErrorKind::NotFound));
        let new_folder = root.path().join("new/");
        assert_eq!(kind(append(&new_folder)), Some(ErrorKind::IsADirectory));
        Ok(())
    }

    #[test]
    fn links_are_followed_to_files_that_do_not_exist() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let path = |name: &str| root.path().join(name);
        for (target, link) in [("b", "a"), ("c/d", "b"), ("loop", "loop")] {
            std::os::unix::fs::symlink(target, path(link))?;
        }
        assert_eq!(link_target(&path("a")), path("c/d"));
        assert_eq!(link_target(&path("e")), path("e"));
        assert_eq!(link_target(&path("loop")), path("loop"));
        Ok(())
    }
}
