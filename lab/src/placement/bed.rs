//! What a layout is measured on: an origin, a server with and without its cache, disks that are watched.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

use crate::bench::{Sluice, median};
use crate::disk::{self, Activity, SlowDisk, Usage};
use crate::load::{self, LoadPlan};
use crate::process::Process;
use crate::rivals::{Floor, FloorOptions, Nginx};

/// Bytes of each body.
pub(super) const LENGTH: u64 = 1 << 20;

/// What begins with this is proxied without the cache.
pub(super) const PLAIN: &str = "/plain/";

/// What the cache is asked for.
const CACHED: &str = "/cached/";

/// Clients of the closed loop, as many as the article has.
const CONNECTIONS: usize = 10;

/// Clients of a load with a rate: enough for all that a disk that stalls for a second makes wait.
const CONNECTIONS_AT_RATE: usize = 256;

/// How often it is looked at what the disks hold.
const SAMPLE: Duration = Duration::from_millis(100);
const SAMPLE_MAX: Duration = Duration::from_secs(2);

/// A disk counts as at rest when it has had nothing to do for so long, and is waited for no longer than this.
const REST: Duration = Duration::from_millis(300);
const SETTLE: Duration = Duration::from_secs(30);

/// An answer may take as long as a stalled disk makes it.
const TIMEOUT_SECONDS: f64 = 60.0;

/// The origin, and which names have not been asked for.
pub(super) struct Bed {
    origin: Floor,
    next: u64,
}

impl Bed {
    pub(super) fn new() -> anyhow::Result<Bed> {
        Ok(Bed {
            origin: Floor::start(FloorOptions::new(LENGTH))?,
            next: 0,
        })
    }

    pub(super) fn origin(&self) -> &Floor {
        &self.origin
    }
}

/// Where a server stores.
pub(super) enum Storage {
    /// A disk of ours.
    Slow(SlowDisk),
    /// A folder on a disk of the machine's, or on tmpfs.
    Real(PathBuf),
}

impl Storage {
    pub(super) fn path(&self) -> &Path {
        match self {
            Storage::Slow(disk) => disk.path(),
            Storage::Real(path) => path,
        }
    }

    /// tmpfs has none.
    pub(super) fn activity(&self) -> Activity {
        match self {
            Storage::Slow(disk) => disk.activity(),
            Storage::Real(path) => disk::of_path(path).unwrap_or_default(),
        }
    }

    fn settle(&self) -> anyhow::Result<()> {
        match self {
            Storage::Slow(disk) => {
                disk.wait_idle(REST, Instant::now() + SETTLE);
            }
            Storage::Real(path) => {
                let folder = std::fs::File::open(path)?;
                rustix::fs::syncfs(&folder).context("writing back what waits")?;
            }
        }
        Ok(())
    }
}

/// A server under test.
pub(super) enum Server {
    Sluice(Box<Sluice>),
    Nginx(Box<Nginx>),
}

impl Server {
    fn process(&self) -> &Process {
        match self {
            Server::Sluice(sluice) => sluice.process(),
            Server::Nginx(nginx) => nginx.process(),
        }
    }

    fn address(&self) -> std::net::SocketAddr {
        match self {
            Server::Sluice(sluice) => sluice.addr(),
            Server::Nginx(nginx) => nginx.addr(),
        }
    }

    /// Sums over the volumes; nothing of nginx.
    pub(super) fn volumes(&self) -> anyhow::Result<VolumeSums> {
        match self {
            Server::Sluice(sluice) => Ok(VolumeSums::read(&sluice.status()?)),
            Server::Nginx(_) => Ok(VolumeSums::default()),
        }
    }

    /// Waits until nothing is left to be written.
    pub(super) fn settle(&self, places: &[Storage]) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLE;
        while self.volumes()?.queued > 0 && Instant::now() < deadline {
            thread::sleep(SAMPLE);
        }
        places.iter().try_for_each(Storage::settle)
    }
}

/// What the status says of all volumes together.
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

/// Which load is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    /// Whether the cache is asked, or what goes past it.
    pub(super) cached: bool,
    /// Requests a second; without, as fast as answers come.
    pub(super) rate: Option<f64>,
    pub(super) seconds: f64,
}

/// What a load gave.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase {
    /// Bytes a second to clients.
    pub(super) rate: f64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Nanoseconds of the server's CPU time for each byte.
    pub(super) cpu_ns: f64,
    /// Share of the requests that did not reach the origin.
    pub(super) hits: f64,
    /// What each disk did while the load lasted.
    pub(super) disks: Vec<Usage>,
    /// Most bytes that any of the places held, over what it may hold.
    pub(super) over: f64,
    /// What became of the volumes while the load lasted.
    pub(super) written: u64,
    pub(super) shed: u64,
}

impl Bed {
    /// Asks a server for names that nobody has asked for before, while its places are watched, each of which may hold
    /// `size` bytes.
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
        let before: Vec<Activity> = places.iter().map(Storage::activity).collect();
        let cpu_before = server.process().cpu()?;
        let began = Instant::now();
        // What happened is looked at as soon as the load is over, not when the watch is.
        let look = || {
            let result = load::run(plan)?;
            let seconds = began.elapsed().as_secs_f64();
            let cpu = server.process().cpu()?.saturating_sub(cpu_before);
            let disks = places.iter().zip(&before);
            let disks = disks.map(|(place, before)| place.activity().since(before, seconds));
            anyhow::Ok((result, cpu, disks.collect(), server.volumes()?))
        };
        let ((result, cpu, disks, sums), over) = watched(places, size, look)?;
        anyhow::ensure!(result.errors.total() == 0, "{:?}", result.errors);
        self.next += result.requests;
        let asked = self.origin.answered() - origin_before;
        Ok(Phase {
            rate: result.bytes as f64 / result.seconds.max(1e-9),
            bytes: result.bytes,
            seconds: result.seconds,
            cpu_ns: cpu.as_nanos() as f64 / result.bytes.max(1) as f64,
            hits: 1.0 - (asked as f64 / result.requests.max(1) as f64).min(1.0),
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

/// Bytes that volumes took of what is new.
pub(super) fn stored(sums: &VolumeSums) -> u64 {
    sums.written.saturating_sub(sums.rewritten)
}

/// Does this while places are watched. Beside its result: the most that one of them held, over `size`.
fn watched<T>(
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
                // Thousands of folders take time that the servers are to have.
                thread::sleep(SAMPLE.max(began.elapsed() * 50).min(SAMPLE_MAX));
            }
            most
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        let most = sampling.join();
        let most = most.map_err(|_| anyhow::anyhow!("the watch panicked"))?;
        Ok((result?, most as f64 / size.max(1) as f64))
    })
}

/// Bytes that a folder's files take: their length, or what the disk gives them if that is more. Files come and go
/// meanwhile.
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

/// The median over phases.
pub(super) fn middle(phases: &[Phase], of: impl Fn(&Phase) -> f64) -> f64 {
    median(phases.iter().map(of).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_lies_in_a_folder_counts() {
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
    fn volumes_are_summed_up() {
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
