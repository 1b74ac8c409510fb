//! The file of a listening Unix socket: created, replaced after a crash, and removed.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, renameat_with};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

/// The users who may connect to a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permitted {
    /// Every user, as to a TCP port of this machine. The folder can restrict that further.
    Everybody,
    /// Only root and the user of this process, or the user and the group with these ids.
    Owner(Option<(u32, u32)>),
}

impl Permitted {
    /// Returns the permissions of the file.
    fn mode(self) -> u32 {
        match self {
            Permitted::Everybody => 0o666,
            Permitted::Owner(_) => 0o600,
        }
    }
}

/// The file of a Unix socket of this process. Dropping it removes the file, unless another socket has replaced the file.
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    id: (u64, u64),
}

impl SocketFile {
    /// Creates a Unix socket that listens at this path, with a queue of `backlog` connections. A socket file on which no process listens
    /// is replaced.
    ///
    /// The socket gets its place at the path only once it listens. Two processes that start at the same time therefore never take the
    /// other one's socket for one that a dead process has left.
    ///
    /// # Errors
    ///
    /// A process listens at the path, another kind of file is there, or the folder can't be written.
    pub fn listen(
        path: &Path,
        backlog: i32,
        permitted: Permitted,
    ) -> io::Result<(OwnedFd, SocketFile)> {
        check_free(path)?;
        let new = temporary(path);
        if check_free(&new).is_ok() {
            // A process with the same id has ended before it could move its socket to the path.
            let _ = fs::remove_file(&new);
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(&new)?)?;
        let id = permit(&new, permitted).and_then(|id| {
            rustix::net::listen(&socket, backlog)?;
            move_to(&new, path)?;
            Ok(id)
        });
        let id = id.inspect_err(|_| drop(fs::remove_file(&new)))?;
        let path = path.to_owned();
        Ok((socket.into(), SocketFile { path, id }))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id_of(&self.path).is_ok_and(|id| id == self.id) {
            // If the user or the sandbox may not remove the file, the next start replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Returns a path in the same folder, which only this process uses.
fn temporary(path: &Path) -> PathBuf {
    path.with_file_name(OsString::from(format!(".{}", std::process::id())))
}

/// Gives a new socket file its permissions, and returns its device and inode. A symbolic link that somebody has put in the file's place
/// is not followed.
fn permit(path: &Path, permitted: Permitted) -> io::Result<(u64, u64)> {
    let file = open(
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let file = File::from(file);
    let found = file.metadata()?;
    if !found.file_type().is_socket() {
        return Err(not_a_socket());
    }
    // A descriptor opened with O_PATH permits no fchmod.
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Permitted::Owner(Some((user, group))) = permitted {
        chown(&opened, Some(user), Some(group))?;
    }
    fs::set_permissions(opened, Permissions::from_mode(permitted.mode()))?;
    Ok((found.dev(), found.ino()))
}

/// Moves the file of a listening socket to its path, in place of the file of a dead process.
fn move_to(new: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => {}
        moved => return Ok(moved?),
    }
    renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE)?;
    // Another process may have begun to listen at the path since the first check. Its file then gets its place back.
    if let Err(error) = check_free(new) {
        renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE)?;
        return Err(error);
    }
    fs::remove_file(new)
}

/// Checks that there is nothing at this path, or the file of a socket. Returns whether there is one.
///
/// # Errors
///
/// Another kind of file is there, or this user may not see the folder.
pub fn check_kind(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => Ok(true),
        Ok(_) => Err(not_a_socket()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Checks that there is no file at this path, or a socket file on which no process listens.
fn check_free(path: &Path) -> io::Result<()> {
    if !check_kind(path)? {
        return Ok(());
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A connection would otherwise wait while the accept queue of the other process is full.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Err(Errno::ADDRINUSE.into()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED) => Ok(()),
            Some(Errno::AGAIN) => Err(Errno::ADDRINUSE.into()),
            _ => Err(error),
        },
    }
}

fn not_a_socket() -> io::Error {
    let text = "there is a file that is not a socket";
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_in_use_or_not_a_socket_is_kept() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("s");
        let listening = std::os::unix::net::UnixListener::bind(&path)?;
        let refused = |why: io::Result<(OwnedFd, SocketFile)>| why.err().map(|e| e.kind());
        assert_eq!(
            refused(SocketFile::listen(&path, 8, Permitted::Everybody)),
            Some(io::ErrorKind::AddrInUse)
        );
        drop(listening);
        let (socket, file) = SocketFile::listen(&path, 8, Permitted::Everybody)?;
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o666);
        drop(socket);
        assert_eq!(
            fs::read_dir(folder.path())?.count(),
            1,
            "no temporary file is left"
        );
        fs::rename(&path, folder.path().join("moved"))?;
        let (_socket, newer) = SocketFile::listen(&path, 8, Permitted::Everybody)?;
        drop(file);
        assert!(path.exists(), "the file is the newer socket's");
        drop(newer);
        assert!(!path.exists());
        fs::write(&path, "")?;
        assert_eq!(
            refused(SocketFile::listen(&path, 8, Permitted::Everybody)),
            Some(io::ErrorKind::AlreadyExists)
        );
        Ok(())
    }

    #[test]
    fn only_the_owner_may_connect_to_a_private_socket() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("s");
        let own = fs::metadata(folder.path())?;
        for owner in [None, Some((own.uid(), own.gid()))] {
            let (_socket, _file) = SocketFile::listen(&path, 8, Permitted::Owner(owner))?;
            let found = fs::metadata(&path)?;
            assert_eq!(found.permissions().mode() & 0o777, 0o600);
            assert_eq!(found.uid(), own.uid());
        }
        Ok(())
    }

    #[test]
    fn a_socket_that_listens_meanwhile_keeps_its_place() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (path, new) = (folder.path().join("s"), folder.path().join("new"));
        let first = std::os::unix::net::UnixListener::bind(&path)?;
        let _second = std::os::unix::net::UnixListener::bind(&new)?;
        let id = id_of(&path)?;
        let moved = move_to(&new, &path).map_err(|error| error.kind());
        assert_eq!(moved, Err(io::ErrorKind::AddrInUse));
        assert_eq!(id_of(&path)?, id);
        drop(first);
        move_to(&new, &path)?;
        assert!(id_of(&path)? != id && !new.exists());
        Ok(())
    }

    #[test]
    fn a_symbolic_link_in_the_place_of_a_new_socket_is_not_followed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (secret, link) = (folder.path().join("secret"), folder.path().join("link"));
        fs::write(&secret, "")?;
        fs::set_permissions(&secret, Permissions::from_mode(0o600))?;
        std::os::unix::fs::symlink(&secret, &link)?;
        assert!(permit(&link, Permitted::Everybody).is_err());
        assert_eq!(fs::metadata(&secret)?.permissions().mode() & 0o777, 0o600);
        Ok(())
    }
}
