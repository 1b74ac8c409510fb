//! Output of the experiments: reports and progress.

use std::io::{Write as _, stderr};

use serde::Serialize;
use sluice_lab::scratch;

use crate::commands::output::say;

/// Prints a report as JSON or its table. After a signal, a report would only show how the experiment ended, so there is
/// none.
pub fn print(json: bool, report: &impl Serialize, table: &str) -> anyhow::Result<()> {
    scratch::wait_if_ending();
    match json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(report)?)),
        false => say(table),
    }
}

/// Prints a line of progress to standard error.
pub fn progress(line: &str) {
    scratch::wait_if_ending();
    // Writing fails if standard error is closed. The experiment goes on without a display.
    let _ = writeln!(stderr(), "{line}");
}
