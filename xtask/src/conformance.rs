//! `cargo xtask conformance`: runs the public suite of HTTP caching tests against Sluice and compares the results
//! with a list of passing tests.

mod ratchet;
mod report;
mod suite;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::tools;
use ratchet::{Judgement, Ratchet};
use report::Sections;
use suite::Suite;

/// Maximum number of tests that are retried. If more tests deviate from the list, timing is not the cause.
const TRIED_AGAIN_MAX: usize = 12;

/// The tests to run, and whether to update the list.
#[derive(Args)]
pub struct ConformanceArguments {
    /// Run only the test of this id, as in `cc-resp-no-store`, and ignore the list
    id: Option<String>,
    /// Add newly passing tests to the list. Failing tests stay on it; remove them by hand
    #[arg(long, conflicts_with = "id")]
    update: bool,
}

/// Runs `cargo xtask conformance`.
pub fn conformance(arguments: &ConformanceArguments) -> Result<()> {
    if let Some(missing) = suite::missing() {
        bail!(missing);
    }
    match &arguments.id {
        Some(id) => one(id),
        None => all(arguments.update),
    }
}

/// Runs the suite as a step of `cargo xtask test`. If Node is missing, the step fails in CI and prints a note
/// elsewhere.
pub fn step() -> Result<()> {
    match suite::missing() {
        Some(missing) if !tools::in_ci() => println!("conformance is NOT tested: {missing}"),
        Some(missing) => bail!(missing),
        None => all(false)?,
    }
    Ok(())
}

fn start() -> Result<Suite> {
    tools::run(Command::new("cargo").args(["build", "--quiet", "--package", "sluice"]))?;
    Suite::start(&tools::target_folder()?.join("debug/sluice"))
}

fn one(id: &str) -> Result<()> {
    let sections = start()?.run(&[id])?;
    ensure!(
        sections.tests().count() == 1,
        "the suite has no test `{id}`"
    );
    for test in sections.tests() {
        println!("{}", test.line());
    }
    let failed = sections.tests().any(|test| test.failure.is_some());
    ensure!(!failed, "it failed");
    Ok(())
}

fn all(update: bool) -> Result<()> {
    let mut suite = start()?;
    let mut sections = suite.run(&[])?;
    let mut ratchet = Ratchet::read(list())?;
    let judgement = ratchet.judge(&sections);
    if (1..=TRIED_AGAIN_MAX).contains(&judgement.deviating().count()) {
        retry(&mut suite, &mut sections, &judgement)?;
    }
    print!("{}", sections.failures());
    print!("{}", sections.table());
    let judgement = ratchet.judge(&sections);
    if update {
        ratchet.add(&judgement.new)?;
    }
    conclude(&judgement, update)
}

/// Runs each test that deviates from the list once more, alone; the second result counts. Tests wait for whole
/// seconds, and a machine that runs a hundred tests at once may be late.
fn retry(suite: &mut Suite, sections: &mut Sections, judgement: &Judgement) -> Result<()> {
    for id in judgement.deviating() {
        println!("{id}: retried alone");
        for test in suite.run(&[id])?.tests() {
            sections.replace(test);
        }
    }
    Ok(())
}

fn conclude(judgement: &Judgement, update: bool) -> Result<()> {
    for lost in &judgement.lost {
        println!("on the list, but fails: {lost}");
    }
    for id in judgement.new.iter().filter(|_| !update) {
        println!("passes, but not on the list: {id}");
    }
    let list = list();
    let list = list.display();
    if !judgement.lost.is_empty() {
        bail!("{} tests of {list} fail", judgement.lost.len());
    }
    if !judgement.new.is_empty() && !update {
        bail!(
            "{} tests pass that are not in {list}: `cargo xtask conformance --update` adds them",
            judgement.new.len()
        );
    }
    Ok(())
}

/// Returns the folder in the repository with the suite's files.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

fn list() -> PathBuf {
    folder().join("passing.txt")
}
