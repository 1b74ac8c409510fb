//! `sluice lab keepalive`: measures what connections to a far server cost a proxy, with and without reuse.

use clap::Args;
use sluice_lab::keepalive::{self, CLIENTS};
use sluice_lab::wan::Profile;

use super::common::Common;
use super::output::progress;
use super::values::seconds;

#[derive(Debug, Args)]
pub struct KeepaliveArgs {
    /// Also measure nginx, which must be installed
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// The link between proxy and server: eu-uswest, dsl, mobile, or values such as delay=80ms,loss=1%
    #[arg(long, value_name = "PROFILE", default_value = "eu-uswest", value_parser = super::wan_link::profile)]
    link: Profile,
    /// Delay connections by a relay within this process, which needs no permissions and is less exact
    #[arg(long)]
    relay: bool,
    /// Run for a few seconds each, only to show the direction of the results
    #[arg(long)]
    quick: bool,
    /// Number of the proxy's clients
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(*CLIENTS.start() as i64..=*CLIENTS.end() as i64))]
    clients: u8,
    /// Duration in seconds of each measurement with an idle server
    #[arg(long, value_name = "N", default_value_t = 15.0, value_parser = seconds, conflicts_with = "quick")]
    seconds: f64,
    /// Duration in seconds of each measurement with a loaded server
    #[arg(long, value_name = "N", default_value_t = 30.0, value_parser = seconds, conflicts_with = "quick")]
    loaded_seconds: f64,
    /// Number of rounds, whose medians are shown
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "quick")]
    rounds: u8,
    #[command(flatten)]
    common: Common,
}

/// Runs the experiment. The command fails if nothing could be measured.
pub fn run(args: &KeepaliveArgs) -> anyhow::Result<()> {
    let options = keepalive::Options {
        nginx: args.against.is_some(),
        relay: args.relay,
        clients: args.clients.into(),
        seconds: args.seconds,
        loaded_seconds: args.loaded_seconds,
        rounds: args.rounds.into(),
        ..keepalive::Options::new(args.common.program()?, args.link.clone())
    };
    let options = if args.quick { options.quick() } else { options };
    let report = keepalive::run(&options, &progress)?;
    args.common.print(&report, &report.render())?;
    let is_empty = report.measurements.is_empty();
    anyhow::ensure!(!is_empty, "nothing was measured: see the notes");
    Ok(())
}
