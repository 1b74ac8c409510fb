//! `sluice lab`: experiments that start this very program in front of an origin of their own, and rivals beside it.

mod values;

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use serde::Serialize;
use sluice_lab::caches::Rival;
#[cfg(feature = "lab")]
use sluice_lab::placement;
use sluice_lab::slow_clients::{self, Kind};
use sluice_lab::{budget, byte_range, caching, purge, ramp, storm};

use super::hit_ratio::{self, HitRatioArgs};
use super::{count, say};
use values::{client_budget, interval, memory, rate, seconds, slice};

#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Time ranges of a cold 10 MiB file behind a slow origin, for every way to fill the cache
    ByteRange(ByteRangeArgs),
    /// Ask for random ranges with many clients and verify every byte, while versions change
    Storm(StormArgs),
    /// Ask for single bytes of a 100 GB file: what the origin sends must stay within the client's budget
    Budget(BudgetArgs),
    /// What a crowd, a dead origin and a page that lives for a second cost the origin and the clients
    Caching(CachingArgs),
    /// How long a purge by tag takes among a million objects, and what rules in force cost a hit
    Purge(PurgeArgs),
    /// Bodies that are never asked for twice, through caches on slow disks, tmpfs and this machine's disk
    #[cfg(feature = "lab")]
    Placement(PlacementArgs),
    /// Small files at a rate that rises until the server does not follow, one connection for each request
    Ramp(RampArgs),
    /// What an ordinary client notices of thousands of slow ones, and when these are cut
    SlowClients(SlowClientsArgs),
    /// How often each way to evict has what is asked for, on made-up requests
    HitRatio(HitRatioArgs),
}

/// What all experiments take.
#[derive(Debug, Args)]
struct Common {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The program to test [default: this one]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Common {
    fn program(&self) -> anyhow::Result<PathBuf> {
        match &self.program {
            Some(program) => Ok(program.clone()),
            None => env::current_exe().context("this program's own file"),
        }
    }

    fn print(&self, report: &impl Serialize, table: &str) -> anyhow::Result<()> {
        match self.json {
            true => say(&format!("{}\n", serde_json::to_string_pretty(report)?)),
            false => say(table),
        }
    }
}

const FILLS: [&str; 4] = ["whole", "lock", "slice", "auto"];

#[derive(Debug, Args)]
struct ByteRangeArgs {
    /// Compare with this rival, and fail if it is not installed [default: those that are installed]
    #[arg(long, value_name = "nginx|varnish")]
    against: Vec<Rival>,
    /// Compare with nobody
    #[arg(long, conflicts_with = "against")]
    alone: bool,
    /// Try only this way to fill; may be given several times [default: all]
    #[arg(long, value_name = "WAY", value_parser = FILLS)]
    fill: Vec<String>,
    /// Rounds whose medians are shown; with all rivals each takes a minute and a half
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Bytes a second that the origin sends on one connection
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = rate)]
    rate: u64,
    /// Bytes of a slice, 64KiB to 16MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = slice)]
    slice: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct StormArgs {
    /// Send the same storm through this rival, too (nginx by slice, without and with its cache lock)
    #[arg(long, value_name = "nginx|varnish")]
    against: Vec<Rival>,
    /// How Sluice fills its cache
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = FILLS)]
    fill: String,
    /// Clients at once
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=5000))]
    clients: u16,
    /// Requests in all
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Give one file, each in its turn, another version at this interval, as in 20ms
    #[arg(long, value_name = "TIME", value_parser = interval)]
    change_every: Option<Duration>,
    /// Seconds that responses are fresh [default: 3600; 1 with --change-every]
    #[arg(long, value_name = "SECONDS")]
    max_age: Option<u64>,
    /// Bytes a second that the origin sends on one connection [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    rate: Option<u64>,
    /// Ask for whole files of any size, too, with one request in a hundred; the longest has 100 MB
    #[arg(long)]
    whole_of_any_size: bool,
    /// Bytes of a slice, 64KiB to 16MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = slice)]
    slice: u64,
    /// Bytes that the cache may keep; all files together have 161 MB
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    memory: u64,
    /// What the requests are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct BudgetArgs {
    /// How long to ask
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Bytes that may be fetched for one client and not sent to it, or 0 for no limit
    /// [default: as configured by default]
    #[arg(long, value_name = "SIZE", value_parser = client_budget)]
    client_budget: Option<u64>,
    /// Connections of the one client
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=100))]
    connections: u8,
    /// How Sluice fills its cache
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = FILLS)]
    fill: String,
    /// What the places are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct CachingArgs {
    /// Measure nginx, too, and fail if it is not installed
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// Only this part: crowd, uncacheable, dead or micro; may be given several times [default: all]
    #[arg(long, value_name = "PART")]
    only: Vec<caching::Part>,
    /// How long the load on a dead origin's objects, and on the page that lives for a second, goes on
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Clients of a crowd
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(4..=5000))]
    clients: u16,
    /// Requests a second of the loads that have a constant rate
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct PurgeArgs {
    /// Objects to store
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    objects: u64,
    /// How many of them carry the tag [default: a tenth]
    #[arg(long, value_name = "N")]
    tagged: Option<u64>,
    /// Bytes that the cache may keep
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = memory)]
    memory: u64,
    /// Rules in force while the cost of a hit is measured
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    rules: u32,
    /// Runs whose median is the cost of a hit; 0: it is not measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    rounds: u8,
    /// Seconds of each of these runs
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

