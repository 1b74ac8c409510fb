//! `cargo xtask figures`: measures the published figures, and writes docs/figures.md, docs/figures.json and the block in
//! README.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use sluice_lab::report::{Run, published};

use crate::tools;

/// Options of the task.
#[derive(Args)]
pub struct FiguresArguments {
    /// Write the figures of this record (run.json or docs/figures.json), and measure nothing
    #[arg(long, value_name = "FILE")]
    run: Option<PathBuf>,
    /// Run shorter loads and fewer rounds; the page then says that its figures are a placeholder
    #[arg(long, conflicts_with = "run")]
    quick: bool,
}

/// Measures with a release build beside nginx, unless a record is given, and writes the three files.
pub fn figures(arguments: &FiguresArguments) -> Result<()> {
    let record = match &arguments.run {
        Some(record) => record.clone(),
        None => measure(arguments.quick)?,
    };
    let text = fs::read_to_string(&record).with_context(|| record.display().to_string())?;
    let value = serde_json::from_str(&text).with_context(|| record.display().to_string())?;
    let run = Run::read(&value).with_context(|| record.display().to_string())?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.context("the folder of the repository")?;
    let files = published::publish(&run, &root.join("docs"), Some(&root.join("README.md")))?;
    for file in files {
        println!("{}", file.display());
    }
    Ok(())
}

/// Runs all experiments in a folder of their own. A run that was interrupted, or in which an experiment failed, goes on; a
/// complete one is measured again. Returns the path of the record.
fn measure(quick: bool) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    tools::run(build.args(["build", "--release", "--package", "sluice"]))?;
    let target = tools::target_folder()?;
    let name = if quick { "figures-quick" } else { "figures" };
    let folder = target.join(name);
    let record = folder.join("run.json");
    if is_complete(&record) {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let mut all = Command::new(target.join("release/sluice"));
    all.args(["lab", "all", "--against", "nginx", "--folder"])
        .arg(&folder)
        .args(quick.then_some("--quick"));
    tools::run(&mut all).map_err(|error| advised(error, &record))?;
    Ok(record)
}

/// Whether a file is the record of a run in which no experiment has failed. Other results stay, since the next run goes on
/// with them.
fn is_complete(record: &Path) -> bool {
    let read = || {
        let text = fs::read_to_string(record).ok()?;
        Run::read(&serde_json::from_str(&text).ok()?).ok()
    };
    read().is_some_and(|run| run.is_complete())
}

/// Adds to the error of a run how to go on. An interrupted run may have no record that could be published.
fn advised(error: anyhow::Error, record: &Path) -> anyhow::Error {
    let again = "the same command runs only the missing experiments";
    match record.exists() {
        true => error.context(format!(
            "{again}; to publish the run without them: cargo xtask figures --run {}",
            record.display()
        )),
        false => error.context(again),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_a_run_without_failures_is_measured_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = folder.path().join("run.json");
        assert!(!is_complete(&record));
        fs::write(&record, "no JSON").expect("written");
        assert!(!is_complete(&record));
        let sample = include_str!("../../lab/src/report/sample.json");
        let mut run: Value = serde_json::from_str(sample).expect("JSON");
        for step in run["steps"].as_array_mut().expect("a list") {
            step["data"] = json!({});
            step["error"] = Value::Null;
        }
        fs::write(&record, run.to_string()).expect("written");
        assert!(is_complete(&record));
        run["steps"][0]["error"] = json!("no port is free");
        fs::write(&record, run.to_string()).expect("written");
        assert!(!is_complete(&record));
    }

    #[test]
    fn only_a_record_that_exists_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = folder.path().join("run.json");
        let said = || format!("{:#}", advised(anyhow::anyhow!("interrupted"), &record));
        assert!(!said().contains("--run"), "{}", said());
        fs::write(&record, "{}").expect("written");
        assert!(said().contains("--run"), "{}", said());
    }
}
