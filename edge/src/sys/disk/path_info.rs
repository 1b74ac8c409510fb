//! Properties of a path, determined without opening it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Properties of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// The kind of file at the path.
    pub kind: Kind,
    /// Identifies the file or device: equal for all paths to the same one.
    pub identity: Identity,
    /// Device number of the file system that contains the path, or would contain it.
    pub file_system: u64,
    /// Number of free bytes on that file system.
    pub free: u64,
}

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The path does not exist, but its folder does.
    Nothing,
    /// Neither the path nor its folder exists.
    NoFolder,
    /// A regular file, which has this many bytes allocated on the disk.
    File(u64),
    /// A block device of this many bytes; 0 if the size is unknown.
    Block(u64),
    /// Another kind of file, described for messages.
    Other(&'static str),
}

/// Identifies a file or device independently of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A file, by the numbers of its device and inode.
    File(u64, u64),
    /// A block device, by its number.
    Device(u64),
    /// A file that does not exist yet, by its path without symbolic links.
    Name(PathBuf),
}

/// Determines the properties of a path. A missing file is not an error.
///
/// # Errors
///
/// The file system failed.
pub fn look(path: &Path) -> io::Result<PathInfo> {
    match fs::metadata(path) {
        Ok(found) => seen(path, &found),
        Err(error) if is_missing(&error) => unseen(path),
        Err(error) => Err(error),
    }
}

/// Whether an error means that a part of a path is missing.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn seen(path: &Path, found: &Metadata) -> io::Result<PathInfo> {
    let kind = found.file_type();
    let is_block = kind.is_block_device();
    Ok(PathInfo {
        kind: match () {
            () if kind.is_file() => Kind::File(found.blocks().saturating_mul(512)),
            () if is_block => Kind::Block(device_bytes(found.rdev())),
            () if kind.is_dir() => Kind::Other("a folder"),
            () if kind.is_char_device() => Kind::Other("a character device"),
            () if kind.is_fifo() => Kind::Other("a pipe"),
            () if kind.is_socket() => Kind::Other("a socket"),
            () => Kind::Other("no file"),
        },
        identity: match is_block {
            true => Identity::Device(found.rdev()),
            false => Identity::File(found.dev(), found.ino()),
        },
        file_system: found.dev(),
        free: free(path)?,
    })
}

fn unseen(path: &Path) -> io::Result<PathInfo> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default();
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(PathInfo {
            kind: Kind::Nothing,
            identity: Identity::Name(fs::canonicalize(folder)?.join(name)),
            file_system: found.dev(),
            free: free(folder)?,
        }),
        Ok(_) => Ok(nowhere(path)),
        Err(error) if is_missing(&error) => Ok(nowhere(path)),
        Err(error) => Err(error),
    }
}

fn nowhere(path: &Path) -> PathInfo {
    PathInfo {
        kind: Kind::NoFolder,
        identity: Identity::Name(path.to_owned()),
        file_system: 0,
        free: u64::MAX,
    }
}

fn free(path: &Path) -> io::Result<u64> {
    let all = rustix::fs::statvfs(path)?;
    Ok(all.f_bavail.saturating_mul(all.f_frsize))
}

/// Returns the size of a block device in bytes, which Linux publishes in sectors of 512 bytes.
fn device_bytes(number: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let size = super::read_text(
        Path::new(&format!("/sys/dev/block/{major}:{minor}/size")),
        64,
    );
    let sectors = size.ok().and_then(|text| text.trim().parse::<u64>().ok());
    sectors.unwrap_or(0).saturating_mul(512)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn all_paths_to_a_file_have_one_identity() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let other = folder.path().join("b");
        symlink(folder.path(), &other)?;
        let (plain, linked) = (look(&path)?, look(&other.join("a"))?);
        assert_eq!((plain.kind, linked.kind), (Kind::Nothing, Kind::Nothing));
        assert_eq!(plain.identity, linked.identity);
        assert_eq!(plain.file_system, linked.file_system);
        assert!(plain.free > 0);
        fs::write(&path, vec![1; 10_000])?;
        let (plain, linked) = (look(&path)?, look(&other.join("a"))?);
        assert!(matches!(plain.kind, Kind::File(_)), "{plain:?}");
        assert_eq!(plain.identity, linked.identity);
        assert_eq!(look(&path.join("c"))?.kind, Kind::NoFolder);
        Ok(())
    }

    #[test]
    fn other_kinds_of_files_are_named() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        assert_eq!(look(folder.path())?.kind, Kind::Other("a folder"));
        let null = look(Path::new("/dev/null"))?;
        assert_eq!(null.kind, Kind::Other("a character device"));
        let nowhere = look(&folder.path().join("a/b"))?;
        assert_eq!(nowhere.kind, Kind::NoFolder);
        Ok(())
    }
}
