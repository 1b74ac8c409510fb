//! `sluice lab storm`: many clients request random ranges, and verify every byte.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use sluice_lab::caches::Rival;
use sluice_lab::storm;

use super::common::Common;
use super::output::progress;
use super::values::{FILLS, interval, memory, rate, slice};
use crate::config::show_count;

#[derive(Debug, Args)]
pub struct StormArgs {
    /// Repeat the storm with this rival: nginx, varnish, traffic-server, apache or squid; may be given several times
    #[arg(long, value_name = "RIVAL")]
    against: Vec<Rival>,
    /// Sluice's fill mode
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = FILLS)]
    fill: String,
    /// Number of concurrent clients
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=5000))]
    clients: u16,
    /// Number of requests of each round
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Rounds, in each of which all caches run through a storm with the same seed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Change the version of one file at this interval, all files in turn, as in 20ms
    #[arg(long, value_name = "TIME", value_parser = interval)]
    change_every: Option<Duration>,
    /// Lifetime of responses in seconds [default: 3600; 1 with --change-every]
    #[arg(long, value_name = "SECONDS")]
    max_age: Option<u64>,
    /// Bytes per second that the origin sends on each connection [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    rate: Option<u64>,
    /// Let one percent of the requests be for whole files of any size, up to 100 MB
    #[arg(long)]
    whole_of_any_size: bool,
    /// Size of a slice, 64KiB to 16MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = slice)]
    slice: u64,
    /// Size of the cache; all files together have 161 MB
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    memory: u64,
    /// Seed of the random requests in the first round
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

/// Runs the experiment. Wrong bytes and failed requests are an error.
pub fn run(args: &StormArgs) -> anyhow::Result<()> {
    let usual = if args.change_every.is_some() { 1 } else { 3600 };
    let options = storm::Options {
        fill: args.fill.clone(),
        against: args.against.clone(),
        clients: args.clients.into(),
        requests: args.requests,
        rounds: args.rounds.into(),
        seed: args.seed,
        change_every: args.change_every,
        max_age: args.max_age.unwrap_or(usual),
        rate: args.rate,
        whole_of_any_size: args.whole_of_any_size,
        slice: args.slice,
        memory: args.memory,
        ..storm::Options::new(args.common.program()?)
    };
    let report = storm::run(&options, &progress)?;
    args.common.print(&report, &report.render())?;
    let (wrong, failed) = (report.wrong(), report.failed());
    ensure!(
        wrong == 0,
        "{} with wrong bytes",
        show_count(wrong, "response")
    );
    ensure!(failed == 0, "{} failed", show_count(failed, "request"));
    Ok(())
}
