//! `cargo xtask bench`: builds the release program and measures it beside nginx.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::Args;
use sluice_lab::bench::{BenchOptions, first_edge, names};

use crate::tools;

/// What to measure, and how thoroughly.
#[derive(Args)]
pub struct BenchArguments {
    /// Only rows whose name contains this.
    filter: Option<String>,
    /// Runs of each server; their median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Length of each run under load.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
    /// The program to measure [default: a release build of the present source]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// An earlier build of the program, measured in the same turns: the table's notes give the ratio
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

/// Prints the table. A missed goal is printed and is no failure: times differ between machines.
pub fn bench(arguments: BenchArguments) -> Result<()> {
    if cfg!(debug_assertions) {
        return Err(released(arguments.program.as_deref()));
    }
    println!("rows: {}", names().collect::<Vec<_>>().join(", "));
    let program = match arguments.program {
        Some(program) => program,
        None => tools::target_folder()?.join("release/sluice"),
    };
    let options = BenchOptions {
        sluice_binary: Some(program),
        against: arguments.against,
        rounds: arguments.rounds.into(),
        seconds_per_run: arguments.seconds.into(),
        only: arguments.filter,
        ..BenchOptions::default()
    };
    let rows = first_edge(&options)?;
    let missed: Vec<_> = rows
        .iter()
        .filter(|row| row.met == Some(false))
        .map(|row| row.name.as_str())
        .collect();
    if !missed.is_empty() {
        println!("short of the goal, or not measured: {}", missed.join(", "));
    }
    Ok(())
}

/// Builds `sluice`, unless another program is measured, and this program optimized, since a slow load generator measures
/// itself, and becomes the latter. Returns only if that fails.
fn released(measured: Option<&Path>) -> anyhow::Error {
    let mut packages = vec!["--package", "xtask"];
    if measured.is_none() {
        packages.extend(["--package", "sluice"]);
    }
    let mut build = Command::new("cargo");
    let built = tools::run(build.args(["build", "--release"]).args(packages));
    let target = match built.and_then(|()| tools::target_folder()) {
        Ok(target) => target,
        Err(error) => return error,
    };
    let program = target.join("release/xtask");
    let error = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .exec();
    anyhow::Error::new(error).context(program.display().to_string())
}
