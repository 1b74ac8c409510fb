//! A folder from which files are served. No path leads out of the folder, and only regular files are read.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// The symbolic links below the folder that are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// No links: a path with a symbolic link is treated as missing.
    None,
    /// Links to targets in the folder. A link with an absolute target is treated as missing.
    #[default]
    Within,
    /// All links.
    Any,
}

/// Whether an operation may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Use only data in memory; fail with `FindError::NotCached` if a read from the disk would be necessary.
    Cached,
    /// The operation may wait. Workers never use this.
    Wait,
}

/// An open folder. If the folder is renamed, this value still refers to it.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
    links: Links,
}

/// The file or folder at a path.
#[derive(Debug)]
pub enum Found {
    /// An opened file.
    File(Opened),
    /// A folder.
    Folder,
}

/// A file opened for reading.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Descriptor of the file.
    pub file: Arc<OwnedFd>,
    /// Stamp of the file when it was opened.
    pub stamp: Stamp,
}

/// Metadata of a file that changes when the file's content is changed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Numbers of the device and the inode.
    pub identity: (u64, u64),
    /// Length of the file in bytes.
    pub size: u64,
    /// Modification time (mtime) in nanoseconds since the Unix epoch.
    pub modified_ns: i128,
    /// Inode change time (ctime) in nanoseconds since the Unix epoch. Programs can't set this time.
    pub changed_ns: i128,
}

/// The reason why a path can't be opened.
#[derive(Debug)]
pub enum FindError {
    /// The path does not exist, or is no file or folder that may be served.
    Absent,
    /// The path exists but may not be read.
    Denied,
    /// The operation would have to read from the disk.
    NotCached,
    /// File descriptors or memory have run out.
    Exhausted,
    /// The file system failed, with this error.
    Failed(io::Error),
}

/// Maximum number of attempts to resolve a path while a part of it is being renamed.
const TRIES: usize = 8;

impl Root {
    /// Opens a folder.
    ///
    /// # Errors
    ///
    /// The path is not a folder or can't be read, or the kernel (before 5.6) or a container forbids `openat2`.
    pub fn open(path: &Path, links: Links) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        let root = Root { folder, links };
        match root.walk(b".", OFlags::PATH, How::Wait) {
            Ok(_) => Ok(root),
            Err(Errno::NOSYS | Errno::PERM) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "openat2 is not available: it needs Linux 5.6, and a container must permit it",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a relative path, which consists of names without `..` and NUL. An empty path means the folder itself.
    ///
    /// # Errors
    ///
    /// See `FindError`. Devices, sockets and pipes are `Absent` and never opened.
    pub fn find(&self, path: &[u8], how: How) -> Result<Found, FindError> {
        let path = if path.is_empty() { b"." } else { path };
        let seen = self.walk(path, OFlags::PATH, how).map_err(trouble)?;
        let stat = rustix::fs::fstat(&seen).map_err(trouble)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return Ok(Found::Folder),
            FileType::RegularFile => {}
            _ => return Err(FindError::Absent),
        }
        // NONBLOCK: if a pipe has replaced the file since the check, opening it must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.walk(path, flags, how).map_err(trouble)?;
        let opened = rustix::fs::fstat(&file).map_err(trouble)?;
        match FileType::from_raw_mode(opened.st_mode) {
            FileType::RegularFile => Ok(Found::File(Opened {
                file: Arc::new(file),
                stamp: Stamp::of(&opened),
            })),
            _ => Err(FindError::Absent),
        }
    }

    /// Returns the current stamp of a file without opening it; `None` if the path is not a file.
    ///
    /// # Errors
    ///
    /// As for `find`.
    pub fn stamp(&self, path: &[u8], how: How) -> Result<Option<Stamp>, FindError> {
        let path = if path.is_empty() { b"." } else { path };
        let seen = self.walk(path, OFlags::PATH, how).map_err(trouble)?;
        let stat = rustix::fs::fstat(&seen).map_err(trouble)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(is_file.then(|| Stamp::of(&stat)))
    }

