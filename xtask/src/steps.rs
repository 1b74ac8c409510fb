//! Runs steps in sequence, prints their durations, and adds up the test results.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::tools::target_folder;

/// A step of a task.
pub struct Step {
    pub name: String,
    work: Work,
    /// Environment variables of the command.
    environment: Vec<(&'static str, String)>,
    /// Number of times the step runs. Further runs follow after a failed one, too.
    rounds: u32,
    /// Minimum number of tests; if fewer run, the step fails.
    tests_min: u64,
    /// Whether the step's tests count in the total.
    counted: bool,
    /// The task that has the step.
    task: &'static str,
}

enum Work {
    Cargo(Vec<String>),
    Action(fn() -> Result<()>),
}

impl Step {
    /// Returns a step that runs `cargo` with these space-separated arguments.
    pub fn cargo(name: &str, arguments: &str) -> Step {
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Step::new(name, Work::Cargo(arguments))
    }

    /// A step that runs a function of this program.
    pub fn action(name: &str, action: fn() -> Result<()>) -> Step {
        Step::new(name, Work::Action(action))
    }

    fn new(name: &str, work: Work) -> Step {
        Step {
            name: name.to_owned(),
            work,
            environment: Vec::new(),
            rounds: 1,
            tests_min: 0,
            counted: true,
            task: "test",
        }
    }

    /// Marks a step that runs tests. The step fails if no test runs.
    pub fn tests(mut self) -> Step {
        self.tests_min = 1;
        self
    }