#[cfg(feature = "lab")]
#[derive(Debug, Args)]
struct PlacementArgs {
    /// Measure nginx, too, and fail if it is not installed
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// Only this part: slow, tmpfs or real; may be given several times [default: all]
    #[arg(long, value_name = "PART")]
    only: Vec<placement::Part>,
    /// Bytes a second that each slow disk moves
    #[arg(long, value_name = "SIZE", default_value = "40MB", value_parser = rate)]
    rate: u64,
    /// Bytes that the cache on each slow disk, and on tmpfs, may take
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = memory)]
    size: u64,
    /// A folder on the disk to measure [default: the one for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Bytes that the cache there may take
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = memory)]
    real_size: u64,
    /// Runs without and with a cache, whose medians count
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Seconds of each of these runs, over slow disks and tmpfs
    #[arg(long, value_name = "N", default_value_t = 8.0, value_parser = seconds)]
    seconds: f64,
    /// The same over this machine's disk, for which the kernel may hold back writes for many seconds
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = seconds)]
    real_seconds: f64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct RampArgs {
    /// Measure nginx, too, and fail if it is not installed
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// A few seconds that only show whether it works
    #[arg(long)]
    quick: bool,
    /// Ramps, and runs at half of the rate that was held, whose medians count
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "quick")]
    rounds: u8,
    /// Seconds of a ramp
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = seconds, conflicts_with = "quick")]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct SlowClientsArgs {
    /// Measure nginx, too, and fail if it is not installed
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// Measure nginx with time limits of 10 s for everything, too
    #[arg(long)]
    hardened: bool,
    /// A few clients for a few seconds, and time limits of 1 s: only shows whether it works
    #[arg(long)]
    quick: bool,
    /// Clients of each kind
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=3000))]
    each: u16,
    /// Only this kind: slowloris, half-line, body, chunked, slow-read or stalled; may be given several times
    /// [default: all]
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
    /// One kind after the other, instead of all at once
    #[arg(long)]
    one_by_one: bool,
    /// How long they stay
    #[arg(long, value_name = "N", default_value_t = 75.0, value_parser = seconds, conflicts_with = "quick")]
    seconds: f64,
    /// Requests a second of the ordinary client
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=5000))]
    rate: u16,
    #[command(flatten)]
    common: Common,
}

pub fn run(args: &LabArgs) -> anyhow::Result<()> {
    match &args.experiment {
        Experiment::ByteRange(args) => byte_range(args),
        Experiment::Storm(args) => storm(args),
        Experiment::Budget(args) => budget(args),
        Experiment::Caching(args) => caching(args),
        Experiment::Purge(args) => purge(args),
        #[cfg(feature = "lab")]
        Experiment::Placement(args) => placement(args),
        Experiment::Ramp(args) => ramp(args),
        Experiment::SlowClients(args) => slow_clients(args),
        Experiment::HitRatio(args) => hit_ratio::run(args),
    }
}

/// Progress, apart from what is printed in the end.
fn tell(line: &str) {
    eprintln!("{line}");
}