    fn walk(&self, path: &[u8], flags: OFlags, how: How) -> Result<OwnedFd, Errno> {
        // With `Links::Any`, the kernel would resolve an absolute path from the root of the file system, so it is refused here.
        if path.starts_with(b"/") {
            return Err(Errno::NOENT);
        }
        let mut resolve = ResolveFlags::NO_MAGICLINKS;
        resolve |= match self.links {
            Links::None => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Links::Within => ResolveFlags::BENEATH,
            Links::Any => ResolveFlags::empty(),
        };
        if how == How::Cached {
            resolve |= ResolveFlags::CACHED;
        }
        let flags = flags | OFlags::CLOEXEC;
        for _ in 1..TRIES {
            match rustix::fs::openat2(&self.folder, path, flags, Mode::empty(), resolve) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if how == How::Wait => {}
                // Kernels before Linux 5.12 refuse to limit `openat2` to data in memory. The path is then treated as not being in memory.
                Err(Errno::INVAL) if how == How::Cached => return Err(Errno::AGAIN),
                result => return result,
            }
        }
        rustix::fs::openat2(&self.folder, path, flags, Mode::empty(), resolve)
    }
}

fn trouble(error: Errno) -> FindError {
    match error {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::NAMETOOLONG
        | Errno::LOOP
        | Errno::XDEV
        | Errno::ILSEQ
        | Errno::NXIO
        | Errno::INVAL => FindError::Absent,
        Errno::ACCESS | Errno::PERM => FindError::Denied,
        Errno::AGAIN => FindError::NotCached,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => FindError::Exhausted,
        error => FindError::Failed(error.into()),
    }
}

impl Stamp {
    /// Returns the current stamp of the file at a path.
    ///
    /// # Errors
    ///
    /// The file system failed.
    pub fn at(path: &Path) -> io::Result<Stamp> {
        Ok(Stamp::of(&rustix::fs::stat(path)?))
    }

