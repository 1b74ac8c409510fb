//! Runs steps one after another, shows how long each took, and sums up what the tests said.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::tools::target_folder;

/// One thing to do, known by its name.
pub struct Step {
    pub name: &'static str,
    work: Work,
    /// Tests that must have run, else the step fails.
    tests_min: u64,
    /// Whether its tests count in the sum.
    counted: bool,
}

enum Work {
    Cargo(Vec<String>),
    Action(fn() -> Result<()>),
}

impl Step {
    /// `cargo` with these arguments, none of which holds a space.
    pub fn cargo(name: &'static str, arguments: &str) -> Step {
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Step::new(name, Work::Cargo(arguments))
    }

    /// Work of our own.
    pub fn action(name: &'static str, action: fn() -> Result<()>) -> Step {
        Step::new(name, Work::Action(action))
    }

    fn new(name: &'static str, work: Work) -> Step {
        Step {
            name,
            work,
            tests_min: 0,
            counted: true,
        }
    }

    /// This step runs tests: it fails when there are none.
    pub fn tests(mut self) -> Step {
        self.tests_min = 1;
        self
    }

    /// Its tests run again in a later step, and count there.
    pub fn uncounted(mut self) -> Step {
        self.counted = false;
        self
    }

    /// What to type to have this step alone.
    fn again(&self) -> String {
        match &self.work {
            Work::Cargo(arguments) => format!("cargo {}", arguments.join(" ")),
            Work::Action(_) => format!("cargo xtask test --only {}", self.name),
        }
    }

    fn run(&self, totals: &mut Totals) -> Result<()> {
        let arguments = match &self.work {
            Work::Action(action) => return action(),
            Work::Cargo(arguments) => arguments,
        };
        let (succeeded, told) = cargo(arguments)?;
        if self.counted {
            totals.add(&told);
        }
        if !succeeded {
            bail!("it reported a failure");
        }
        if told.passed < self.tests_min {
            bail!("not one test ran");
        }
        if told.ignored > 0 {
            bail!("{} tests were ignored: each runs or goes", told.ignored);
        }
        Ok(())
    }
}

/// Runs the steps in order up to the first that fails.
pub fn run(steps: &[Step], totals: &mut Totals) -> Result<()> {
    let began = Instant::now();
    for (index, step) in steps.iter().enumerate() {
        let place = format!("[{}/{}] {}", index + 1, steps.len(), step.name);
        println!("{place}: {}", step.again());
        let step_began = Instant::now();
        let done = step.run(totals);
        let took_s = step_began.elapsed().as_secs_f64();
        if let Err(error) = done {
            bail!(
                "{place}: failed after {took_s:.1} s: {error:#}\nthis step alone: {}",
                step.again()
            );
        }
        println!("{place}: ok, {took_s:.1} s");
    }
    println!("all steps: ok, {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Sums over runs of tests. Shown as `N passed, N failed`.
#[derive(Debug, Default, PartialEq)]
pub struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Totals {
    fn add(&mut self, more: &Totals) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
    }

    /// Adds what one line of a test runner's output tells, if it is a summary:
    /// `test result: ok. 5 passed; 0 failed; 1 ignored; …` (libtest, once per binary) or
    /// `Summary [   1.2s] 8 tests run: 7 passed (1 slow), 1 failed, 0 skipped` (nextest, once).
    fn read_line(&mut self, line: &str) {
        let line = line.trim_start();
        if !line.starts_with("test result:") && !line.starts_with("Summary [") {
            return;
        }
        self.passed += number_before(line, " passed");
        self.failed += number_before(line, " failed");
        self.ignored += number_before(line, " ignored") + number_before(line, " skipped");
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

fn number_before(line: &str, word: &str) -> u64 {
    let before = line.split_once(word).map_or("", |(before, _)| before);
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

/// Runs cargo, passes its output on line by line, and reads the summaries of tests in it.
fn cargo(arguments: &[String]) -> Result<(bool, Totals)> {
    let (output, input) = std::io::pipe().context("a pipe")?;
    let mut command = Command::new("cargo");
    command.args(arguments).stdout(input.try_clone()?);
    // One folder for all workspaces (fuzz/ is one of its own), so that they share what is built.
    command.env("CARGO_TARGET_DIR", target_folder()?);
    // nextest reports on standard error; elsewhere cargo shows its progress there.
    if arguments.first().is_some_and(|first| first == "nextest") {
        command.stderr(input);
    } else {
        drop(input);
    }
    let mut child = command.spawn().context("cannot start cargo")?;
    // The command holds the pipe's other end: the output ends only when that is closed.
    drop(command);
    let told = pass_on(BufReader::new(output), &mut std::io::stdout().lock());
    let status = child.wait().context("cargo is gone")?;
    Ok((status.success(), told?))
}

fn pass_on(mut output: impl BufRead, out: &mut impl Write) -> Result<Totals> {
    let mut told = Totals::default();
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        out.write_all(&line)?;
        out.flush()?;
        told.read_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_both_runners_add_up() {
        let output = "\
            running 2 tests\n\
            test it_says_9_passed ... ok\n\
            test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out\n\
            test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out\n\
            \x20    Summary [   1.204s] 8/10 tests run: 7 passed (1 slow), 1 failed, 2 skipped\n";
        let mut shown = Vec::new();
        let told = pass_on(output.as_bytes(), &mut shown).expect("a readable output");
        assert_eq!(shown, output.as_bytes());
        let expected = Totals {
            passed: 24,
            failed: 4,
            ignored: 3,
        };
        assert_eq!(told, expected);
        assert_eq!(told.to_string(), "24 passed, 4 failed");
    }

    #[test]
    fn a_failing_step_says_how_to_run_it_alone() {
        let steps = [
            Step::action("fine", || Ok(())),
            Step::action("broken", || bail!("no luck")),
            Step::action("never", || panic!("ran after a failure")),
        ];
        let error = run(&steps, &mut Totals::default()).expect_err("the second step fails");
        let text = error.to_string();
        assert!(text.contains("[2/3] broken") && text.contains("no luck"));
        assert!(text.ends_with("cargo xtask test --only broken"));
    }

    #[test]
    fn a_run_without_tests_fails() {
        let step = Step::cargo("tests", "--version").tests();
        assert!(run(&[step], &mut Totals::default()).is_err());
        assert!(run(&[Step::cargo("cargo", "--version")], &mut Totals::default()).is_ok());
    }
}
