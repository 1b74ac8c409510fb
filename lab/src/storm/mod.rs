//! The storm experiment: many clients request random ranges of files of all sizes, whose versions may change
//! meanwhile, and verify every byte.
//!
//! The files contain [noise](crate::noise): file, version and offset determine each byte. The ETag of a response
//! names its version, so a response that mixes two versions is detected.

mod client;
mod mix;
mod report;
mod tally;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::bench::raise_descriptor_limit;
use crate::caches::{self, Cache, Capacity, Rival, SluiceCache};
use crate::client::ClientOptions;
use crate::configurations::Configurations;
use crate::origin::{Origin, OriginOptions, Record, Resource};

pub use mix::FILES;
pub use report::{Report, Row};

use client::StormClient;
use mix::sizes;
use tally::Tally;

/// Time after which a storm is ended.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Interval of progress messages.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Longest time until the origin is idle after all clients have ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Sluice's fill mode.
    pub fill: String,
    /// Rivals that run through the same storm.
    pub against: Vec<Rival>,
    /// Number of concurrent clients, each with its own address.
    pub clients: usize,
    /// Number of requests of each round.
    pub requests: u64,
    /// Number of rounds, in each of which all caches run through a storm. The seed of a round is one larger than that of
    /// the round before.
    pub rounds: usize,
    /// Seed of the random requests.
    pub seed: u64,
    /// Interval at which one file gets a new version, all files in turn.
    pub change_every: Option<Duration>,
    /// Lifetime of responses in seconds.
    pub max_age: u64,
    /// Bytes per second that the origin sends on each connection.
    pub rate: Option<u64>,
    /// Whether one percent of the requests is for a whole file of any size.
    pub whole_of_any_size: bool,
    /// Size of a slice in bytes.
    pub slice: u64,
    /// Size of a cache in bytes.
    pub memory: u64,
}

impl Options {
    /// Returns options for three rounds of 200 clients and 20,000 requests, without changes, and with a cache that is large enough
    /// for all files.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            fill: "auto".to_owned(),
            against: Vec::new(),
            clients: 200,
            requests: 20_000,
            rounds: 3,
            seed: 1,
            change_every: None,
            max_age: 3600,
            rate: None,
            whole_of_any_size: false,
            slice: 1 << 20,
            memory: 512 << 20,
        }
    }

    fn sluice(&self) -> Cache {
        let by_slice = matches!(self.fill.as_str(), "slice" | "auto");
        Cache::Sluice(SluiceCache {
            slice: by_slice.then_some(self.slice),
            ..SluiceCache::new(&self.program, &self.fill)
        })
    }
}

/// Runs the storm through Sluice and each rival and reports progress to `progress`. A rival that does not start becomes
/// a note.
///
/// Errors: options out of bounds, a rival that is not installed, or a Sluice that does not start.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    anyhow::ensure!((1..=5000).contains(&options.clients), "1 to 5000 clients");
    anyhow::ensure!(options.requests > 0, "at least one request");
    anyhow::ensure!((1..=100).contains(&options.rounds), "1 to 100 rounds");
    anyhow::ensure!(
        options.change_every.is_none_or(|every| !every.is_zero()),
        "the interval of changes must be longer than zero"
    );
    raise_descriptor_limit()?;
    let rivals = caches::rivals(&options.against, &[])?;
    let against = rivals.installed.iter();
    let against = against.flat_map(|rival| rival.range_caches(options.slice));
    let mut report = Report::new(options, rivals.versions);
    let caches = [options.sluice()].into_iter().chain(against);
    let mut caches: Vec<(Cache, Vec<Row>)> = caches.map(|cache| (cache, Vec::new())).collect();
    for number in 0..options.rounds {
        progress(&format!(
            "round {} of {}: {} requests from {} clients",
            number + 1,
            options.rounds,
            options.requests,
            options.clients
        ));
        let options = Options {
            seed: options.seed.wrapping_add(number as u64),
            ..options.clone()
        };
        caches = round(caches, &options, &mut report, progress)?;
    }
    for (cache, rows) in &caches {
        report.rows.extend(Row::of_rounds(rows));
        let note = cache.note().map(|note| format!("{}: {note}", cache.name()));
        report.notes.extend(note);
    }
    Ok(report)
}

