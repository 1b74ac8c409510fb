//! Slow disks that btrfs joins to one file system, as a stripe, as a mirror, or one disk alone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::activity::Activity;
use super::slow::SlowDisk;
use crate::scratch::{self, Folder, complain};

/// Profile in which btrfs distributes bytes over its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// One disk has each byte once.
    Single,
    /// Each disk has all bytes.
    Mirror,
    /// The bytes are distributed over the disks.
    Stripe,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Profile::Single => "single",
            Profile::Mirror => "raid1",
            Profile::Stripe => "raid0",
        }
    }
}

/// Share of the kernel's limit of unwritten bytes that the file system may have, in percent. It is that of FUSE, so
/// that writers wait for the disks as early as they do with a [`SlowDisk`] alone.
const UNWRITTEN_PERCENT: &str = "1";

/// Time in which the last open file may be closed when the file system is unmounted, and the interval of the attempts.
const CLOSING: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// A file system of btrfs on slow disks. Dropping the value unmounts it.
pub struct JoinedDisks {
    // Fields are dropped in order: the file system is unmounted before its disks are.
    mounted: Mounted,
    disks: Vec<SlowDisk>,
}

impl JoinedDisks {
    /// Creates and mounts a file system on disks without a page cache (see [`SlowDisk::uncached`]), each of which has
    /// space for `length` bytes.
    ///
    /// Errors: no permission to make loop devices or to mount, `mkfs.btrfs` or `losetup` is not installed, or the kernel is
    /// older than Linux 6.2.
    pub fn new(disks: Vec<SlowDisk>, length: u64, profile: Profile) -> anyhow::Result<JoinedDisks> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "only root can join disks with btrfs"
        );
        let mut loops = Vec::new();
        for disk in &disks {
            loops.push(LoopDevice::on(&disk.path().join("image"), length)?);
        }
        let devices: Vec<&Path> = loops.iter().map(|one| &*one.path).collect();
        // The kernel's limit is set by the file system's id.
        let id = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        let id = id.trim();
        let format = ["--quiet", "--force", "--uuid", id, "--data", profile.name()];
        // Metadata on one disk twice would cost that disk more than the others.
        let format = format.into_iter().chain(["--metadata", profile.name()]);
        command("mkfs.btrfs", "btrfs-progs", |mkfs| {
            mkfs.args(format).args(&devices);
        })?;
        let mounted = Mounted::mount(&devices)?;
        // Without `strict_limit`, the kernel enforces `max_ratio` only once many bytes of all file systems are unwritten:
        // memory would take writes of some seconds, as if the disks were fast. Linux has this setting since 6.2.
        for (setting, value) in [("max_ratio", UNWRITTEN_PERCENT), ("strict_limit", "1")] {
            let setting = format!("/sys/fs/btrfs/{id}/bdi/{setting}");
            anyhow::ensure!(
                Path::new(&setting).exists(),
                "there is no {setting}: joined disks need Linux 6.2 or later"
            );
            fs::write(&setting, value).with_context(|| format!("can't write {setting}"))?;
        }
        Ok(JoinedDisks { mounted, disks })
    }

    /// Returns the folder at which the file system is mounted.
    pub fn path(&self) -> &Path {
        self.mounted.folder.path()
    }

    /// Returns the counters of each disk since its start.
    pub fn activities(&self) -> impl Iterator<Item = Activity> {
        self.disks.iter().map(SlowDisk::activity)
    }

    /// Returns the disks.
    pub fn disks(&self) -> &[SlowDisk] {
        &self.disks
    }

    /// Waits until all bytes that were written so far are on the disks.
    ///
    /// Errors: a write fails.
    pub fn sync(&self) -> anyhow::Result<()> {
        let folder = File::open(self.path())?;
        rustix::fs::syncfs(&folder).context("syncing the file system")
    }
}

/// A loop device, which exists as long as this value or a mounted file system uses it. So it ends with this process,
/// too, in whatever way the process ends.
struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Attaches a new file.
    fn on(file: &Path, length: u64) -> anyhow::Result<LoopDevice> {
        File::create(file)?.set_len(length)?;
        let printed = command("losetup", "util-linux", |losetup| {
            losetup.args(["--find", "--show"]).arg(file);
        })?;
        let path = PathBuf::from(printed.trim());
        let open = File::open(&path).with_context(|| path.display().to_string())?;
        // The kernel detaches a device in use when its last user closes it.
        command("losetup", "util-linux", |losetup| {
            losetup.arg("--detach").arg(&path);
        })?;
        Ok(LoopDevice { path, _open: open })
    }
}

/// The mounted file system. The kernel detaches its loop devices when it is unmounted.
struct Mounted {
    folder: Folder,
}

impl Mounted {
    fn mount(devices: &[&Path]) -> anyhow::Result<Mounted> {
        let folder = Folder::new("lab-btrfs-")?;
        let first = devices.first().context("a file system needs a disk")?;
        command("mount", "mount", |mount| {
            mount.args(["-t", "btrfs", "-o"]);
            let all = devices
                .iter()
                .map(|path| format!("device={}", path.display()));
            // Without discard, freed space costs no requests.
            let options: Vec<String> = ["noatime", "nodiscard"]
                .map(str::to_owned)
                .into_iter()
                .chain(all)
                .collect();
            mount.arg(options.join(",")).arg(first).arg(folder.path());
        })?;
        Ok(Mounted { folder })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let folder = self.folder.path();
        if let Err(error) = end(folder) {
            let shown = folder.display();
            complain(format_args!(
                "can't unmount {shown}: {error}; try: umount -l {shown}"
            ));
        }
    }
}

