//! Checks licences, bans and sources of dependencies, and known vulnerabilities if their database is reachable.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::tools::{run, succeeds, target_folder};

/// The version of cargo-deny that is installed if none is found.
const VERSION: &str = "0.20.2";

/// Runs cargo-deny with `deny.toml`. Installs it below the target folder if necessary.
pub fn check() -> Result<()> {
    let program = installed().map_or_else(install, Ok)?;
    let mut check = Command::new(&program);
    check.args(["check", "--hide-inclusion-graph"]);
    check.args(["licenses", "bans", "sources"]);
    if fetch_advisories(&program) {
        check.arg("advisories");
    } else {
        println!("known vulnerabilities are NOT checked: the RustSec database cannot be reached");
    }
    run(&mut check)
}

fn installed() -> Option<PathBuf> {
    [PathBuf::from("cargo-deny"), own_program().ok()?]
        .into_iter()
        .find(|program| succeeds(&program.to_string_lossy(), &["--version"]))
}

/// Installs cargo-deny. Compiling it without optimization takes about a minute on two cores and does not slow the
/// check down.
fn install() -> Result<PathBuf> {
    println!("installing cargo-deny {VERSION}; this takes a minute or two, once");
    let root = own_root()?;
    let build = root.join("build");
    run(Command::new("cargo")
        .args(["install", "--locked", "--debug", "--quiet"])
        .args(["--version", VERSION, "cargo-deny", "--root"])
        .arg(&root)
        .arg("--target-dir")
        .arg(&build)
        .env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
    std::fs::remove_dir_all(&build).with_context(|| build.display().to_string())?;
    own_program()
}

fn own_program() -> Result<PathBuf> {
    Ok(own_root()?.join("bin/cargo-deny"))
}

fn own_root() -> Result<PathBuf> {
    Ok(target_folder()?.join("tools"))
}

fn fetch_advisories(program: &Path) -> bool {
    Command::new("timeout")
        .arg("60s")
        .arg(program)
        .args(["--log-level", "off", "fetch", "db"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
