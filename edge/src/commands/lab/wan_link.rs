//! `sluice lab wan`: emulates a WAN link between two network namespaces and measures it.

use clap::Args;
use sluice_lab::wan::{self, Profile};

use super::output::{print, progress};
use super::values::seconds;

#[derive(Debug, Args)]
pub struct WanArgs {
    /// eu-uswest, dsl or mobile; values such as delay=80ms,loss=1%,rate=8Mbit; or a name with values that replace its own
    #[arg(long, value_name = "PROFILE", default_value = "eu-uswest", value_parser = profile)]
    profile: Profile,
    /// Delay of a round trip, half of it in each direction, as in 80ms
    #[arg(long, value_name = "TIME", value_parser = value("delay"))]
    delay: Option<String>,
    /// Largest difference of a round trip from the delay, as in 2ms
    #[arg(long, value_name = "TIME", value_parser = value("jitter"))]
    jitter: Option<String>,
    /// Share of lost packets, as in 1%, or 1%/2% for down and up
    #[arg(long, value_name = "SHARE", value_parser = value("loss"))]
    loss: Option<String>,
    /// Bits per second with IP headers, as in 8Mbit, or 50Mbit/10Mbit for down and up; none: no limit
    #[arg(long, value_name = "RATE", value_parser = value("rate"))]
    rate: Option<String>,
    /// Packets that may wait for transmission, as in 100, or 200/100 for down and up
    #[arg(long, value_name = "N", value_parser = value("queue"))]
    queue: Option<String>,
    /// Measure the fallback, which needs no permissions: a relay that delays TCP connections within this process
    #[arg(long)]
    relay: bool,
    /// Number of round trips to measure
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    round_trips: u32,
    /// Duration in seconds of each measurement of a rate
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Number of packets in each direction that measure the loss; slow links get fewer
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    packets: u64,
    /// Seed of losses and jitter
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn profile(text: &str) -> Result<Profile, String> {
    text.parse().map_err(|error| format!("{error:#}"))
}

/// Returns a parser that checks the value of a profile with this name.
fn value(name: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| match Profile::default().set(name, text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error:#}")),
    }
}

impl WanArgs {
    fn profile(&self) -> anyhow::Result<Profile> {
        let mut profile = self.profile.clone();
        for (name, value) in [
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("loss", &self.loss),
            ("rate", &self.rate),
            ("queue", &self.queue),
        ] {
            if let Some(value) = value {
                profile.set(name, value)?;
            }
        }
        profile.check()?;
        Ok(profile)
    }
}

/// Runs the experiment. The command does not fail when a value is not accurate, since times depend on the machine.
pub fn run(args: &WanArgs) -> anyhow::Result<()> {
    let options = wan::Options {
        relay: args.relay,
        round_trips: args.round_trips,
        seconds: args.seconds,
        packets: args.packets,
        seed: args.seed,
        ..wan::Options::new(args.profile()?)
    };
    let report = wan::run(&options, &progress)?;
    print(args.json, &report, &report.render())
}
