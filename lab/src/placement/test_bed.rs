//! The test bed of a layout: an origin, a server with and without its cache, and disks whose use is sampled.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

use crate::bench::{Sluice, median};
use crate::disk::{self, Activity, JoinedDisks, SlowDisk, Usage};
use crate::load::{self, LoadPlan};
use crate::process::Process;
use crate::rivals::{Floor, FloorOptions, RunningRival};

/// Size of each body in bytes.
pub(super) const LENGTH: u64 = 1 << 20;

/// Path prefix that is proxied without the cache.
pub(super) const PLAIN: &str = "/plain/";

/// Path prefix that uses the cache.
const CACHED: &str = "/cached/";

/// Number of clients of the closed loop.
const CONNECTIONS: usize = 10;

/// Number of clients of a load with a fixed rate: enough for all requests that wait while a disk stalls for a second.
const CONNECTIONS_AT_RATE: usize = 256;

/// Interval at which the used space of the disks is sampled.
const SAMPLE: Duration = Duration::from_millis(100);
const SAMPLE_MAX: Duration = Duration::from_secs(2);

/// A disk is idle if it has had no request for `REST`. `REST_MAX` bounds the wait for an idle disk.
const REST: Duration = Duration::from_millis(300);
const SETTLE: Duration = Duration::from_secs(30);

/// Timeout of a response in seconds; a stalled disk may delay responses for long.
const TIMEOUT_SECONDS: f64 = 60.0;

/// The origin, and the numbers of bodies that have not been requested yet.
pub(super) struct TestBed {
    origin: Floor,
    next: u64,
}

impl TestBed {
    pub(super) fn new() -> anyhow::Result<TestBed> {
        Ok(TestBed {
            origin: Floor::start(FloorOptions::new(LENGTH))?,
            next: 0,
        })
    }

    pub(super) fn origin(&self) -> &Floor {
        &self.origin
    }
}

/// A place in which a server stores its cache.
pub(super) enum Storage {
    /// A slow disk of the lab.
    Slow(SlowDisk),
    /// Slow disks of the lab that btrfs joins.
    Joined(JoinedDisks),
    /// A folder on a disk of this machine, or on tmpfs.
    Real(PathBuf),
}

impl Storage {
    pub(super) fn path(&self) -> &Path {
        match self {
            Storage::Slow(disk) => disk.path(),
            Storage::Joined(disks) => disks.path(),
            Storage::Real(path) => path,
        }
    }

    /// Returns the activity of each disk; zero for tmpfs.
    fn activities(&self) -> Vec<Activity> {
        match self {
            Storage::Slow(disk) => vec![disk.activity()],
            Storage::Joined(disks) => disks.activities().collect(),
            Storage::Real(path) => vec![disk::of_path(path).unwrap_or_default()],
        }
    }

    fn settle(&self) -> anyhow::Result<()> {
        match self {
            Storage::Slow(disk) => {
                disk.wait_idle(REST, Instant::now() + SETTLE);
            }
            Storage::Joined(disks) => {
                disks.sync()?;
                for disk in disks.disks() {
                    disk.wait_idle(REST, Instant::now() + SETTLE);
                }
            }
            Storage::Real(path) => {
                let folder = std::fs::File::open(path)?;
                rustix::fs::syncfs(&folder).context("syncing the file system")?;
            }
        }
        Ok(())
    }
}

/// The server under test.
pub(super) enum Server {
    Sluice(Box<Sluice>),
    Rival(RunningRival),
}

impl Server {
    fn process(&self) -> &Process {
        match self {
            Server::Sluice(sluice) => sluice.process(),
            Server::Rival(rival) => rival.process(),
        }
    }

    fn address(&self) -> std::net::SocketAddr {
        match self {
            Server::Sluice(sluice) => sluice.addr(),
            Server::Rival(rival) => rival.addr(),
        }
    }

    /// Returns the text of the configuration file with which the server was started.
    pub(super) fn configuration(&self) -> &str {
        match self {
            Server::Sluice(sluice) => sluice.configuration(),
            Server::Rival(rival) => rival.configuration(),
        }
    }

    /// Sums over all volumes, from `/status`; zero for nginx.
    pub(super) fn volumes(&self) -> anyhow::Result<VolumeSums> {
        match self {
            Server::Sluice(sluice) => Ok(VolumeSums::read(&sluice.status()?)),
            Server::Rival(_) => Ok(VolumeSums::default()),
        }
    }

    /// Waits until the server has written all queued data to its disks.
    pub(super) fn settle(&self, places: &[Storage]) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLE;
        while self.volumes()?.queued > 0 && Instant::now() < deadline {
            thread::sleep(SAMPLE);
        }
        places.iter().try_for_each(Storage::settle)
    }
}

/// Counters of all volumes together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VolumeSums {
    pub(super) written: u64,
    pub(super) rewritten: u64,
    pub(super) shed: u64,
    queued: u64,
}

impl VolumeSums {
    fn read(status: &Value) -> VolumeSums {
        let volumes = status["volumes"].as_array();
        let sum = |field: &str| {
            let numbers = volumes.into_iter().flatten();
            numbers.filter_map(|volume| volume[field].as_u64()).sum()
        };
        VolumeSums {
            written: sum("written_bytes"),
            rewritten: sum("rewritten_bytes"),
            shed: sum("shed_bytes"),
            queued: sum("queue_bytes"),
        }
    }
}

/// The load of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    /// Whether requests use the cache or bypass it.
    pub(super) cached: bool,
    /// Requests per second; `None`: a closed loop.
    pub(super) rate: Option<f64>,
    pub(super) seconds: f64,
}

