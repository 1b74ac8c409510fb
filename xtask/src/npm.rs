//! Installs packages of npm into folders below the target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sluice_lab::process::Launch;

use crate::tools;

/// Files that list the packages with their hashes.
const LISTS: [&str; 2] = ["package.json", "package-lock.json"];
/// Longest time of an installation.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(180);

/// Describes the missing programs and how to install them; `None` if packages can be installed and run.
pub fn missing(purpose: &str) -> Option<String> {
    let missing = |program: &&str| !tools::succeeds(program, &["--version"]);
    let missing: Vec<_> = ["node", "npm"].into_iter().filter(missing).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "{purpose} needs {}, which cannot be run: apt-get install --no-install-recommends nodejs npm",
            missing.join(", ")
        )
    })
}

/// Returns the folder of this name below the target folder, with the packages that `source` lists, and a copy of the
/// script `runner` of `source`. Installs the packages again if a list has changed. The copy of the lock file is written
/// last and marks a complete installation.
pub fn install(name: &str, source: &Path, runner: &str) -> Result<PathBuf> {
    let target = tools::target_folder()?.join("tools").join(name);
    let current = LISTS.iter().all(|list| {
        let read = |folder: &Path| fs::read(folder.join(list)).ok();
        read(&target).is_some() && read(&target) == read(source)
    });
    if !current {
        println!("installing the packages of {name}");
        let _ = fs::remove_dir_all(&target);
        let staged = target.with_extension("new");
        let _ = fs::remove_dir_all(&staged);
        fs::create_dir_all(&staged)?;
        for list in LISTS {
            fs::copy(source.join(list), staged.join(list)).context(list)?;
        }
        npm(name, &staged)?;
        fs::rename(&staged, &target)?;
    }
    fs::copy(source.join(runner), target.join(runner)).with_context(|| runner.to_owned())?;
    Ok(target)
}

/// Installs the packages of the lock file with npm, which verifies the hashes. Scripts of packages are not run.
fn npm(name: &str, folder: &Path) -> Result<()> {
    let output = tempfile::tempdir()?;
    let mut npm = Launch::new("npm", "npm", output.path())
        .args(["ci", "--ignore-scripts", "--omit=dev"])
        .args(["--no-audit", "--no-fund", "--prefix"])
        .args([folder.display().to_string()])
        .start()?;
    let status = npm.wait_exit(INSTALL_TIMEOUT)?;
    if !status.success() {
        bail!(
            "the packages of {name} cannot be installed: npm ({status}): {}",
            npm.stderr()
        );
    }
    Ok(())
}
