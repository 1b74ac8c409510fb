//! `sluice completions`: completions of the command line for a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use super::output::say;

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions. `program` is the parser of the command line.
pub fn run(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "sluice", &mut script);
    say(&String::from_utf8(script)?)
}
