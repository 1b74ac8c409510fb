//! `cargo xtask bench`: builds a release of Sluice and compares it with nginx and HAProxy.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::Args;
use sluice_lab::bench::{BenchOptions, names, run_bench};

use crate::tools;

/// Options of the bench.
#[derive(Args)]
pub struct BenchArguments {
    /// Run only rows whose name contains this
    filter: Option<String>,
    /// Number of runs of each server, whose median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Duration of each run in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
    /// Seconds for which a server fails in each row `failing-servers-…`, and for which an attack of `http2-attack` lasts
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(3..))]
    failing_seconds: u16,
    /// The build of Sluice to measure [default: a release build of the present source]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// An earlier build of Sluice to compare with; the table's notes show the ratio
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

/// Runs the bench and prints its table. A missed goal is not an error, since times depend on the machine.
pub fn bench(arguments: BenchArguments) -> Result<()> {
    if cfg!(debug_assertions) {
        return Err(run_release(arguments.program.as_deref()));
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
        failing_seconds: arguments.failing_seconds.into(),
        only: arguments.filter,
        ..BenchOptions::default()
    };
    let rows = run_bench(&options)?;
    let missed: Vec<_> = rows
        .iter()
        .filter(|row| row.met == Some(false))
        .map(|row| row.name.as_str())
        .collect();
    if !missed.is_empty() {
        println!("goal missed, or not measured: {}", missed.join(", "));
    }
    Ok(())
}

/// Builds this program as a release and replaces this process with it, since a slow load generator would measure
/// itself. Also builds `sluice` unless another program is measured. Returns only an error.
fn run_release(measured: Option<&Path>) -> anyhow::Error {
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
