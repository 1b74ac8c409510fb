//! The task runner: `cargo xtask test`, `lint`, `conformance` and `bench`.

mod bench;
mod conformance;
mod deny;
mod steps;
mod tasks;
mod tools;

use std::process::ExitCode;

use clap::Parser;

/// Sluice's tasks, one command each.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Everything that CI checks. The last line says how many tests passed and failed.
    Test {
        /// Only what takes a minute: formatting, lints, unit tests, architecture.
        #[arg(long)]
        quick: bool,
        /// Only this step.
        #[arg(long, value_name = "STEP", conflicts_with = "quick")]
        only: Option<String>,
    },
    /// Formatting, clippy, dependencies, architecture.
    Lint,
    /// The public suite of HTTP caching tests: what fails, and whether that is what it was.
    Conformance(conformance::ConformanceArguments),
    /// CPU per request, memory and origin traffic of Sluice and nginx, side by side.
    Bench(bench::BenchArguments),
}

fn main() -> ExitCode {
    // The bench starts this program again as its load generator and its origins.
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(played) = sluice_lab::roles::entry(&arguments) {
        return played;
    }
    let done = match Task::parse() {
        Task::Test { quick, only } => tasks::test(quick, only.as_deref()),
        Task::Lint => tasks::lint(),
        Task::Conformance(arguments) => conformance::conformance(&arguments),
        Task::Bench(arguments) => bench::bench(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Everything else goes to standard output, so that the order holds in a CI log.
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
