//! The byte-range experiment: how long ten bytes in the middle of a big file take that lies behind a slow link, in every
//! way a cache can fill, and what that costs the origin.
//!
//! The bed: a file of 10 MiB that holds its own offset every ten bytes, from an origin that sends 1 MiB/s on each
//! connection, with a strong entity tag and `Vary: Accept-Encoding`. Each cache is started afresh for each round, each
//! part of a round has a file of its own, and every byte that comes is compared with the one that belongs there.

mod account;
mod bed;
mod report;

use std::path::PathBuf;

use crate::caches::{self, Cache, Rival, Room, SluiceCache};
use crate::rivals::NginxMode;

pub use account::Account;
pub use report::{Report, Row, Times};

use bed::{Bed, Round};

/// Length in bytes of the file.
pub const LENGTH: u64 = 10 << 20;

/// Bytes a second below which a round would take minutes.
pub const RATE_MIN: u64 = 64 << 10;

/// What each cache may keep. A round needs two files.
const ROOM: Room = Room {
    memory: 128 << 20,
    workers: 1,
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Sluice's ways to fill that are measured, as its configuration calls them.
    pub fills: Vec<String>,
    /// Rivals that must be there; without any, those that are installed.
    pub against: Vec<Rival>,
    /// No rivals at all.
    pub alone: bool,
    /// Rounds whose medians count.
    pub rounds: usize,
    /// Bytes a second that the origin sends on a connection, at least [`RATE_MIN`].
    pub rate: u64,
    /// Bytes of a slice, for all who fetch by slice.
    pub slice: u64,
}

impl Options {
    /// All of Sluice's ways and all rivals that are installed, at 1 MiB/s with slices of 1 MiB, three rounds.
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

    fn ways(&self, rival: Rival) -> Vec<Cache> {
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

/// Measures, with lines of progress for `tell`. A cache that does not start or answers wrongly has an error in its row.
///
/// Errors: options out of bounds, a rival that was asked for and is not installed, no port for the origin.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    anyhow::ensure!((1..=100).contains(&options.rounds), "1 to 100 rounds");
    anyhow::ensure!(options.rate >= RATE_MIN, "a rate of at least 64 KiB/s");
    let usual: &[Rival] = if options.alone { &[] } else { &Rival::ALL };
    let rivals = caches::rivals(&options.against, usual)?;
    let mut contenders = vec![Cache::Direct];
    contenders.extend(options.fills.iter().map(|fill| options.sluice(fill)));
    contenders.extend(rivals.there.iter().flat_map(|rival| options.ways(*rival)));
    let mut rows = Vec::new();
    for cache in &contenders {
        let row = match measure(cache, options, tell) {
            Ok(rounds) => Row::of(cache.name(), &rounds),
            Err(error) => {
                tell(&format!("{}: {error:#}", cache.name()));
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

fn measure(cache: &Cache, options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Vec<Round>> {
    let bed = Bed::new(options)?;
    (1..=options.rounds)
        .map(|number| {
            tell(&format!(
                "{}: round {number} of {}",
                cache.name(),
                options.rounds
            ));
            let running = cache.start(bed.origin(), ROOM)?;
            bed.round(running.addr(), number)
        })
        .collect()
}
