//! The hidden command that runs the program of `dns` in `[tls.acme]` for a running Sluice, outside of its sandbox.

use std::io;
use std::time::Duration;

use clap::Args;

use crate::acme::dns::{ProgramOptions, serve_program};

#[derive(Debug, Args)]
pub struct DnsProgramArgs {
    /// Longest time until the program has ended, in milliseconds
    #[arg(long)]
    timeout_ms: u64,
    /// The program and its first arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub fn run(args: &DnsProgramArgs) -> anyhow::Result<()> {
    let options = ProgramOptions {
        command: args.command.clone(),
        timeout: Duration::from_millis(args.timeout_ms),
    };
    Ok(serve_program(
        &options,
        io::stdin().lock(),
        io::stdout().lock(),
    )?)
}
