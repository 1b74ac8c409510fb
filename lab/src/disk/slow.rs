//! A slow disk, whose speed and condition tests control.

use std::path::Path;
use std::time::{Duration, Instant};

use super::mount::Mounted;
use super::pacer::Pacer;

pub use super::activity::Activity;

/// Speed of a slow disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// Rate in bytes per second for reads and writes together; `None`: as fast as memory.
    pub rate: Option<u64>,
    /// Time added to each request. The latencies of concurrent requests overlap.
    pub latency: Duration,
}

/// Condition of a slow disk, which determines the requests that fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition {
    /// All requests succeed.
    #[default]
    Fine,
    /// Reads fail with EIO.
    FailReads,
    /// Writes and syncs fail with EIO.
    FailWrites,
    /// All requests fail with EIO.
    Fail,
    /// Writes fail with ENOSPC.
    Full,
    /// A write transfers only half of its bytes, and says so. The page cache hides this, see [`SlowDisk::uncached`].
    ShortWrites,
    /// Requests are not answered until the condition changes.
    Hang,
}

/// A file system in memory, mounted as a disk with configurable speed and failures. Reads, writes and syncs take time;
/// operations on names and attributes don't. Dropping the value unmounts the file system, and requests in progress
/// fail.
pub struct SlowDisk {
    // Fields are dropped in order: the file system is unmounted before requests in progress fail.
    mounted: Mounted,
    pacer: Pacer,
}