    /// Sets an environment variable of the command.
    pub fn env(mut self, name: &'static str, value: &str) -> Step {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Marks a step of `cargo xtask soak`.
    pub fn of_soak(mut self) -> Step {
        self.task = "soak";
        self
    }

    /// Runs the step this many times.
    pub fn repeated(mut self, rounds: u32) -> Step {
        self.rounds = rounds;
        self
    }

    /// Excludes the tests of this step from the total, because a later step runs the same tests.
    pub fn uncounted(mut self) -> Step {
        self.counted = false;
        self
    }

    /// Returns the command that runs this step alone.
    pub fn command_line(&self) -> String {
        let variable = |(name, value): &(_, String)| match value.contains(' ') {
            true => format!("{name}='{value}' "),
            false => format!("{name}={value} "),
        };
        let variables: String = self.environment.iter().map(variable).collect();
        match &self.work {
            Work::Cargo(arguments) => format!("{variables}cargo {}", arguments.join(" ")),
            Work::Action(_) => format!("cargo xtask {} --only {}", self.task, self.name),
        }
    }

    fn run(&self, totals: &mut Totals) -> Result<()> {
        if self.rounds == 1 {
            return self.run_once(totals);
        }
        let mut failed = 0;
        for round in 1..=self.rounds {
            let outcome = self.run_once(totals);
            failed += u32::from(outcome.is_err());
            let rounds = self.rounds;
            println!("{}: run {round} of {rounds}, {failed} failed", self.name);
        }
        if failed > 0 {
            bail!("{failed} of {} runs failed", self.rounds);
        }
        Ok(())
    }

    fn run_once(&self, totals: &mut Totals) -> Result<()> {
        let arguments = match &self.work {
            Work::Action(action) => return action(),
            Work::Cargo(arguments) => arguments,
        };
        let (succeeded, ran) = cargo(arguments, &self.environment)?;
        if self.counted {
            totals.add(&ran);
        }
        if !succeeded {
            bail!("the command reported a failure");
        }
        if ran.passed < self.tests_min {
            bail!("no test ran");
        }
        if ran.ignored > 0 {
            bail!(
                "{} tests were ignored; ignored tests are not allowed",
                ran.ignored
            );
        }
        Ok(())
    }
}

/// Runs the steps in order until one fails.
pub fn run(steps: &[Step], totals: &mut Totals) -> Result<()> {
    let began = Instant::now();
    for index in 0..steps.len() {
        run_one(steps, index, totals)?;
    }
    println!("all steps: ok, {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Runs all steps, also after one has failed. The error has the errors of all failed steps.
pub fn run_all(steps: &[Step], totals: &mut Totals) -> Result<()> {
    let mut errors = Vec::new();
    for index in 0..steps.len() {
        if let Err(error) = run_one(steps, index, totals) {
            println!("{error:#}");
            errors.push(error.to_string());
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => bail!("{} steps failed\n{}", errors.len(), errors.join("\n")),
    }
}

fn run_one(steps: &[Step], index: usize, totals: &mut Totals) -> Result<()> {
    let step = &steps[index];
    let position = format!("[{}/{}] {}", index + 1, steps.len(), step.name);
    println!("{position}: {}", step.command_line());
    let began = Instant::now();
    let done = step.run(totals);
    let took_s = began.elapsed().as_secs_f64();
    if let Err(error) = done {
        bail!(
            "{position}: failed after {took_s:.1} s: {error:#}\nto run this step alone: {}",
            step.command_line()
        );
    }
    println!("{position}: ok, {took_s:.1} s");
    Ok(())
}

/// Numbers of passed and failed tests. Displayed as `N passed, N failed`.
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

    /// Adds the numbers in a line of a test runner's output, if the line is a summary:
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

/// Runs cargo, prints its output as it arrives, and parses test summaries in it.
fn cargo(arguments: &[String], environment: &[(&str, String)]) -> Result<(bool, Totals)> {
    let (output, input) = std::io::pipe().context("a pipe")?;
    let mut command = Command::new("cargo");
    command.args(arguments).stdout(input.try_clone()?);
    // All workspaces, including the separate one in fuzz/, use one target folder and share its artifacts.
    command.env("CARGO_TARGET_DIR", target_folder()?);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    // nextest reports on standard error; other cargo commands show progress there.
    if arguments.first().is_some_and(|first| first == "nextest") {
        command.stderr(input);
    } else {
        drop(input);
    }
    let mut child = command.spawn().context("cannot start cargo")?;
    // Dropping the command closes this process's end of the pipe. Otherwise reading the output would never end.
    drop(command);
    let ran = pass_on(BufReader::new(output), &mut std::io::stdout().lock());
    let status = child.wait().context("waiting for cargo")?;
    Ok((status.success(), ran?))
}

fn pass_on(mut output: impl BufRead, out: &mut impl Write) -> Result<Totals> {
    let mut ran = Totals::default();
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        out.write_all(&line)?;
        out.flush()?;
        ran.read_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_both_test_runners_are_added() {
        let output = "\
            running 2 tests\n\
            test it_says_9_passed ... ok\n\
            test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out\n\
            test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out\n\
            \x20    Summary [   1.204s] 8/10 tests run: 7 passed (1 slow), 1 failed, 2 skipped\n";
        let mut shown = Vec::new();
        let ran = pass_on(output.as_bytes(), &mut shown).expect("a readable output");
        assert_eq!(shown, output.as_bytes());
        let expected = Totals {
            passed: 24,
            failed: 4,
            ignored: 3,
        };
        assert_eq!(ran, expected);
        assert_eq!(ran.to_string(), "24 passed, 4 failed");
    }

    #[test]
    fn a_failing_step_prints_the_command_that_runs_it_alone() {
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
    fn a_soak_goes_on_after_a_failure_and_reports_all() {
        let broken = |name: &str| Step::action(name, || bail!("no luck"));
        let steps = [
            broken("first").repeated(3),
            Step::action("fine", || Ok(())),
            broken("last"),
        ];
        let error = run_all(&steps, &mut Totals::default()).expect_err("two steps fail");
        let text = error.to_string();
        assert!(
            text.contains("2 steps failed") && text.contains("3 of 3 runs failed"),
            "{text}"
        );
        assert!(
            text.contains("[1/3] first") && text.contains("[3/3] last"),
            "{text}"
        );
    }

    #[test]
    fn a_run_without_tests_fails() {
        let step = Step::cargo("tests", "--version").tests();
        assert!(run(&[step], &mut Totals::default()).is_err());
        assert!(run(&[Step::cargo("cargo", "--version")], &mut Totals::default()).is_ok());
    }
}
