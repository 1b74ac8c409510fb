//! `sluice check`: what is wrong with a configuration, else what would run.

use std::path::PathBuf;

use clap::Args;
use sluice::config;

use super::{say, warn};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = "sluice.toml")]
    config: PathBuf,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let loaded = config::load(&args.config)?;
    warn(&loaded.warnings);
    say(&config::describe(&loaded.plan))
}