/// Interval at which [`SlowDisk::wait_idle`] reads the counters.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl SlowDisk {
    /// Creates an empty disk with space for `capacity` bytes, mounted on a new folder.
    ///
    /// Errors: no /dev/fuse, or no permission to mount.
    pub fn new(capacity: u64, pace: Pace) -> anyhow::Result<SlowDisk> {
        SlowDisk::mount(capacity, pace, true)
    }

    /// Creates a disk like `new`, without a page cache: each read and each write of a program waits for the disk, and
    /// gets the disk's error.
    ///
    /// Errors: no /dev/fuse, or no permission to mount.
    pub fn uncached(capacity: u64, pace: Pace) -> anyhow::Result<SlowDisk> {
        SlowDisk::mount(capacity, pace, false)
    }

    fn mount(capacity: u64, pace: Pace, cached: bool) -> anyhow::Result<SlowDisk> {
        let pacer = Pacer::start(pace)?;
        let mounted = Mounted::new(capacity, pacer.shared().clone(), cached)?;
        Ok(SlowDisk { mounted, pacer })
    }

    /// Returns the folder at which the disk is mounted.
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }

    /// Sets the condition of the disk, also for requests in progress.
    pub fn set_condition(&self, condition: Condition) {
        self.pacer.shared().change(condition);
    }

    /// Sets the speed of later requests.
    pub fn set_pace(&self, pace: Pace) {
        self.pacer.shared().set_pace(pace);
    }

    /// Returns the disk's counters since its start.
    pub fn activity(&self) -> Activity {
        self.pacer.shared().activity()
    }

    /// Returns the number of requests in progress.
    pub fn in_flight(&self) -> u64 {
        self.pacer.shared().in_flight()
    }

    /// Waits until the disk has had no requests for the time `rest`. Returns false if `deadline` comes first.
    pub fn wait_idle(&self, rest: Duration, deadline: Instant) -> bool {
        let mut last = self.activity();
        let mut since = Instant::now();
        loop {
            std::thread::sleep(CHECK_INTERVAL);
            let (now, activity) = (Instant::now(), self.activity());
            if self.in_flight() > 0 || activity != last {
                (last, since) = (activity, now);
            }
            if now - since >= rest {
                return true;
            }
            if now >= deadline {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
    use std::sync::mpsc;
    use std::thread;

    use rustix::fs::{FallocateFlags, OFlags, fallocate};

    use super::*;

    /// Mounts a disk of 64 MiB. Returns `None` after a message if file systems can't be mounted here; the test is then
    /// skipped.
    fn disk(pace: Pace) -> Option<SlowDisk> {
        match SlowDisk::new(64 << 20, pace) {
            Ok(disk) => Some(disk),
            Err(error) => {
                eprintln!("skipped: {error:#}");
                None
            }
        }
    }

    fn aligned(length: usize, byte: u8) -> Vec<u8> {
        // The vector is one block longer than needed, so that it contains a slice that is aligned to a block.
        vec![byte; length + 4096]
    }

    fn piece(buffer: &[u8], length: usize) -> &[u8] {
        let skip = buffer.as_ptr().align_offset(4096);
        &buffer[skip..skip + length]
    }

    fn direct(path: &Path) -> File {
        let flags = i32::try_from(OFlags::DIRECT.bits()).expect("a flag");
        let options = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path);
        options.expect("direct writes")
    }

    #[test]
    fn direct_writes_are_visible_through_the_page_cache() {
        let Some(disk) = disk(Pace::default()) else {
            return;
        };
        let path = disk.path().join("volume");
        let file = File::create_new(&path).expect("a file");
        fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).expect("room");
        let facts = fs::metadata(&path).expect("facts");
        assert_eq!((facts.len(), facts.blocks() * 512), (8 << 20, 8 << 20));
        let reader = File::open(&path).expect("a reader");
        let mut buffer = [9; 10];
        reader.read_exact_at(&mut buffer, 1 << 20).expect("zeros");
        assert_eq!(buffer, [0; 10]);
        let writer = direct(&path);
        writer
            .write_all_at(piece(&aligned(2 << 20, 7), 2 << 20), 1 << 20)
            .expect("written");
        reader
            .read_exact_at(&mut buffer, (3 << 20) - 10)
            .expect("bytes");
        assert_eq!(buffer, [7; 10]);
        let activity = disk.activity();
        assert_eq!((activity.writes, activity.written_bytes), (2, 2 << 20));
        assert_eq!(fs::metadata(&path).expect("facts").len(), 8 << 20);
    }

    #[test]
    fn files_are_created_renamed_and_removed() {
        let Some(disk) = disk(Pace::default()) else {
            return;
        };
        let folder = disk.path().join("a/b");
        fs::create_dir_all(&folder).expect("folders");
        let (first, second) = (folder.join("first"), disk.path().join("second"));
        fs::write(&first, vec![3; 100_000]).expect("written");
        fs::rename(&first, &second).expect("moved");
        assert_eq!(fs::read(&second).expect("read"), vec![3; 100_000]);
        let names = fs::read_dir(disk.path()).expect("a folder");
        let mut names: Vec<_> = names.map(|entry| entry.expect("one").file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "second"]);
        let mut open = File::open(&second).expect("open");
        fs::remove_file(&second).expect("removed");
        fs::remove_dir_all(disk.path().join("a")).expect("removed");
        let mut rest = Vec::new();
        open.read_to_end(&mut rest).expect("still there");
        assert_eq!(rest.len(), 100_000);
    }

    #[test]
    fn requests_take_the_configured_time() {
        let pace = Pace {
            rate: Some(20_000_000),
            latency: Duration::from_millis(10),
        };
        let Some(disk) = disk(pace) else {
            return;
        };
        let path = disk.path().join("file");
        File::create(&path).expect("a file");
        let writer = direct(&path);
        let began = Instant::now();
        writer
            .write_all_at(piece(&aligned(2 << 20, 1), 2 << 20), 0)
            .expect("written");
        // Transferring 2 MiB at 20 MB/s takes 105 ms, plus the latency. The test has no upper bound, because the
        // machine may be busy.
        assert!(
            began.elapsed() >= Duration::from_millis(114),
            "{:?}",
            began.elapsed()
        );
        let activity = disk.activity();
        assert!(activity.busy >= Duration::from_millis(104), "{activity:?}");
        assert!(activity.waited >= activity.busy, "{activity:?}");
    }

    #[test]
    fn errors_reach_the_caller() {
        let Some(disk) = disk(Pace::default()) else {
            return;
        };
        let path = disk.path().join("file");
        fs::write(&path, [1; 4096]).expect("written");
        File::open(&path)
            .and_then(|file| file.sync_all())
            .expect("synced");
        let writer = direct(&path);
        let bytes = aligned(4096, 2);
        let write = || writer.write_all_at(piece(&bytes, 4096), 0);
        disk.set_condition(Condition::FailWrites);
        assert_eq!(
            write().map_err(|error| error.raw_os_error()),
            Err(Some(5)),
            "EIO"
        );
        disk.set_condition(Condition::Full);
        assert_eq!(
            write().map_err(|error| error.kind()),
            Err(ErrorKind::StorageFull)
        );
        assert_eq!(fs::read(&path).expect("read"), [1; 4096]);
        disk.set_condition(Condition::Fine);
        write().expect("written");
        disk.set_condition(Condition::FailReads);
        assert!(fs::read(&path).is_err());
        disk.set_condition(Condition::Fine);
        assert_eq!(fs::read(&path).expect("read"), [2; 4096]);
    }

    #[test]
    fn a_hanging_disk_continues_when_released_and_fails_when_dropped() {
        let Some(disk) = disk(Pace::default()) else {
            return;
        };
        let path = disk.path().join("file");
        File::create(&path).expect("a file");
        for released in [true, false] {
            disk.set_condition(Condition::Hang);
            let writer = direct(&path);
            let (send, done) = mpsc::channel();
            let writing = thread::spawn(move || {
                let bytes = aligned(4096, 2);
                send.send(writer.write_all_at(piece(&bytes, 4096), 0))
            });
            while disk.in_flight() == 0 {
                thread::yield_now();
            }
            assert!(done.try_recv().is_err(), "it hangs");
            if released {
                disk.set_condition(Condition::Fine);
                done.recv().expect("an answer").expect("written");
                writing.join().expect("no panic").expect("a receiver");
            } else {
                drop(disk);
                assert!(done.recv().expect("an answer").is_err());
                writing.join().expect("no panic").expect("a receiver");
                return;
            }
        }
    }

    #[test]
    fn a_disk_without_a_page_cache_gives_each_error_to_the_caller() {
        let disk = match SlowDisk::uncached(64 << 20, Pace::default()) {
            Ok(disk) => disk,
            Err(error) => return eprintln!("skipped: {error:#}"),
        };
        let path = disk.path().join("file");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.expect("a file");
        file.write_all_at(&[1; 10_000], 0).expect("written");
        disk.set_condition(Condition::Full);
        let error = file.write_at(&[2; 10], 0).expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        disk.set_condition(Condition::ShortWrites);
        assert_eq!(file.write_at(&[3; 1000], 0).expect("written"), 500);
        file.write_all_at(&[4; 1000], 5000).expect("written");
        disk.set_condition(Condition::FailReads);
        assert!(file.read_at(&mut [0; 10], 0).is_err());
        disk.set_condition(Condition::Fine);
        let mut bytes = vec![0; 10_000];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!((bytes[499], bytes[500], bytes[5999]), (3, 1, 4));
    }

    #[test]
    fn dropping_a_disk_removes_its_mount_and_folder() {
        let Some(disk) = disk(Pace::default()) else {
            return;
        };
        let path = disk.path().to_owned();
        let mut open = File::create(path.join("file")).expect("a file");
        open.write_all(b"hello").expect("written");
        drop(disk);
        assert!(!path.exists());
        let mounts = fs::read_to_string("/proc/mounts").expect("the mounts");
        assert!(!mounts.contains(&*path.to_string_lossy()), "{mounts}");
    }
}
