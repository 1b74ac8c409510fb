//! The lab's roles as real processes. Roles are started as this program, so it has its own `main`.

use std::process::ExitCode;
use std::time::Duration;

use sluice_lab::load::LoadPlan;
use sluice_lab::rivals::FloorOptions;
use sluice_lab::roles::{self, OriginPlan};

type Test = (&'static str, fn());

const TESTS: [Test; 3] = [
    (
        "a_load_is_made_from_another_process",
        a_load_is_made_from_another_process,
    ),
    (
        "an_origin_runs_in_another_process",
        an_origin_runs_in_another_process,
    ),
    ("bad_options_are_an_error", bad_options_are_an_error),
];

/// Supports the arguments of a test harness that cargo and nextest use: `--list`, `--exact`, and a name filter.
fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    if let Some(code) = roles::entry(&args) {
        return code;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| args.iter().any(|arg| arg == option);
    let wanted = args.iter().find(|arg| !arg.starts_with('-'));
    for (name, test) in TESTS {
        let chosen = wanted.is_none_or(|wanted| match has("--exact") {
            true => name == wanted,
            false => name.contains(wanted.as_str()),
        });
        if !chosen || has("--ignored") {
            continue;
        }
        if has("--list") {
            println!("{name}: test");
            continue;
        }
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn a_load_is_made_from_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = FloorOptions::new(5000);
    options.core = Some(0);
    let floor = roles::start_floor(&options, folder.path()).expect("a floor");
    let plan = LoadPlan {
        requests: Some(1000),
        connections: 4,
        expect_length: Some(5000),
        core: Some(0),
        ..LoadPlan::new(floor.address, "/")
    };
    let before = floor.process.cpu().expect("alive");
    let result = roles::run_load(&plan, folder.path()).expect("a result");
    assert_eq!((result.requests, result.errors.total()), (1000, 0));
    assert!(floor.process.cpu().expect("alive") > before + Duration::from_micros(1000));
}

fn an_origin_runs_in_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut origin = roles::start_origin(&OriginPlan::default(), folder.path()).expect("an origin");
    let reply = sluice_lab::client::get(origin.address, "/offset/1000", &[]).expect("a reply");
    reply.verify_whole(1000).expect("whole");
    assert_eq!(reply.header("cache-control"), Some("max-age=3600"));
    origin
        .process
        .signal(rustix::process::Signal::TERM)
        .expect("alive");
    origin
        .process
        .wait_exit(Duration::from_secs(10))
        .expect("it ends");
}

fn bad_options_are_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = LoadPlan {
        requests: None,
        ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
    };
    let error = roles::run_load(&plan, folder.path()).expect_err("a load without end");
    assert!(error.to_string().contains("a load needs"), "{error:#}");
}
