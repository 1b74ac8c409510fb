//! Tests of the experiment: its options and tables, and its parts against the servers that are installed.

use super::*;
use crate::load::{Errors, Latency};
use crate::rivals::tests::is_missing;

fn silent(_: &str) {}

fn saturation(rates: &[f64], cpu_us: f64) -> Saturation {
    let run = |rate: &f64| SaturationRun {
        rate: *rate,
        cpu_us,
        server_busy: 0.99,
        load_busy: 0.5,
        requests: 1000,
        errors: Errors::default(),
        latency: Latency::default(),
    };
    Saturation::of(rates.iter().map(run).collect())
}

fn connections(open_bytes: u64) -> Connections {
    let run = ConnectionsRun {
        rate: 1000.0,
        rest_bytes: 2_000_000,
        open_bytes,
        bytes_each: (open_bytes - 2_000_000) as f64 / 10_000.0,
        cpu_us: 20.0,
        requests: 20_000,
        errors: Errors::default(),
        per_connection: (2, 2),
        latency: Latency::default(),
        windows: Vec::new(),
        samples: vec![Sample {
            at: 12.5,
            resident: open_bytes,
            anonymous: 1_000_000,
            cpu: 0.1,
        }],
    };
    Connections::of(vec![run.clone(), run])
}

fn server(name: &str, rates: &[f64], open_bytes: u64) -> ServerReport {
    let keepalive = saturation(rates, 10.0);
    let cost = |rate| Cost::of(&Price::default(), Capacity::Keepalive, rate);
    ServerReport {
        name: name.to_owned(),
        variant: format!("{name}, sendfile on"),
        version: Some("1.2".to_owned()),
        costs: keepalive.rate.as_ref().and_then(cost).into_iter().collect(),
        keepalive,
        close: saturation(&[], 0.0),
        rising: Rising::of(Vec::new()),
        connections: connections(open_bytes),
    }
}

fn report() -> Report {
    let servers = vec![
        server("Sluice", &[50_000.0, 60_000.0, 58_000.0], 7_000_000),
        server("nginx", &[29_000.0, 30_000.0, 28_000.0], 14_000_000),
        server("h2o", &[59_000.0, 61_000.0], 7_000_000),
    ];
    let mut configurations = Configurations::default();
    configurations.keep("Sluice", "workers 1;\n");
    Report {
        rounds: 3,
        seconds: 20.0,
        saturation_seconds: 5.0,
        files: 1000,
        file_bytes: 5120,
        clients: 256,
        connections: 10_000,
        rates: (1000.0, 20_000.0),
        good_us: GOOD_US,
        price: Price::default(),
        comparisons: comparison::compare(&servers),
        configurations,
        notes: remarks(&servers, 3),
        servers,
    }
}

fn row<'a>(table: &'a str, begins: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.starts_with(begins));
    line.unwrap_or_else(|| panic!("{begins}: {table}"))
        .split_whitespace()
        .collect()
}

#[test]
fn tables_show_medians_with_their_spread_and_what_is_noise() {
    let report = report();
    assert_eq!(report.notes, Vec::<String>::new());
    let text = report.render();
    assert!(text.contains("  nginx 1.2, sendfile on\n"), "{text}");
    assert_eq!(
        row(&text, "Sluice "),
        [
            "Sluice",
            "58000",
            "(50000-60000)",
            "10.0",
            "(10.0-10.0)",
            "99",
            "50",
            "0"
        ]
    );
    let nginx = row(&text, "nginx ");
    assert_eq!(nginx[1..4], ["29000", "(28000-30000)", "2.00"], "{text}");
    assert_eq!(row(&text, "h2o ")[3..5], ["≈", "0.97"], "{text}");
    let memory = text.lines().skip_while(|line| !line.starts_with("memory"));
    let memory: Vec<_> = memory.collect();
    assert_eq!(
        row(&memory.join("\n"), "12.0"),
        ["12.0", "7.0", "14.0", "7.0"]
    );
    let cost = text.lines().skip_while(|line| !line.starts_with("cost"));
    let cost: Vec<_> = cost.collect();
    assert_eq!(
        row(&cost.join("\n"), "nginx"),
        ["nginx", "290000", "0.000500", "-", "-", "-", "-"]
    );
}

#[test]
fn a_report_survives_json() {
    let report = report();
    let text = serde_json::to_string(&report).expect("JSON");
    let read: Report = serde_json::from_str(&text).expect("a report");
    // Reading may change the last digit of a number, so the tables are compared.
    assert_eq!(read.render(), report.render());
    assert_eq!(read.configurations, report.configurations);
    let found = read.comparisons.iter();
    let rates: Vec<_> = found
        .filter(|one| one.figure == "keepalive_rate")
        .map(|one| (&*one.rival, one.within_noise))
        .collect();
    assert_eq!(rates, [("nginx", false), ("h2o", true)]);
}

