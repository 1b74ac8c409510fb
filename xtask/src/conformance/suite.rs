//! Runs the suite: installation, its origin, Sluice in front of the origin, and the test runner.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sluice_lab::process::{Launch, Process};
use tempfile::TempDir;

use super::folder;
use super::report::Sections;
use crate::tools;

/// Files from which npm installs and runs the suite; the first two list the packages with their hashes.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "run.mjs"];

/// Longest waits: for the installation of the suite, for a server to listen, and for all tests to end.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(180);
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
    let missing = |program: &&str| !tools::succeeds(program, &["--version"]);
    let missing: Vec<_> = ["node", "npm"].into_iter().filter(missing).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the suite needs {}, which cannot be run: apt-get install --no-install-recommends nodejs npm",
            missing.join(", ")
        )
    })
}

impl Suite {
    /// Installs the suite if necessary, and starts its origin and `program`.
    pub fn start(program: &Path) -> Result<Suite> {
        let installed = install()?;
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

/// Returns the folder below the target folder that contains the suite. Installs it again if one of the files has
/// changed. The copy of the lock file is written last and marks a complete installation.
fn install() -> Result<PathBuf> {
    let target = tools::target_folder()?.join("tools/conformance");
    let [manifest, lock, runner] = FILES;
    let current = [manifest, lock].iter().all(|name| {
        let read = |folder: &Path| fs::read(folder.join(name)).ok();
        read(&target).is_some() && read(&target) == read(&folder())
    });
    if !current {
        println!("installing http-cache-tests");
        let _ = fs::remove_dir_all(&target);
        let staged = target.with_extension("new");
        let _ = fs::remove_dir_all(&staged);
        fs::create_dir_all(&staged)?;
        for name in [manifest, lock] {
            fs::copy(folder().join(name), staged.join(name)).context(name)?;
        }
        npm(&staged)?;
        fs::rename(&staged, &target)?;
    }
    fs::copy(folder().join(runner), target.join(runner)).context(runner)?;
    Ok(target)
}

/// Installs the packages of the lock file with npm, which verifies the hashes. Scripts of packages are not run.
fn npm(folder: &Path) -> Result<()> {
    let output = tempfile::tempdir()?;
    let mut npm = Launch::new("npm", "npm", output.path())
        .args(["ci", "--ignore-scripts", "--omit=dev"])
        .args(["--no-audit", "--no-fund", "--prefix"])
        .args([folder.display().to_string()])
        .start()?;
    let status = npm.wait_exit(INSTALL_TIMEOUT)?;
    if !status.success() {
        bail!(
            "the suite cannot be installed: npm ({status}): {}",
            npm.stderr()
        );
    }
    Ok(())
}
