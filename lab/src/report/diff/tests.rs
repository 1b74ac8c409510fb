//! Tests of the comparison.

use super::*;
use serde_json::json;

/// Returns a spread with these rounds.
fn rounds(values: &[f64]) -> Value {
    json!(Spread::of(values.to_vec()).expect("finite"))
}

/// Returns the report of an experiment whose rounds are all equal.
fn experiment(p99: f64, rival: f64) -> Value {
    measured(&[p99; 3], &[rival; 3])
}

/// Returns the report of an experiment with these rounds of Sluice and of a rival.
fn measured(p99: &[f64], rival: &[f64]) -> Value {
    json!({
        "seed": 1, "rounds": 3,
        "figures": [{ "key": "p99", "what": "99th percentile", "unit": "ms", "goal": { "most": 1.0 },
            "sluice": rounds(p99), "rival": rounds(rival), "met": true }],
        "rows": [{ "name": "Sluice auto", "ms": { "cold": { "first": 5.0, "total": 6.0 } } }],
    })
}

fn only(report: &Report, figure: &str) -> Difference {
    let found = report.differences.iter().find(|one| one.figure == figure);
    found.unwrap_or_else(|| panic!("{report:#?}")).clone()
}

fn is_noise(report: &Report, figure: &str) -> bool {
    only(report, figure).within_noise == Some(true)
}

#[test]
fn figures_have_names_that_people_understand() {
    let names: Vec<String> = Figures::of(&experiment(1.0, 2.0))
        .all
        .iter()
        .map(|(path, _)| path.join(": "))
        .collect();
    assert_eq!(
        names,
        [
            "99th percentile (ms): rival",
            "99th percentile (ms): Sluice",
            "Sluice auto: ms: cold: first",
            "Sluice auto: ms: cold: total"
        ]
    );
}

#[test]
fn small_changes_are_noise_and_large_ones_are_not() {
    let report = compare(&experiment(1.0, 2.0), &experiment(1.05, 2.0)).expect("comparable");
    // Sluice's figure, and its ratio to the rival's.
    assert_eq!((report.differences.len(), report.equal), (2, 3));
    let difference = only(&report, "99th percentile (ms): Sluice");
    assert_eq!(
        (difference.ratio, difference.within_noise),
        (Some(1.05), Some(true))
    );
    let report = compare(&experiment(1.0, 2.0), &experiment(1.5, 2.0)).expect("comparable");
    assert!(!is_noise(&report, "99th percentile (ms): Sluice"));
    let text = report.render();
    assert!(
        text.contains("1.50") && text.contains("than the noise: 2, within"),
        "{text}"
    );
}

#[test]
fn a_rival_that_changes_as_much_shows_that_the_machine_did() {
    let report = compare(&experiment(1.0, 2.0), &experiment(1.5, 3.2)).expect("comparable");
    assert!(is_noise(&report, "99th percentile (ms): Sluice"));
    assert!(!is_noise(&report, "99th percentile (ms): rival"));
}

#[test]
fn a_noisy_rival_does_not_hide_that_sluice_became_slower() {
    let sluice = "99th percentile (ms): Sluice";
    let verdicts = |before: &[f64], after: &[f64]| {
        let before = measured(&[50.0, 51.0, 52.0], before);
        let report = compare(&before, &measured(&[70.0, 71.0, 72.0], after)).expect("comparable");
        let ratio = only(&report, "99th percentile (ms): Sluice / rival").within_noise;
        (only(&report, sluice).within_noise, ratio)
    };
    let noisy = [800.0, 400.0, 1200.0];
    assert_eq!(verdicts(&noisy, &noisy), (Some(false), Some(true)));
    // The rival differs in the other direction, and then within its noise.
    let less = [300.0, 350.0, 380.0];
    assert_eq!(verdicts(&noisy, &less).0, Some(false));
    let more = [1300.0, 600.0, 1700.0];
    assert_eq!(verdicts(&noisy, &more).0, Some(false));
    let clear = ([50.0, 50.0, 51.0], [70.0, 70.0, 71.0]);
    assert_eq!(verdicts(&clear.0, &clear.1), (Some(true), Some(true)));
}

#[test]
fn all_rivals_have_to_change_as_much_as_sluice() {
    let report = |sluice: f64, nginx: f64, h2o: f64| {
        let row = |name: &str, value: f64| json!({ "name": name, "ms": rounds(&[value; 3]) });
        json!({ "rows": [row("Sluice", sluice), row("nginx", nginx), row("h2o", h2o)] })
    };
    let before = report(10.0, 20.0, 30.0);
    let one = compare(&before, &report(15.0, 30.0, 30.0)).expect("comparable");
    assert_eq!(only(&one, "Sluice: ms").within_noise, Some(false));
    let both = compare(&before, &report(15.0, 30.0, 45.0)).expect("comparable");
    assert_eq!(only(&both, "Sluice: ms").within_noise, Some(true));
}

