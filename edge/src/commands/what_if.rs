//! `sluice lab what-if`: compares the hit ratios that miniature caches of sampled objects predict with those of full simulations.

mod access_log;

use std::collections::HashMap;
use std::io::{self, BufRead};

use clap::Args;
use serde::Serialize;
use sluice_lab::bench::plain;

use super::generated_requests::{Mix, Zipf, trace};
use super::output::say;
use crate::evict::Kind;
use crate::store::content_weight;
use crate::sys::Clock;
use crate::what_if::{Outcome, Reference, Simulation, Size, TIMES, UNITS_MAX, mix};

#[derive(Debug, Args)]
pub struct WhatIfArgs {
    /// Number of objects that are requested repeatedly
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    objects: u32,
    /// Number of requests for each kind of load
    #[arg(long, value_name = "N", default_value_t = 5_000_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    requests: u32,
    /// Size of the cache in percent of all objects
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    size: u32,
    /// Number of objects in the largest miniature cache
    #[arg(long, value_name = "N", default_value_t = UNITS_MAX as u32, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    sampled: u32,
    /// The cache's eviction policy
    #[arg(long, value_name = "POLICY", default_value = "s3-fifo", value_parser = ["s3-fifo", "lru"])]
    evict: String,
    /// Replay the access log on standard input (Common or Combined Log Format) in place of the generated one
    #[arg(long)]
    log: bool,
    /// Seed of the random requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Exponents of Zipf's distribution.
const EXPONENTS: [f64; 5] = [0.7, 0.8, 0.9, 1.0, 1.1];
/// Exponent of the distribution into which scans are mixed.
const SCANNED: f64 = 0.9;
/// The sizes in the table, as multiples of the cache's size.
const SHOWN: [f64; 3] = [0.5, 2.0, 4.0];
/// The first 1/`WARM_UP` of the requests fills the empty caches and is not counted.
const WARM_UP: usize = 5;
/// Memory that an object takes besides its content, in bytes.
const OVERHEAD: u64 = 1500;
/// Largest difference from the true hit ratio that is accepted, in percentage points.
const GOAL: f64 = 1.0;
/// Mean and deviation of the logarithm of the objects' sizes: the median is 16 KiB.
const SIZES: (f64, f64) = (9.7, 1.0);

/// Requests for numbered objects, and the objects' sizes in bytes.
struct Load {
    name: String,
    requests: Vec<u32>,
    sizes: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Report {
    objects: u32,
    requests: u32,
    seed: u64,
    evict: String,
    rows: Vec<Row>,
}

/// The comparison for one load and size. Ratios are shares of the counted requests or bytes.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    load: String,
    times: f64,
    /// Hit ratio of the full simulation.
    truth: f64,
    predicted: f64,
    byte_truth: f64,
    byte_predicted: f64,
    /// Sampled share of the objects.
    sampled: f64,
    /// Time that the miniature caches took for each sampled request, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ns: Option<u64>,
}

/// Runs the experiment. The command does not fail when the goal is missed.
pub fn run(args: &WhatIfArgs) -> anyhow::Result<()> {
    let report = measure(args, Some(&Clock::system()))?;
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&report)?)),
        false => say(&report.render()),
    }
}

fn measure(args: &WhatIfArgs, clock: Option<&Clock>) -> anyhow::Result<Report> {
    let mut rows = Vec::new();
    for exponent in EXPONENTS {
        let zipf = Zipf::new(args.objects, exponent);
        rows.extend(compare(
            &generated(&zipf, exponent, Mix::Zipf, args),
            args,
            clock,
        ));
    }
    let zipf = Zipf::new(args.objects, SCANNED);
    rows.extend(compare(
        &generated(&zipf, SCANNED, Mix::Scans, args),
        args,
        clock,
    ));
    let log = match args.log {
        true => given_log(args)?,
        false => generated_log(args),
    };
    rows.extend(compare(&log, args, clock));
    Ok(Report {
        objects: args.objects,
        requests: args.requests,
        seed: args.seed,
        evict: args.evict.clone(),
        rows,
    })
}

fn generated(zipf: &Zipf, exponent: f64, kind: Mix, args: &WhatIfArgs) -> Load {
    let requests = trace(zipf, kind, args.requests, args.seed);
    let objects = requests.iter().max().map_or(0, |largest| largest + 1);
    let size = |object| access_log::size(u64::from(object), SIZES.0, SIZES.1);
    Load {
        name: format!("Zipf {exponent:.1} {}", kind.name())
            .trim_end()
            .to_owned(),
        requests,
        sizes: (0..objects).map(size).collect(),
    }
}

