//! The experiments without Sluice: what they say of a program that does not start, and of the rivals that are installed.

use sluice_lab::byte_range::{self, Row};
use sluice_lab::caches::Rival;
use sluice_lab::{budget, storm};

const NO_PROGRAM: &str = "/no/such/program";

/// One round at a rate at which it takes a second or two.
fn quick() -> byte_range::Options {
    byte_range::Options {
        fills: vec!["auto".to_owned()],
        alone: true,
        rounds: 1,
        rate: 20 << 20,
        ..byte_range::Options::new(NO_PROGRAM)
    }
}

fn silent(_: &str) {}

fn costs(row: &Row) -> (f64, f64) {
    let (ranges, file) = (row.ranges.expect("figures"), row.file.expect("figures"));
    (ranges.requests, file.requests)
}

#[test]
fn a_program_that_does_not_start_costs_only_its_row() {
    let report = byte_range::run(&quick(), &silent).expect("a report");
    let [origin, sluice] = &report.rows[..] else {
        panic!("{report:?}");
    };
    // Without a cache each request reaches the origin.
    assert_eq!(costs(origin), (4.0, 3.0));
    assert!(origin.ms.expect("figures").whole.total > 400.0);
    let failed: Vec<&str> = report.failures().map(|row| row.name.as_str()).collect();
    assert_eq!(failed, ["Sluice auto"]);
    assert!(
        sluice
            .error
            .as_ref()
            .is_some_and(|why| why.contains(NO_PROGRAM)),
        "{sluice:?}"
    );
    assert!(report.render().contains("Sluice auto: can't start sluice"));

    assert!(storm::run(&storm::Options::new(NO_PROGRAM), &silent).is_err());
    assert!(budget::run(&budget::Options::new(NO_PROGRAM), &silent).is_err());
}

#[test]
fn rivals_that_are_installed_are_measured() {
    for rival in Rival::ALL {
        if let Err(missing) = rival.version() {
            eprintln!("skipped: {missing}");
            continue;
        }
        let options = byte_range::Options {
            fills: Vec::new(),
            against: vec![rival],
            ..quick()
        };
        let report = byte_range::run(&options, &silent).expect("a report");
        assert!(report.rows.len() > 1, "{report:?}");
        for row in &report.rows {
            assert_eq!(row.error, None, "{row:?}");
            assert!(
                row.file.is_some_and(|file| file.sent >= 10_485_760.0),
                "{row:?}"
            );
        }
    }
}