#[test]
fn the_noise_of_figures_with_one_round_is_unknown() {
    let report = |cut: u64, held: &[f64]| {
        let row = |name: &str| json!({ "name": name, "cut": cut, "held": rounds(held) });
        json!({ "rows": [row("Sluice"), row("nginx")] })
    };
    let before = report(17, &[10.0, 10.5]);
    let compared = compare(&before, &report(20, &[20.0, 20.5])).expect("comparable");
    assert_eq!(only(&compared, "Sluice: cut").within_noise, None);
    assert_eq!(only(&compared, "nginx: held").within_noise, Some(false));
    let text = compared.render();
    assert!(
        text.contains("than the noise: 1, within it: 1, with unknown noise: 2, equal: 2\n"),
        "{text}"
    );
    assert_eq!(text.matches("noise unknown\n").count(), 2, "{text}");
    let place = |name: &str| text.find(name).expect("a row");
    assert!(place("nginx: held") < place("Sluice: cut"), "{text}");
    assert!(place("Sluice: cut") < place("Sluice: held"), "{text}");
    // One round beside several of the other run shows whether the difference is larger than their noise.
    let several = compare(&report(17, &[10.0]), &report(17, &[20.0, 20.5])).expect("comparable");
    assert_eq!(only(&several, "nginx: held").within_noise, Some(false));
    // If nothing is known, the text says so once.
    let text = compare(&report(17, &[1.0, 1.0]), &report(20, &[1.0, 1.0]));
    let text = text.expect("comparable").render();
    assert!(
        text.contains("figures that differ: 2, equal: 4\nOne round each"),
        "{text}"
    );
    assert!(!text.contains("noise unknown"), "{text}");
}

#[test]
fn single_rounds_of_static_files_are_compared_by_their_spreads_alone() {
    let report = |max: f64| {
        let rates = [100.0, 101.0, 102.0];
        let run = |rate: f64| json!({ "rate": rate, "latency": { "max_us": max } });
        let part = json!({ "rate": rounds(&rates), "runs": rates.map(run) });
        let rising = json!({ "held": rounds(&rates), "runs": [{ "ramp": { "errors": max } }] });
        let server = |name: &str| json!({ "name": name, "keepalive": part, "rising": rising });
        json!({ "rounds": 3, "servers": [server("Sluice"), server("nginx")] })
    };
    let names: Vec<String> = Figures::of(&report(1.0))
        .all
        .iter()
        .map(|(path, _)| path.join(": "))
        .collect();
    assert_eq!(
        names,
        [
            "servers: Sluice: keepalive: rate",
            "servers: Sluice: rising: held",
            "servers: nginx: keepalive: rate",
            "servers: nginx: rising: held",
        ]
    );
    // The longest latency of each round differs between runs of one build.
    let compared = compare(&report(1.0), &report(7.0)).expect("comparable");
    assert!(compared.differences.is_empty(), "{compared:#?}");
}

#[test]
fn rounds_are_compared_by_their_ranges() {
    let report = |values: [f64; 3]| json!({ "rows": [{ "name": "Sluice", "rate": 7, "held": rounds(&values) }] });
    let one = report([10.0, 12.0, 15.0]);
    let near = compare(&one, &report([14.0, 15.0, 16.0])).expect("comparable");
    assert!(is_noise(&near, "Sluice: held"), "{near:?}");
    let far = compare(&one, &report([15.5, 15.6, 16.0])).expect("comparable");
    assert!(!is_noise(&far, "Sluice: held"), "{far:?}");
    // Rounds replace the median beside them.
    let both = |values: [f64; 3]| {
        let mut report = report(values);
        let spread = report["rows"][0]
            .as_object_mut()
            .expect("a row")
            .remove("held");
        report["rows"][0]["held"] = json!(values[1]);
        report["rows"][0]["spread"] = json!({ "held": spread });
        report
    };
    assert_eq!(Figures::of(&both([10.0, 12.0, 15.0])), Figures::of(&one));
    // Elements with the same name are rounds, too.
    let measurements = |values: [f64; 2]| {
        let each =
            values.map(|requests| json!({ "proxy": "Sluice", "case": "A", "requests": requests }));
        json!({ "measurements": each })
    };
    let near = compare(&measurements([10.0, 20.0]), &measurements([19.0, 30.0]));
    let difference = only(&near.expect("comparable"), "Sluice, A: requests");
    assert_eq!(
        (difference.before, difference.within_noise),
        (15.0, Some(true))
    );
}

