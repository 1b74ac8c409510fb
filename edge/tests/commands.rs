//! Tests of the program's commands and their output. Some tests have a running edge, others have
//! none.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn sluice(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(folder: &Path, text: &str) {
    std::fs::write(folder.join("sluice.toml"), text).expect("a temporary folder can be written");
}

const GOOD: &str = "
[cache.spare]
[upstream.origin]
servers = [\"http://10.0.0.1:9000\"]
[[site]]
[[site.route]]
proxy = \"origin\"
";

#[test]
fn check_describes_the_configuration_and_warns() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), GOOD);
    let output = sluice(folder.path(), &["check"]);
    assert!(output.status.success());
    let said = text(&output.stdout);
    assert!(
        said.contains("listening on http://0.0.0.0:8080\n"),
        "{said}"
    );
    assert!(
        said.contains("  everything -> upstream origin, not cached\n"),
        "{said}"
    );
    let doubts = text(&output.stderr);
    assert!(
        doubts.starts_with("warning: cache `spare` is not used"),
        "{doubts}"
    );
}

#[test]
fn an_invalid_file_is_reported_and_nothing_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(
        folder.path(),
        &GOOD.replace("proxy = \"origin\"", "proxy = \"orgin\""),
    );
    for command in ["check", "serve"] {
        let output = sluice(folder.path(), &[command, "-c", "sluice.toml"]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("--> sluice.toml:7:9\n"), "{said}");
        assert!(said.contains("help: did you mean `origin`?"), "{said}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn options_are_checked_like_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(
        folder.path(),
        &["serve", "--origin", "ftp://a", "--memory", "1KiB"],
    );
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("`http://` is missing") && said.contains("`memory` is out of bounds"),
        "{said}"
    );
    for arguments in [
        &["serve"][..],
        &["serve", "-c", "sluice.toml", "--origin", "http://a"],
        &["demo", "--rate", "1"],
        &["serve", "-c", "sluice.toml", "--access-log", "-"],
    ] {
        assert_eq!(
            sluice(folder.path(), arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
    let both = ["serve", "-c", "sluice.toml", "--listen", "127.0.0.1:0"];
    let said = text(&sluice(folder.path(), &both).stderr);
    assert_eq!(
        said,
        "error: --listen can't be used with --config: put it into the file, as `address` in [[listener]]\n"
    );
}

#[test]
fn commands_report_that_no_sluice_answers_at_the_admin_address() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // No program listens on port 1 of this loopback address, so connections to it are refused.
    let address = "127.99.0.1:1";
    for command in [&["status"][..], &["reload"], &["inspect", "http://a/b"]] {
        let output = sluice(folder.path(), &[command, &["--admin", address]].concat());
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.starts_with(&format!("error: no Sluice answers at {address}")),
            "{said}"
        );
    }
}

/// A running `sluice serve`, killed on drop.
struct Edge {
    process: Child,
    admin: String,
}