/// Unmounts the file system at a folder. If a file stays open, the file system is only detached from the folder, and ends
/// when the file is closed.
fn end(folder: &Path) -> rustix::io::Result<()> {
    let until = Instant::now() + CLOSING;
    loop {
        match unmount(folder, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < until => thread::sleep(POLL),
            Err(_) => return unmount(folder, UnmountFlags::DETACH),
        }
    }
}

/// Runs a program of a Debian package and returns what it prints.
fn command(
    program: &str,
    package: &str,
    arguments: impl FnOnce(&mut Command),
) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    arguments(&mut command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = scratch::spawn(&mut command)
        .and_then(Child::wait_with_output)
        .with_context(|| format!("can't start {program}; on Debian: apt-get install {package}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::disk::Pace;

    /// Length of each disk: the least that btrfs takes is 109 MiB.
    const LENGTH: u64 = 160 << 20;

    /// Joins two disks. Returns `None` after a message if that is not possible here; the test is then skipped.
    fn joined(profile: Profile) -> Option<JoinedDisks> {
        let disk = || SlowDisk::uncached(LENGTH * 2, Pace::default());
        let disks = disk().and_then(|first| Ok(vec![first, disk()?]));
        match disks.and_then(|disks| JoinedDisks::new(disks, LENGTH, profile)) {
            Ok(joined) => Some(joined),
            Err(error) => {
                eprintln!("skipped: {error:#}");
                None
            }
        }
    }

    fn written_to_each(profile: Profile, bytes: usize) -> Option<Vec<u64>> {
        let joined = joined(profile)?;
        let before: Vec<Activity> = joined.activities().collect();
        let mut file = File::create(joined.path().join("file")).expect("a file");
        file.write_all(&vec![7; bytes]).expect("written");
        joined.sync().expect("synced");
        let after = joined.activities().zip(before);
        let each = after.map(|(after, before)| after.written_bytes - before.written_bytes);
        Some(each.collect())
    }

    #[test]
    fn a_mirror_writes_each_byte_to_both_disks_and_a_stripe_to_one() {
        const BYTES: usize = 16 << 20;
        // Beside the content, there are some metadata.
        let near = |written: u64, wanted: usize| {
            let wanted = wanted as u64;
            (wanted..wanted + (2 << 20)).contains(&written)
        };
        let Some(mirror) = written_to_each(Profile::Mirror, BYTES) else {
            return;
        };
        assert!(mirror.iter().all(|one| near(*one, BYTES)), "{mirror:?}");
        let stripe = written_to_each(Profile::Stripe, BYTES).expect("as before");
        assert!(stripe.iter().all(|one| near(*one, BYTES / 2)), "{stripe:?}");
    }

    /// Mounts a file system in memory, and creates a file there. Returns `None` after a message if that is not possible
    /// here; the test is then skipped.
    fn in_memory() -> Option<(Folder, File)> {
        let folder = Folder::new("lab-tmpfs-").expect("a folder");
        let mounting = command("mount", "mount", |mount| {
            mount.args(["-t", "tmpfs", "tmpfs"]).arg(folder.path());
        });
        if let Err(error) = mounting {
            eprintln!("skipped: {error:#}");
            return None;
        }
        let file = File::create(folder.path().join("file")).expect("a file");
        Some((folder, file))
    }

    fn is_mounted(folder: &Folder) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
        mounts.contains(&*folder.path().to_string_lossy())
    }

    #[test]
    fn a_file_system_with_an_open_file_is_detached() {
        let Some((folder, mut file)) = in_memory() else {
            return;
        };
        assert!(is_mounted(&folder));
        end(folder.path()).expect("detached");
        assert!(!is_mounted(&folder));
        file.write_all(b"content").expect("the file exists");
    }

    #[test]
    fn a_file_system_is_unmounted_when_its_last_file_is_closed() {
        const OPEN: Duration = Duration::from_millis(100);
        let Some((folder, file)) = in_memory() else {
            return;
        };
        let begun = Instant::now();
        let closing = thread::spawn(move || {
            thread::sleep(OPEN);
            drop(file);
        });
        end(folder.path()).expect("unmounted");
        assert!(begun.elapsed() >= OPEN && !is_mounted(&folder));
        closing.join().expect("no panic");
    }

    #[test]
    fn mount_and_loop_devices_end_with_the_value() {
        let Some(joined) = joined(Profile::Stripe) else {
            return;
        };
        let folder = joined.path().to_owned();
        let shown = folder.display().to_string();
        let images: Vec<String> = joined
            .disks()
            .iter()
            .map(|disk| disk.path().display().to_string())
            .collect();
        let mounts = || fs::read_to_string("/proc/self/mounts").expect("the mounts");
        assert!(mounts().contains(&shown));
        drop(joined);
        assert!(!mounts().contains(&shown));
        let attached = command("losetup", "util-linux", |losetup| {
            losetup.arg("--list");
        });
        let attached = attached.expect("a list");
        assert!(
            images.iter().all(|image| !attached.contains(&**image)),
            "{attached}"
        );
    }
}