fn generated_log(args: &WhatIfArgs) -> Load {
    let mut site = access_log::Site::new(args.seed);
    let (mut numbers, mut line) = (Numbers::default(), String::new());
    for _ in 0..args.requests {
        site.next(&mut line);
        numbers.add(&line);
    }
    numbers.into_load("access log")
}

/// Reads at most as many lines as there are to be requests.
fn given_log(args: &WhatIfArgs) -> io::Result<Load> {
    let mut numbers = Numbers::default();
    for line in io::stdin().lock().split(b'\n').take(args.requests as usize) {
        numbers.add(&String::from_utf8_lossy(&line?));
    }
    Ok(numbers.into_load("given log"))
}

/// Numbers the targets of an access log in the order in which they appear.
#[derive(Default)]
struct Numbers {
    by_target: HashMap<String, u32>,
    requests: Vec<u32>,
    sizes: Vec<u64>,
}

impl Numbers {
    fn add(&mut self, line: &str) {
        let Some(logged) = access_log::parse(line) else {
            return;
        };
        let number = match self.by_target.get(logged.target) {
            Some(number) => *number,
            None => {
                let number = self.sizes.len() as u32;
                self.by_target.insert(logged.target.to_owned(), number);
                self.sizes.push(0);
                number
            }
        };
        self.requests.push(number);
        // Responses to HEAD and conditional requests have no body, so that a later line may state the size.
        let size = &mut self.sizes[number as usize];
        *size = logged.bytes.max(*size);
    }

    fn into_load(self, name: &str) -> Load {
        Load {
            name: name.to_owned(),
            requests: self.requests,
            sizes: self.sizes,
        }
    }
}

/// Simulates a load with all objects and with the sampled ones.
fn compare(load: &Load, args: &WhatIfArgs, clock: Option<&Clock>) -> Vec<Row> {
    let kind = match args.evict.as_str() {
        "lru" => Kind::Lru,
        _ => Kind::S3Fifo,
    };
    let all: u64 = load.sizes.iter().map(|bytes| weight(*bytes)).sum();
    let size = Size {
        bytes: all / 100 * u64::from(args.size),
        unit_max: u64::MAX,
        unit_max_grows: false,
    };
    let mut full = Simulation::new(kind, size, usize::MAX);
    let truth = simulate(load, args.seed, &mut full);
    let mut sampling = Simulation::new(kind, size, args.sampled as usize);
    let begun_us = clock.map(Clock::monotonic_us);
    let predicted = simulate(load, args.seed, &mut sampling);
    let spent_us = clock.map(Clock::monotonic_us).zip(begun_us);
    let ns = spent_us.map(|(end, begin)| (end - begin) * 1000 / predicted.sampled.max(1));
    let all = TIMES
        .into_iter()
        .zip(truth.ratios.into_iter().zip(predicted.ratios));
    all.filter(|(times, _)| SHOWN.contains(times))
        .map(|(times, (truth, predicted))| Row {
            load: load.name.clone(),
            times,
            truth: truth.0,
            predicted: predicted.0,
            byte_truth: truth.1,
            byte_predicted: predicted.1,
            sampled: sampling.threshold().share(),
            ns,
        })
        .collect()
}

/// The results of a simulation.
struct Simulated {
    /// For each size the share of hits among the requests, and among the bytes.
    ratios: Vec<(f64, f64)>,
    /// Number of sampled requests.
    sampled: u64,
}

fn simulate(load: &Load, seed: u64, simulation: &mut Simulation) -> Simulated {
    let warm_up = load.requests.len() / WARM_UP;
    let (mut requests, mut bytes, mut sampled) = (0.0, 0.0, 0);
    for (at, object) in load.requests.iter().enumerate() {
        if at == warm_up {
            sampled += simulation.settle(1.0);
            simulation.restart();
        }
        let reference = reference(*object, load.sizes[*object as usize], seed);
        simulation.note(&reference);
        if at >= warm_up {
            requests += 1.0;
            bytes += reference.bytes as f64;
        }
    }
    sampled += simulation.settle(1.0);
    let ratios = simulation.missed().map(|missed| {
        let hits = |missed: f64, all: f64| (1.0 - missed / f64::max(all, 1.0)).clamp(0.0, 1.0);
        (hits(missed.requests, requests), hits(missed.bytes, bytes))
    });
    Simulated {
        ratios: ratios.collect(),
        sampled,
    }
}

fn weight(bytes: u64) -> u64 {
    content_weight(bytes) + OVERHEAD
}

fn reference(object: u32, bytes: u64, seed: u64) -> Reference {
    Reference {
        hash: mix(u64::from(object) ^ mix(seed)),
        cache: 0,
        now_ms: 0,
        fresh_until_ms: u64::MAX,
        weight: weight(bytes),
        bytes,
        outcome: Outcome::Missed,
        first: true,
    }
}

