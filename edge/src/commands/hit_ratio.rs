//! `sluice lab hit-ratio`: simulates the hit ratio of each eviction policy on generated requests.

use clap::Args;
use serde::Serialize;
use sluice_lab::bench::plain;

use super::generated_requests::{Mix, Zipf, trace};
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
}
