//! `sluice lab`: runs experiments with this build of Sluice, a test origin and, for comparison, other servers.

mod all;
mod common;
#[cfg(feature = "lab")]
mod keepalive;
mod output;
mod static_files;
mod storm;
mod values;
#[cfg(feature = "lab")]
mod wan_link;

use std::path::PathBuf;
use std::{process, thread};

use anyhow::ensure;
use clap::{Args, Subcommand};
use sluice_lab::caches::Rival;
#[cfg(feature = "lab")]
use sluice_lab::placement;
use sluice_lab::slow_clients::{self, Kind};
use sluice_lab::{budget, byte_range, caching, purge, ramp, rivals, scratch};

use super::hit_ratio::{self, HitRatioArgs};
use super::signals::{CLEANING_GRACE, INTERRUPTED, at_first_signal};
use super::what_if::{self, WhatIfArgs};
use common::Common;
use output::{print, progress};
use values::{FILLS, client_budget, memory, rate, seconds, slice};

#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Run all experiments and write a report: one HTML file with figures, charts and raw data
    All(all::AllArgs),
    /// Compare two runs, as before and after an upgrade
    Diff(all::DiffArgs),
    /// Write a page with the figures of a run for publication (docs/figures.md), and its trimmed record
    Figures(all::FiguresArgs),
    /// Time ranges of an uncached 10 MiB file of a slow origin, for every fill mode
    ByteRange(ByteRangeArgs),
    /// Request random ranges with many clients while files change, and verify every byte
    Storm(storm::StormArgs),
    /// Request single bytes of a 100 GB file: the origin must not send more than the client's budget
    Budget(BudgetArgs),
    /// Measure what crowds, failing origins and short lifetimes cost the origin and the clients
    Caching(CachingArgs),
    /// Time a purge by tag among a million objects, and measure the cost of purge rules per hit
    Purge(PurgeArgs),
    /// Store bodies without repetition on slow disks, tmpfs and this machine's disk
    #[cfg(feature = "lab")]
    Placement(PlacementArgs),
    /// Raise the rate of short connections until the server falls behind
    Ramp(RampArgs),
    /// Serve 5 KB files with Sluice and other servers: capacity, latency, memory, and cost of a user
    Static(static_files::StaticArgs),
    /// Measure an ordinary client among thousands of slow ones, and the time until these are cut
    SlowClients(SlowClientsArgs),
    /// Measure a proxy before a far server, with and without reuse of connections
    #[cfg(feature = "lab")]
    Keepalive(keepalive::KeepaliveArgs),
    /// Emulate a WAN link between two network namespaces, and measure it
    #[cfg(feature = "lab")]
    Wan(wan_link::WanArgs),
    /// Show which servers to compare with are installed, and how to install the others
    Rivals(RivalsArgs),
    /// Simulate the hit ratio of each eviction policy
    HitRatio(HitRatioArgs),
    /// Compare the hit ratios that `GET /what-if` would predict with those of full simulations
    WhatIf(WhatIfArgs),
}

#[derive(Debug, Args)]
struct ByteRangeArgs {
    /// Compare with this rival, which must be installed: nginx, varnish, traffic-server, apache or squid; may be given
    /// several times [default: all installed rivals]
    #[arg(long, value_name = "RIVAL")]
    against: Vec<Rival>,
    /// Do not compare with rivals
    #[arg(long, conflicts_with = "against")]
    alone: bool,
    /// Test only this fill mode; may be given several times [default: all]
    #[arg(long, value_name = "MODE", value_parser = FILLS)]
    fill: Vec<String>,
    /// Rounds whose medians are shown; with all rivals a round takes three minutes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Bytes per second that the origin sends on each connection
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = rate)]
    rate: u64,
    /// Size of a slice, 64KiB to 16MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = slice)]
    slice: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct BudgetArgs {
    /// Duration in seconds
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Value of the setting client_budget: bytes fetched for one client and not sent to it; 0: no limit [default:
    /// Sluice's default]
    #[arg(long, value_name = "SIZE", value_parser = client_budget)]
    client_budget: Option<u64>,
    /// Number of connections of the client
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=100))]
    connections: u8,
    /// Sluice's fill mode
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = FILLS)]
    fill: String,
    /// Seed of the random offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct CachingArgs {
    /// Also measure this rival, which must be installed: nginx, or for the part crowd also varnish, traffic-server, apache
    /// or squid
    #[arg(long, value_name = "RIVAL")]
    against: Option<Rival>,
    /// Run only this part: crowd, uncacheable, dead or micro; may be given several times [default: all]
    #[arg(long, value_name = "PART")]
    only: Vec<caching::Part>,
    /// Duration in seconds of the loads of the parts dead and micro
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Number of clients of a crowd
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(4..=5000))]
    clients: u16,
    /// Requests per second of the loads with a fixed rate
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct PurgeArgs {
    /// Number of objects to store
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    objects: u64,
    /// Number of objects with the tag [default: a tenth]
    #[arg(long, value_name = "N")]
    tagged: Option<u64>,
    /// Size of the cache
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = memory)]
    memory: u64,
    /// Purge rules in force while the cost per hit is measured
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    rules: u32,
    /// Runs whose median is the cost per hit; 0: do not measure the cost
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    rounds: u8,
    /// Duration of each of these runs in seconds
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