impl Edge {
    fn serve(folder: &Path) -> Edge {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .current_dir(folder)
            .args(["serve", "-c", "sluice.toml"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let out = process.stdout.take().expect("its output is piped");
        let mut lines = BufReader::new(out)
            .lines()
            .map(|line| line.expect("lines of text"));
        let listening = lines.next().expect("a line for the listener");
        assert!(
            listening.starts_with("listening on http://127.0.0.1:"),
            "{listening}"
        );
        let admin = lines.next().expect("a line for the admin address");
        let admin = admin
            .strip_prefix("admin on http://")
            .expect("its address")
            .to_owned();
        Edge { process, admin }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).expect("our own child");
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // Killing a process that has ended already is an error, which is ignored.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const SERVED: &str = "
[server]
workers = 1
[[listener]]
address = \"127.0.0.1:0\"
[admin]
address = \"127.0.0.1:0\"
[cache.main]
memory = \"16MiB\"
[upstream.origin]
servers = [\"http://10.0.0.1:9000\"]
[[site]]
[[site.route]]
proxy = \"origin\"
cache = \"main\"
";

#[test]
fn a_running_edge_reloads_reports_its_status_and_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let mut edge = Edge::serve(folder.path());
    let ask = |command: &[&str]| {
        let output = sluice(
            folder.path(),
            &[command, &["--admin", &edge.admin]].concat(),
        );
        (
            output.status.success(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let status = || -> serde_json::Value {
        let (done, json, said) = ask(&["status", "--json"]);
        assert!(done, "{said}");
        serde_json::from_str(&json).expect("JSON")
    };

    write(
        folder.path(),
        &SERVED.replace("cache = \"main\"", "cache = \"mian\""),
    );
    let (done, _, said) = ask(&["reload"]);
    assert!(
        !done && said.contains("help: did you mean `main`?"),
        "{said}"
    );
    assert_eq!(status()["reload"]["generation"], 1);

    write(
        folder.path(),
        &SERVED.replace("cache = \"main\"", "path = \"/a/*\"\ncache = \"main\""),
    );
    let (done, said, _) = ask(&["reload"]);
    assert!(done && said.contains("sites changed"), "{said}");
    assert_eq!(status()["reload"]["generation"], 2);

    let (done, said, _) = ask(&["status"]);
    assert!(
        done && said.contains("cache main: 0 objects") && said.contains("10.0.0.1:9000"),
        "{said}"
    );
    let (done, said, _) = ask(&["status", "--url", "http://a/b"]);
    assert!(
        done && said == "no cache has stored or is fetching this URL\n",
        "{said}"
    );
    let inspect = |arguments: &[&str]| {
        let admin = ["--admin", &edge.admin];
        let output = sluice(folder.path(), &[&["inspect"], arguments, &admin].concat());
        let said = text(&output.stderr);
        (output.status.code(), text(&output.stdout), said)
    };
    let (code, out, said) = inspect(&["http://a/b"]);
    assert_eq!((code, out.as_str()), (Some(3), ""));
    assert!(
        said.starts_with("error: no cache has stored or is fetching http://a/b\n"),
        "{said}"
    );
    let (code, out, _) = inspect(&["http://a/b", "--json"]);
    assert_eq!((code, out.as_str()), (Some(3), "[]\n"));
    let (code, _, said) = inspect(&["a/b"]);
    assert_eq!(code, Some(1));
    assert_eq!(said, "error: a URL begins with http:// or https://\n");

    edge.signal(rustix::process::Signal::TERM);
    let ended = edge.process.wait().expect("our own child");
    assert!(ended.success(), "{ended}");
}

#[test]
fn the_demo_prints_the_expected_steps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let output = sluice(
        folder.path(),
        &[&["demo", "--try", "--rate", "20MiB"], &free[..]].concat(),
    );
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(
        said.contains("bytes 10000000-10000009") && said.contains("sluice; hit"),
        "{said}"
    );
    assert!(said.ends_with(" requests and sent 10 MiB.\n"), "{said}");
}

/// Runs `sluice lab` with these arguments. Returns the report; the command must succeed.
fn lab(arguments: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(
        folder.path(),
        &[&["lab"], arguments, &["--fill", "whole", "--json"]].concat(),
    );
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Sluice whole: "), "{said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_lab_measures_ranges_and_origin_bytes() {
    let report = lab(&["byte-range", "--alone", "--rounds", "1", "--rate", "20MiB"]);
    let [direct, whole] = &report["rows"].as_array().expect("rows")[..] else {
        panic!("{report:#}");
    };
    assert_eq!(direct["name"], "origin");
    assert_eq!(direct["ranges"]["req"], 4.0);
    // All clients share one fetch, so the origin receives one request and sends each byte once.
    for cost in [&whole["ranges"], &whole["file"]] {
        assert_eq!(cost["req"], 1.0, "{whole:#}");
        assert_eq!(cost["sent"], 10_485_760.0, "{whole:#}");
        assert_eq!(cost["most"], 1.0, "{whole:#}");
    }
    let total = |what: &str| whole["ms"][what]["total"].as_f64().expect("a time");
    // The origin sends 20 MiB/s: the middle of the file arrives after 238 ms, and its end after 500
    // ms.
    assert!(total("cold") > 200.0, "{whole:#}");
    assert!(total("whole") > 450.0, "{whole:#}");
    assert!(total("warm") < 200.0, "{whole:#}");
}

#[test]
fn the_lab_verifies_every_byte_while_versions_change() {
    let storm = |seed| {
        lab(&[
            "storm",
            "--requests",
            "300",
            "--clients",
            "20",
            "--seed",
            seed,
            "--change-every",
            "2ms",
        ])
    };
    let report = storm("7");
    let row = &report["rows"][0];
    assert_eq!(
        (&report["seed"], &report["max_age"]),
        (&7.into(), &1.into())
    );
    assert_eq!(row["requests"], 300, "{row:#}");
    assert_eq!((&row["wrong"], &row["failed"]), (&0.into(), &0.into()));
    assert_eq!(row["ended_early"], false);
    assert!(row["over"].as_f64() > Some(0.0), "{row:#}");
    let bytes = |what: &str| row[what].as_u64().expect("a number of bytes");
    assert!(bytes("got") > 1 << 20, "{row:#}");
    assert!(bytes("sent") >= bytes("touched") / 2, "{row:#}");
}

#[test]
fn the_lab_measures_the_cost_of_single_bytes() {
    let report = lab(&["budget", "--seconds", "0.6"]);
    let marks = report["marks"].as_array().expect("marks");
    assert_eq!(marks.len(), 6);
    let last = &marks[5];
    assert!(last["right"].as_u64() > Some(0), "{last:#}");
    assert_eq!(last["not_right"], 0, "{last:#}");
}

/// Runs a lab experiment with these arguments. Returns its report.
fn experiment(arguments: &str) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let output = sluice(folder.path(), &arguments);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_lab_measures_the_cost_of_crowds_and_dead_origins() {
    let arguments = "lab caching --json --seconds 1 --clients 40 --rate 200 \
                     --only crowd --only dead --only micro";
    let report = experiment(arguments);
    let figures = report["figures"].as_array().expect("figures");
    // Only request counts are checked; times depend on the machine.
    let timed = |figure: &&serde_json::Value| figure["key"] != "micro_waited";
    let with_goals = figures.iter().filter(|figure| !figure["goal"].is_null());
    let met: Vec<_> = with_goals.filter(timed).map(|f| &f["met"]).collect();
    assert_eq!(met.len(), 9, "{report:#}");
    assert!(met.iter().all(|met| **met == true), "{report:#}");
    assert!(figures.iter().all(|figure| figure["rival"].is_null()));
}

#[test]
fn the_lab_measures_purges() {
    let arguments =
        "lab purge --json --objects 2000 --tagged 300 --rules 30 --rounds 1 --seconds 0.2";
    let report = experiment(arguments);
    let figures = report["figures"].as_array().expect("figures");
    let figure = |key: &str| {
        let found = figures.iter().find(|figure| figure["key"] == key);
        found.and_then(|figure| figure["sluice"].as_f64())
    };
    assert_eq!(figure("purge_kept"), Some(0.0), "{report:#}");
    assert_eq!(figure("purge_lost"), Some(0.0), "{report:#}");
    assert!(figure("purge_ms") > Some(0.0), "{report:#}");
    // The experiment measures the cost of purge rules only if the machine has two cores.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(cores < 2 || figure("cost") > Some(0.0), "{report:#}");
}

/// The measured value with this name, if there is one.
fn figure(report: &serde_json::Value, key: &str) -> Option<f64> {
    let figures = report["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["key"] == key);
    found.and_then(|figure| figure["sluice"].as_f64())
}

/// Whether the machine has two cores: some experiments need one for the server and one for its
/// clients.
fn two_cores() -> bool {
    let there = std::thread::available_parallelism().map_or(1, usize::from) > 1;
    if !there {
        eprintln!("skipped: needs two cores");
    }
    there
}

#[test]
fn the_lab_raises_the_load_until_the_server_can_not_follow() {
    if !two_cores() {
        return;
    }
    let report = experiment("lab ramp --json --quick");
    let [ramp] = &report["ramps"].as_array().expect("ramps")[..] else {
        panic!("{report:#}");
    };
    assert_eq!(
        (&ramp["name"], &ramp["errors"]),
        (&"Sluice".into(), &0.into())
    );
    let windows = ramp["windows"].as_array().expect("windows");
    let offered = |window: &serde_json::Value| window["offered"].as_u64().expect("a number");
    // The experiment raises the load step by step until the server is too slow. On a busy machine
    // this may be the case after two steps.
    assert!(windows.len() >= 2, "{report:#}");
    assert!(offered(&windows[windows.len() - 1]) >= offered(&windows[0]));
    assert_eq!(windows[0]["offered"], windows[0]["answered"], "{report:#}");
    // The share of the load that is served in time depends on the machine, so any share is
    // accepted.
    assert!(figure(&report, "held") >= Some(0.0), "{report:#}");
    assert!(
        figure(&report, "p99") >= figure(&report, "p50"),
        "{report:#}"
    );
    assert!(figure(&report, "p50") > Some(0.0), "{report:#}");
    assert_eq!(figure(&report, "held_ratio"), None);
}

#[test]
fn the_lab_observes_that_slow_clients_are_cut_off() {
    if !two_cores() {
        return;
    }
    let report = experiment("lab slow-clients --json --quick --each 4");
    let [siege] = &report["sieges"].as_array().expect("sieges")[..] else {
        panic!("{report:#}");
    };
    let kinds = siege["kinds"].as_array().expect("kinds");
    assert_eq!(kinds.len(), 6, "{report:#}");
    for kind in kinds {
        // The server has cut off all slow clients, some of them more than once, and none before its
        // limit.
        assert!(kind["cut"].as_u64() >= Some(4), "{kind:#}");
        assert_eq!((&kind["never"], &kind["refused"]), (&0.into(), &0.into()));
        assert!(kind["after"][0].as_f64() > Some(0.5), "{kind:#}");
        assert!(kind["after"][2].as_f64() < Some(8.0), "{kind:#}");
    }
    assert_eq!(siege["errors"], 0, "{report:#}");
    assert!(siege["requests"].as_u64() > Some(1000), "{report:#}");
    assert_eq!(figure(&report, "never"), Some(0.0));
}

#[test]
fn lab_options_are_checked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for arguments in [
        ["byte-range", "--against", "apache"],
        ["byte-range", "--fill", "half"],
        ["byte-range", "--rounds", "0"],
        ["byte-range", "--rate", "1KiB"],
        ["byte-range", "--slice", "100KiB"],
        ["storm", "--slice", "32MiB"],
        ["storm", "--clients", "0"],
        ["storm", "--requests", "0"],
        ["storm", "--memory", "1MiB"],
        ["storm", "--rate", "0"],
        ["storm", "--change-every", "soon"],
        ["storm", "--change-every", "0s"],
        ["budget", "--client-budget", "64KiB"],
        ["budget", "--connections", "101"],
        ["budget", "--seconds", "inf"],
        ["caching", "--against", "varnish"],
        ["caching", "--only", "queue"],
        ["caching", "--clients", "3"],
        ["caching", "--rate", "0"],
        ["purge", "--objects", "1"],
        ["purge", "--rules", "0"],
        ["purge", "--seconds", "0"],
        ["ramp", "--against", "varnish"],
        ["ramp", "--rounds", "0"],
        ["slow-clients", "--each", "3001"],
        ["slow-clients", "--kind", "quick"],
        ["slow-clients", "--rate", "0"],
    ] {
        let output = sluice(folder.path(), &[&["lab"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        let named = format!("invalid value '{}' for '{} ", arguments[2], arguments[1]);
        assert!(said.contains(&named), "{said}");
    }
    let both = ["lab", "byte-range", "--alone", "--against", "nginx"];
    assert_eq!(sluice(folder.path(), &both).status.code(), Some(2));
    let output = sluice(folder.path(), &["lab", "byte-range", "--rate", "1KiB"]);
    let said = text(&output.stderr);
    assert!(said.contains("at least 64KiB (per second)\n"), "{said}");
}
