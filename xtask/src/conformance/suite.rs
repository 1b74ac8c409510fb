//! Runs the suite: installation, its origin, Sluice in front of the origin, and the test runner.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_lab::process::{Launch, Process};
use tempfile::TempDir;

use super::folder;
use super::report::Sections;
use crate::npm;

/// Longest waits: for a server to listen, and for all tests to end.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// The suite's origin and Sluice in front of the origin. Dropping this value ends both processes.
pub struct Suite {
    installed: PathBuf,
    address: SocketAddr,
    runs: usize,
    _origin: Process,
    _sluice: Process,
    folder: TempDir,
}

/// Describes the missing programs and how to install them; `None` if the suite can run.
pub fn missing() -> Option<String> {
    npm::missing("the suite")
}

impl Suite {
    /// Installs the suite if necessary, and starts its origin and `program`.
    pub fn start(program: &Path) -> Result<Suite> {
        let installed = npm::install("conformance", &folder(), "run.mjs")?;
        let folder = tempfile::Builder::new().prefix("conformance-").tempdir()?;
        let (origin, origin_address) = start_origin(&installed, folder.path())?;
        let (sluice, address) = start_sluice(program, origin_address, folder.path())?;
        Ok(Suite {
            installed,
            address,
            runs: 0,
            _origin: origin,
            _sluice: sluice,
            folder,
        })
    }

    /// Runs the tests with these ids. If `ids` is empty, runs all tests.
    pub fn run(&mut self, ids: &[&str]) -> Result<Sections> {
        self.runs += 1;
        let name = format!("run-{}", self.runs);
        let script = self.installed.join("run.mjs").display().to_string();
        let base = format!("http://{}", self.address);
        let mut run = Launch::new(&name, "node", self.folder.path())
            .args(["--no-warnings", &script, &base])
            .args(ids.iter().copied())
            .start()?;
        let status = run.wait_exit(RUN_TIMEOUT)?;
        ensure!(status.success(), "the suite ({status}): {}", run.stderr());
        serde_json::from_str(&run.stdout()).context("parsing the output of the suite")
    }
}

fn start_origin(installed: &Path, folder: &Path) -> Result<(Process, SocketAddr)> {
    let script = installed.join("node_modules/http-cache-tests/server/server.mjs");
    let mut launch = Launch::new("origin", "node", folder).args([script.display().to_string()]);
    // The origin reads its settings from npm's environment variables. With port 0 it prints the port.
    launch.env = [
        ("npm_config_protocol", "http".to_owned()),
        ("npm_config_port", "0".to_owned()),
        (
            "npm_config_pidfile",
            folder.join("origin.pid").display().to_string(),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    let mut origin = launch.start()?;
    let line = origin.wait_line("Listening on ", START_TIMEOUT)?;
    let port = line.trim_end_matches('/').rsplit(':').next();
    let port: u16 = port
        .and_then(|port| port.parse().ok())
        .with_context(|| format!("the port in {line:?}"))?;
    // The origin listens on all addresses; tests use loopback.
    Ok((origin, SocketAddr::from(([127, 0, 0, 1], port))))
}

fn start_sluice(
    program: &Path,
    origin: SocketAddr,
    folder: &Path,
) -> Result<(Process, SocketAddr)> {
    const ORIGIN: &str = "127.0.0.1:8000";
    let settings = fs::read_to_string(super::folder().join("sluice.toml"))?;
    ensure!(settings.contains(ORIGIN), "sluice.toml: no {ORIGIN}");
    let file = folder.join("sluice.toml");
    fs::write(&file, settings.replace(ORIGIN, &origin.to_string()))?;
    let file = file.display().to_string();
    let mut sluice = Launch::new("sluice", program, folder)
        .args(["serve", "-c", &file])
        .start()?;
    let line = sluice.wait_line("listening on ", START_TIMEOUT)?;
    let address = line.rsplit('/').next();
    let address = address
        .and_then(|address| address.parse().ok())
        .with_context(|| format!("the address in {line:?}"))?;
    Ok((sluice, address))
}
