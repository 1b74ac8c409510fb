//! Tests of `sluice bench` with the lab's test origin.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use sluice_lab::certificates::{self, Authority, Pair};
use sluice_lab::front::{self, TlsFront};
use sluice_lab::origin::{Latch, Origin, OriginOptions, Resource};
use sluice_lab::process::{permitted_cores, pin_to_core};

use super::{sluice, text};

fn origin() -> Origin {
    Origin::start(OriginOptions::default()).expect("a free port")
}

/// Runs `sluice bench --json` with these arguments. Returns its report; the command must succeed.
fn bench(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(folder.path(), &[&["bench", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_closed_loop_on_two_threads_sends_every_request() {
    let origin = origin();
    let url = origin.url("/offset/5000");
    let report = bench(&[&url, "-c", "4", "-t", "2", "-n", "501", "--verify"]);
    assert_eq!(report["requests"], 501, "{report:#}");
    assert_eq!(report["bytes"], 501 * 5000);
    assert_eq!(
        (&report["threads"], &report["connects"]),
        (&2.into(), &4.into())
    );
    let latency = |name: &str| report["latency"][name].as_f64().expect("a time");
    assert!(latency("p50_us") > 0.0 && latency("p9999_us") <= latency("max_us"));
    assert!(
        report["connect"]["p50_us"].as_f64() > Some(0.0),
        "{report:#}"
    );
    let table = sluice(
        &std::env::temp_dir(),
        &["bench", &url, "-n", "5", "--close"],
    );
    let table = text(&table.stdout);
    assert!(
        table.contains("\nconnections   5 (") && table.contains("p99.99"),
        "{table}"
    );
}

#[test]
fn by_default_a_load_has_a_thread_for_each_permitted_core() {
    let origin = origin();
    let url = origin.url("/offset/5");
    // The child process may use the cores of the thread that starts it.
    let pinned = std::thread::spawn(move || {
        let cores = permitted_cores().expect("known");
        pin_to_core(cores[0]).expect("a permitted core");
        let report = bench(&[&url, "-c", "8", "-n", "8"]);
        assert_eq!(
            (&report["threads"], &report["requests"]),
            (&1.into(), &8.into())
        );
        let pinned = bench(&[&url, "-c", "8", "-n", "8", "-t", "3", "--cores"]);
        assert_eq!(pinned["requests"], 8, "{pinned:#}");
    });
    pinned.join().expect("no panic");
}

#[test]
fn rates_and_latencies_are_those_of_the_planned_duration() {
    let origin = origin();
    let latch = Latch::closed();
    origin.serve("/held", Resource::offset(1000).hold_head(&latch));
    let url = origin.url("/held");
    let load = std::thread::spawn(move || bench(&[&url, "-c", "2", "-d", "3s"]));
    assert!(latch.wait_held(2, Duration::from_secs(60)));
    std::thread::sleep(Duration::from_millis(3200));
    latch.release();
    let report = load.join().expect("no panic");
    assert_eq!(
        (&report["requests"], &report["late"]),
        (&2.into(), &2.into())
    );
    assert_eq!(report["late_bytes"], 2000, "{report:#}");
    assert_eq!(report["seconds"], 3.0, "{report:#}");
    assert_eq!(report["requests_per_s"], 0.0);
    assert_eq!(report["bytes_per_s"], 0.0);
    assert!(report["latency"]["min_us"].is_f64(), "{report:#}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    origin.refuse().expect("the listener stops");
    let url = origin.url("/x");
    let failed = sluice(folder.path(), &["bench", &url, "-n", "1", "--json"]);
    let report: Value = serde_json::from_slice(&failed.stdout).expect("JSON");
    assert!(report["latency"].is_null() && report["connect"].is_null());
    let table = sluice(folder.path(), &["bench", &url, "-n", "1"]);
    let table = text(&table.stdout);
    assert!(
        table.contains("connect error Connection refused"),
        "{table}"
    );
}

#[test]
fn a_stall_is_seen_by_all_requests_that_were_due() {
    let origin = origin();
    origin.serve(
        "/x",
        Resource::bytes("x").delay_head(Duration::from_millis(300)),
    );
    let url = origin.url("/x");
    let arguments = [&url, "-c", "1", "-n", "10", "--rate", "100"];
    let report = bench(&arguments);
    // The tenth request was due after 90 ms, and its response is complete after 3 s.
    assert!(
        report["latency"]["p999_us"].as_f64() > Some(2_800_000.0),
        "{report:#}"
    );
}

#[test]
fn a_rising_rate_ends_when_the_server_is_saturated() {
    let origin = origin();
    origin.serve(
        "/x",
        Resource::bytes("x").delay_head(Duration::from_millis(20)),
    );
    let url = origin.url("/x");
    let report = bench(&[
        &url,
        "-c",
        "2",
        "-r",
        "10",
        "--rising-to",
        "1000",
        "-d",
        "30s",
    ]);
    assert!(
        report["saturated_seconds"].as_f64() < Some(29.0),
        "{report:#}"
    );
    assert!(
        report["windows"]
            .as_array()
            .is_some_and(|all| all.len() >= 2),
        "{report:#}"
    );
}

#[test]
fn ranges_seeks_and_popular_objects_are_requested() {
    let origin = origin();
    let url = origin.url("/offset/100000");
    for seek in [&[][..], &["--seek"]] {
        let report = bench(&[&[&url, "-n", "100", "--range", "1000", "--verify"], seek].concat());
        assert_eq!(report["statuses"]["206"], 100, "{report:#}");
        assert_eq!(report["errors"]["content"], 0);
    }
    let url = origin.url("/offset/{n}");
    bench(&[&url, "-n", "200", "--zipf", "1", "--set", "50"]);
    let firsts = origin.read_record(|record| record.count("/offset/0"));
    assert!(firsts > 20, "{firsts}");
}

#[test]
fn a_log_is_repeated_at_its_times() {
    let origin = origin();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = r#"{"time":"2000-10-10T13:55:38.000Z","method":"GET","target":"/offset/50","status":206,"range":"bytes=5-9"}"#;
    let combined =
        r#"::1 - - [10/Oct/2000:13:55:36 +0000] "GET /offset/20 HTTP/1.1" 200 20 "-" "x""#;
    let log = folder.path().join("log");
    let lines = format!("{json}\ngarbage\n{combined}\n");
    std::fs::write(&log, [lines.as_bytes(), b"\xff\xfe\n"].concat()).expect("a temporary file");
    let url = origin.url("/");
    let log = log.to_str().expect("UTF-8");
    let report = bench(&[&url, "--replay", log, "--speed", "4", "--verify"]);
    assert_eq!(
        (&report["requests"], &report["bytes"]),
        (&2.into(), &25.into()),
        "{report:#}"
    );
    let left_out = serde_json::json!({ "encoding": 1, "format": 1 });
    assert_eq!(report["log"]["left_out"], left_out);
    assert!(report["seconds"].as_f64() >= Some(0.5), "{report:#}");
    let table = sluice(
        folder.path(),
        &["bench", &url, "--replay", log, "--speed", "4"],
    );
    let table = text(&table.stdout);
    assert!(table.contains("2 lines left out: 1 not UTF-8, "), "{table}");
    std::fs::write(log, b"\xff\ngarbage\n").expect("a temporary file");
    let nothing = sluice(folder.path(), &["bench", &url, "--replay", log]);
    assert_eq!(nothing.status.code(), Some(2));
    let said = text(&nothing.stderr);
    assert!(
        said.contains("2 lines left out: 1 not UTF-8, 1 neither in"),
        "{said}"
    );
}

#[test]
fn a_wrong_byte_is_found_and_is_the_exit_status() {
    let origin = origin();
    origin.serve("/x", Resource::offset(1000).version(1));
    let url = origin.url("/x");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(folder.path(), &["bench", &url, "-n", "5", "--verify"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("content: 5"),
        "{}",
        text(&output.stdout)
    );
    assert!(text(&output.stderr).contains("every request failed"));
}

#[test]
fn an_interrupted_load_prints_what_it_has() {
    let origin = origin();
    let process = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args([
            "bench",
            &origin.url("/offset/10"),
            "-d",
            "1h",
            "--json",
            "--rate",
            "100",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let seen = |record: &sluice_lab::origin::Record| record.count("/offset/10") > 5;
    assert!(origin.wait_for(seen, Duration::from_secs(60)));
    kill_process(Pid::from_child(&process), Signal::INT).expect("our own child");
    let output = process.wait_with_output().expect("its output");
    assert!(output.status.success(), "{:?}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["is_interrupted"], true);
    assert!(report["requests"].as_u64() > Some(0), "{report:#}");
}

/// A server with TLS, for HTTP/1.1 and HTTP/2, and the file with the certificate of its authority.
struct Secure {
    origin: Origin,
    front: TlsFront,
    ca: PathBuf,
    _folder: tempfile::TempDir,
}

impl Secure {
    fn start() -> Secure {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::new("the bench's authority");
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, authority.pem()).expect("a temporary file");
        let config = front::config(&authority.server(&["127.0.0.1"]), None);
        let origin = origin();
        let front = TlsFront::start(origin.addr(), front::with_http2(&config));
        Secure {
            origin,
            front: front.expect("a free port"),
            ca,
            _folder: folder,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.front.address())
    }

    fn ca(&self) -> &str {
        self.ca.to_str().expect("UTF-8")
    }
}

#[test]
fn tls_and_http2_are_used_as_the_options_say() {
    let secure = Secure::start();
    let url = secure.url("/offset/50000");
    for (options, is_http2) in [(&[][..], false), (&["--http2", "--streams", "3"], true)] {
        let load = [&url, "-n", "200", "-c", "2", "-t", "1", "--verify", "--ca"];
        secure.origin.reset_record();
        let report = bench(&[&load[..], &[secure.ca()], options].concat());
        assert_eq!(report["requests"], 200, "{report:#}");
        assert_eq!(report["bytes"], 200 * 50_000);
        assert_eq!(report["connects"], 2);
        let requests = secure.origin.requests();
        assert!(requests.iter().all(|one| one.stream.is_some() == is_http2));
    }
    let report = bench(&[&url, "-n", "5", "--insecure", "--http2", "--close"]);
    assert_eq!(
        (&report["requests"], &report["connects"]),
        (&5.into(), &5.into())
    );
}

#[test]
fn http2_in_clear_text_has_concurrent_streams() {
    let origin = origin();
    let slow = Resource::bytes("x").delay_head(Duration::from_millis(200));
    origin.serve("/x", slow);
    let url = origin.url("/x");
    let report = bench(&[&url, "-c", "1", "-n", "40", "--http2", "--streams", "20"]);
    assert_eq!(report["requests"], 40, "{report:#}");
    assert_eq!(
        (&report["connects"], &report["streams"]),
        (&1.into(), &20.into())
    );
    // One after another, the responses would take 8 s.
    assert!(report["seconds"].as_f64() < Some(7.0), "{report:#}");
    let report = bench(&[
        &url,
        "-c",
        "1",
        "-n",
        "10",
        "--http2",
        "--rate",
        "100",
        "--streams",
        "1",
    ]);
    assert!(
        report["latency"]["max_us"].as_f64() > Some(1_800_000.0),
        "{report:#}"
    );
}

#[test]
fn failed_handshakes_and_refused_connections_are_counted_and_not_repeated_without_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let failed = |arguments: &[&str]| -> Value {
        let load = [&["bench", "--json", "-c", "2", "-d", "1s"], arguments].concat();
        let output = sluice(folder.path(), &load);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let secure = Secure::start();
    // The authorities of the system did not sign the certificate.
    let report = failed(&[&secure.url("/x")]);
    let tls = report["errors"]["tls"].as_u64().expect("a number");
    assert!((2..=22).contains(&tls), "{report:#}");
    let origin = origin();
    origin.refuse().expect("the listener stops");
    for options in [&[][..], &["--http2", "--streams", "1"]] {
        let url = origin.url("/x");
        let report = failed(&[&[url.as_str()], options].concat());
        let connect = report["errors"]["connect"].as_u64().expect("a number");
        assert!((2..=22).contains(&connect), "{report:#}");
        // Attempts that failed are no connections.
        assert_eq!(report["connects"], 0);
    }
}

#[test]
fn numbers_are_never_repeated_and_source_addresses_vary() {
    let origin = origin();
    origin.serve_rest(Resource::bytes("x"));
    let url = origin.url("/{n}.ts");
    bench(&[
        &url,
        "-n",
        "300",
        "-t",
        "2",
        "-c",
        "4",
        "--unique",
        "--close",
        "--sources",
        "3",
    ]);
    let targets: BTreeSet<String> = origin
        .requests()
        .into_iter()
        .map(|one| one.target)
        .collect();
    assert_eq!(targets.len(), 300);
    let sources = origin.connections().into_iter().map(|one| one.peer.ip());
    assert_eq!(sources.collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn the_server_process_is_measured() {
    let origin = origin();
    let own = std::process::id().to_string();
    let report = bench(&[&origin.url("/offset/1000"), "-n", "500", "--pid", &own]);
    let server = &report["server"];
    assert_eq!(server["pid"], std::process::id());
    assert!(
        server["memory_max_bytes"].as_u64() > Some(1 << 20),
        "{report:#}"
    );
    assert!(
        server["cpu_us_per_request"].as_f64() > Some(0.0),
        "{report:#}"
    );
}

#[test]
fn a_process_that_cannot_be_measured_is_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = |pid: u32, title: &str, advice: &str| {
        let load = ["bench", "http://127.0.0.1:1/", "--pid", &pid.to_string()];
        let output = sluice(folder.path(), &load);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(title) && said.contains(advice), "{said}");
    };
    let mut child = Command::new("true").spawn().expect("`true` is installed");
    // A process that has ended has no memory, but its id until its parent waits for it.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(&child)), options).expect("our own child");
    let title = format!("the memory of process {} can't be read", child.id());
    refused(child.id(), &title, "or as root, or leave --pid out");
    child.wait().expect("our own child");
    // Linux has no process with an id this large.
    let none = 1 << 30;
    refused(
        none,
        &format!("there is no process {none}"),
        "`pgrep nginx`",
    );
}

#[test]
fn localhost_and_ipv6_addresses_are_reached() {
    let options = |address: &str| OriginOptions {
        address: address.parse().expect("an address"),
        ..OriginOptions::default()
    };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let origin = Origin::start(options(address)).expect("a free port");
        let url = format!("http://localhost:{}/offset/5", origin.addr().port());
        assert_eq!(bench(&[&url, "-n", "5"])["requests"], 5);
        assert_eq!(bench(&[&origin.url("/offset/5"), "-n", "5"])["requests"], 5);
        let hosts = origin.requests();
        let host = hosts[0].header("host").expect("the first request's host");
        assert!(host.starts_with("localhost:"), "{host}");
    }
}

#[test]
fn a_report_is_an_html_file_of_its_own() {
    let origin = origin();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = origin.url("/offset/5?<script>&\"'");
    let load = [
        "bench", &url, "-d", "3s", "-t", "2", "--rate", "50", "--report", "run.html",
    ];
    let output = sluice(folder.path(), &load);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(folder.path().join("run.html")).expect("a report");
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    assert!(
        page.contains("<polyline") && page.contains("p99.99"),
        "{page}"
    );
    assert!(page.contains("&lt;script&gt;&amp;&quot;&#39;"), "{page}");
    let version = format!("Sluice {}", env!("CARGO_PKG_VERSION"));
    for part in [
        "2 threads, --rate 50, 3.00 s</h1>",
        "--duration 3s --rate 50<",
        &version,
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let outside = ["<script", "http-equiv", "src=", "@import", "url("];
    assert!(outside.iter().all(|wrong| !page.contains(wrong)), "{page}");
    let nowhere = sluice(folder.path(), &["bench", &url, "--report", "no/run.html"]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", text(&nowhere.stderr));
}

#[test]
fn a_result_says_which_load_it_was() {
    let origin = origin();
    let (url, other) = (origin.url("/offset/5"), origin.url("/offset/6"));
    let load = [
        &url, &other, "-c", "2", "-n", "4", "-t", "1", "--close", "-H", "A: b",
    ];
    let report = bench(&load);
    let options = serde_json::json!({
        "connections": "2", "threads": "1", "requests": "4", "close": true, "header": ["A: b"],
    });
    assert_eq!(report["options"], options, "{report:#}");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    let command = format!(
        "sluice bench {url} {other} --connections 2 --threads 1 --requests 4 --close --header 'A: b'"
    );
    assert_eq!(report["command"], command.as_str());
    let date = report["date"].as_str().expect("a text");
    let date = humantime::parse_rfc3339(date).expect("a time");
    let ago = std::time::SystemTime::now().duration_since(date);
    assert!(
        ago.expect("in the past") < Duration::from_secs(600),
        "{date:?}"
    );
    let table = sluice(&std::env::temp_dir(), &[&["bench"][..], &load].concat());
    let table = text(&table.stdout);
    let title = format!("{url} and 1 other URL: 2 connections, 1 thread, --close, ");
    assert!(table.starts_with(&title), "{table}");
}

#[test]
fn contradictions_are_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (arguments, advice) in [
        (&["127.0.0.1/x"][..], "http:// or https://"),
        (&["http://127.0.0.1/x", "--unique"], "write {n}"),
        (&["http://127.0.0.1/{n}"], "add --unique, or --zipf"),
        (&["http://127.0.0.1/x", "--speed", "2"], "--replay"),
        (
            &["http://127.0.0.1:9/x", "--replay", "-"],
            "write http://127.0.0.1:9/\n",
        ),
        (&["http://127.0.0.1/{n}", "--set", "2"], "--zipf"),
        (
            &["http://127.0.0.1/x", "--set", "2", "--zipf", "1"],
            "write {n}",
        ),
        (&["http://127.0.0.1/x", "--insecure"], "https://"),
        (
            &["http://127.0.0.1/x", "-r", "9", "--rising-to", "5"],
            "above that of --rate",
        ),
        (&["http://127.0.0.1/x", "http://127.0.0.2/x"], "one server"),
        (&["http://127.0.0.1/x", "--seek"], "--range"),
        (&["http://127.0.0.1/x", "--streams", "2"], "--http2"),
        (
            &["http://127.0.0.1/x", "--http2", "--streams", "2", "--close"],
            "leave --close",
        ),
        (
            &["http://127.0.0.1/x", "--http2", "-H", "TE: trailers"],
            "leave the header",
        ),
    ] {
        let output = sluice(folder.path(), &[&["bench"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(advice), "{said}");
    }
}

#[test]
fn times_have_bounds_that_the_message_names() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for option in ["--timeout", "--duration", "--saturated"] {
        for wrong in ["0s", "366days", "1us", "soon"] {
            let load = ["bench", "http://127.0.0.1:1/", option, wrong];
            let output = sluice(folder.path(), &load);
            assert_eq!(output.status.code(), Some(2), "{option} {wrong}");
            let said = text(&output.stderr);
            let named = format!("invalid value '{wrong}' for '{option} <TIME>'");
            assert!(said.contains("1ms to 365days"), "{said}");
            assert!(said.contains(&named), "{said}");
        }
    }
    let origin = origin();
    let url = origin.url("/offset/5");
    bench(&[&url, "-n", "1", "--timeout", "365days", "-d", "10m"]);
}

#[test]
fn the_help_shows_the_place_of_a_number() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let help = text(&sluice(folder.path(), &["bench", "--help"]).stdout);
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Replace {n} in the URLs by a number that is never repeated",
        "Replace {n} in the URLs by the number of an object",
        "--zipf: {n} is a number from 0",
    ] {
        assert!(words.contains(part), "{help}");
    }
    assert!(!help.contains('\u{1b}'), "{help:?}");
}

#[test]
fn a_failed_load_says_why_and_gives_advice_for_that() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let failed = |arguments: &[&str], title: &str, advice: &str| {
        let load = [&["bench", "-c", "1", "-n", "2"], arguments].concat();
        let output = sluice(folder.path(), &load);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        let first = said.lines().next().unwrap_or_default();
        let begin = format!("error: every request failed: {title}");
        assert!(first.starts_with(&begin), "{said}");
        assert!(said.contains(advice), "{said}");
    };
    let origin = origin();
    origin.serve("/gone", Resource::status(404));
    let never = Resource::bytes("x").delay_head(Duration::from_secs(600));
    origin.serve("/slow", never);
    let gone = "the status was 404 (2 times), and not the expected one";
    failed(&[&origin.url("/gone")], gone, "--expect 404");
    origin.serve("/moved", Resource::status(301));
    let moved = "the status was 301 (2 times), and not the expected one";
    failed(
        &[&origin.url("/moved")],
        moved,
        "redirects are not followed",
    );
    let slow = [&origin.url("/slow"), "--timeout", "100ms"];
    failed(
        &slow,
        "no response was complete within 100ms",
        "--timeout permits",
    );
    let secure = Secure::start();
    let closed = "the server closed the connection before";
    let in_clear_text = format!("http://{}/x", secure.front.address());
    failed(&[&in_clear_text], closed, "https:// uses TLS");
    origin.refuse().expect("the listener stops");
    let address = origin.addr();
    let title = format!("no connection to {address} could be made: Connection refused");
    let advice = format!("is the server running at {address}?");
    failed(&[&origin.url("/x")], &title, &advice);
}

#[test]
fn a_failed_handshake_says_why_and_gives_advice_for_that() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let failed = |arguments: &[&str], reason: &str, advice: &str| {
        let load = [&["bench", "-c", "1", "-n", "1"], arguments].concat();
        let output = sluice(folder.path(), &load);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        let first = said.lines().next().unwrap_or_default();
        assert!(
            first.contains(" failed: the TLS handshake with 127.0.0.1:"),
            "{said}"
        );
        assert!(first.contains(reason), "{said}");
        assert!(said.contains(advice), "{said}");
    };
    let secure = Secure::start();
    let unknown = "invalid peer certificate: UnknownIssuer";
    failed(&[&secure.url("/x")], unknown, "--ca names the file");
    let in_clear_text = secure.origin.url("/x").replace("http:", "https:");
    let none = "the server speaks no TLS here";
    failed(&[&in_clear_text], none, "write http:// in place of");
    let authority = Authority::new("the bench's other authority");
    let ca = folder.path().join("other.pem");
    std::fs::write(&ca, authority.pem()).expect("a temporary file");
    let ca = ["--ca", ca.to_str().expect("UTF-8")];
    let front = |pair: &Pair| {
        let front = TlsFront::start(secure.origin.addr(), front::config(pair, None));
        front.expect("a free port")
    };
    let elsewhere = front(&authority.server(&["elsewhere.example"]));
    let url = format!("https://{}/x", elsewhere.address());
    let name = "only valid for DnsName(\"elsewhere.example\")";
    failed(
        &[&[url.as_str()][..], &ca].concat(),
        name,
        "a name of the certificate",
    );
    let http2 = [&url, "--insecure", "--http2"];
    failed(&http2, "does not agree to HTTP/2", "leave --http2 out");
    let late = front(&authority.server_expired(&["127.0.0.1"]));
    let expired = format!("https://{}/x", late.address());
    failed(
        &[&[expired.as_str()][..], &ca].concat(),
        "expired",
        "machine's clock",
    );
    let pair = certificates::self_signed(&["127.0.0.1"]);
    let own = front(&pair);
    let url = format!("https://{}/x", own.address());
    let files = pair.write(folder.path(), "own").expect("a temporary file");
    let file = files.certificate.to_str().expect("UTF-8");
    failed(
        &[&url, "--ca", file],
        "has the certificate of an authority",
        "CA:FALSE",
    );
    let page = folder.path().join("run.html");
    std::fs::write(&page, "<!DOCTYPE html>").expect("a temporary file");
    let output = sluice(folder.path(), &["bench", &url, "--ca", "run.html"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(
        said.contains("--ca run.html") && said.contains("BEGIN CERTIFICATE"),
        "{said}"
    );
}

#[test]
fn more_connections_than_open_files_are_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = format!(
        "ulimit -n 100 && exec {} bench http://127.0.0.1:1/ -c 90",
        env!("CARGO_BIN_EXE_sluice")
    );
    let output = Command::new("sh")
        .current_dir(folder.path())
        .args(["-c", &script])
        .output()
        .expect("sh is installed");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`ulimit -n`"));
}
