//! `sluice lab all`: runs all experiments and writes a report. `sluice lab diff`: compares two
//! runs. `sluice lab figures`: writes the page with the figures of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, io};

use anyhow::Context;
use clap::Args;
use serde_json::Value;
use sluice_lab::all::{self, Options, Outcome, PlannedRun, Wishes};
use sluice_lab::report::{Run, diff, published};

use super::output::{print, progress};
use crate::commands::output::{failed, harmless, misused, say};
use crate::commands::signals::{CLEANING_GRACE, at_first_signal};
use crate::sys::disk;

/// Profile with which this program was built.
const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// Longest file that is compared.
const FILE_MAX: u64 = 256 << 20;

#[derive(Debug, Args)]
pub struct AllArgs {
    /// Also measure nginx, which must be installed, in all experiments that can
    #[arg(long, value_name = "nginx", value_parser = ["nginx"])]
    against: Option<String>,
    /// Run shorter loads and fewer rounds: at most 25 minutes in place of 90, with more noise
    #[arg(long)]
    quick: bool,
    /// Folder for the results and the report. Experiments that have a result there are not run again [default: sluice-lab,
    /// or sluice-lab-quick with --quick]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Run only this experiment; may be given several times [default: all]
    #[arg(long, value_name = "NAME", value_parser = name)]
    only: Vec<String>,
    /// Print the plan and end: experiments, durations, rights and programs
    #[arg(long)]
    plan: bool,
}

impl AllArgs {
    /// Returns the folder of the run. A quick run has a default of its own, so that it does not mix with a full one.
    fn folder(&self) -> PathBuf {
        let usual = if self.quick {
            "sluice-lab-quick"
        } else {
            "sluice-lab"
        };
        self.folder.clone().unwrap_or_else(|| usual.into())
    }
}

fn name(text: &str) -> Result<String, String> {
    match all::names().any(|name| name == text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "one of {}",
            all::names().collect::<Vec<_>>().join(", ")
        )),
    }
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Result of the first run: run.json, or the JSON of one experiment
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// Result of the second run
    #[arg(value_name = "B.json")]
    after: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct FiguresArgs {
    /// Record of a run: run.json, or a figures.json that this command wrote
    #[arg(value_name = "RUN.json")]
    run: PathBuf,
    /// Folder for figures.md and figures.json, which is created if necessary
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Also replace the block with the headline figures in this file
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
}

/// Runs all experiments. The command fails if an experiment did, and does not if a goal was missed.
pub fn run(args: &AllArgs) -> anyhow::Result<()> {
    let program = env::current_exe().context("the path of this program")?;
    let program_hash = hash(&program).context("this program's file")?;
    let planned = PlannedRun::new(Options {
        program,
        program_hash,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        profile: PROFILE.to_owned(),
        folder: args.folder(),
        wishes: Wishes {
            nginx: args.against.is_some(),
            quick: args.quick,
            only: args.only.clone(),
        },
    })?;
    if args.plan {
        return say(&planned.render());
    }
    progress(&planned.render());
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    at_first_signal(CLEANING_GRACE, move || flag.store(true, Ordering::Relaxed))?;
    match planned.run(&stopped, &progress)? {
        Outcome::Done(report, failures) => {
            say(&format!("{}\n", report.display()))?;
            match failures.is_empty() {
                true => Ok(()),
                false => Err(failed(
                    format!("not measured: {}", failures.join(", ")),
                    "the report has the reasons; the same command runs only these experiments again",
                )),
            }
        }
        Outcome::Interrupted => Err(failed(
            "interrupted",
            "the same command goes on with the experiment that was running",
        )),
    }
}

/// Returns the hash of a program's file.
fn hash(program: &Path) -> io::Result<String> {
    let bytes = disk::read_start(program, u64::MAX)?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

/// Compares two runs. The command succeeds whatever differs.
pub fn compare(args: &DiffArgs) -> anyhow::Result<()> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let report = diff::compare(&before, &after).map_err(|error| {
        let names = [&args.before, &args.after].map(|file| file.display().to_string());
        misused(
            harmless(&names.join(" ")),
            harmless(&error.to_string()),
            "name two run.json, two files of one experiment, or two results of `sluice bench --json`",
        )
    })?;
    print(args.json, &report, &report.render())
}

/// Writes the page with the published figures of a run, and its trimmed record.
pub fn figures(args: &FiguresArgs) -> anyhow::Result<()> {
    let value = read(&args.run)?;
    let run = Run::read(&value).map_err(|error| {
        misused(
            harmless(&args.run.display().to_string()),
            harmless(&error.to_string()),
            "name the run.json of a folder of `sluice lab all`",
        )
    })?;
    let files = published::publish(&run, &args.folder, args.readme.as_deref())?;
    let names = files.iter().map(|file| format!("{}\n", file.display()));
    say(&names.collect::<String>())
}

fn read(file: &Path) -> anyhow::Result<Value> {
    let named = harmless(&file.display().to_string());
    let help = "name the run.json of a folder of `sluice lab all`, or a file with the output of an experiment or of `sluice bench` with --json";
    let text = disk::read_text(file, FILE_MAX).map_err(|error| {
        misused(
            named.clone(),
            format!("this file can't be read: {error}"),
            help,
        )
    })?;
    serde_json::from_str(&text)
        .map_err(|error| misused(named, format!("this file is no JSON: {error}"), help))
}
