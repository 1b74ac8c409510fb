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

/// Runs all experiments in a folder of their own. An interrupted run goes on; a complete one is measured again. Returns
/// the path of the record.
fn measure(quick: bool) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    tools::run(build.args(["build", "--release", "--package", "sluice"]))?;
    let target = tools::target_folder()?;
    let name = if quick { "figures-quick" } else { "figures" };
    let folder = target.join(name);
    let record = folder.join("run.json");
    if record.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let mut all = Command::new(target.join("release/sluice"));
    all.args(["lab", "all", "--against", "nginx", "--folder"])
        .arg(&folder)
        .args(quick.then_some("--quick"));
    tools::run(&mut all).with_context(|| {
        format!(
            "to publish the run without its failed experiments: cargo xtask figures --run {}",
            record.display()
        )
    })?;
    Ok(record)
}
