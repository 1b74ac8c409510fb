//! `sluice lab static`: serves small static files with Sluice and other servers, and compares capacity, latency, memory
//! and cost.

use clap::Args;
use sluice_lab::ramp::StaticRival;
use sluice_lab::static_files::{self, CONNECTIONS_MAX, Price};

use super::common::Common;
use super::output::progress;
use super::values::{currency, positive, seconds};

#[derive(Debug, Args)]
pub struct StaticArgs {
    /// Compare with this server, which must be installed; may be given several times [default: all installed ones]
    #[arg(long, value_name = "nginx|apache|h2o")]
    against: Vec<StaticRival>,
    /// Do not compare with other servers
    #[arg(long, conflicts_with = "against")]
    alone: bool,
    /// Run one round of a few seconds for each server, with 1,000 connections at most, only to show that the experiment
    /// works
    #[arg(long)]
    quick: bool,
    /// Rounds whose medians are shown; with all servers a round takes three and a half minutes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "quick")]
    rounds: u8,
    /// Duration in seconds of a rising load and of a load of many connections; each saturation takes a quarter of it
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = seconds, conflicts_with = "quick")]
    seconds: f64,
    /// Connections that stay open at the same time, 1 to 16000; the lab and the server need a descriptor for each, and
    /// often a process may have 20,000 (ulimit -Hn)
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MAX as i64))]
    connections: u32,
    /// Price of the machine for an hour
    #[arg(long, value_name = "PRICE", default_value_t = Price::default().per_hour, value_parser = positive)]
    price_per_hour: f64,
    /// Currency of the price
    #[arg(long, value_name = "TEXT", default_value_t = Price::default().currency, value_parser = currency)]
    currency: String,
    /// Requests per second of one user
    #[arg(long, value_name = "N", default_value_t = Price::default().requests_per_user, value_parser = positive)]
    requests_per_user: f64,
    #[command(flatten)]
    common: Common,
}

/// Runs the experiment. The command does not fail when another server is better.
pub fn run(args: &StaticArgs) -> anyhow::Result<()> {
    let options = static_files::Options {
        against: args.against.clone(),
        alone: args.alone,
        rounds: args.rounds.into(),
        seconds: args.seconds,
        connections: args.connections as usize,
        price: Price {
            per_hour: args.price_per_hour,
            currency: args.currency.clone(),
            requests_per_user: args.requests_per_user,
        },
        ..static_files::Options::new(args.common.program()?)
    };
    let options = if args.quick { options.quick() } else { options };
    let report = static_files::run(&options, &progress)?;
    args.common.print(&report, &report.render())
}
