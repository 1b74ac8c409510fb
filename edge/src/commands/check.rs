//! `sluice check`: reports mistakes in a configuration file, and kernel settings that limit the number of connections.

use std::path::PathBuf;

use clap::Args;

use super::output::{say, warn};
use super::system;
use crate::config;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file [default: sluice.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// List kernel settings to change for many connections. With this option, a configuration file is
    /// checked only if --config names one
    #[arg(long)]
    system: bool,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
    if args.system {
        say(&system::report(&system::ThisMachine))?;
    }
    let file = match (&args.config, args.system) {
        (Some(path), _) => path,
        (None, true) => return Ok(()),
        (None, false) => &PathBuf::from("sluice.toml"),
    };
    let loaded = config::load(file)?;
    warn(&loaded.warnings);
    say(&config::describe(&loaded.plan))
}
