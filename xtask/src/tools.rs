//! Programs that tests need: finds them, installs them, or reports which are missing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Programs and the Debian packages that contain them.
const PROGRAMS: &[(&str, &str)] = &[
    ("nginx", "nginx-light"),
    ("haproxy", "haproxy"),
    ("h2o", "h2o"),
    ("traffic_server", "trafficserver"),
    // The package without the service.
    ("apache2", "apache2-bin"),
    ("squid", "squid"),
    // fusermount3 unmounts the lab's slow disks if the program that mounted them is killed.
    ("fusermount3", "fuse3"),
    ("fio", "fio"),
    // Joins the lab's slow disks.
    ("mkfs.btrfs", "btrfs-progs"),
    ("curl", "curl"),
    ("nghttp", "nghttp2-client"),
    ("h2load", "nghttp2-client"),
    ("openssl", "openssl"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("named", "bind9"),
    ("nsupdate", "bind9-dnsutils"),
    ("wget", "wget"),
    ("ffmpeg", "ffmpeg"),
    ("chromium", "chromium"),
    ("firefox-esr", "firefox-esr"),
    // certutil makes Firefox trust the authority of a test.
    ("certutil", "libnss3-tools"),
    // Its library makes a program's clock wrong.
    ("faketime", "faketime"),
    // Tests that need ports 80 and 443 have a network namespace of their own.
    ("ip", "iproute2"),
    ("go", "golang-go"),
    ("node", "nodejs"),
    ("npm", "npm"),
];

/// Modules of Python and the Debian packages that contain them.
const MODULES: &[(&str, &str)] = &[
    ("grpc", "python3-grpcio"),
    ("httpx", "python3-httpx"),
    ("h2", "python3-h2"),
];

/// The test authority of Let's Encrypt.
const PEBBLE: &str = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3";

/// Checks that all programs are installed. As root on Debian, installs missing ones. Otherwise a missing program is
/// an error in CI, and elsewhere a note with the command that installs it.
pub fn ensure() -> Result<()> {
    ensure_packages()?;
    match go_program("pebble", PEBBLE) {
        Ok(_) => Ok(()),
        Err(error) if in_ci() => Err(error),
        Err(error) => {
            println!("pebble can't be installed; the tests of ACME will fail: {error:#}");
            Ok(())
        }
    }
}

fn ensure_packages() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    if rustix::process::geteuid().is_root() && find("apt-get").is_some() {
        return install(&missing);
    }
    let advice = format!(
        "missing programs; their tests cannot run:  apt-get install --no-install-recommends {}",
        missing.join(" ")
    );
    if in_ci() {
        bail!(advice);
    }
    println!("{advice}");
    Ok(())
}

/// Whether this is CI, where no test may be skipped.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Whether a command can be run and succeeds. Its output is discarded.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command and shows its output. Fails if the command fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// Installs a program in Go in a folder of this name below the target folder, unless it is there, and returns its path.
/// `package` ends with the program's name and its version; Go verifies its hash.
pub fn go_program(folder: &str, package: &str) -> Result<PathBuf> {
    let name = package
        .split('@')
        .next()
        .and_then(|path| path.rsplit('/').next());
    let folder = target_folder()?.join("tools").join(folder);
    let program = folder.join(name.context("a package without a name")?);
    if !program.is_file() {
        println!("installing {package}");
        run(Command::new("go")
            .args(["install", package])
            .env("GOBIN", &folder))?;
    }
    Ok(program)
}

/// Returns Cargo's target folder, which contains this program in the folder of a profile.
pub fn target_folder() -> Result<PathBuf> {
    let this = std::env::current_exe().context("the path of this program")?;
    let folder = this
        .ancestors()
        .nth(2)
        .context("this program is not in a target folder")?;
    Ok(folder.to_owned())
}

/// Returns the packages of missing programs and modules.
fn missing() -> Vec<&'static str> {
    let programs = PROGRAMS
        .iter()
        .filter(|(program, _)| find(program).is_none());
    let modules = MODULES.iter().filter(|(module, _)| !is_importable(module));
    programs
        .chain(modules)
        .map(|(_, package)| *package)
        .collect()
}

/// Whether Debian's Python or the one in PATH has a module.
fn is_importable(module: &str) -> bool {
    let import = format!("import {module}");
    ["/usr/bin/python3", "python3"]
        .iter()
        .any(|python| succeeds(python, &["-c", &import]))
}

/// Returns the path of a program in PATH, or in the folders for servers, which are not in every user's PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn install(packages: &[&str]) -> Result<()> {
    println!("installing {}", packages.join(" "));
    run(apt_get().args(["--quiet", "update"]))?;
    run(apt_get()
        .args(["--quiet", "--yes", "--no-install-recommends", "install"])
        .args(packages))?;
    let left = missing();
    if !left.is_empty() {
        bail!(
            "the package is installed, but its program is missing: {}",
            left.join(" ")
        );
    }
    Ok(())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    // Prevents packaged servers from starting. Tests start their own servers on free ports.
    command.env("RUNLEVEL", "1");
    // The same with systemd.
    command.env("SYSTEMD_OFFLINE", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_by_name() {
        assert!(!is_importable("no_such_module_here"));
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }

    #[test]
    fn a_command_that_fails_is_an_error() {
        assert!(run(&mut Command::new("true")).is_ok());
        assert!(run(&mut Command::new("false")).is_err());
        assert!(succeeds("true", &[]) && !succeeds("no-such-program-here", &[]));
    }
}
