//! `sluice lab hit-ratio`: simulates the hit ratio of each eviction policy on generated requests.

use clap::Args;
use serde::Serialize;
use sluice_lab::bench::plain;

use super::output::say;
use crate::evict::Kind;
use crate::evict::replay::Places;
use crate::volume::reclaim_budget::Ring;

#[derive(Debug, Args)]
pub struct HitRatioArgs {
    /// Number of objects that are requested repeatedly
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    objects: u32,
    /// Number of requests for each row
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    requests: u32,
    /// Seed of the random requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Exponents of Zipf's distribution: 0.7 is typical of videos, 0.9 of web pages, 1.1 of news.
const EXPONENTS: [f64; 3] = [0.7, 0.9, 1.1];
/// Sizes of the cache as shares of all objects.
const SIZES: [f64; 3] = [0.01, 0.05, 0.2];
/// Number of segments of the volume: the default of a volume.
const SEGMENTS: usize = 64;
/// The first 1/`WARM_UP` of the requests fills the empty cache and is not counted.
const WARM_UP: usize = 5;
/// Number of requests per scanned object after which the next scan begins.
const SCAN_EVERY: u32 = 5;

/// Requests that are mixed into those of Zipf's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Mix {
    /// No other requests.
    Zipf,
    /// 30% of the requests are for objects that are requested only once.
    OneHitWonders,
    /// At intervals, a tenth of all objects is requested in sequence.
    Scans,
}

impl Mix {
    fn name(self) -> &'static str {
        match self {
            Mix::Zipf => "",
            Mix::OneHitWonders => "+ one-hit wonders",
            Mix::Scans => "+ scans",
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    objects: u32,
    requests: u32,
    seed: u64,
    segments: usize,
    rows: Vec<Row>,
}

/// Result of one simulation. Ratios are shares of the counted requests, without the warm-up.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    exponent: f64,
    mix: Mix,
    /// Number of objects that fit into the cache.
    places: u32,
    s3_fifo: f64,
    lru: f64,
    volume: f64,
    /// Records that the volume rewrote when it reclaimed segments, as a share of all its writes.
    written_again: f64,
}

pub fn run(args: &HitRatioArgs) -> anyhow::Result<()> {
    let report = measure(args);
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&report)?)),
        false => say(&report.render()),
    }
}

fn measure(args: &HitRatioArgs) -> Report {
    let mut rows = Vec::new();
    for exponent in EXPONENTS {
        let zipf = Zipf::new(args.objects, exponent);
        for mix in [Mix::Zipf, Mix::OneHitWonders, Mix::Scans] {
            let trace = trace(&zipf, mix, args.requests, args.seed);
            for size in SIZES {
                let places = (f64::from(args.objects) * size) as u32;
                rows.push(row(&trace, exponent, mix, places));
            }
        }
    }
    Report {
        objects: args.objects,
        requests: args.requests,
        seed: args.seed,
        segments: SEGMENTS,
        rows,
    }
}

fn row(trace: &[u32], exponent: f64, mix: Mix, places: u32) -> Row {
    let from = trace.len() / WARM_UP;
    let policy = |kind| {
        let mut cache = Places::new(kind, places);
        hit_ratio(trace, from, |key| cache.ask(key))
    };
    let mut ring = Ring::new(places as usize, SEGMENTS);
    Row {
        exponent,
        mix,
        places,
        s3_fifo: policy(Kind::S3Fifo),
        lru: policy(Kind::Lru),
        volume: hit_ratio(trace, from, |key| ring.ask(key)),
        written_again: ring.share_written_again(),
    }
}

/// Returns the share of hits among the requests from index `from` on. The requests before that warm
/// the cache up.
fn hit_ratio(trace: &[u32], from: usize, mut request: impl FnMut(u32) -> bool) -> f64 {
    let (before, counted) = trace.split_at(from);
    for key in before {
        request(*key);
    }
    let hits = counted.iter().filter(|key| request(**key)).count();
    hits as f64 / counted.len().max(1) as f64
}

/// Generates a trace of requested object numbers. Objects that are requested only once have higher
/// numbers than all others.
fn trace(zipf: &Zipf, mix: Mix, requests: u32, seed: u64) -> Vec<u32> {
    let objects = zipf.sums.len() as u32;
    let mut random = SplitMix(seed);
    // Ranks are assigned to object numbers at random, so that a scan is not in order of popularity.
    let ranks = shuffled(objects, &mut random);
    let mut trace = Vec::with_capacity(requests as usize);
    let mut next_wonder = objects;
    while trace.len() < requests as usize {
        let scanned = objects / 10;
        if mix == Mix::Scans
            && !trace.is_empty()
            && trace.len() % (SCAN_EVERY * scanned) as usize == 0
        {
            let begin = (random.unit() * f64::from(objects - scanned)) as u32;
            trace.extend(begin..begin + scanned);
        }
        if mix == Mix::OneHitWonders && random.unit() < 0.3 {
            trace.push(next_wonder);
            next_wonder += 1;
        } else {
            trace.push(ranks[zipf.rank(random.unit()) as usize]);
        }
    }
    trace.truncate(requests as usize);
    trace
}

