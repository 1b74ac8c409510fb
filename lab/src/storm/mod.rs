//! The storm: many clients ask for random ranges of files of all sizes, whose versions may change meanwhile, and look at
//! every byte that comes.
//!
//! The files hold [noise](crate::noise): which bytes are right follows from the file, from the version that the
//! response's entity tag names, and from the place. A response that mixes two versions anywhere is found out.

mod asking;
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
use crate::caches::{self, Cache, Rival, Room, SluiceCache};
use crate::client::ClientOptions;
use crate::origin::{Origin, OriginOptions, Record, Resource};
use crate::rivals::NginxMode;

pub use mix::FILES;
pub use report::{Report, Row};

use asking::Asking;
use mix::sizes;
use tally::Tally;

/// A storm that takes longer is ended.
const LONGEST: Duration = Duration::from_secs(600);

/// How often it is told how far the clients are.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// How long the origin may still be busy when all clients have ended.
const LULL: Duration = Duration::from_secs(30);

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Sluice's way to fill, as its configuration calls it.
    pub fill: String,
    /// Rivals that go through the same.
    pub against: Vec<Rival>,
    /// Clients at once, each with an address of its own.
    pub clients: usize,
    /// Requests in all.
    pub requests: u64,
    /// What the requests are drawn from.
    pub seed: u64,
    /// At this interval one file, each in its turn, gets another version.
    pub change_every: Option<Duration>,
    /// Seconds that the origin lets its responses be fresh.
    pub max_age: u64,
    /// Bytes a second that the origin sends on a connection.
    pub rate: Option<u64>,
    /// Whether one request in a hundred is for the whole of its file, whatever its size.
    pub whole_of_any_size: bool,
    /// Bytes of a slice.
    pub slice: u64,
    /// Bytes that a cache may keep.
    pub memory: u64,
}

impl Options {
    /// 200 clients, 20,000 requests, no changes, room for everything.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            fill: "auto".to_owned(),
            against: Vec::new(),
            clients: 200,
            requests: 20_000,
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

    fn ways(&self, rival: Rival) -> Vec<Cache> {
        match rival {
            Rival::Nginx => vec![
                Cache::Nginx(NginxMode::Sliced(self.slice)),
                Cache::Nginx(NginxMode::SlicedLocked(self.slice)),
            ],
            Rival::Varnish => vec![Cache::Varnish],
        }
    }
}

/// Runs the storm through Sluice and each rival, with lines of progress for `tell`.
///
/// Errors: options out of bounds, a rival that is not installed, a server that does not start.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    anyhow::ensure!((1..=5000).contains(&options.clients), "1 to 5000 clients");
    anyhow::ensure!(options.requests > 0, "at least one request");
    anyhow::ensure!(
        options.change_every.is_none_or(|every| !every.is_zero()),
        "versions can't change all the time"
    );
    raise_descriptor_limit()?;
    let rivals = caches::rivals(&options.against, &[])?;
    let mut contenders = vec![options.sluice()];
    contenders.extend(rivals.there.iter().flat_map(|rival| options.ways(*rival)));
    let mut rows = Vec::new();
    for cache in contenders {
        tell(&format!(
            "{}: {} requests of {} clients, seed {}",
            cache.name(),
            options.requests,
            options.clients,
            options.seed
        ));
        rows.push(storm(&cache, options, tell)?);
    }
    Ok(Report::new(options, rivals.versions, rows))
}

fn storm(cache: &Cache, options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Row> {
    let files = sizes();
    let origin = origin(&files, options)?;
    let room = Room {
        memory: options.memory,
        workers: thread::available_parallelism()?.get(),
    };
    let running = cache.start(origin.addr(), room)?;
    let weather = Weather::new(running.addr(), &files, options);
    let began = Instant::now();
    let tally = thread::scope(|scope| {
        // When this end goes, the changes end.
        let (_calm, ended) = mpsc::channel::<()>();
        let (weather, origin) = (&weather, &origin);
        if let Some(every) = options.change_every {
            scope.spawn(move || change(origin, weather, every, &ended));
        }
        let (done, tallies) = mpsc::channel();
        for number in 0..options.clients {
            let done = done.clone();
            scope.spawn(move || {
                // Nobody takes it any more when the storm was given up.
                let _ = done.send(Asking::new(weather, client(number)).run());
            });
        }
        drop(done);
        gather(&tallies, weather, tell)
    })?;
    let took = began.elapsed();
    origin.wait_for(Record::quiet, LULL);
    let (requests, sent) = origin.read_record(|record| (record.requests_total, record.sent_total));
    let touched = tally.touched_bytes(&files, options.slice);
    let mut row = Row::of(cache.name(), &tally, took, (requests, sent), touched);
    row.ended_early = row.requests < options.requests;
    Ok(row)
}

/// Sums up what the clients counted, and tells how far they are.
fn gather(
    tallies: &mpsc::Receiver<Tally>,
    weather: &Weather<'_>,
    tell: &dyn Fn(&str),
) -> anyhow::Result<Tally> {
    let all = weather.options.requests;
    let mut sum = Tally::default();
    for _ in 0..weather.options.clients {
        loop {
            match tallies.recv_timeout(TOLD_EVERY) {
                Ok(tally) => break sum.add(tally),
                Err(RecvTimeoutError::Timeout) => {
                    let begun = weather.next.load(Ordering::Relaxed).min(all);
                    tell(&format!("{begun} of {all} requests"));
                }
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("a client panicked"),
            }
        }
    }
    Ok(sum)
}

/// Client addresses are all of the loopback network, so that nobody takes them for one client.
fn client(number: usize) -> IpAddr {
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

/// Gives one file after the other its next version until `ended` is let go.
fn change(origin: &Origin, weather: &Weather<'_>, every: Duration, ended: &mpsc::Receiver<()>) {
    let mut turn = 0;
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let file = turn % weather.files.len();
        // Written down first: a client must never meet a version that is not on the list.
        let version = weather.changed(file);
        origin.set_version(&path(file), version);
        turn += 1;
    }
}

/// What all clients share.
struct Weather<'a> {
    server: SocketAddr,
    files: &'a [u64],
    options: &'a Options,
    until: Instant,
    next: AtomicU64,
    /// For each file, when each of its versions was replaced.
    replaced: Mutex<Vec<Vec<Instant>>>,
}

/// What the origin says about time counts in whole seconds, so that much more may pass.
const CLOCKS: Duration = Duration::from_secs(1);

impl<'a> Weather<'a> {
    fn new(server: SocketAddr, files: &'a [u64], options: &'a Options) -> Weather<'a> {
        Weather {
            server,
            files,
            options,
            until: Instant::now() + LONGEST,
            next: AtomicU64::new(0),
            replaced: Mutex::new(vec![Vec::new(); files.len()]),
        }
    }

    /// The number of the next request.
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

    /// Notes that a file's version is replaced now; says by which.
    fn changed(&self, file: usize) -> u32 {
        let mut replaced = self.replaced.lock();
        replaced[file].push(Instant::now());
        replaced[file].len() as u32
    }

    /// Whether the file ever had this version.
    fn exists(&self, file: usize, version: u32) -> bool {
        version as usize <= self.replaced.lock()[file].len()
    }

    /// Whether a response to a request that was sent at `asked` must not have had this version any more.
    fn stale(&self, file: usize, version: u32, asked: Instant) -> bool {
        let allowed = Duration::from_secs(self.options.max_age) + CLOCKS;
        let replaced = self.replaced.lock();
        let gone = replaced[file].get(version as usize);
        gone.is_some_and(|gone| asked.saturating_duration_since(*gone) > allowed)
    }
}
