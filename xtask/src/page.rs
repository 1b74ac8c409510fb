//! The step `page` of `cargo xtask test`: the dashboard of `sluice demo`, and a report of the lab, in Chromium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sluice_lab::process::{Launch, Process};
use sluice_lab::report::html;

use crate::{npm, tools};

/// Longest waits: for the demo to listen, and for all tests to end.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// Program that shows the page.
const BROWSER: &str = "chromium";

/// Runs the tests of the dashboard and of a report. If a program is missing, fails in CI and prints a note elsewhere.
pub fn step() -> Result<()> {
    if let Some(missing) = missing() {
        if tools::in_ci() {
            bail!(missing);
        }
        println!("the dashboard is NOT tested: {missing}");
        return Ok(());
    }
    let tests = npm::install("page", &source(), "run.mjs")?;
    tools::run(Command::new("cargo").args(["build", "--quiet", "--package", "sluice"]))?;
    let folder = tempfile::Builder::new().prefix("page-").tempdir()?;
    let (_demo, clients, admin) = start(folder.path())?;
    let pictures = tools::target_folder()?.join("page");
    let dashboard = [admin, clients];
    run(&tests.join("run.mjs"), &dashboard, &pictures, folder.path())?;
    let tests = npm::install("page", &source(), "report.mjs")?;
    let report = [report(folder.path())?];
    run(&tests.join("report.mjs"), &report, &pictures, folder.path())?;
    println!("pictures of all views: {}", pictures.display());
    Ok(())
}

/// Writes the report of an invented run with every experiment. Returns its path.
fn report(folder: &Path) -> Result<String> {
    let sample = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lab/src/report/sample.json");
    let text = fs::read_to_string(&sample).with_context(|| sample.display().to_string())?;
    let page = html::render(&serde_json::from_str(&text)?);
    let file = folder.join("report.html");
    fs::write(&file, page)?;
    Ok(file.display().to_string())
}

fn missing() -> Option<String> {
    let missing = npm::missing("the test of the dashboard");
    missing.or_else(|| {
        let is_missing = tools::find(BROWSER).is_none();
        is_missing.then(|| format!("{BROWSER} cannot be run: apt-get install {BROWSER}"))
    })
}

/// Returns the folder in the repository with the tests.
fn source() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../edge/tests/page")
}

/// Starts the demo on free ports. Returns it with the address of its listener and the URL of its admin address.
fn start(folder: &Path) -> Result<(Process, String, String)> {
    let program = tools::target_folder()?.join("debug/sluice");
    let mut demo = Launch::new("demo", program, folder)
        .args(["demo", "--listen", "127.0.0.1:0"])
        .args(["--admin", "127.0.0.1:0"])
        .start()?;
    let line = demo.wait_line("listening on ", START_TIMEOUT)?;
    let clients = line.trim_end().rsplit('/').next();
    let clients = clients
        .with_context(|| format!("the address in {line:?}"))?
        .to_owned();
    let line = demo.wait_line("The dashboard: ", START_TIMEOUT)?;
    let admin = line
        .split_whitespace()
        .find(|word| word.starts_with("http://"));
    let admin = admin.and_then(|url| url.strip_suffix("/dashboard/"));
    let admin = admin
        .with_context(|| format!("the URL in {line:?}"))?
        .to_owned();
    Ok((demo, clients, admin))
}

/// Runs a script with these arguments, the path of the browser and the folder for pictures.
fn run(script: &Path, arguments: &[String], pictures: &Path, folder: &Path) -> Result<()> {
    let browser = tools::find(BROWSER).context("no browser")?;
    let path = |path: &Path| path.display().to_string();
    let mut run = Launch::new("tests", "node", folder)
        .args([path(script)])
        .args(arguments.to_vec())
        .args([path(&browser), path(pictures)])
        .start()?;
    let status = run.wait_exit(RUN_TIMEOUT)?;
    print!("{}", run.stdout());
    ensure!(
        status.success(),
        "the tests of {} ({status}): {}",
        script.display(),
        run.stderr()
    );
    Ok(())
}
