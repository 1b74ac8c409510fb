//! Finds and runs programs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

/// Time limit of a program, seconds.
const PATIENCE: &str = "60";

/// Whether these programs are installed. If not, prints a message, and fails the test if all
/// programs must be installed.
pub fn installed(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().filter(|name| !is_found(name)).collect();
    if missing.is_empty() {
        return true;
    }
    let must = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!must, "not installed: {missing:?}");
    // Written directly to standard error, because the output of a passing test is captured.
    let _ = writeln!(std::io::stderr(), "SKIPPED, not installed: {missing:?}");
    false
}

fn is_found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a program in a folder with a time limit; fails the test if the program fails.
pub fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let output = try_run(folder, program, arguments);
    assert!(
        output.status.success(),
        "{program} {arguments:?} ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs a program in a folder with a time limit.
pub fn try_run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["--kill-after=5", PATIENCE, program])
        .args(arguments)
        .current_dir(folder)
        .env("LC_ALL", "C")
        .env("HOME", folder)
        .env_remove("http_proxy")
        .output()
        .expect("timeout is there wherever coreutils are")
}

/// The standard output of a program.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
