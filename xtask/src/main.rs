//! The task runner: `cargo xtask test`, `lint`, `soak`, `conformance`, `bench` and `figures`.

mod bench;
mod conformance;
mod deny;
mod figures;
mod h2spec;
mod npm;
mod page;
mod soak;
mod steps;
mod tasks;
mod tools;

use std::process::ExitCode;

use clap::Parser;

/// Tasks for developing Sluice.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Run all checks of CI. The last line shows the numbers of passed and failed tests
    Test {
        /// Run only formatting, lints, unit tests and architecture, which takes a minute
        #[arg(long)]
        quick: bool,
        /// Run only this step
        #[arg(long, value_name = "STEP", conflicts_with = "quick")]
        only: Option<String>,
    },
    /// Check formatting, clippy, dependencies and architecture
    Lint,
    /// Run what takes longer than `test` allows: more crashes and random cases, repeated behaviour tests, fuzzing.
    /// With the defaults this takes some hours
    Soak(soak::SoakArguments),
    /// Run the public suite of HTTP caching tests and compare the results with the list of passing tests
    Conformance(conformance::ConformanceArguments),
    /// Measure CPU time per request, memory and origin traffic of Sluice and nginx, side by side
    Bench(bench::BenchArguments),
    /// Measure the published figures, and write docs/figures.md, docs/figures.json and the block in README.md
    Figures(figures::FiguresArguments),
}

fn main() -> ExitCode {
    // The bench starts this program again as load generator and origin.
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(exit_code) = sluice_lab::roles::entry(&arguments) {
        return exit_code;
    }
    let done = match Task::parse() {
        Task::Test { quick, only } => tasks::test(quick, only.as_deref()),
        Task::Lint => tasks::lint(),
        Task::Soak(arguments) => soak::soak(&arguments),
        Task::Conformance(arguments) => conformance::conformance(&arguments),
        Task::Bench(arguments) => bench::bench(arguments),
        Task::Figures(arguments) => figures::figures(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // All other output goes to standard output as well, so that the order is right in a CI log.
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
