//! One step as a child process: its progress, its time limit, its interruption, and its result.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::host;
use super::plan::PlannedStep;
use crate::process::{Launch, Process, run_pinned};
use crate::scratch;

/// Interval for polling the child.
const POLL: Duration = Duration::from_millis(100);
/// Longest time for which an interrupted step may end its processes and remove its folders.
const CLEANING: Duration = Duration::from_secs(10);
/// A step may take this many times as long as expected, and some minutes more.
const TIMES: u64 = 4;
const MORE: Duration = Duration::from_secs(300);
/// Lines of an error that are kept.
const LINES_MAX: usize = 20;

/// The end of a step.
pub(super) enum End {
    /// The step has ended by itself, with a report, an error or both.
    Done {
        data: Option<Value>,
        error: Option<String>,
    },
    /// A signal has ended the step.
    Interrupted,
}

/// Runs a step in a child process and passes on each line of its progress. The child's output goes to files in `output`.
pub(super) fn run(
    program: &Path,
    step: &PlannedStep,
    output: &Path,
    stopped: &AtomicBool,
    progress: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<End> {
    // Ctrl-C must not reach the step twice, since a second signal ends the step without cleaning up.
    let mut launch = Launch::new("step", program, output)
        .args(step.arguments.clone())
        .own_group();
    let own_id = std::process::id().to_string();
    launch.env.push((scratch::PARENT.to_owned(), own_id));
    let child = launch.start()?;
    let outcome = run_pinned(host::load_core(), || watch(child, step, stopped, progress));
    // A step that was killed, as for lack of memory, leaves its servers, which would take time from later experiments.
    scratch::end_descendants();
    outcome
}

/// Waits for the end of a step, from the core of the clients, and passes on its progress.
fn watch(
    mut child: Process,
    step: &PlannedStep,
    stopped: &AtomicBool,
    progress: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<End> {
    let until = Instant::now() + Duration::from_secs(TIMES * step.seconds) + MORE;
    let mut shown = 0;
    loop {
        let status = child.wait_exit(POLL).ok();
        shown = pass_on(&child, step, shown, progress);
        if let Some(status) = status {
            return Ok(end(&child, status, stopped));
        }
        if stopped.load(Ordering::Relaxed) {
            terminate(&mut child);
            return Ok(End::Interrupted);
        }
        if Instant::now() > until {
            terminate(&mut child);
            let error = format!(
                "the experiment did not end within {} times the expected time",
                TIMES
            );
            return Ok(End::Done {
                data: None,
                error: Some(error),
            });
        }
    }
}

/// Passes on the complete lines after the first `shown` bytes of the child's progress. Returns the new number of bytes.
fn pass_on(child: &Process, step: &PlannedStep, shown: usize, progress: &dyn Fn(&str)) -> usize {
    let all = child.stderr();
    let new = all.get(shown..).unwrap_or_default();
    let Some(end) = new.rfind('\n') else {
        return shown;
    };
    for line in new[..end].lines() {
        progress(&format!("  {}: {line}", step.name));
    }
    shown + end + 1
}

/// Lets a step end its own processes and remove its folders. A step that takes too long is ended by dropping it.
fn terminate(child: &mut Process) {
    // Sending fails if the step has just ended.
    let _ = child.signal(Signal::TERM);
    let _ = child.wait_exit(CLEANING);
}

fn end(child: &Process, status: ExitStatus, stopped: &AtomicBool) -> End {
    if !status.success() && stopped.load(Ordering::Relaxed) {
        return End::Interrupted;
    }
    let data = serde_json::from_str(&child.stdout()).ok();
    let error = match status.success() {
        true if data.is_some() => None,
        true => Some("the experiment printed no JSON".to_owned()),
        false => Some(error(&child.stderr(), status)),
    };
    End::Done { data, error }
}

/// Returns the message of an experiment that failed: the last lines from the one that begins with `error`, or the last
/// line. If a signal has ended the experiment, the message begins with that.
fn error(stderr: &str, status: ExitStatus) -> String {
    let lines: Vec<&str> = stderr.lines().collect();
    let begin = lines.iter().rposition(|line| line.starts_with("error"));
    let begin = begin.unwrap_or(lines.len().saturating_sub(1));
    let message = lines[begin.min(lines.len())..].iter().take(LINES_MAX);
    let message: Vec<&str> = message.copied().collect();
    match (message.join("\n").trim(), status.signal()) {
        ("", _) => format!("the experiment ended with {status}"),
        (message, Some(_)) => format!("the experiment ended with {status}, after: {message}"),
        (message, None) => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_failed_experiment_is_its_last_error() {
        let status = ExitStatus::from_raw(256);
        assert_eq!(
            error("a: round 1\nerror: no\n  help: yes\n", status),
            "error: no\n  help: yes"
        );
        assert_eq!(
            error("a: round 1\nno port is free\n", status),
            "no port is free"
        );
        assert_eq!(
            error("", status),
            "the experiment ended with exit status: 1"
        );
        let killed = error("a: round 1\n", ExitStatus::from_raw(9));
        assert!(killed.contains("signal: 9"), "{killed}");
        assert!(killed.ends_with("after: a: round 1"), "{killed}");
    }
}