fn byte_range(args: &ByteRangeArgs) -> anyhow::Result<()> {
    let mut options = byte_range::Options {
        against: args.against.clone(),
        alone: args.alone,
        rounds: args.rounds.into(),
        rate: args.rate,
        slice: args.slice,
        ..byte_range::Options::new(args.common.program()?)
    };
    if !args.fill.is_empty() {
        options.fills.clone_from(&args.fill);
    }
    let report = byte_range::run(&options, &tell)?;
    args.common.print(&report, &report.render())?;
    let failed: Vec<&str> = report.failures().map(|row| row.name.as_str()).collect();
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

fn storm(args: &StormArgs) -> anyhow::Result<()> {
    let usual = if args.change_every.is_some() { 1 } else { 3600 };
    let options = storm::Options {
        fill: args.fill.clone(),
        against: args.against.clone(),
        clients: args.clients.into(),
        requests: args.requests,
        seed: args.seed,
        change_every: args.change_every,
        max_age: args.max_age.unwrap_or(usual),
        rate: args.rate,
        whole_of_any_size: args.whole_of_any_size,
        slice: args.slice,
        memory: args.memory,
        ..storm::Options::new(args.common.program()?)
    };
    let report = storm::run(&options, &tell)?;
    args.common.print(&report, &report.render())?;
    let (wrong, failed) = (report.wrong(), report.failed());
    ensure!(wrong == 0, "{} with wrong bytes", count(wrong, "response"));
    ensure!(failed == 0, "{} failed", count(failed, "request"));
    Ok(())
}

fn budget(args: &BudgetArgs) -> anyhow::Result<()> {
    let options = budget::Options {
        fill: args.fill.clone(),
        client_budget: args.client_budget,
        seconds: args.seconds,
        connections: args.connections.into(),
        seed: args.seed,
        ..budget::Options::new(args.common.program()?)
    };
    let report = budget::run(&options, &tell)?;
    args.common.print(&report, &report.render())
}

/// A missed goal is shown, and is no failure: times differ between machines.
fn caching(args: &CachingArgs) -> anyhow::Result<()> {
    let options = caching::Options {
        nginx: args.against.is_some(),
        parts: args.only.clone(),
        seconds: args.seconds,
        clients: args.clients.into(),
        rate: args.rate.into(),
        ..caching::Options::new(args.common.program()?)
    };
    let report = caching::run(&options, &tell)?;
    args.common.print(&report, &report.render())
}

fn purge(args: &PurgeArgs) -> anyhow::Result<()> {
    let options = purge::Options {
        objects: args.objects,
        tagged: args.tagged.unwrap_or(args.objects.div_ceil(10)),
        memory: args.memory,
        rules: args.rules,
        rounds: args.rounds.into(),
        seconds: args.seconds,
        ..purge::Options::new(args.common.program()?)
    };
    let report = purge::run(&options, &tell)?;
    args.common.print(&report, &report.render())
}

/// A missed goal is shown, and is no failure.
#[cfg(feature = "lab")]
fn placement(args: &PlacementArgs) -> anyhow::Result<()> {
    let options = placement::Options {
        nginx: args.against.is_some(),
        parts: args.only.clone(),
        rate: args.rate,
        size: args.size,
        folder: args.folder.clone(),
        real_size: args.real_size,
        rounds: args.rounds.into(),
        seconds: args.seconds,
        real_seconds: args.real_seconds,
        ..placement::Options::new(args.common.program()?)
    };
    let report = placement::run(&options, &tell)?;
    args.common.print(&report, &report.render())
}

/// A missed goal is shown, and is no failure.
fn ramp(args: &RampArgs) -> anyhow::Result<()> {
    let options = ramp::Options {
        nginx: args.against.is_some(),
        rounds: args.rounds.into(),
        seconds: args.seconds,
        ..ramp::Options::new(args.common.program()?)
    };
    let options = if args.quick { options.quick() } else { options };
    let report = ramp::run(&options, &tell)?;
    args.common.print(&report, &report.render())
}

/// A missed goal is shown, and is no failure.
fn slow_clients(args: &SlowClientsArgs) -> anyhow::Result<()> {
    let options = slow_clients::Options {
        nginx: args.against.is_some(),
        hardened: args.hardened,
        each: args.each.into(),
        kinds: args.kind.clone(),
        one_by_one: args.one_by_one,
        seconds: args.seconds,
        rate: args.rate.into(),
        ..slow_clients::Options::new(args.common.program()?)
    };
    let options = if args.quick { options.quick() } else { options };
    let report = slow_clients::run(&options, &tell)?;
    args.common.print(&report, &report.render())
}