#[test]
fn totals_over_time_are_compared_at_their_end() {
    let marks = |bytes: u64| {
        let mark = |seconds: u64, bytes: u64| json!({ "seconds": seconds, "origin_bytes": bytes });
        json!({ "marks": [mark(10, 5), mark(20, bytes)] })
    };
    let report = compare(&marks(70), &marks(90)).expect("comparable");
    let difference = only(&report, "at the end: origin bytes");
    assert_eq!((difference.before, difference.after), (70.0, 90.0));
    assert_eq!((report.differences.len(), report.equal), (1, 0));
}

#[test]
fn a_zero_that_changes_has_no_ratio_and_is_no_noise() {
    let wrong = |count: f64| {
        let count = rounds(&[count; 3]);
        json!({ "rows": [{ "name": "Sluice auto", "wrong": count }] })
    };
    let report = compare(&wrong(0.0), &wrong(1.0)).expect("comparable");
    let difference = only(&report, "Sluice auto: wrong");
    assert_eq!(
        (difference.ratio, difference.within_noise),
        (None, Some(false))
    );
    let same = compare(&wrong(0.0), &wrong(0.0)).expect("comparable");
    assert_eq!(same.equal, 1);
}

#[test]
fn a_difference_of_the_ratio_to_a_rival_counts_in_a_noisy_machine() {
    // Both take twice as long: the machine is slower. Then Sluice alone does.
    let slower = compare(&experiment(1.0, 2.0), &experiment(2.0, 4.0)).expect("comparable");
    assert!(is_noise(&slower, "99th percentile (ms): Sluice"));
    assert!(!is_noise(&slower, "99th percentile (ms): rival"));
    let worse = compare(&experiment(1.0, 2.0), &experiment(2.0, 2.0)).expect("comparable");
    let difference = only(&worse, "99th percentile (ms): Sluice / rival");
    assert_eq!((difference.before, difference.after), (0.5, 1.0));
    assert!(
        difference.within_noise == Some(false) && !is_noise(&worse, "99th percentile (ms): Sluice")
    );
    // The same time beside a rival that became faster is a difference, too.
    let relative = compare(&experiment(1.0, 2.0), &experiment(1.0, 1.0)).expect("comparable");
    assert!(!is_noise(&relative, "99th percentile (ms): Sluice / rival"));
}

#[test]
fn figures_that_only_one_report_has_are_listed() {
    let mut after = experiment(1.0, 2.0);
    after["rows"][0]["ms"] = json!({ "cold": { "first": 5.0 }, "new": 7.0 });
    let report = compare(&experiment(1.0, 2.0), &after).expect("comparable");
    let names: Vec<(&str, Option<f64>, Option<f64>)> = report
        .missing
        .iter()
        .map(|one| (&*one.figure, one.before, one.after))
        .collect();
    assert_eq!(
        names,
        [
            ("Sluice auto: ms: cold: total", Some(6.0), None),
            ("Sluice auto: ms: new", None, Some(7.0)),
        ]
    );
    let text = report.render();
    assert!(text.contains("only in the first report: Sluice auto: ms: cold: total\n"));
    assert!(text.contains("only in the second report: Sluice auto: ms: new\n"));
}

#[test]
fn results_of_loads_are_compared() {
    let load = |rate: f64, p99: f64, closed: u64, connections: u64| {
        json!({
            "url": "http://a/", "connections": connections, "streams": null, "threads": 2,
            "requests_per_s": rate, "connections_per_s": 0.0, "bytes_per_s": 10.0, "lines_left_out": 0,
            "is_interrupted": false, "server": { "pid": rate as u64, "cpu_seconds": rate, "cpu_us_per_request": 5.0,
                "memory_max_bytes": 100 },
            "requests": (rate * 5.0) as u64, "errors": { "connect": 0, "closed": closed }, "bytes": 1, "seconds": 5.0 + p99,
            "connects": 4, "latency": { "p50_us": 100.0, "p99_us": p99 }, "per_connection": [1, rate],
            "cpu_seconds": rate, "windows": [{ "begin": 0.0, "offered": rate }],
            "statuses": { "200": (rate * 5.0) as u64 }, "late": rate as u64, "late_bytes": rate as u64,
            "first_connect_error": { "errno": rate as u64 },
        })
    };
    let report = compare(&load(1000.0, 200.0, 0, 10), &load(800.0, 210.0, 3, 10));
    let report = report.expect("comparable");
    let names: Vec<(&str, Option<bool>)> = report
        .differences
        .iter()
        .map(|one| (&*one.figure, one.within_noise))
        .collect();
    // Each result is one round, so that no noise is known.
    assert_eq!(
        names,
        [
            ("errors: closed", None),
            ("latency: p99 us", None),
            ("requests per s", None)
        ]
    );
    assert!(report.notes.is_empty() && report.missing.is_empty());
    let text = report.render();
    assert_eq!(
        text.matches("One round each: the noise is unknown").count(),
        1
    );
    assert!(text.contains("figures that differ: 3, equal: "), "{text}");
    assert!(!text.contains("within"), "{text}");
    let other = compare(&load(1000.0, 200.0, 0, 10), &load(1000.0, 200.0, 0, 20));
    let notes = other.expect("comparable").notes;
    assert!(notes.len() == 1 && notes[0].contains("connections differs (10 and 20)"));
    let error = compare(&load(1.0, 1.0, 0, 1), &experiment(1.0, 1.0)).expect_err("two kinds");
    assert!(error.to_string().contains("sluice bench"), "{error}");
}

