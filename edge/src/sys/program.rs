//! Runs a program with a bound for its time and its output.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// Longest time after the end of a program until the end is noticed.
const NOTICED_WITHIN: Duration = Duration::from_millis(10);

/// A program that has ended, or was ended.
#[derive(Debug)]
pub struct Finished {
    /// The status with which the program has ended. `None`: it ran too long, and was killed.
    pub status: Option<ExitStatus>,
    /// The beginning of what it has written to standard output and standard error.
    pub output: Vec<u8>,
}

/// Runs a program without input until it ends. If it has not ended `within` this time, kills it with all processes of its
/// group. Returns at most `output_max` bytes of its output.
///
/// The program is a path or a name in PATH. No shell reads its arguments.
///
/// # Errors
///
/// The program can't be started or waited for.
pub fn run<'a>(
    program: &str,
    arguments: impl IntoIterator<Item = &'a str>,
    within: Duration,
    output_max: usize,
) -> io::Result<Finished> {
    let deadline = Instant::now() + within;
    let (mut output, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // The command has the writing end of the pipe, which must be closed for the pipe to end.
    drop(command);
    let mut kept = Vec::new();
    let mut is_open = true;
    loop {
        if let Some(status) = child.try_wait()? {
            // A process that the program has left in the background may keep the pipe open.
            while is_open && Instant::now() < deadline && has_input(&output, Duration::ZERO)? {
                is_open = read_some(&mut output, &mut kept, output_max)?;
            }
            return Ok(Finished {
                status: Some(status),
                output: kept,
            });
        }
        if Instant::now() >= deadline {
            kill(&mut child)?;
            return Ok(Finished {
                status: None,
                output: kept,
            });
        }
        match is_open {
            true if has_input(&output, NOTICED_WITHIN)? => {
                is_open = read_some(&mut output, &mut kept, output_max)?;
            }
            true => {}
            false => thread::sleep(NOTICED_WITHIN),
        }
    }
}

/// Kills a program and all processes of its group.
fn kill(child: &mut Child) -> io::Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // The group is there at least until the program is waited for.
        kill_process_group(group, Signal::KILL)?;
    }
    child.wait().map(drop)
}

/// Waits for input or the end of it, `within` this time.
fn has_input(output: &io::PipeReader, within: Duration) -> io::Result<bool> {
    let within = Timespec {
        tv_sec: 0,
        tv_nsec: within.subsec_nanos().into(),
    };
    let mut polled = [PollFd::new(output, PollFlags::IN)];
    match poll(&mut polled, Some(&within)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads what is there, and keeps the beginning. Returns whether more may come.
fn read_some(output: &mut io::PipeReader, kept: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    let read = output.read(&mut buffer)?;
    let room = most.saturating_sub(kept.len());
    kept.extend_from_slice(&buffer[..read.min(room)]);
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, within: Duration, output_max: usize) -> Finished {
        run("sh", ["-c", script], within, output_max).expect("a shell")
    }

    #[test]
    fn the_status_and_both_outputs_are_returned() {
        let finished = shell("echo out; echo err >&2; exit 3", LONG, 100);
        assert_eq!(finished.status.and_then(|status| status.code()), Some(3));
        assert_eq!(finished.output, b"out\nerr\n");
        let none = run("no-such-program-here", [], LONG, 100);
        assert_eq!(none.expect_err("missing").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn long_output_is_read_to_its_end_and_its_beginning_is_kept() {
        let finished = shell("yes | head -c 300000; exit 1", LONG, 4);
        assert_eq!(finished.status.and_then(|status| status.code()), Some(1));
        assert_eq!(finished.output, b"y\ny\n");
    }

    // The program that waits in the background would otherwise go on without anyone noticing.
    #[test]
    fn a_program_that_takes_too_long_is_killed_with_its_children() {
        let script = "sleep 1000 & echo $!; wait";
        let finished = shell(script, Duration::from_millis(500), 100);
        assert!(finished.status.is_none());
        let child = String::from_utf8(finished.output).expect("a number");
        let child = child.trim().parse().ok().and_then(Pid::from_raw);
        let child = child.expect("a process id");
        // The killed process is gone once its new parent has waited for it, if there is one that does.
        let has_ended =
            || match std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero())) {
                Ok(text) => text
                    .rsplit(") ")
                    .next()
                    .is_some_and(|rest| rest.starts_with('Z') || rest.starts_with('X')),
                Err(_) => true,
            };
        while !has_ended() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_process_in_the_background_does_not_delay_the_end() {
        let finished = shell("sleep 60 & echo $!; echo done", LONG, 100);
        let text = String::from_utf8(finished.output).expect("text");
        assert!(text.ends_with("done\n"), "{text}");
        let child: Option<i32> = text.lines().next().and_then(|line| line.parse().ok());
        let child = child.and_then(Pid::from_raw).expect("a process id");
        rustix::process::kill_process(child, Signal::KILL).expect("it runs");
    }
}