/// Runs the storm of one round through all caches, and adds a row to each. Returns the caches that have started.
///
/// Errors: Sluice does not start.
fn round(
    caches: Vec<(Cache, Vec<Row>)>,
    options: &Options,
    report: &mut Report,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Vec<(Cache, Vec<Row>)>> {
    let mut started = Vec::new();
    for (cache, mut rows) in caches {
        progress(&format!("{}: seed {}", cache.name(), options.seed));
        match storm(&cache, options, &mut report.configurations, progress) {
            Ok(row) => {
                rows.push(row);
                started.push((cache, rows));
            }
            Err(error) if matches!(cache, Cache::Sluice(_)) => return Err(error),
            Err(error) => {
                let note = format!("{}: not measured: {error:#}", cache.name());
                progress(&note);
                report.notes.push(note);
            }
        }
    }
    Ok(started)
}

/// Runs the storm through one cache, whose configuration is added to `configurations`.
fn storm(
    cache: &Cache,
    options: &Options,
    configurations: &mut Configurations,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Row> {
    let files = sizes();
    let origin = origin(&files, options)?;
    let capacity = Capacity {
        memory: options.memory,
        workers: thread::available_parallelism()?.get(),
    };
    let running = cache.start(origin.addr(), capacity)?;
    configurations.keep(&cache.name(), running.configuration());
    let shared = Shared::new(running.addr(), &files, options);
    let cpu_before = running.cpu()?;
    let began = Instant::now();
    let tally = thread::scope(|scope| {
        // Dropping this sender ends the thread that changes versions.
        let (_running, ended) = mpsc::channel::<()>();
        let (shared, origin) = (&shared, &origin);
        if let Some(every) = options.change_every {
            scope.spawn(move || change(origin, shared, every, &ended));
        }
        let (done, tallies) = mpsc::channel();
        for number in 0..options.clients {
            let done = done.clone();
            scope.spawn(move || {
                // Sending fails only if the storm has been abandoned.
                let _ = done.send(StormClient::new(shared, client_address(number)).run());
            });
        }
        drop(done);
        gather(&tallies, shared, progress)
    })?;
    let took = began.elapsed();
    origin.wait_for(Record::quiet, IDLE_TIMEOUT);
    let cpu = running.cpu()?.zip(cpu_before);
    let (requests, sent) = origin.read_record(|record| (record.requests_total, record.sent_total));
    let touched = tally.touched_bytes(&files, options.slice);
    let mut row = Row::of(cache.name(), &tally, took, (requests, sent), touched);
    row.ended_early = row.requests < options.requests;
    row.cpu_us = cpu.map(|(after, before)| {
        after.saturating_sub(before).as_secs_f64() * 1e6 / row.requests.max(1) as f64
    });
    Ok(row)
}

/// Sums up the counts of all clients and reports progress.
fn gather(
    tallies: &mpsc::Receiver<Tally>,
    shared: &Shared<'_>,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Tally> {
    let all = shared.options.requests;
    let mut sum = Tally::default();
    for _ in 0..shared.options.clients {
        loop {
            match tallies.recv_timeout(PROGRESS_EVERY) {
                Ok(tally) => break sum.add(tally),
                Err(RecvTimeoutError::Timeout) => {
                    let begun = shared.next.load(Ordering::Relaxed).min(all);
                    progress(&format!("{begun} of {all} requests"));
                }
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("a client panicked"),
            }
        }
    }
    Ok(sum)
}

/// Returns the address of a client. All addresses are different loopback addresses, so that the server sees different
/// clients.
fn client_address(number: usize) -> IpAddr {
    let number = number as u32 + 1;
    Ipv4Addr::from(0x7f01_0000 + number).into()
}

fn origin(files: &[u64], options: &Options) -> anyhow::Result<Origin> {
    let origin = Origin::start(OriginOptions {
        forget: true,
        ..OriginOptions::default()
    })?;
    for (number, length) in files.iter().enumerate() {
        let mut file = Resource::noise(number as u64, *length)
            .vary("Accept-Encoding")
            .cache_control(&format!("max-age={}", options.max_age));
        if let Some(rate) = options.rate {
            file = file.rate(rate);
        }
        origin.serve(&path(number), file);
    }
    Ok(origin)
}

fn path(file: usize) -> String {
    format!("/storm/{file}.bin")
}

/// Gives one file after the other its next version until the sender of `ended` is dropped.
fn change(origin: &Origin, shared: &Shared<'_>, every: Duration, ended: &mpsc::Receiver<()>) {
    let mut turn = 0;
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let file = turn % shared.files.len();
        // The version is recorded first, so that no client receives an unknown version.
        let version = shared.replace_version(file);
        origin.set_version(&path(file), version);
        turn += 1;
    }
}

/// State shared by all clients.
struct Shared<'a> {
    server: SocketAddr,
    files: &'a [u64],
    options: &'a Options,
    until: Instant,
    next: AtomicU64,
    /// For each file, the times at which its versions were replaced.
    replaced: Mutex<Vec<Vec<Instant>>>,
}

/// Tolerance for the age of responses, since caching headers count in whole seconds.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

impl<'a> Shared<'a> {
    fn new(server: SocketAddr, files: &'a [u64], options: &'a Options) -> Shared<'a> {
        Shared {
            server,
            files,
            options,
            until: Instant::now() + TIME_LIMIT,
            next: AtomicU64::new(0),
            replaced: Mutex::new(vec![Vec::new(); files.len()]),
        }
    }

    /// Returns the number of the next request; `None` after the last one.
    fn next(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.options.requests && Instant::now() < self.until).then_some(number)
    }

    fn client(&self, source: IpAddr) -> ClientOptions {
        ClientOptions {
            source: Some(source),
            ..ClientOptions::default()
        }
    }

    /// Records that the file's version is replaced now; returns the number of the new version.
    fn replace_version(&self, file: usize) -> u32 {
        let mut replaced = self.replaced.lock();
        replaced[file].push(Instant::now());
        replaced[file].len() as u32
    }

    /// Whether the file has ever had this version.
    fn exists(&self, file: usize, version: u32) -> bool {
        version as usize <= self.replaced.lock()[file].len()
    }

    /// Whether a request sent at `sent_at` should no longer receive this version.
    fn stale(&self, file: usize, version: u32, sent_at: Instant) -> bool {
        let allowed = Duration::from_secs(self.options.max_age) + CLOCK_TOLERANCE;
        let replaced = self.replaced.lock();
        let gone = replaced[file].get(version as usize);
        gone.is_some_and(|gone| sent_at.saturating_duration_since(*gone) > allowed)
    }
}