#[test]
fn doubtful_results_are_remarked() {
    let mut report = report();
    report.servers[0].keepalive.runs[1].load_busy = 0.97;
    report.servers[1].connections.runs[0].errors.closed = 3;
    report.servers[2].close = saturation(&[500.0], 10.0);
    report.servers[2].close.runs[0].server_busy = 0.1;
    report.servers[2].keepalive.runs[0].errors.timeout = 1;
    let notes = remarks(&report.servers, 1);
    for (note, expected) in notes.iter().zip([
        "one round shows no noise",
        "saturated its core (h2o)",
        "saturated (Sluice)",
        "nginx: 3 requests failed with many connections",
        "h2o: 1 requests failed at saturation",
    ]) {
        assert!(note.contains(expected), "{notes:?}");
    }
    assert_eq!(notes.len(), 5);
    // A round with failed requests had fewer connections, so that its memory does not count.
    let mut runs = report.servers[1].connections.runs.clone();
    runs[0].open_bytes = 1;
    let connections = Connections::of(runs);
    assert_eq!(
        connections.open_bytes.map(|open| open.low),
        Some(14_000_000.0)
    );
}

#[test]
fn latencies_without_good_responses_are_not_measured() {
    let mut report = report();
    for one in &report.servers {
        // The runs of this test have no latencies.
        assert_eq!(one.connections.p50_us, None);
        assert_eq!(one.connections.p99_us, None);
    }
    let of = |report: &Report| {
        let all = comparison::compare(&report.servers);
        all.iter().filter(|one| one.figure == "p99_us").count()
    };
    assert_eq!(of(&report), 0);
    for one in &mut report.servers {
        let mut runs = one.connections.runs.clone();
        runs[1].latency = Latency {
            p50_us: 100.0,
            p99_us: 300.0,
            max_us: 400.0,
            ..Latency::default()
        };
        one.connections = Connections::of(runs);
        let rounds = one.connections.p99_us.as_ref().map(|p99| &p99.rounds[..]);
        assert_eq!(rounds, Some(&[300.0][..]));
    }
    assert_eq!(of(&report), 2);
}

#[test]
fn descriptors_limit_the_connections() {
    let error = check_descriptors(10_000, Some(4096)).expect_err("too few");
    let error = error.to_string();
    assert!(error.contains("10500 descriptors"), "{error}");
    assert!(error.contains("at most 3596 connections"), "{error}");
    assert!(check_descriptors(10_000, Some(20_000)).is_ok());
    assert!(check_descriptors(CONNECTIONS_MAX, None).is_ok());
}

#[test]
fn options_are_checked() {
    let fails = |change: fn(&mut Options)| {
        let mut options = Options::new("/no/such/program");
        change(&mut options);
        options.check().is_err()
    };
    assert!(!fails(|_| ()));
    assert!(fails(|options| options.rounds = 0));
    assert!(fails(|options| options.seconds = f64::NAN));
    assert!(fails(|options| options.probe_seconds = 0.0));
    assert!(fails(|options| options.connections = CONNECTIONS_MAX + 1));
    assert!(fails(|options| options.price.per_hour = 0.0));
    assert!(fails(|options| options.price.requests_per_user = f64::NAN));
    assert!(fails(|options| options.price.currency = String::new()));
    let quick = Options::new("/no/such/program").quick();
    assert_eq!((quick.rounds, quick.connections), (1, 1000));
}

#[test]
fn each_part_measures_an_installed_server() {
    if climb::ensure_two_cores().is_err() {
        eprintln!("skipped: needs two cores");
        return;
    }
    raise_descriptor_limit().expect("a limit");
    let folder = tempfile::tempdir().expect("a folder");
    climb::files(folder.path()).expect("written");
    for rival in StaticRival::ALL {
        if is_missing(rival.program()) {
            continue;
        }
        let candidates = rival.candidates().into_iter().take(1).collect();
        let mut configurations = Configurations::default();
        let one = Contender::fastest(candidates, folder.path(), 0.1, &mut configurations, &silent);
        let one = one.expect("it runs");
        assert_eq!(configurations.all().len(), 1);
        for keepalive in [true, false] {
            let run = super::saturation::measure(&one, keepalive, 0.3).expect("a run");
            assert_eq!(run.errors, Errors::default(), "{}", one.name());
            assert!(run.rate > 0.0 && run.cpu_us > 0.0, "{run:?}");
        }
        let run = super::rising::measure(&one, 1.0, (50.0, 100.0)).expect("a run");
        assert_eq!(run.ramp.errors, 0, "{}", one.name());
        assert!(!run.samples.is_empty() && !run.ramp.windows.is_empty());
        let run = super::connections::measure(&one.candidate, folder.path(), 50, 1.0);
        let run = run.expect("a run");
        // Each connection has made a request when it opened. Later, a slow response changes their order.
        assert_eq!((run.errors, run.requests), (Errors::default(), 100));
        assert!(run.per_connection.0 >= 1, "{run:?}");
        assert!(run.open_bytes >= run.rest_bytes / 2, "{run:?}");
    }
}
