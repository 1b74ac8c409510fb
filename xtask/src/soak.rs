//! `cargo xtask soak`: the tests that take longer than the test command allows.

use std::time::SystemTime;

use anyhow::{Result, bail};
use clap::Args;

use crate::steps::{Step, Totals, run_all};
use crate::{h2spec, tasks, tools};

/// Options of the soak.
#[derive(Args)]
pub struct SoakArguments {
    /// Minutes for each fuzz target
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Number of runs of the behaviour tests
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many times as many cases as in `cargo xtask test` the other steps try
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    factor: u32,
    /// Run only this step
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
    /// Print the steps and run nothing
    #[arg(long)]
    list: bool,
}

/// Instrumentation of fuzz targets, as libFuzzer needs it. A stable toolchain suffices, since no
/// sanitizer is used.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table --cfg fuzzing";

/// Runs all steps, also after one has failed, and fails if any did.
pub fn soak(arguments: &SoakArguments) -> Result<()> {
    let mut steps = steps(arguments)?;
    if let Some(name) = &arguments.only {
        steps = tasks::one_of(steps, name)?;
    }
    if arguments.list {
        steps
            .iter()
            .for_each(|step| println!("{}: {}", step.name, step.command_line()));
        return Ok(());
    }
    let mut totals = Totals::default();
    let done = run_all(&steps, &mut totals);
    println!("{totals}");
    done
}

fn steps(arguments: &SoakArguments) -> Result<Vec<Step>> {
    let factor = arguments.factor.to_string();
    let cases = (256 * u64::from(arguments.factor)).to_string();
    let longer = |name: &str, command: &str| {
        Step::cargo(name, command)
            .tests()
            .env("SLUICE_SOAK", &factor)
            .env("PROPTEST_CASES", &cases)
    };
    let mut steps = vec![
        longer("power-failures", "test --package sluice --lib volume::"),
        longer("kills", "test --package sluice --test crash"),
        longer(
            "properties",
            "test --workspace --lib --no-fail-fast -- --skip volume::",
        ),
        longer(
            "schedules",
            "test --package sluice --lib --features shuttle store::tests::shuttle",
        ),
        longer(
            "admin-api",
            "test --package sluice --test behaviour -- openapi::fuzz::",
        )
        .env("SLUICE_API_SEED", &seed()?),
    ];
    steps.extend(behaviour(arguments.rounds));
    steps.push(
        Step::cargo(
            "every-byte",
            "test --package sluice --test behaviour -- broken_bytes:: server_tls_faults::",
        )
        .env("SLUICE_EVERY_BYTE", "1")
        .tests(),
    );
    steps.push(Step::action("h2spec", h2spec::step).of_soak());
    for target in fuzz_targets()? {
        let folder = tools::target_folder()?
            .join("fuzz")
            .join("corpus")
            .join(&target);
        std::fs::create_dir_all(&folder)?;
        let (folder, seconds) = (folder.display(), arguments.minutes * 60);
        let command = format!(
            "run --manifest-path fuzz/Cargo.toml --release --target {} --features libfuzzer \
             --bin {target} -- -max_total_time={seconds} -max_len=4096 -verbosity=0 -print_funcs=0 {folder}",
            host()?
        );
        let name = format!("fuzz-{target}");
        steps.push(Step::cargo(&name, &command).env("RUSTFLAGS", COVERAGE));
    }
    Ok(steps)
}

/// Returns a seed of random requests that no earlier soak had. The command line of the step shows the seed.
fn seed() -> Result<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(now.as_secs().to_string())
}

/// Returns the steps that repeat the behaviour tests: as in the test command, over each protocol, and with pauses.
fn behaviour(rounds: u32) -> Vec<Step> {
    let all = "test --package sluice --test behaviour";
    let over = |name: &str, variables: &[&'static str]| {
        let step = Step::cargo(name, all).tests().repeated(rounds.div_ceil(4));
        variables
            .iter()
            .fold(step, |step, name| step.env(name, "1"))
    };
    let slowly = format!("{all} -- --test-threads 32");
    vec![
        Step::cargo("behaviour", all).tests().repeated(rounds),
        over("behaviour-over-tls", &["SLUICE_TEST_TLS"]),
        over("behaviour-over-http2", &["SLUICE_TEST_HTTP2"]),
        over(
            "behaviour-over-http2-and-tls",
            &["SLUICE_TEST_HTTP2", "SLUICE_TEST_TLS"],
        ),
        over(
            "behaviour-with-http2-origins",
            &["SLUICE_TEST_HTTP2_ORIGINS"],
        ),
        // With pauses of tests and origin, which show tests that depend on the speed of the machine.
        Step::cargo("behaviour-with-pauses", &slowly)
            .env("SLUICE_TEST_PAUSES", "1000/5")
            .tests()
            .repeated(rounds.div_ceil(4)),
    ]
}

/// Returns the names of the fuzz targets, each of which is a file in `fuzz/fuzz_targets`.
fn fuzz_targets() -> Result<Vec<String>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/fuzz_targets");
    let mut names = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        names.extend(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    Ok(names)
}

/// Returns the compiler's target for this machine. With `--target`, build scripts are compiled
/// without instrumentation.
fn host() -> Result<String> {
    let output = std::process::Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find_map(|line| line.strip_prefix("host: ")) {
        Some(host) => Ok(host.to_owned()),
        None => bail!("`rustc -vV` prints no host"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_a_step() {
        let arguments = SoakArguments {
            minutes: 2,
            rounds: 3,
            factor: 4,
            only: None,
            list: false,
        };
        let steps = steps(&arguments).expect("steps");
        let find = |name: &str| steps.iter().find(|step| step.name == name);
        let range = find("fuzz-range").expect("a step").command_line();
        assert!(range.contains("-max_total_time=120"), "{range}");
        let kills = find("kills").expect("a step").command_line();
        assert!(kills.contains("SLUICE_SOAK=4"), "{kills}");
        let api = find("admin-api").expect("a step").command_line();
        assert!(api.contains("SLUICE_API_SEED="), "{api}");
        let h2spec = find("h2spec").expect("a step").command_line();
        assert_eq!(h2spec, "cargo xtask soak --only h2spec");
        assert_eq!(fuzz_targets().expect("a folder").len() + 13, steps.len());
    }
}
