//! `sluice lab`: experiments that start this very program in front of an origin of their own, and rivals beside it.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytesize::ByteSize;
use clap::{Args, Subcommand};
use serde::Serialize;
use sluice_lab::caches::Rival;
use sluice_lab::{budget, byte_range, storm};

use super::{count, say};

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
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    rate: u64,
    /// Bytes of a slice
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
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
    #[arg(long, value_name = "N", default_value_t = 200)]
    clients: usize,
    /// Requests in all
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    requests: u64,
    /// Give one file, each in its turn, another version at this interval, as in 20ms
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    change_every: Option<Duration>,
    /// Seconds that responses are fresh [default: 3600; 1 with --change-every]
    #[arg(long, value_name = "SECONDS")]
    max_age: Option<u64>,
    /// Bytes a second that the origin sends on one connection [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    rate: Option<u64>,
    /// Bytes of a slice
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    slice: u64,
    /// Bytes that the cache may keep; all files together have 161 MB
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = size)]
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
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    seconds: f64,
    /// Bytes that may be fetched for one client and not sent to it [default: as configured by default]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    client_budget: Option<u64>,
    /// Connections of the one client
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// How Sluice fills its cache
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = FILLS)]
    fill: String,
    /// What the places are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("more than nothing".to_owned()),
        Ok(size) => Ok(size.0),
        Err(_) => Err("write a size, as in 1MiB".to_owned()),
    }
}

pub fn run(args: &LabArgs) -> anyhow::Result<()> {
    match &args.experiment {
        Experiment::ByteRange(args) => byte_range(args),
        Experiment::Storm(args) => storm(args),
        Experiment::Budget(args) => budget(args),
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
        clients: args.clients,
        requests: args.requests,
        seed: args.seed,
        change_every: args.change_every,
        max_age: args.max_age.unwrap_or(usual),
        rate: args.rate,
        slice: args.slice,
        memory: args.memory,
        ..storm::Options::new(args.common.program()?)
    };
    let report = storm::run(&options, &tell)?;
    args.common.print(&report, &report.render())?;
    let wrong = report.wrong();
    ensure!(wrong == 0, "{} with wrong bytes", count(wrong, "response"));
    Ok(())
}

fn budget(args: &BudgetArgs) -> anyhow::Result<()> {
    let options = budget::Options {
        fill: args.fill.clone(),
        client_budget: args.client_budget,
        seconds: args.seconds,
        connections: args.connections,
        seed: args.seed,
        ..budget::Options::new(args.common.program()?)
    };
    let report = budget::run(&options, &tell)?;
    args.common.print(&report, &report.render())
}
