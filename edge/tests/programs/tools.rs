//! Helpers that find and run client programs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use sluice_lab::origin::Origin;

use crate::harness::Edge;

/// Time limit of a client program in seconds.
const PATIENCE: &str = "180";

/// Whether all of these programs are installed. If not, prints a message; with `CI=true`, fails the
/// test.
pub fn installed(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().filter(|name| !is_found(name)).collect();
    if missing.is_empty() {
        return true;
    }
    let must = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!must, "not installed: {missing:?}");
    // The message goes directly to standard error, because the output of a passing test is
    // captured.
    let _ = writeln!(std::io::stderr(), "SKIPPED, not installed: {missing:?}");
    false
}

fn is_found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a program in a folder with a time limit. Fails the test if the program fails.
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

/// Returns the standard output of a program as text.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a fetch was so slow that another one took over a part of its range, as on a machine that pauses.
pub fn was_slow(edge: &Edge) -> bool {
    edge.counter("flights_taken_over") > 0
}

/// Asserts that the origin has sent at most this many bytes, unless a fetch was too slow.
pub fn assert_sent_once(origin: &Origin, edge: &Edge, length: u64) {
    let sent = origin.read_record(|record| record.sent_total);
    assert!(sent <= length || was_slow(edge), "{sent} bytes");
}