/// Results of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase {
    /// Bytes per second to clients.
    pub(super) rate: f64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// CPU time of the server in nanoseconds per byte.
    pub(super) cpu_ns: f64,
    /// Share of requests that did not reach the origin.
    pub(super) hits: f64,
    /// Activity of each disk during the load.
    pub(super) disks: Vec<Usage>,
    /// Largest space used at any place, divided by the configured size.
    pub(super) over: f64,
    /// Bytes written to volumes (`written`), and bytes not stored because the write queue was full (`shed`), during
    /// the load.
    pub(super) written: u64,
    pub(super) shed: u64,
}

impl TestBed {
    /// Requests bodies that have not been requested before, and samples the used space of the storage places
    /// meanwhile. The cache in each place may use `size` bytes.
    pub(super) fn run(
        &mut self,
        server: &Server,
        places: &[Storage],
        size: u64,
        asking: Asking,
    ) -> anyhow::Result<Phase> {
        let plan = self.plan(server, asking);
        let origin_before = self.origin.answered();
        let sums_before = server.volumes()?;
        let activities = || places.iter().flat_map(Storage::activities);
        let before: Vec<Activity> = activities().collect();
        let cpu_before = server.process().cpu()?;
        let began = Instant::now();
        // Counters are read as soon as the load ends, before the sampling thread ends.
        let read_counters = || {
            let result = load::run(plan)?;
            let seconds = began.elapsed().as_secs_f64();
            let cpu = server.process().cpu()?.saturating_sub(cpu_before);
            let disks = activities().zip(&before);
            let disks = disks.map(|(now, before)| now.since(before, seconds));
            anyhow::Ok((result, cpu, disks.collect(), server.volumes()?))
        };
        let ((result, cpu, disks, sums), over) = sampled(places, size, read_counters)?;
        anyhow::ensure!(result.errors.total() == 0, "{:?}", result.errors);
        self.next += result.requests;
        let requests = self.origin.answered() - origin_before;
        Ok(Phase {
            rate: result.byte_rate(),
            bytes: result.bytes,
            seconds: result.seconds,
            cpu_ns: cpu.as_nanos() as f64 / result.bytes.max(1) as f64,
            hits: 1.0 - (requests as f64 / result.requests.max(1) as f64).min(1.0),
            disks,
            over,
            written: stored(&sums).saturating_sub(stored(&sums_before)),
            shed: sums.shed.saturating_sub(sums_before.shed),
        })
    }

    fn plan(&self, server: &Server, asking: Asking) -> LoadPlan {
        let path = if asking.cached { CACHED } else { PLAIN };
        LoadPlan {
            numbers: Some((self.next, u64::MAX - self.next)),
            connections: match asking.rate {
                Some(_) => CONNECTIONS_AT_RATE,
                None => CONNECTIONS,
            },
            rate: asking.rate,
            seconds: Some(asking.seconds),
            expect_length: Some(LENGTH),
            timeout_seconds: TIMEOUT_SECONDS,
            ..LoadPlan::new(server.address(), &format!("{path}{{n}}.bin"))
        }
    }
}

/// Returns the number of bytes of new content that the volumes accepted.
pub(super) fn stored(sums: &VolumeSums) -> u64 {
    sums.written.saturating_sub(sums.rewritten)
}

/// Runs `during` while the used space of the storage places is sampled. Also returns the largest used space divided
/// by `size`.
fn sampled<T>(
    places: &[Storage],
    size: u64,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, f64)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampling = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                let held = places.iter().map(|place| held(place.path()));
                most = held.fold(most, u64::max);
                // Listing thousands of folders takes CPU time, so the interval grows with the duration of a sample.
                thread::sleep(SAMPLE.max(began.elapsed() * 50).min(SAMPLE_MAX));
            }
            most
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        let most = sampling.join();
        let most = most.map_err(|_| anyhow::anyhow!("the sampling thread panicked"))?;
        Ok((result?, most as f64 / size.max(1) as f64))
    })
}

/// Returns the number of bytes used by the files in a folder: their length, or their allocated blocks if that is more. Files
/// may appear and vanish meanwhile.
pub(super) fn held(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(facts) if facts.is_dir() => held(&entry.path()),
        Ok(facts) => facts.len().max(facts.blocks() * 512),
        Err(_) => 0,
    });
    bytes.sum()
}

/// Returns the median over all runs.
pub(super) fn middle(phases: &[Phase], of: impl Fn(&Phase) -> f64) -> f64 {
    median(phases.iter().map(of).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_in_a_folder_count() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("a")).expect("a folder");
        std::fs::write(folder.path().join("a/b"), [0; 10_000]).expect("a file");
        let before = held(folder.path());
        assert!(before >= 10_000);
        let file = std::fs::File::create(folder.path().join("sparse")).expect("a file");
        file.set_len(1 << 30).expect("a length");
        assert!(held(folder.path()) >= before + (1 << 30));
        assert_eq!(held(&folder.path().join("none")), 0);
    }

    #[test]
    fn counters_of_all_volumes_are_added() {
        let status = serde_json::json!({ "volumes": [
            { "written_bytes": 10, "rewritten_bytes": 1, "shed_bytes": 3, "queue_bytes": 5 },
            { "written_bytes": 20, "rewritten_bytes": 2, "shed_bytes": 4, "queue_bytes": 6 },
        ] });
        let sums = VolumeSums::read(&status);
        assert_eq!((sums.written, sums.rewritten), (30, 3));
        assert_eq!((sums.shed, sums.queued, stored(&sums)), (7, 11, 27));
        assert_eq!(
            VolumeSums::read(&serde_json::json!({})),
            VolumeSums::default()
        );
    }
}
