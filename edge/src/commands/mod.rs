//! The command line of `sluice`: its subcommands, each in a file of its own, and helpers that they share.

mod admin;
mod check;
mod demo;
mod hit_ratio;
mod inspect;
mod lab;
mod output;
mod purge;
mod reload;
mod serve;
mod sign;
mod status;
mod system;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Report;
use admin::AdminArgs;
use output::in_colour;

/// Help text about the exit statuses of all commands. clap itself ends with 2.
const EXIT_STATUS: &str = "Exit status:
  0  Success
  1  Error
  2  Unknown or missing arguments
  3  `sluice inspect` found nothing";

/// A caching reverse proxy that serves any byte of a file as soon as it has arrived from the origin
#[derive(Debug, Parser)]
#[command(name = "sluice", version, after_help = EXIT_STATUS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run Sluice with a configuration file, or with --origin or --files and other options
    Serve(serve::ServeArgs),
    /// Check a configuration file or, with --system, this machine's kernel settings
    Check(check::CheckArgs),
    /// Run a slow origin and Sluice in front of it, with three requests to try
    Demo(demo::DemoArgs),
    /// Run experiments that measure and verify Sluice, nginx and Varnish on this machine
    Lab(lab::LabArgs),
    /// Remove stored responses from a running Sluice, or mark them stale
    Purge(purge::PurgeArgs),
    /// Make a running Sluice read its configuration file again
    Reload(AdminArgs),
    /// Sign a URL for a route that requires signed URLs
    Sign(sign::SignArgs),
    /// Show the counters, caches and upstreams of a running Sluice
    Status(status::StatusArgs),
    /// Draw which bytes of a URL are stored, being fetched or missing, with recent decisions and their reasons
    Inspect(inspect::InspectArgs),
}

/// Parses the command line, runs the command and returns the exit status of the process.
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Purge(args) => purge::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Sign(args) => sign::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Inspect(args) => inspect::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            exit_code(&error)
        }
    }
}

/// Returns the exit status for an error: 3 if `sluice inspect` found nothing, else 1.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    match error.is::<inspect::Nothing>() {
        true => ExitCode::from(3),
        false => ExitCode::FAILURE,
    }
}

/// Prints an error to standard error.
fn print_error(error: &anyhow::Error) {
    let text = match error.downcast_ref::<Report>() {
        Some(report) => report.render(in_colour()),
        None => format!("error: {error:#}\n"),
    };
    // Writing fails if standard error is closed. The exit status is then the only sign of the
    // error.
    let _ = io::stderr().write_all(text.as_bytes());
}