#[test]
fn reports_of_different_experiments_are_refused() {
    let refused = |one: &Value, other: &Value| {
        let error = compare(one, other).expect_err("different").to_string();
        assert!(error.contains("different experiments"), "{error}");
        error
    };
    let storm = json!({ "seed": 1, "rows": [{ "name": "Sluice auto", "wrong": 0 }] });
    refused(&experiment(1.0, 1.0), &storm);
    let step = |name: &str| json!({ "name": name, "command": "sluice lab storm", "data": storm });
    let error = refused(&step("storm"), &step("storm-changing"));
    assert!(error.contains("storm and storm-changing"), "{error}");
    assert_eq!(
        compare(&step("storm"), &storm).expect("comparable").equal,
        1
    );
    assert_eq!(
        compare(&step("storm"), &step("storm"))
            .expect("comparable")
            .equal,
        1
    );
}

#[test]
fn the_time_that_a_simulation_took_is_not_compared() {
    let report =
        |ns: u64| json!({ "rows": [{ "load": "Zipf 0.7", "times": 2.0, "truth": 0.4, "ns": ns }] });
    let report = compare(&report(90), &report(900)).expect("comparable");
    assert_eq!((report.differences.len(), report.equal), (0, 1));
}

#[test]
fn the_machines_properties_that_differ_are_named() {
    let before: Value = serde_json::from_str(include_str!("../sample.json")).expect("JSON");
    let mut after = before.clone();
    after["machine"]["disk"]["free"] = json!(1);
    let notes = |after: &Value| {
        compare(&before, after)
            .expect("comparable")
            .notes
            .join("\n")
    };
    assert!(!notes(&after).contains("machines"), "{}", notes(&after));
    after["machine"]["kernel"] = json!("6.2\u{1b}");
    let expected = "the machines differ: kernel (6.1 and 6.2\u{fffd})";
    assert!(notes(&after).contains(expected), "{}", notes(&after));
}

#[test]
fn names_in_a_report_cannot_control_a_terminal() {
    let evil = "\u{1b}[2J\u{9b}31m\r\n\u{202e}".to_owned() + &"x".repeat(100_000);
    let report = |value: f64| {
        json!({ evil.clone(): value, "rows": [
            { "name": evil, evil.clone(): value, "inner": { evil.clone(): value } },
            { "what": evil, "unit": evil, "sluice": value },
        ] })
    };
    let mut only_first = report(1.0);
    only_first["rows"][0]["gone\u{1b}"] = json!(1.0);
    let compared = compare(&only_first, &report(2.0)).expect("comparable");
    assert_eq!((compared.differences.len(), compared.missing.len()), (3, 1));
    let json = serde_json::to_string(&compared).expect("JSON");
    for text in [compared.render(), json] {
        assert!(text.len() < 10_000, "{}", text.len());
        let bad = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
        assert_eq!(text.chars().find(bad), None);
    }
    let mut run: Value = serde_json::from_str(include_str!("../sample.json")).expect("JSON");
    let other = run.clone();
    run["steps"][0]["name"] = json!(evil);
    let text = compare(&run, &other).expect("comparable").render();
    assert!(text.contains("only in the first run") && !text.contains('\u{1b}'));
}

#[test]
fn many_figures_are_compared_in_little_time() {
    let rows = |factor: f64| {
        let row = |number: u32| json!({ "name": format!("row {number}"), "value": f64::from(number) * factor });
        json!({ "rows": (0..20_000).map(row).collect::<Vec<_>>() })
    };
    // A comparison of all pairs would take minutes.
    let report = compare(&rows(1.0), &rows(2.0)).expect("comparable");
    assert_eq!((report.differences.len(), report.equal), (19_999, 1));
}
