//! Temporary folders of the lab, and the end of a lab that a signal interrupts: its processes end, and its folders and
//! file systems go.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{
    Signal, getpid, getppid, set_child_subreaper, set_parent_process_death_signal,
};
use tempfile::TempDir;

use crate::process::{Identity, descendants};

/// Time in which processes may end after each of the signals.
const ENDINGS: [(Signal, Duration); 2] = [
    (Signal::TERM, Duration::from_secs(1)),
    (Signal::KILL, Duration::from_secs(2)),
];
/// Interval for looking at processes that are ending.
const POLL: Duration = Duration::from_millis(5);
/// Number of attempts to remove a folder in which another thread may create files.
const ATTEMPTS: usize = 20;

/// Everything that has to be removed if a signal ends this process.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    is_ending: false,
    folders: BTreeSet::new(),
});

struct Registry {
    is_ending: bool,
    folders: BTreeSet<PathBuf>,
}

/// Returns the registry. Once [`end`] was called, waits for the end of this process instead.
fn registry() -> MutexGuard<'static, Registry> {
    let registry = REGISTRY.lock();
    if registry.is_ending {
        drop(registry);
        loop {
            thread::park();
        }
    }
    registry
}

/// A temporary folder, which is removed when the value is dropped, and by [`end`].
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// `None` once the folder is removed.
    folder: Option<TempDir>,
}

impl Folder {
    /// Creates a folder whose name begins with `prefix` in the folder for temporary files.
    ///
    /// Errors: the folder can't be created.
    pub fn new(prefix: &str) -> io::Result<Folder> {
        Folder::new_in(prefix, &std::env::temp_dir())
    }

    /// Creates a folder whose name begins with `prefix` in this folder.
    ///
    /// Errors: the folder can't be created.
    pub fn new_in(prefix: &str, parent: &Path) -> io::Result<Folder> {
        let mut registry = registry();
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let path = folder.path().to_owned();
        registry.folders.insert(path.clone());
        Ok(Folder {
            path,
            folder: Some(folder),
        })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Removing many files takes long. If a signal comes meanwhile, `end` goes on with it.
        if let Some(Err(error)) = self.folder.take().map(TempDir::close)
            && self.path.exists()
        {
            complain(format_args!("{error}"));
        }
        REGISTRY.lock().folders.remove(&self.path);
    }
}

/// Writes a line to standard error. Unlike `eprintln`, it does not panic if nobody reads that any more, as when the
/// terminal was closed: then the cleaning up has to go on.
pub(crate) fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Name of the environment variable that has the process id of the run of all experiments to which this process belongs.
pub(crate) const PARENT: &str = "SLUICE_LAB_PARENT";

/// Makes this process get SIGTERM when the process that [`PARENT`] names ends in whatever way, if there is one. Linux sends
/// the signal when the thread ends that has started this process, so that must be one that lives as long as the process.
pub fn end_with_parent() {
    let parent = std::env::var(PARENT).ok();
    let Some(parent) = parent.and_then(|pid| pid.parse::<i32>().ok()) else {
        return;
    };
    // Failing leaves the process as it was: it ends when its experiment does.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    // The parent may have ended before that.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        std::process::exit(1);
    }
}

/// Makes this process the parent of each descendant whose own parent ends, so that [`end_descendants`] finds it.
pub(crate) fn adopt_orphans() {
    // If this fails, only servers of an experiment that was killed are left.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Ends all descendants of this process. No child may be in use.
pub(crate) fn end_descendants() {
    // Processes that others have started meanwhile end the second time, and so do zombies whose parents have ended.
    for _ in 0..2 {
        let left = descendants();
        end_all(&left);
        left.iter().for_each(Identity::reap);
    }
}

/// Starts a child process, unless [`end`] was called.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    // The lock is held meanwhile, so that `end` finds every child.
    let _registry = registry();
    command.spawn()
}

/// Waits for the end of this process if [`end`] was called; else returns at once. Callers thus don't report errors that
/// are only results of the end.
pub fn wait_if_ending() {
    drop(registry());
}

/// Ends all descendants of this process, and removes the lab's folders. Threads that start a process or create a folder
/// afterwards wait forever, so the caller has to end this process.
pub fn end() {
    let folders = {
        let mut registry = registry();
        registry.is_ending = true;
        registry.folders.clone()
    };
    // The helper process of a mounted file system ends only with the mount.
    for folder in folders.iter().filter(|folder| is_mount(folder)) {
        detach(folder);
    }
    // Processes that others have started meanwhile end the second time.
    for _ in 0..2 {
        end_all(&descendants());
    }
    for folder in &folders {
        remove(folder);
    }
}

fn end_all(processes: &[Identity]) {
    for (signal, patience) in ENDINGS {
        // Parents first: else a server would start its children again.
        processes.iter().for_each(|one| one.signal(signal));
        let until = Instant::now() + patience;
        while processes.iter().any(Identity::is_running) {
            if Instant::now() > until {
                break;
            }
            thread::sleep(POLL);
        }
    }
}

fn remove(folder: &Path) {
    for _ in 0..ATTEMPTS {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(POLL),
            _ => return,
        }
    }
    complain(format_args!("{} can't be removed", folder.display()));
}

/// Whether a folder is the root of a mounted file system.
fn is_mount(folder: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|facts| facts.dev()).ok();
    let parent = folder.parent().and_then(device);
    device(folder).is_some_and(|own| parent.is_some_and(|parent| parent != own))
}

/// Unmounts the file system at this folder, also if it is in use.
fn detach(folder: &Path) {
    if unmount(folder, UnmountFlags::DETACH).is_ok() {
        return;
    }
    // Users other than root may unmount only by this program.
    let mut command = Command::new("fusermount3");
    command.args(["-u", "-z"]).arg(folder).stderr(Stdio::null());
    // If this fails, too, removing the folder reports it.
    let _ = command.status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_registered_until_they_are_dropped() {
        let folder = Folder::new("lab-scratch-").expect("a folder");
        let path = folder.path().to_owned();
        assert!(path.is_dir() && REGISTRY.lock().folders.contains(&path));
        drop(folder);
        assert!(!path.exists() && !REGISTRY.lock().folders.contains(&path));
    }

    #[test]
    fn processes_end_with_their_children_even_if_they_ignore_signals() {
        let folder = Folder::new("lab-scratch-").expect("a folder");
        let script =
            "trap '' TERM; (trap '' TERM; while :; do sleep 0.01; done) & echo ready; wait";
        let launch = crate::process::Launch::new("shell", "sh", folder.path());
        let mut shell = launch
            .args(["-c", script])
            .start()
            .expect("sh is installed");
        let minute = Duration::from_secs(60);
        shell.wait_line("ready", minute).expect("a line");
        let tree = shell.tree().expect("a tree");
        let tree: Vec<Identity> = tree.into_iter().filter_map(Identity::of).collect();
        assert!(tree.len() >= 2, "{tree:?}");
        end_all(&tree);
        assert!(!tree.iter().any(Identity::is_running));
    }

    #[test]
    fn a_folder_with_files_is_removed() {
        let parent = Folder::new("lab-scratch-").expect("a folder");
        let folder = parent.path().join("one");
        std::fs::create_dir_all(folder.join("two")).expect("a folder");
        std::fs::write(folder.join("two/file"), "x").expect("a file");
        assert!(!is_mount(&folder) && is_mount(Path::new("/proc")));
        remove(&folder);
        assert!(!folder.exists());
    }
}
