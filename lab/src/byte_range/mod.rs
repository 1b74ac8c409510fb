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
use crate::rivals::NginxMode;

pub use origin_cost::OriginCost;
pub use report::{Report, Row};
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
        match rival {
            Rival::Nginx => vec![
                Cache::Nginx(NginxMode::Cached),
                Cache::Nginx(NginxMode::Locked),
                Cache::Nginx(NginxMode::Sliced(self.slice)),
                Cache::Nginx(NginxMode::SlicedLocked(self.slice)),
            ],
            Rival::Varnish => vec![Cache::Varnish],
        }
    }
}

/// Runs the experiment and reports progress to `progress`. If a cache does not start or answers wrongly, its row has
/// an error.
///
/// Errors: options out of bounds, a required rival that is not installed, or no port for the origin.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    anyhow::ensure!((1..=100).contains(&options.rounds), "1 to 100 rounds");
    anyhow::ensure!(options.rate >= RATE_MIN, "a rate of at least 64 KiB/s");
    let usual: &[Rival] = if options.alone { &[] } else { &Rival::ALL };
    let rivals = caches::rivals(&options.against, usual)?;
    let mut contenders = vec![Cache::Direct];
    contenders.extend(options.fills.iter().map(|fill| options.sluice(fill)));
    contenders.extend(
        rivals
            .installed
            .iter()
            .flat_map(|rival| options.caches_of(*rival)),
    );
    let mut rows = Vec::new();
    for cache in &contenders {
        let row = match measure(cache, options, progress) {
            Ok(rounds) => Row::of(cache.name(), &rounds),
            Err(error) => {
                progress(&format!("{}: {error:#}", cache.name()));
                Row::failed(cache.name(), &error)
            }
        };
        rows.push(row);
    }
    Ok(Report {
        length: LENGTH,
        rate: options.rate,
        slice: options.slice,
        rounds: options.rounds,
        rivals: rivals.versions,
        rows,
        notes: rivals.notes,
    })
}

fn measure(
    cache: &Cache,
    options: &Options,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Vec<Round>> {
    let bed = TestBed::new(options)?;
    (1..=options.rounds)
        .map(|number| {
            progress(&format!(
                "{}: round {number} of {}",
                cache.name(),
                options.rounds
            ));
            let running = cache.start(bed.origin(), CAPACITY)?;
            bed.round(running.addr(), number)
        })
        .collect()
}
