//! The FUSE side of a slow disk: the handlers of the kernel's requests, and the mount.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::scratch::{Folder, complain};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, Session, SessionACL, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::mount::{UnmountFlags, unmount};

use super::files::{BLOCK, Files};
use super::pacer::{Reply, Shared};
use super::queue::Kind;

/// Maximum number of bytes that one read or write request transfers.
const REQUEST_MAX: u32 = 1 << 20;

/// Maximum number of background requests, such as readahead, that the kernel may have in progress.
const BACKGROUND: u16 = 64;

/// Time for which the kernel may cache names and attributes. Zero, because the used space of a file changes while the
/// kernel delays writes, so the kernel must request attributes each time.
const TTL: Duration = Duration::ZERO;

/// A mounted file system. Dropping the value unmounts the file system.
pub(super) struct Mounted {
    folder: Folder,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts an empty file system with space for `capacity` bytes at a new folder.
    /// If `cached` is false, each read and each write of a program is a request, as if files were always open with
    /// O_DIRECT.
    pub(super) fn new(capacity: u64, pacer: Arc<Shared>, cached: bool) -> anyhow::Result<Mounted> {
        let folder = Folder::new("lab-disk-")?;
        let served = Served {
            files: Mutex::new(Files::new(capacity)),
            pacer,
            // Without the flag FOPEN_KEEP_CACHE, each open would drop the file from the page cache.
            open_flags: match cached {
                true => FopenFlags::FOPEN_KEEP_CACHE,
                false => FopenFlags::FOPEN_DIRECT_IO,
            },
        };
        let session = Session::new(served, folder.path(), &config())
            .map_err(|error| anyhow::anyhow!("can't mount the lab's file system: {error}"))?;
        // If a later step fails, `mounted` is dropped, which unmounts the file system.
        let mut mounted = Mounted {
            folder,
            session: None,
        };
        mounted.session = Some(session.spawn()?);
        Ok(mounted)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The folder is removed next, so it is detached at once (a lazy unmount); the file system ends when its last
        // open file is closed. Users other than root need fusermount3, which the session starts.
        let detached = match rustix::process::geteuid().is_root() {
            true => unmount(self.folder.path(), UnmountFlags::DETACH),
            false => Ok(()),
        };
        drop(self.session.take());
        if let Err(error) = detached {
            let folder = self.folder.path().display();
            complain(format_args!(
                "can't unmount {folder}: {error}; try: umount -l {folder}"
            ));
        }
    }
}

/// Returns the mount options. For root, a helper process unmounts the file system if this process is killed. Other
/// users would need a permission in /etc/fuse.conf for that, so they get no helper.
fn config() -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("sluice-lab".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    let root = rustix::process::geteuid().is_root();
    let found = |folder: &&str| Path::new(folder).join("fusermount3").is_file();
    if root && ["/usr/bin", "/bin"].iter().any(found) {
        config.mount_options.push(MountOption::AutoUnmount);
        config.acl = SessionACL::All;
    }
    config
}

struct Served {
    files: Mutex<Files>,
    pacer: Arc<Shared>,
    open_flags: FopenFlags,
}

impl Served {
    fn reserve_or_error(
        &self,
        ino: INodeNo,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        const KEEP_SIZE: i32 = 1;
        if mode & !KEEP_SIZE != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(trouble) = self.pacer.trouble(Kind::Write) {
            return Err(trouble.errno());
        }
        let keep = mode & KEEP_SIZE != 0;
        self.files.lock().reserve(ino, offset, length, keep)
    }

    /// Writes the data, or only its beginning if the disk makes short writes. Returns the number of bytes written.
    fn write_or_error(&self, ino: INodeNo, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        // A write that fails leaves the file unchanged, so the error is checked before the data is stored.
        if let Some(trouble) = self.pacer.trouble(Kind::Write) {
            return Err(trouble.errno());
        }
        let length = match self.pacer.writes_short() {
            true => data.len().div_ceil(2),
            false => data.len(),
        };
        self.files.lock().write(ino, offset, &data[..length])?;
        Ok(length)
    }
}

fn empty(outcome: Result<(), Errno>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // If a value is too large for the kernel, setting it fails, and the kernel uses its own limit.
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_readahead(REQUEST_MAX);
        let _ = config.set_max_background(BACKGROUND);
        // These flags make the kernel treat this file system like one on a disk: buffered writes collect in the page
        // cache, and direct requests are sent in parallel.
        for wanted in [
            InitFlags::FUSE_WRITEBACK_CACHE,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.files.lock().lookup(parent, name);
        match found {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.files.lock().forget(ino, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let attributes = self.files.lock().attributes(ino);
        match attributes {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut files = self.files.lock();
        let moded = mode.map_or(Ok(()), |mode| files.set_mode(ino, mode));
        let sized = moded.and_then(|()| size.map_or(Ok(()), |size| files.resize(ino, size)));
        match sized.and_then(|()| files.attributes(ino)) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.files.lock().create(parent, name, mode & !umask, true);
        match made {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.files.lock().create(parent, name, mode & !umask, false);
        match made {
            Ok(attr) => reply.created(&TTL, &attr, Generation(0), FileHandle(0), self.open_flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), self.open_flags);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.files.lock().remove(parent, name, false), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.files.lock().remove(parent, name, true), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let renamed = self
            .files
            .lock()
            .rename((parent, name), (newparent, newname));
        empty(renamed, reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.files.lock().list(ino, offset);
        let entries = match listed {
            Ok(entries) => entries,
            Err(errno) => return reply.error(errno),
        };
        for (next, (number, kind, name)) in (offset + 1..).zip(entries) {
            if reply.add(INodeNo(number), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.files.lock().read(ino, offset, u64::from(size));
        match read {
            Ok(bytes) => self.pacer.answer_later(Reply::Read(reply, bytes)),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_or_error(ino, offset, data) {
            Ok(length) => {
                // The conversion can't fail: the kernel never sends more than REQUEST_MAX bytes.
                let count = u32::try_from(length).unwrap_or(u32::MAX);
                self.pacer.answer_later(Reply::Write(reply, count));
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.pacer.answer_later(Reply::Sync(reply));
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(self.reserve_or_error(ino, offset, length, mode), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let files = self.files.lock();
        let ((used, blocks), count) = (files.room(), files.count());
        let free = blocks - used;
        reply.statfs(
            blocks,
            free,
            free,
            count + free,
            free,
            BLOCK as u32,
            255,
            BLOCK as u32,
        );
    }
}