fn shuffled(count: u32, random: &mut SplitMix) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    for at in (1..numbers.len()).rev() {
        let other = (random.unit() * (at + 1) as f64) as usize;
        numbers.swap(at, other.min(at));
    }
    numbers
}

/// Zipf's distribution: the object of rank n is requested n^exponent times less often than the first.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(objects: u32, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=objects).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Zipf {
            sums: weights.collect(),
        }
    }

    /// Returns the rank that corresponds to `unit`, a uniform random number from 0 to 1.
    fn rank(&self, unit: f64) -> u32 {
        let at = unit * self.sums.last().copied().unwrap_or_default();
        let rank = self.sums.partition_point(|sum| *sum <= at);
        rank.min(self.sums.len() - 1) as u32
    }
}

/// A pseudorandom generator (SplitMix64).
struct SplitMix(u64);

impl SplitMix {
    /// Returns a number from 0 to just below 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

const TITLES: [(&str, &str); 6] = [
    ("requests", ""),
    ("places", ""),
    ("S3-FIFO", "%"),
    ("LRU", "%"),
    ("volume", "%"),
    ("again", "%"),
];

impl Report {
    fn render(&self) -> String {
        let mut text = format!(
            "{} requests for {} objects of one size, the first {} not counted, seed {}\n\n",
            self.requests,
            self.objects,
            self.requests as usize / WARM_UP,
            self.seed
        );
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                vec![
                    format!("Zipf {} {}", row.exponent, row.mix.name()),
                    row.places.to_string(),
                    percent(row.s3_fifo),
                    percent(row.lru),
                    percent(row.volume),
                    percent(row.written_again),
                ]
            })
            .collect();
        text.push_str(&plain(&TITLES, &rows));
        text.push_str(LEGEND);
        text
    }
}

const LEGEND: &str = "
places: objects that fit into the cache. volume: 64 segments; the oldest one is reclaimed, and its
records that were read are written again, up to a quarter of a segment. again: records written again,
in percent of all writes of the volume.
";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn args() -> HitRatioArgs {
        HitRatioArgs {
            objects: 2000,
            requests: 20_000,
            seed: 7,
            json: false,
        }
    }

    #[test]
    fn a_cache_with_room_for_all_objects_misses_each_once() {
        for mix in [Mix::Zipf, Mix::OneHitWonders, Mix::Scans] {
            let trace = trace(&Zipf::new(2000, 0.9), mix, 20_000, 1);
            assert_eq!(trace.len(), 20_000);
            let distinct: HashSet<u32> = trace.iter().copied().collect();
            let expected = 1.0 - distinct.len() as f64 / trace.len() as f64;
            for kind in [Kind::S3Fifo, Kind::Lru] {
                let mut cache = Places::new(kind, trace.len() as u32);
                let found = hit_ratio(&trace, 0, |key| cache.ask(key));
                assert!((found - expected).abs() < 1e-9);
            }
            let mut ring = Ring::new(2 * trace.len(), SEGMENTS);
            let found = hit_ratio(&trace, 0, |key| ring.ask(key));
            assert!((found - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn hit_ratios_grow_with_the_size_of_the_cache() {
        let report = measure(&args());
        assert_eq!(report.rows.len(), 27);
        for sizes in report.rows.chunks(3) {
            let of: [fn(&Row) -> f64; 3] = [|row| row.s3_fifo, |row| row.lru, |row| row.volume];
            for ratio in of {
                let ratios: Vec<f64> = sizes.iter().map(ratio).collect();
                assert!(ratios.iter().all(|ratio| (0.0..=1.0).contains(ratio)));
                assert!(ratios.is_sorted(), "{sizes:?}");
            }
            assert!(sizes.iter().all(|row| row.written_again <= 0.25));
        }
    }

    #[test]
    fn results_depend_on_the_seed_alone() {
        let (one, two) = (measure(&args()), measure(&args()));
        assert_eq!(one.rows, two.rows);
        let other = measure(&HitRatioArgs { seed: 8, ..args() });
        assert_ne!(one.rows, other.rows);
    }

    #[test]
    fn traces_contain_one_hit_wonders_and_scans() {
        let zipf = Zipf::new(2000, 0.9);
        let wonders = trace(&zipf, Mix::OneHitWonders, 20_000, 1);
        let count = wonders.iter().filter(|key| **key >= 2000).count();
        assert!((5500..6500).contains(&count), "{count}");
        let scans = trace(&zipf, Mix::Scans, 20_000, 1);
        let in_order = scans
            .windows(2)
            .filter(|pair| pair[1] == pair[0] + 1)
            .count();
        assert!((2000..5000).contains(&in_order), "{in_order}");
    }
}