const TITLES: [(&str, &str); 9] = [
    ("load", ""),
    ("size", "times"),
    ("sampled", "%"),
    ("hits", "%"),
    ("predicted", "%"),
    ("error", "points"),
    ("byte hits", "%"),
    ("predicted", "%"),
    ("error", "points"),
];

impl Report {
    fn render(&self) -> String {
        let mut text = format!(
            "{} requests of each load, for {} objects, the first {} not counted, {}, seed {}\n\n",
            self.requests,
            self.objects,
            self.requests as usize / WARM_UP,
            self.evict,
            self.seed
        );
        let rows: Vec<Vec<String>> = self.rows.iter().map(Row::cells).collect();
        text.push_str(&plain(&TITLES, &rows));
        let worst = self.rows.iter().map(|row| row.error().abs());
        let worst = worst.fold(0.0, f64::max);
        let verdict = if worst <= GOAL { "reached" } else { "missed" };
        text.push_str(&format!(
            "\nLargest error of the hit ratio: {worst:.2} points. The goal of {GOAL:.0} point is {verdict}.\n"
        ));
        if self.rows.iter().all(|row| row.sampled >= 1.0) {
            text.push_str(
                "All objects were sampled, so this shows nothing about samples: choose more objects, or a smaller --sampled.\n",
            );
        }
        if let Some(ns) = self.rows.iter().filter_map(|row| row.ns).max() {
            text.push_str(&format!(
                "Longest time for each sampled request, including the filter: {ns} ns.\n"
            ));
        }
        text
    }
}

impl Row {
    /// Returns the error of the predicted hit ratio, in percentage points.
    fn error(&self) -> f64 {
        100.0 * (self.predicted - self.truth)
    }

    fn byte_error(&self) -> f64 {
        100.0 * (self.byte_predicted - self.byte_truth)
    }

    fn cells(&self) -> Vec<String> {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        vec![
            self.load.clone(),
            self.times.to_string(),
            percent(self.sampled),
            percent(self.truth),
            percent(self.predicted),
            format!("{:+.2}", self.error()),
            percent(self.byte_truth),
            percent(self.byte_predicted),
            format!("{:+.2}", self.byte_error()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(evict: &str) -> WhatIfArgs {
        WhatIfArgs {
            objects: 20_000,
            requests: 100_000,
            size: 20,
            sampled: 10_000,
            evict: evict.to_owned(),
            log: false,
            seed: 1,
            json: false,
        }
    }

    // A smaller version of the experiment. The smallest miniature cache in the table has about 250 objects, so errors are larger.
    #[test]
    fn predictions_are_near_the_full_simulation() {
        let report = measure(&args("s3-fifo"), None).expect("no log is read");
        assert_eq!(report.rows.len(), 21);
        for row in &report.rows {
            assert!(row.error().abs() <= 1.0, "{row:?}");
            assert!(row.byte_error().abs() <= 5.0, "{row:?}");
            assert!(row.sampled < 1.0, "{row:?}");
        }
        for sizes in report.rows.chunks(3) {
            assert!(sizes.is_sorted_by_key(|row| row.truth), "{sizes:?}");
        }
        let text = report.render();
        assert!(text.contains("Zipf 0.9 + scans"), "{text}");
    }

    #[test]
    fn results_depend_on_the_seed_alone() {
        let small = || WhatIfArgs {
            objects: 1000,
            requests: 5000,
            sampled: 100,
            ..args("lru")
        };
        let one = measure(&small(), None).expect("no log is read");
        let two = measure(&small(), None).expect("no log is read");
        assert_eq!(one.rows, two.rows);
        let note = "All objects were sampled";
        assert!(!one.render().contains(note));
        let all = WhatIfArgs {
            sampled: 10_000,
            ..small()
        };
        let all = measure(&all, None).expect("no log is read");
        assert!(all.render().contains(note));
    }

    #[test]
    fn targets_of_a_log_are_numbered_and_have_their_largest_size() {
        let mut numbers = Numbers::default();
        for (target, bytes) in [("/a", 10), ("/b", 0), ("/a", 30), ("/b", 7), ("/a", 20)] {
            numbers.add(&format!("- - - [-] \"GET {target} HTTP/1.1\" 200 {bytes}"));
        }
        numbers.add("- - - [-] \"POST /c HTTP/1.1\" 200 5");
        let load = numbers.into_load("x");
        assert_eq!(
            (load.requests, load.sizes),
            (vec![0, 1, 0, 1, 0], vec![30, 7])
        );
    }
}