#[cfg(feature = "lab")]
#[derive(Debug, Args)]
struct PlacementArgs {
    /// Also measure nginx, which must be installed
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// Run only this part: slow, tmpfs or real; may be given several times [default: all]
    #[arg(long, value_name = "PART")]
    only: Vec<placement::Part>,
    /// Bytes per second that each slow disk reads and writes
    #[arg(long, value_name = "SIZE", default_value = "40MB", value_parser = rate)]
    rate: u64,
    /// Size of the cache on each slow disk and on tmpfs
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = memory)]
    size: u64,
    /// Folder on the disk to measure [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Size of the cache in that folder
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = memory)]
    real_size: u64,
    /// Number of runs of each kind (without and with a cache); the table shows their medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Duration in seconds of each run on slow disks and tmpfs
    #[arg(long, value_name = "N", default_value_t = 8.0, value_parser = seconds)]
    seconds: f64,
    /// Duration in seconds of each run on this machine's disk; the kernel buffers writes for many seconds
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = seconds)]
    real_seconds: f64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct RampArgs {
    /// Also measure nginx, which must be installed
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// Run for a few seconds, only to show that the experiment works
    #[arg(long)]
    quick: bool,
    /// Number of ramps, each followed by a run at half of the rate that the server sustained; medians are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "quick")]
    rounds: u8,
    /// Duration of a ramp in seconds
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = seconds, conflicts_with = "quick")]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct SlowClientsArgs {
    /// Also measure nginx, which must be installed
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// Also measure nginx with time limits of 10 s
    #[arg(long)]
    hardened: bool,
    /// Run few clients for a few seconds with time limits of 6 s, only to show that the experiment works
    #[arg(long)]
    quick: bool,
    /// Number of clients of each kind
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=3000))]
    each: u16,
    /// Run only this kind: slowloris, half-line, body, chunked, slow-read or stalled; may be given several times
    /// [default: all]
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
    /// Run one kind after the other, instead of all at once
    #[arg(long)]
    one_by_one: bool,
    /// Time in seconds for which the slow clients stay
    #[arg(long, value_name = "N", default_value_t = 75.0, value_parser = seconds, conflicts_with = "quick")]
    seconds: f64,
    /// Requests per second of the ordinary client
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=5000))]
    rate: u16,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct RivalsArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &LabArgs) -> anyhow::Result<()> {
    scratch::end_with_parent();
    // A run of all experiments has child processes, which clean up after themselves.
    if !matches!(args.experiment, Experiment::All(_)) {
        clean_up_at_signals()?;
    }
    let done = run_experiment(args);
    scratch::wait_if_ending();
    done
}

/// At the first signal, ends the processes of the experiment, removes its folders, and ends this process.
fn clean_up_at_signals() -> anyhow::Result<()> {
    let clean_up = || {
        scratch::end();
        process::exit(INTERRUPTED);
    };
    at_first_signal(CLEANING_GRACE, move || {
        progress("interrupted");
        // On another thread, so that a second signal ends this process at once.
        if thread::Builder::new().spawn(clean_up).is_err() {
            clean_up();
        }
    })
}

fn run_experiment(args: &LabArgs) -> anyhow::Result<()> {
    match &args.experiment {
        Experiment::All(args) => all::run(args),
        Experiment::Diff(args) => all::compare(args),
        Experiment::Figures(args) => all::figures(args),
        Experiment::ByteRange(args) => byte_range(args),
        Experiment::Storm(args) => storm::run(args),
        Experiment::Budget(args) => budget(args),
        Experiment::Caching(args) => caching(args),
        Experiment::Purge(args) => purge(args),
        #[cfg(feature = "lab")]
        Experiment::Placement(args) => placement(args),
        Experiment::Ramp(args) => ramp(args),
        Experiment::Static(args) => static_files::run(args),
        Experiment::SlowClients(args) => slow_clients(args),
        #[cfg(feature = "lab")]
        Experiment::Keepalive(args) => keepalive::run(args),
        #[cfg(feature = "lab")]
        Experiment::Wan(args) => wan_link::run(args),
        Experiment::Rivals(args) => rivals(args),
        Experiment::HitRatio(args) => hit_ratio::run(args),
        Experiment::WhatIf(args) => what_if::run(args),
    }
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
    let report = byte_range::run(&options, &progress)?;
    args.common.print(&report, &report.render())?;
    let failed: Vec<&str> = report.failures().map(|row| row.name.as_str()).collect();
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
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
    let report = budget::run(&options, &progress)?;
    args.common.print(&report, &report.render())?;
    report.check()
}

/// Runs the experiment. The command does not fail when a goal is missed, since times depend on the
/// machine.
fn caching(args: &CachingArgs) -> anyhow::Result<()> {
    let options = caching::Options {
        against: args.against,
        parts: args.only.clone(),
        seconds: args.seconds,
        clients: args.clients.into(),
        rate: args.rate.into(),
        ..caching::Options::new(args.common.program()?)
    };
    let report = caching::run(&options, &progress)?;
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
    let report = purge::run(&options, &progress)?;
    args.common.print(&report, &report.render())
}

/// Runs the experiment. The command does not fail when a goal is missed, but if nothing was measured.
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
    let report = placement::run(&options, &progress)?;
    args.common.print(&report, &report.render())?;
    ensure!(!report.is_empty(), "nothing was measured");
    Ok(())
}

/// Runs the experiment. The command does not fail when a goal is missed.
fn ramp(args: &RampArgs) -> anyhow::Result<()> {
    let options = ramp::Options {
        nginx: args.against.is_some(),
        rounds: args.rounds.into(),
        seconds: args.seconds,
        ..ramp::Options::new(args.common.program()?)
    };
    let options = if args.quick { options.quick() } else { options };
    let report = ramp::run(&options, &progress)?;
    args.common.print(&report, &report.render())
}

/// Runs the experiment. The command does not fail when a goal is missed.
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
    let report = slow_clients::run(&options, &progress)?;
    args.common.print(&report, &report.render())
}

fn rivals(args: &RivalsArgs) -> anyhow::Result<()> {
    let report = rivals::Report::search();
    print(args.json, &report, &report.render())
}
