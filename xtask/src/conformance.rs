//! `cargo xtask conformance`: the public suite of HTTP caching tests against the program, and the list of what it passes.

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

/// More tests than these are not at odds with the list because of their timing.
const TRIED_AGAIN_MAX: usize = 12;

/// Which tests to run, and what to do about the list.
#[derive(Args)]
pub struct ConformanceArguments {
    /// Only the test of this id, as in `cc-resp-no-store`; the list is not looked at.
    id: Option<String>,
    /// Put tests that pass now on the list. Tests that fail stay on it: taking one off is an edit.
    #[arg(long, conflicts_with = "id")]
    update: bool,
}

/// The command.
pub fn conformance(arguments: &ConformanceArguments) -> Result<()> {
    if let Some(missing) = suite::missing() {
        bail!(missing);
    }
    match &arguments.id {
        Some(id) => one(id),
        None => all(arguments.update),
    }
}

/// The same as a step of `cargo xtask test`. Where Node is missing, that is a failure in CI and a notice elsewhere.
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
    if (1..=TRIED_AGAIN_MAX).contains(&judgement.odd().count()) {
        retry(&mut suite, &mut sections, &judgement)?;
    }
    print!("{}", sections.failures());
    print!("{}", sections.table());
    let judgement = ratchet.judge(&sections);
    if update {
        ratchet.add(&judgement.new)?;
    }
    concluded(&judgement, update)
}

/// Lets each test that is at odds with the list run once more, alone: pauses in it are of seconds that count in whole
/// ones, and a machine that is busy with a hundred tests at once can miss one. What it says then is its result.
fn retry(suite: &mut Suite, sections: &mut Sections, judgement: &Judgement) -> Result<()> {
    for id in judgement.odd() {
        println!("{id}: once more, alone");
        for test in suite.run(&[id])?.tests() {
            sections.replace(test);
        }
    }
    Ok(())
}

fn concluded(judgement: &Judgement, update: bool) -> Result<()> {
    for lost in &judgement.lost {
        println!("on the list, and fails: {lost}");
    }
    for id in judgement.new.iter().filter(|_| !update) {
        println!("passes, add it: {id}");
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

/// What lies in the repository for this.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

fn list() -> PathBuf {
    folder().join("passing.txt")
}
