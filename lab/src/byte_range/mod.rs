//! The byte-range experiment: the time for ten bytes in the middle of an uncached file of a slow origin, for each
//! fill mode and rival, and the cost for the origin.
//!
//! The file has 10 MiB and holds its own offset every ten bytes. The origin sends 1 MiB/s on each connection, with a
//! strong ETag and `Vary: Accept-Encoding`. Each cache is started for each round, each client of a round has its own
//! file, and every received byte is verified.

mod origin_cost;
mod report;
mod round;
mod test_bed;

use std::path::PathBuf;

use crate::caches::{self, Cache, Capacity, Rival, SluiceCache};
use crate::configurations::Configurations;
use crate::rivals::NginxMode;

pub use origin_cost::OriginCost;
pub use report::{Milliseconds, Report, Row, Spreads};
pub use round::Times;

use round::Round;
use test_bed::TestBed;

/// Length in bytes of the file.
pub const LENGTH: u64 = 10 << 20;

/// Lowest rate of the origin in bytes per second. A round at a lower rate would take minutes.
pub const RATE_MIN: u64 = 64 << 10;

/// Resources of each cache. A round needs space for two files.
const CAPACITY: Capacity = Capacity {
    memory: 128 << 20,
    workers: 1,
};

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Sluice's fill modes to measure.
    pub fills: Vec<String>,
    /// Rivals to compare with, which must be installed. If empty, all installed rivals.
    pub against: Vec<Rival>,
    /// Whether to leave out all rivals.
    pub alone: bool,
    /// Number of rounds, whose medians are reported.
    pub rounds: usize,
    /// Bytes per second that the origin sends on each connection, at least [`RATE_MIN`].
    pub rate: u64,
    /// Size of a slice in bytes, for Sluice and nginx.
    pub slice: u64,
}

impl Options {
    /// Returns options for all fill modes and all installed rivals, with 1 MiB/s, slices of 1 MiB and three rounds.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            fills: ["whole", "lock", "slice", "auto"].map(str::to_owned).into(),
            against: Vec::new(),
            alone: false,
            rounds: 3,
            rate: 1 << 20,
            slice: 1 << 20,
        }
    }

    fn sluice(&self, fill: &str) -> Cache {
        let by_slice = matches!(fill, "slice" | "auto");
        Cache::Sluice(SluiceCache {
            slice: by_slice.then_some(self.slice),
            ..SluiceCache::new(&self.program, fill)
        })
    }

    fn caches_of(&self, rival: Rival) -> Vec<Cache> {
        let mut caches = match rival {
            Rival::Nginx => vec![
                Cache::Nginx(NginxMode::Cached),
                Cache::Nginx(NginxMode::Locked),
            ],
            _ => Vec::new(),
        };
        caches.extend(rival.range_caches(self.slice));
        caches
    }
}

/// Runs the experiment and reports progress to `progress`. The contenders take turns: the first round of all, then the
/// second round of all, and so on. If a cache does not start or answers wrongly, its row has an error and it runs no
/// further round.
///
/// Errors: options out of bounds, or a required rival that is not installed.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    anyhow::ensure!((1..=100).contains(&options.rounds), "1 to 100 rounds");
    anyhow::ensure!(options.rate >= RATE_MIN, "a rate of at least 64 KiB/s");
    let usual: &[Rival] = if options.alone { &[] } else { &Rival::ALL };
    let rivals = caches::rivals(&options.against, usual)?;
    let mut contenders = contenders(options, &rivals.installed);
    let mut configurations = Configurations::default();
    for number in 1..=options.rounds {
        for contender in &mut contenders {
            contender.run(number, options, &mut configurations, progress);
        }
    }
    Ok(Report {
        length: LENGTH,
        rate: options.rate,
        slice: options.slice,
        rounds: options.rounds,
        rivals: rivals.versions,
        rows: contenders.iter().map(Contender::row).collect(),
        configurations,
        notes: rivals.notes,
    })
}

/// Returns the origin, Sluice's fill modes and the caches of the rivals, in the order of the table.
fn contenders(options: &Options, rivals: &[Rival]) -> Vec<Contender> {
    let fills = options.fills.iter().map(|fill| options.sluice(fill));
    let rivals = rivals.iter().flat_map(|rival| options.caches_of(*rival));
    let caches = [Cache::Direct].into_iter().chain(fills).chain(rivals);
    caches.map(Contender::new).collect()
}

/// A cache and the results of its rounds.
struct Contender {
    cache: Cache,
    rounds: Vec<Round>,
    /// The round that failed, and why.
    error: Option<String>,
}

impl Contender {
    fn new(cache: Cache) -> Contender {
        Contender {
            cache,
            rounds: Vec::new(),
            error: None,
        }
    }

    /// Runs a round, unless an earlier one failed.
    fn run(
        &mut self,
        number: usize,
        options: &Options,
        configurations: &mut Configurations,
        progress: &dyn Fn(&str),
    ) {
        if self.error.is_some() {
            return;
        }
        let (name, rounds) = (self.cache.name(), options.rounds);
        progress(&format!("{name}: round {number} of {rounds}"));
        match self.measure(options, configurations) {
            Ok(round) => self.rounds.push(round),
            Err(error) => {
                progress(&format!("{name}: {error:#}"));
                self.error = Some(match rounds {
                    1 => format!("{error:#}"),
                    _ => format!("{error:#} (round {number})"),
                });
            }
        }
    }

    fn measure(
        &self,
        options: &Options,
        configurations: &mut Configurations,
    ) -> anyhow::Result<Round> {
        let bed = TestBed::new(options)?;
        let running = self.cache.start(bed.origin(), CAPACITY)?;
        configurations.keep(&self.cache.name(), running.configuration());
        bed.round(&running)
    }

    fn row(&self) -> Row {
        Row::of(
            self.cache.name(),
            &self.rounds,
            self.error.clone(),
            self.cache.note(),
        )
    }
}
