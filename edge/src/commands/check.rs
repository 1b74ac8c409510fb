//! `sluice check`: reports errors in a configuration, or describes it; and reports kernel settings to change.

use std::path::PathBuf;

use clap::Args;
use sluice::config;

use super::{say, system, warn};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file [default: sluice.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Report kernel settings to change for many connections; check a file only if one is given
    #[arg(long)]
    system: bool,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
    if args.system {
        say(&system::report(&system::Here))?;
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
