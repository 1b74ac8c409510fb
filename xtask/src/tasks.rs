//! The steps of `test` and `lint`.

use anyhow::{Result, bail};

use crate::steps::{Step, Totals, run};
use crate::{conformance, deny, page, tools};

/// Runs `cargo xtask test`. The last line printed is the total of all tests.
pub fn test(quick: bool, only: Option<&str>) -> Result<()> {
    let steps = match (quick, only) {
        (true, _) => quick_steps(),
        (false, Some(name)) => one_of(all_steps(), name)?,
        (false, None) => all_steps(),
    };
    let mut totals = Totals::default();
    let done = run(&steps, &mut totals);
    if let Err(error) = done {
        bail!("{error:#}\n{totals}");
    }
    println!("{totals}");
    Ok(())
}

/// Runs `cargo xtask lint`.
pub fn lint() -> Result<()> {
    run(
        &[
            format(),
            fuzz_format(),
            clippy(),
            architecture(),
            dependencies(),
        ],
        &mut Totals::default(),
    )
}

fn all_steps() -> Vec<Step> {
    vec![
        Step::action("tools", tools::ensure),
        format(),
        fuzz_format(),
        clippy(),
        // The architecture test runs early for a quick result. The total counts it in the later step that runs all
        // tests.
        architecture().uncounted(),
        dependencies(),
        tests(),
        over_tls(),
        over_http2(),
        Step::cargo("doc-tests", "test --workspace --doc"),
        Step::action("conformance", conformance::step),
        Step::action("page", page::step),
        // The step `schedules` runs the tests of the store's locks under many thread schedules, with shuttle.
        Step::cargo(
            "schedules",
            "test --package sluice --lib --features shuttle store::tests::shuttle",
        )
        .tests(),
        Step::cargo("fuzz", "test --manifest-path fuzz/Cargo.toml").tests(),
    ]
}

fn quick_steps() -> Vec<Step> {
    vec![
        format(),
        fuzz_format(),
        clippy(),
        architecture(),
        Step::cargo("tests", "test --workspace --lib --bins --no-fail-fast").tests(),
    ]
}

fn format() -> Step {
    Step::cargo("format", "fmt --all --check")
}

/// Returns the step that checks the format of the fuzz targets, which are a workspace of their own.
fn fuzz_format() -> Step {
    Step::cargo("fuzz-format", "fmt --manifest-path fuzz/Cargo.toml --check")
}

fn clippy() -> Step {
    Step::cargo(
        "clippy",
        "clippy --workspace --all-targets -- --deny warnings",
    )
}

fn architecture() -> Step {
    Step::cargo("architecture", "test --workspace --test architecture").tests()
}

fn dependencies() -> Step {
    Step::action("dependencies", deny::check)
}

/// Returns the step that runs all tests. If cargo-nextest is installed, the step uses it, because cargo-nextest runs
/// the tests of all binaries in parallel.
fn tests() -> Step {
    if tools::succeeds("cargo", &["nextest", "--version"]) {
        Step::cargo("tests", "nextest run --workspace --no-fail-fast").tests()
    } else {
        Step::cargo(
            "tests",
            "test --workspace --lib --bins --tests --no-fail-fast",
        )
        .tests()
    }
}

/// Modules of the behaviour tests that touch the transport of connections: reading, writing, closing, waiting. The soak
/// runs all modules over TLS.
const TRANSPORT_TESTS: [&str; 41] = [
    "access_log::",
    "bodies::",
    "cache::",
    "collapse::",
    "connections::",
    "content_codings::",
    "desync::",
    "edited_heads::",
    "error_pages::",
    "files::",
    "framing::",
    "hosts::",
    "idle_workers::",
    "interim::",
    "keepalive::",
    "leaving_clients::",
    "limits::",
    "listeners::",
    "malformed::",
    "methods::",
    "one_clients_harm::",
    "partial::",
    "post_responses::",
    "proxy_protocol::",
    "purge::",
    "range_sharing::",
    "ranges::",
    "reload::",
    "request_loops::",
    "resume::",
    "short_bodies::",
    "shutdown::",
    "sites::",
    "slow_clients::",
    "streaming::",
    "transfer_timeouts::",
    "unix_sockets::",
    "unusual_requests::",
    "upgrade::",
    "viewers::",
    "workers::",
];

/// Modules of the behaviour tests that touch what a protocol changes: heads, content, trailers, the end of a response,
/// and their records. The soak runs all modules over HTTP/2.
const PROTOCOL_TESTS: [&str; 24] = [
    "access_log::",
    "admin::",
    "bodies::",
    "buffering::",
    "cache::",
    "cache_status::",
    "compress::",
    "content_codings::",
    "continued_bodies::",
    "edited_heads::",
    "error_pages::",
    "files::",
    "interim::",
    "leaving_clients::",
    "limits::",
    "log_formats::",
    "long_polling::",
    "methods::",
    "not_modified::",
    "ranges::",
    "short_bodies::",
    "shutdown::",
    "streaming::",
    "upstream::",
];

/// Returns the step that runs some behaviour tests again, with clients that use TLS.
fn over_tls() -> Step {
    behaviour_again("tests-over-tls", &TRANSPORT_TESTS).env("SLUICE_TEST_TLS", "1")
}

/// Returns the step that runs some behaviour tests again, with clients that speak HTTP/2 in clear text.
fn over_http2() -> Step {
    behaviour_again("tests-over-http2", &PROTOCOL_TESTS).env("SLUICE_TEST_HTTP2", "1")
}

fn behaviour_again(name: &str, modules: &[&str]) -> Step {
    let arguments = format!(
        "test --package sluice --test behaviour -- {}",
        modules.join(" ")
    );
    Step::cargo(name, &arguments).tests().uncounted()
}

pub fn one_of(steps: Vec<Step>, name: &str) -> Result<Vec<Step>> {
    let names: Vec<_> = steps.iter().map(|step| step.name.clone()).collect();
    let chosen: Vec<_> = steps.into_iter().filter(|step| step.name == name).collect();
    if chosen.is_empty() {
        bail!("no step `{name}`; the steps are {}", names.join(", "));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_can_be_run_alone() {
        assert_eq!(one_of(all_steps(), "clippy").map(|s| s.len()).ok(), Some(1));
        assert!(one_of(all_steps(), "nonsense").is_err());
    }

    #[test]
    fn the_tests_that_run_again_exist() {
        let main = include_str!("../../edge/tests/behaviour/main.rs");
        for module in TRANSPORT_TESTS.iter().chain(&PROTOCOL_TESTS) {
            let line = format!("\nmod {};\n", module.trim_end_matches(':'));
            assert!(main.contains(&line), "{module}");
        }
    }
}
