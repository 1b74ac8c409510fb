//! The program `sluice`: parses the command line and runs the command.

mod commands;

use std::process::ExitCode;

use clap::Parser;

use commands::{Cli, Command};

/// The allocator is mimalloc: it needs little memory when idle and is fast for the workers. See
/// `docs/decisions/0006`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => commands::serve::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Lab(args) => commands::lab::run(&args),
        Command::Purge(args) => commands::purge::run(&args),
        Command::Reload(args) => commands::reload::run(&args),
        Command::Sign(args) => commands::sign::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            commands::print_error(&error);
            commands::exit_code(&error)
        }
    }
}
