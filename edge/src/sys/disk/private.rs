//! A folder of files that only this process's user can read, such as private keys.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::read_text;

/// Name of the file whose lock shows that a process uses the folder.
const LOCK: &str = "lock";
/// End of the names of files that are being written.
const UNFINISHED: &str = ".new";

/// A folder of small text files, each of which is replaced as a whole.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    /// The locked file. `None`: the folder is only read.
    lock: Option<File>,
}

impl PrivateFolder {
    /// Opens a folder for this process alone, and creates it if it is missing. Removes what a process that ended has
    /// left unfinished.
    ///
    /// # Errors
    ///
    /// The file system failed. `ResourceBusy`: another process uses the folder.
    pub fn open(path: &Path) -> io::Result<PrivateFolder> {
        create(path)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let message = "another process uses this folder";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
            Err(error) => return Err(error.into()),
        }
        remove_unfinished(path, true)?;
        Ok(PrivateFolder {
            path: path.to_owned(),
            lock: Some(lock),
        })
    }

    /// Opens a folder for reading, also while another process uses it.
    pub fn read_only(path: &Path) -> PrivateFolder {
        PrivateFolder {
            path: path.to_owned(),
            lock: None,
        }
    }

    /// Returns the text of a file of at most `bytes_max` bytes; `None` if there is none. `name` is a relative path.
    ///
    /// # Errors
    ///
    /// The file system failed, or the file is longer or no text.
    pub fn read(&self, name: &str, bytes_max: u64) -> io::Result<Option<String>> {
        match read_text(&self.path.join(name), bytes_max) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file. After a crash, it has either its earlier text or this one. The folders in `name`, a relative path,
    /// are created.
    ///
    /// # Errors
    ///
    /// The file system failed, or the folder is only read. The earlier text is still there.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.check_writable()?;
        let path = self.path.join(name);
        let folder = path.parent().unwrap_or(&self.path);
        create(folder)?;
        let unfinished = self.path.join(format!("{name}{UNFINISHED}"));
        let mut file = create_file(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(folder)?.sync_all()
    }

    /// Opens a file for reading; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The file system failed.
    pub fn reader(&self, name: &str) -> io::Result<Option<impl Read + use<>>> {
        // Opening a named pipe would wait for its writer.
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        match options.open(self.path.join(name)) {
            Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "this is no file",
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Appends bytes to a file that exists. Returns its length. When this returns, the bytes outlive a crash; after an
    /// error or a crash meanwhile, some of them may be in the file.
    ///
    /// # Errors
    ///
    /// The file system failed, there is no such file, or the folder is only read.
    pub fn append(&self, name: &str, bytes: &[u8]) -> io::Result<u64> {
        self.check_writable()?;
        let path = self.path.join(name);
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        Ok(file.metadata()?.len())
    }

    /// Begins to replace a file directly in the folder, or to create it.
    ///
    /// # Errors
    ///
    /// The file system failed, or the folder is only read.
    pub fn replace(&self, name: &str) -> io::Result<NewFile> {
        self.check_writable()?;
        let unfinished = self.path.join(format!("{name}{UNFINISHED}"));
        Ok(NewFile {
            file: create_file(&unfinished)?,
            unfinished,
            folder: self.path.clone(),
            path: self.path.join(name),
        })
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.lock {
            None => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            Some(_) => Ok(()),
        }
    }

    /// Removes a file, if it exists.
    ///
    /// # Errors
    ///
    /// The file system failed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the names of the files directly in a folder, in alphabetical order. A missing folder has none.
    ///
    /// # Errors
    ///
    /// The file system failed.
    pub fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().into_string();
            names.extend(name.ok().filter(|name| !name.ends_with(UNFINISHED)));
        }
        names.sort();
        Ok(names)
    }
}

/// A file that is being written, to take the place of another one.
pub struct NewFile {
    file: File,
    unfinished: PathBuf,
    folder: PathBuf,
    path: PathBuf,
}

impl NewFile {
    /// Writes bytes at the end.
    ///
    /// # Errors
    ///
    /// The file system failed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Puts the file in place. Returns its length. After a crash, there is either the earlier file or this one.
    ///
    /// # Errors
    ///
    /// The file system failed. The earlier file is still there.
    pub fn finish(self) -> io::Result<u64> {
        self.file.sync_all()?;
        fs::rename(&self.unfinished, &self.path)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(self.file.metadata()?.len())
    }
}

/// Creates an empty file for this user alone, or empties it.
fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Removes the files that were being written when a process ended, also those directly in folders of this one.
fn remove_unfinished(path: &Path, is_top: bool) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_unfinished = entry
            .file_name()
            .as_encoded_bytes()
            .ends_with(UNFINISHED.as_bytes());
        let kind = entry.file_type()?;
        if kind.is_dir() && is_top {
            remove_unfinished(&entry.path(), false)?;
        } else if kind.is_file() && is_unfinished {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Creates a folder and those above it that are missing. Only this user can use them.
///
/// # Errors
///
/// The file system failed.
pub fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_replaced_as_a_whole_and_for_this_user_alone() -> io::Result<()> {
        let above = tempfile::tempdir()?;
        let path = above.path().join("a/state");
        let folder = PrivateFolder::open(&path)?;
        assert_eq!(folder.read("b/one", 10)?, None);
        assert!(folder.list("b")?.is_empty());
        folder.write("b/one", "first")?;
        folder.write("b/one", "second")?;
        fs::write(path.join("b/two.new"), "unfin")?;
        assert_eq!(folder.read("b/one", 10)?.as_deref(), Some("second"));
        assert_eq!(folder.list("b")?, ["one"]);
        let mode = |path: &Path| fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
        assert_eq!(mode(&path.join("b/one"))?, 0o600);
        assert_eq!(mode(&path)?, 0o700);
        folder.remove("b/one")?;
        folder.remove("b/one")?;
        assert_eq!(folder.read("b/one", 10)?, None);
        drop(folder);
        PrivateFolder::open(&path)?;
        assert!(!path.join("b/two.new").exists());
        Ok(())
    }

    #[test]
    fn a_file_is_replaced_once_it_is_finished_and_then_appended_to() -> io::Result<()> {
        let above = tempfile::tempdir()?;
        let folder = PrivateFolder::open(above.path())?;
        let read = || -> io::Result<Option<String>> {
            let file = folder.reader("one")?;
            file.map(io::read_to_string).transpose()
        };
        assert_eq!(read()?, None);
        assert!(folder.append("one", b"a").is_err());
        for text in ["first", "next"] {
            let before = read()?;
            let mut file = folder.replace("one")?;
            file.write(text.as_bytes())?;
            assert_eq!(read()?, before);
            assert_eq!(file.finish()?, text.len() as u64);
            assert_eq!(folder.append("one", b" more")?, text.len() as u64 + 5);
            assert_eq!(read()?, Some(format!("{text} more")));
        }
        assert!(
            PrivateFolder::read_only(above.path())
                .replace("one")
                .is_err()
        );
        Ok(())
    }

    #[test]
    fn one_process_alone_writes() -> io::Result<()> {
        let above = tempfile::tempdir()?;
        let folder = PrivateFolder::open(above.path())?;
        folder.write("one", "text")?;
        let second = PrivateFolder::open(above.path()).expect_err("in use");
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        let reader = PrivateFolder::read_only(above.path());
        assert_eq!(reader.read("one", 10)?.as_deref(), Some("text"));
        assert!(reader.write("one", "other").is_err());
        drop(folder);
        PrivateFolder::open(above.path()).map(drop)
    }
}
