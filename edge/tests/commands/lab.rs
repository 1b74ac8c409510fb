//! Tests of `sluice lab`: experiments run and report what they measured.

use super::{sluice, text};

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

/// Checks that the report has the configurations of these servers, all of them Sluice, and nothing twice.
fn has_configurations(report: &serde_json::Value, servers: &[&str]) {
    let all = report["configurations"].as_array().expect("a list");
    let named: Vec<&str> = all
        .iter()
        .filter_map(|one| one["server"].as_str())
        .collect();
    assert_eq!(named, servers, "{all:#?}");
    for one in all {
        let text = one["text"].as_str().expect("a text");
        assert!(text.contains("[[listener]]"), "{text}");
    }
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
    assert!(total("warm") > 0.0, "{whole:#}");
    has_configurations(&report, &["Sluice whole"]);
}

#[test]
fn the_lab_verifies_every_byte_while_versions_change() {
    let storm = |seed| {
        lab(&[
            "storm",
            "--rounds",
            "2",
            "--requests",
            "150",
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
    for figure in ["over", "received", "cpu_us"] {
        let rounds = row["spread"][figure]["rounds"].as_array();
        assert_eq!(rounds.map(Vec::len), Some(2), "{row:#}");
    }
    let bytes = |what: &str| row[what].as_u64().expect("a number of bytes");
    assert!(bytes("got") > 1 << 20, "{row:#}");
    assert!(bytes("sent") >= bytes("touched") / 2, "{row:#}");
    has_configurations(&report, &["Sluice whole"]);
}

#[test]
fn the_lab_measures_the_cost_of_single_bytes() {
    let report = lab(&["budget", "--seconds", "0.6"]);
    let marks = report["marks"].as_array().expect("marks");
    assert_eq!(marks.len(), 6);
    let last = &marks[5];
    assert!(last["right"].as_u64() > Some(0), "{last:#}");
    assert_eq!(last["not_right"], 0, "{last:#}");
    has_configurations(&report, &["Sluice whole"]);
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
    // Times depend on the machine, and so does the number of fetches of a page that lives for one second.
    let timed = |figure: &&serde_json::Value| {
        ["micro", "micro_waited"].contains(&figure["key"].as_str().unwrap_or_default())
    };
    let with_goals = figures.iter().filter(|figure| !figure["goal"].is_null());
    let met: Vec<_> = with_goals
        .filter(|figure| !timed(figure))
        .map(|figure| &figure["met"])
        .collect();
    assert_eq!(met.len(), 8, "{report:#}");
    assert!(figure(&report, "micro") >= Some(1.0), "{report:#}");
    assert!(met.iter().all(|met| **met == true), "{report:#}");
    assert!(figures.iter().all(|figure| figure["rival"].is_null()));
    // One for the crowd and two kinds of failures, one for silent origins, and one for a page that lives for a second.
    has_configurations(&report, &["Sluice"; 4]);
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
    has_configurations(&report, &["Sluice"; 2][..cores.min(2)]);
}

#[test]
fn the_lab_stores_bodies_on_tmpfs() {
    let report = experiment("lab placement --json --only tmpfs --rounds 1 --seconds 0.3");
    assert!(figure(&report, "tmpfs_over") <= Some(1.0), "{report:#}");
    assert_eq!(report["layouts"][0]["name"], "Sluice on tmpfs");
    has_configurations(&report, &["Sluice on tmpfs"]);
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
    // A pause of the machine may end the first window before all its requests are answered.
    let answered = windows[0]["answered"].as_u64().expect("a number");
    assert!((1..=offered(&windows[0])).contains(&answered), "{report:#}");
    // The share of the load that is served in time depends on the machine, so any share is
    // accepted.
    assert!(figure(&report, "held") >= Some(0.0), "{report:#}");
    assert!(
        figure(&report, "p99") >= figure(&report, "p50"),
        "{report:#}"
    );
    assert!(figure(&report, "p50") > Some(0.0), "{report:#}");
    assert_eq!(figure(&report, "held_ratio"), None);
    has_configurations(&report, &["Sluice"]);
}

#[test]
fn the_lab_shows_which_settings_reuse_connections() {
    let report = experiment(
        "lab keepalive --json --relay --link delay=20ms --clients 3 --seconds 3 --loaded-seconds 3",
    );
    assert_eq!(report["link"]["fallback"], true);
    let measurements = report["measurements"].as_array().expect("measurements");
    let number = |one: &serde_json::Value, key: &str| one[key].as_f64().expect("a number");
    for one in measurements {
        let (requests, opened) = (number(one, "requests"), number(one, "opened"));
        assert!(requests > 1.0 && number(one, "errors") == 0.0, "{one:#}");
        assert_eq!(number(one, "reused"), requests - opened, "{one:#}");
        let is_reused = one["case"] == "E" || one["case"] == "loaded, keepalive";
        assert_eq!(number(one, "reused") > 0.0, is_reused, "{one:#}");
        let connect = &one["series"]["connect_ms"]["p50"];
        let connect = connect.as_f64().expect("a median");
        // A relay accepts connections without the delay of the link.
        assert!(!is_reused || connect == 0.0, "{one:#}");
        assert!(
            number(&one["series"]["header_ms"], "p50") >= 20.0,
            "{one:#}"
        );
        assert_eq!(
            number(&one["series"]["body_bytes"], "max"),
            32_768.0,
            "{one:#}"
        );
    }
    let cases: Vec<&str> = measurements
        .iter()
        .filter_map(|one| one["case"].as_str())
        .collect();
    assert_eq!(
        cases,
        [
            "A",
            "B",
            "C",
            "D",
            "E",
            "loaded, close",
            "loaded, keepalive"
        ]
    );
    // Without idle connections, and with them.
    has_configurations(&report, &["Sluice"; 2]);
}

#[test]
fn the_lab_measures_static_files() {
    if !two_cores() {
        return;
    }
    let report = experiment("lab static --json --quick --alone --connections 200 --currency EUR");
    let [server] = &report["servers"].as_array().expect("servers")[..] else {
        panic!("{report:#}");
    };
    assert_eq!(server["name"], "Sluice");
    assert_eq!(server["version"], env!("CARGO_PKG_VERSION"));
    has_configurations(&report, &["Sluice"]);
    let median = |value: &serde_json::Value| value["median"].as_f64();
    for saturation in ["keepalive", "close"] {
        let saturation = &server[saturation];
        assert!(median(&saturation["rate"]) > Some(0.0), "{saturation:#}");
        assert!(median(&saturation["cpu_us"]) > Some(0.0), "{saturation:#}");
        assert_eq!(saturation["runs"].as_array().map(Vec::len), Some(1));
    }
    let ramp = &server["rising"]["runs"][0]["ramp"];
    let first = &ramp["windows"][0];
    assert!(first["mean_us"].as_f64() > Some(0.0), "{ramp:#}");
    let open = &server["connections"]["runs"][0];
    assert!(open["per_connection"][0].as_u64() >= Some(1), "{open:#}");
    assert!(
        open["samples"].as_array().map(Vec::len) > Some(2),
        "{open:#}"
    );
    let cost = &server["costs"][0];
    assert_eq!(cost["capacity"], "keepalive");
    assert!(median(&cost["per_1000_users"]) > Some(0.0), "{cost:#}");
    assert_eq!(report["price"]["currency"], "EUR");
    assert_eq!(report["comparisons"], serde_json::json!([]));
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
    }
    assert_eq!(siege["errors"], 0, "{report:#}");
    assert!(siege["requests"].as_u64() > Some(0), "{report:#}");
    assert_eq!(figure(&report, "never"), Some(0.0));
    has_configurations(&report, &["Sluice"]);
}

#[test]
fn the_lab_lists_its_rivals_and_how_to_install_missing_ones() {
    let report = experiment("lab rivals --json");
    let rivals = report["rivals"].as_array().expect("rivals");
    let names: Vec<_> = rivals
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    for name in [
        "nginx",
        "Varnish",
        "Apache Traffic Server",
        "HAProxy",
        "h2o",
        "Apache",
        "Squid",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(folder.path(), &["lab", "rivals"]);
    let table = text(&output.stdout);
    let install = report["install"].as_str().unwrap_or_default();
    assert!(table.contains(install), "{table}");
    for rival in rivals {
        let package = rival["package"].as_str().expect("a package");
        let (path, version) = (rival["path"].as_str(), rival["version"].as_str());
        // Missing programs are installed by the command, and only these.
        assert_eq!(
            path.is_none(),
            install.split(' ').any(|one| one == package),
            "{report:#}"
        );
        assert_eq!(path.is_some(), version.is_some(), "{report:#}");
        assert!(table.contains(path.unwrap_or("not installed")), "{table}");
        assert!(table.contains(version.unwrap_or("-")), "{table}");
    }
}

#[test]
fn lab_options_are_checked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for arguments in [
        ["byte-range", "--against", "h2o"],
        ["storm", "--against", "haproxy"],
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
        ["caching", "--against", "haproxy"],
        ["caching", "--only", "queue"],
        ["caching", "--clients", "3"],
        ["caching", "--rate", "0"],
        ["purge", "--objects", "1"],
        ["purge", "--rules", "0"],
        ["purge", "--seconds", "0"],
        ["ramp", "--against", "varnish"],
        ["ramp", "--rounds", "0"],
        ["static", "--against", "varnish"],
        ["static", "--rounds", "0"],
        ["static", "--connections", "16001"],
        ["static", "--price-per-hour", "0"],
        ["static", "--currency", "much money"],
        ["static", "--requests-per-user", "NaN"],
        ["slow-clients", "--each", "3001"],
        ["slow-clients", "--kind", "quick"],
        ["slow-clients", "--rate", "0"],
        ["keepalive", "--link", "wifi"],
        ["keepalive", "--clients", "0"],
        ["keepalive", "--seconds", "0"],
        ["wan", "--profile", "wifi"],
        ["wan", "--delay", "80"],
        ["wan", "--loss", "101%"],
        ["wan", "--rate", "8MB"],
        ["wan", "--queue", "0"],
        ["wan", "--packets", "0"],
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