    fn of(stat: &Stat) -> Stamp {
        let ns = |seconds: i64, ns: u64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Stamp {
            identity: (stat.st_dev, stat.st_ino),
            size: stat.st_size.max(0) as u64,
            modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Returns the current stamp of an open file.
    ///
    /// # Errors
    ///
    /// The file system failed.
    pub fn now(file: &OwnedFd) -> io::Result<Stamp> {
        Ok(Stamp::of(&rustix::fs::fstat(file)?))
    }

    /// Whether the file's content is unchanged. The change time is not compared: replacing a file changes the change time of the old one,
    /// whose content stays.
    pub fn has_same_content(&self, now: &Stamp) -> bool {
        let content = |stamp: &Stamp| (stamp.identity, stamp.size, stamp.modified_ns);
        content(self) == content(now)
    }

    /// Returns the modification time in whole seconds since the Unix epoch; 0 if it is earlier.
    pub fn modified_s(&self) -> u64 {
        u64::try_from(self.modified_ns / 1_000_000_000).unwrap_or(0)
    }
}

/// Appends at most `room` bytes of a file, from offset `at`, to `into`. Returns the number of bytes, which is 0 at the end of the file, or
/// `None` if the bytes are not in memory.
///
/// # Errors
///
/// The file system failed.
pub fn read(
    file: &OwnedFd,
    at: u64,
    room: usize,
    how: How,
    into: &mut Vec<u8>,
) -> io::Result<Option<usize>> {
    let before = into.len();
    into.reserve(room);
    // The memory is not zeroed before, which would take as long as half of the read.
    let buffer = &mut into.spare_capacity_mut()[..room];
    let result = loop {
        let result = match how {
            How::Wait => rustix::io::pread(file, &mut *buffer, at).map(|(read, _)| read.len()),
            How::Cached => read_cached(file, buffer, at),
        };
        if !matches!(result, Err(Errno::INTR)) {
            break result;
        }
    };
    match result {
        Ok(n) => {
            // SAFETY: the kernel has written the first `n` bytes after the earlier content, which are within the
            // capacity.
            unsafe { into.set_len(before + n) };
            Ok(Some(n))
        }
        // Some file systems can't tell which data is in memory. Their data is treated as not being in memory.
        Err(Errno::AGAIN | Errno::OPNOTSUPP) if how == How::Cached => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads from the page cache. Fails with `AGAIN` if the bytes are not in it.
fn read_cached(file: &OwnedFd, into: &mut [MaybeUninit<u8>], at: u64) -> Result<usize, Errno> {
    let vector = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let at = libc::off_t::try_from(at).map_err(|_| Errno::INVAL)?;
    // SAFETY: the vector names memory that is valid for writes during the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &vector, 1, at, libc::RWF_NOWAIT) };
    usize::try_from(read).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

/// Number of the system call cachestat(2), the same on all architectures.
const CACHESTAT: libc::c_long = 451;

/// The kernel's `struct cachestat_range`: offset and length of a range.
#[repr(C)]
struct Span {
    offset: u64,
    length: u64,
}

/// The kernel's `struct cachestat`: counts of pages in a range.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Maximum length in bytes of a range that is checked page by page, if the kernel can't count the range's cached pages.
pub const PROBE_MAX: u64 = 256 << 10;

/// The smallest page size in bytes. With larger pages, some pages are checked more than once.
const PAGE: u64 = 4096;

/// Whether all bytes of a range are in the page cache. Since 6.5, the kernel answers this for a whole range. The kernel refuses for a file
/// that this process neither owns nor may write, because the answer would reveal what others read. In that case each page is checked, and a
/// range longer than `PROBE_MAX` counts as not cached.
pub fn is_cached(file: &OwnedFd, offset: u64, length: u64) -> bool {
    if length == 0 {
        return true;
    }
    count_pages(file, offset, length)
        .unwrap_or_else(|| length <= PROBE_MAX && is_each_page_cached(file, offset, length))
}

/// Whether all bytes of a non-empty range are in the page cache, by cachestat(2); `None` if the kernel can't tell.
fn count_pages(file: &OwnedFd, offset: u64, length: u64) -> Option<bool> {
    let span = Span { offset, length };
    let mut pages = Pages::default();
    // SAFETY: `span` and `pages` have the kernel's layout (linux/mman.h) and outlive the call, which reads the first and writes the second.
    // The descriptor is open.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const span,
            &raw mut pages,
            0,
        )
    };
    let touched = (offset + length - 1) / PAGE - offset / PAGE + 1;
    (result == 0).then_some(pages.cached >= touched)
}

/// Whether all bytes of a non-empty range are in the page cache, by reading one byte of each page. The attempt also makes the kernel read
/// the first missing page from the disk.
fn is_each_page_cached(file: &OwnedFd, offset: u64, length: u64) -> bool {
    let mut byte = Vec::with_capacity(1);
    one_of_each_page(offset, length).all(|at| {
        byte.clear();
        matches!(read(file, at, 1, How::Cached, &mut byte), Ok(Some(1)))
    })
}

/// Returns the offsets of one byte in each page of a non-empty range.
fn one_of_each_page(offset: u64, length: u64) -> impl Iterator<Item = u64> {
    let pages = offset / PAGE..=(offset + length - 1) / PAGE;
    pages.map(move |page| offset.max(page * PAGE))
}

/// Asks the kernel to read a range into the page cache in the background.
pub fn will_need(file: &OwnedFd, offset: u64, length: u64) {
    let length = std::num::NonZeroU64::new(length);
    // The call is only advice to the kernel, so its failure has no effect.
    let _ = rustix::fs::fadvise(file, offset, length, rustix::fs::Advice::WillNeed);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("root/sub")).expect("made");
        std::fs::write(at("secret"), "secret").expect("written");
        std::fs::write(at("root/file"), "content").expect("written");
        std::fs::write(at("root/sub/inner"), "inner").expect("written");
        symlink("file", at("root/near")).expect("made");
        symlink("../secret", at("root/out")).expect("made");
        symlink(at("root/file"), at("root/absolute")).expect("made");
        symlink("..", at("root/sub/up")).expect("made");
        symlink("loop", at("root/loop")).expect("made");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("root/pipe"),
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .expect("made");
        folder
    }

    fn content(root: &Root, path: &str) -> Option<String> {
        match root.find(path.as_bytes(), How::Wait) {
            Ok(Found::File(opened)) => {
                let mut bytes = Vec::new();
                let size = opened.stamp.size as usize;
                read(&opened.file, 0, size, How::Wait, &mut bytes).expect("read");
                String::from_utf8(bytes).ok()
            }
            Ok(Found::Folder) => Some("folder".to_owned()),
            Err(FindError::Absent) => None,
            Err(trouble) => panic!("{path}: {trouble:?}"),
        }
    }

    #[test]
    fn nothing_outside_is_found_unless_links_permit_it() {
        let folder = tree();
        let open = |links| Root::open(&folder.path().join("root"), links).expect("a folder");
        let (none, within, any) = (open(Links::None), open(Links::Within), open(Links::Any));
        for root in [&none, &within, &any] {
            assert_eq!(content(root, "file").as_deref(), Some("content"));
            assert_eq!(content(root, "sub/inner").as_deref(), Some("inner"));
            assert_eq!(content(root, "").as_deref(), Some("folder"));
            assert_eq!(content(root, "sub").as_deref(), Some("folder"));
            for absent in ["none", "file/x", "pipe", "loop", &"x".repeat(300)] {
                assert_eq!(content(root, absent), None, "{absent}");
            }
        }
        let host = folder.path().join("secret").display().to_string();
        for absolute in ["/etc/passwd", "/", &host] {
            assert_eq!(content(&any, absolute), None, "{absolute}");
        }
        for outside in ["../secret", "/etc/passwd", "sub/../../secret"] {
            assert_eq!(content(&none, outside), None, "{outside}");
            assert_eq!(content(&within, outside), None, "{outside}");
        }
        assert_eq!(content(&none, "near"), None);
        assert_eq!(content(&within, "near").as_deref(), Some("content"));
        assert_eq!(content(&within, "sub/up/file").as_deref(), Some("content"));
        assert_eq!(content(&within, "out"), None);
        assert_eq!(content(&within, "absolute"), None);
        assert_eq!(content(&any, "out").as_deref(), Some("secret"));
        assert_eq!(content(&any, "absolute").as_deref(), Some("content"));
    }

    #[test]
    fn a_changed_content_has_another_stamp() {
        let folder = tree();
        let root = Root::open(&folder.path().join("root"), Links::None).expect("a folder");
        let Ok(Found::File(opened)) = root.find(b"file", How::Wait) else {
            panic!("a file");
        };
        let same = root.stamp(b"file", How::Wait).expect("there");
        assert_eq!(same, Some(opened.stamp));
        assert_eq!(root.stamp(b"sub", How::Wait).expect("there"), None);
        std::fs::write(folder.path().join("root/new"), "CONTENT").expect("written");
        std::fs::rename(
            folder.path().join("root/new"),
            folder.path().join("root/file"),
        )
        .expect("renamed");
        let other = root.stamp(b"file", How::Wait).expect("there");
        assert_ne!(other, Some(opened.stamp));
        std::fs::remove_file(folder.path().join("root/file")).expect("removed");
        assert!(matches!(
            root.stamp(b"file", How::Wait),
            Err(FindError::Absent)
        ));
    }

    #[test]
    fn bytes_just_written_are_in_the_page_cache() {
        let folder = tree();
        let root = Root::open(folder.path(), Links::None).expect("a folder");
        std::fs::write(folder.path().join("large"), vec![b'x'; 1 << 20]).expect("written");
        let Ok(Found::File(opened)) = root.find(b"large", How::Wait) else {
            panic!("a file");
        };
        assert!(is_cached(&opened.file, 5, (1 << 20) - 5));
        assert!(is_cached(&opened.file, 7, 0));
        let mut bytes = b"a".to_vec();
        let n = read(&opened.file, (1 << 20) - 2, 10, How::Wait, &mut bytes).expect("read");
        assert_eq!((n, &bytes[..]), (Some(2), &b"axx"[..]));
        assert!(Root::open(&folder.path().join("large"), Links::None).is_err());
    }

    #[test]
    fn every_page_is_checked_where_pages_are_not_counted() {
        for (offset, length, expected) in [
            (0, 1, &[0][..]),
            (0, PAGE, &[0]),
            (0, PAGE + 1, &[0, PAGE]),
            (PAGE - 1, 2, &[PAGE - 1, PAGE]),
            (5, 2 * PAGE, &[5, PAGE, 2 * PAGE]),
            (PAGE, PAGE, &[PAGE]),
        ] {
            let bytes: Vec<u64> = one_of_each_page(offset, length).collect();
            assert_eq!(bytes, expected, "{length} from {offset}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![b'x'; 100_000]).expect("written");
        let file = OwnedFd::from(std::fs::File::open(&path).expect("opened"));
        assert!(is_each_page_cached(&file, 7, 99_993));
        assert!(!is_each_page_cached(&file, 7, 110_000), "beyond its end");
        // The kernel refuses cachestat(2) for an O_PATH descriptor, and the range is too long for checking each page: so it counts as not
        // cached.
        let named = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).expect("opened");
        assert_eq!(count_pages(&named, 0, 1), None);
        assert!(!is_cached(&named, 0, PROBE_MAX + 1));
    }
}
