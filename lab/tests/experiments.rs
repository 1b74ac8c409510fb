//! The experiments without a working Sluice: reports about a program that does not start, and about installed rivals.

use sluice_lab::byte_range::{self, Row};
use sluice_lab::caches::Rival;
use sluice_lab::caching::{self, Part};
use sluice_lab::configurations::Configurations;
use sluice_lab::disk::SlowDisk;
use sluice_lab::figures::missed;
use sluice_lab::placement;
use sluice_lab::{budget, purge, ramp, slow_clients, static_files, storm};

const NO_PROGRAM: &str = "/no/such/program";

/// Options for one round that takes a second or two.
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

/// Returns the servers of all configurations.
fn servers(configurations: &Configurations) -> Vec<&str> {
    let all = configurations.all().iter();
    all.map(|one| &*one.server).collect()
}

fn costs(row: &Row) -> (f64, f64) {
    let (ranges, file) = (row.ranges.expect("figures"), row.file.expect("figures"));
    (ranges.requests, file.requests)
}

#[test]
fn a_program_that_does_not_start_affects_only_its_row() {
    let report = byte_range::run(&quick(), &silent).expect("a report");
    let [origin, sluice] = &report.rows[..] else {
        panic!("{report:?}");
    };
    // Without a cache, each request reaches the origin.
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
    assert!(ramp::run(&ramp::Options::new(NO_PROGRAM), &silent).is_err());
    assert!(slow_clients::run(&slow_clients::Options::new(NO_PROGRAM), &silent).is_err());
    assert!(static_files::run(&static_files::Options::new(NO_PROGRAM), &silent).is_err());
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
        let caches = report.rows.iter().map(|row| &*row.name);
        let caches: Vec<&str> = caches.filter(|name| *name != "origin").collect();
        assert_eq!(servers(&report.configurations), caches);
        for row in &report.rows {
            assert_eq!(row.cpu_ms.is_some(), row.name != "origin", "{row:?}");
            assert_eq!(row.error, None, "{row:?}");
            assert!(
                row.file.is_some_and(|file| file.sent >= 10_485_760.0),
                "{row:?}"
            );
        }
    }
}

#[test]
fn rounds_are_interleaved() {
    let options = byte_range::Options {
        alone: true,
        fills: vec!["auto".to_owned(), "whole".to_owned()],
        rounds: 2,
        ..quick()
    };
    let seen = std::cell::RefCell::new(Vec::new());
    let report = byte_range::run(&options, &|what: &str| {
        seen.borrow_mut().push(what.to_owned())
    });
    let report = report.expect("a report");
    let seen = seen.into_inner();
    let rounds: Vec<&str> = seen
        .iter()
        .map(String::as_str)
        .filter(|what| what.contains(": round "))
        .collect();
    // The program does not start, so the fill modes run no second round.
    let expected =
        ["origin", "Sluice auto", "Sluice whole"].map(|name| format!("{name}: round 1 of 2"));
    assert_eq!(rounds[..3], expected);
    assert_eq!(rounds[3..], ["origin: round 2 of 2"]);
    let spread = report.rows[0].spread.as_ref().expect("figures");
    assert_eq!(spread.ms.whole.total.rounds.len(), 2);
    let error = report.rows[1].error.as_ref().expect("an error");
    assert!(error.ends_with("(round 1)"), "{error}");
}

#[test]
fn caching_is_measured_part_by_part() {
    let nginx = Rival::Nginx.version();
    let options = caching::Options {
        against: nginx.is_ok().then_some(Rival::Nginx),
        parts: vec![Part::Crowd, Part::Micro],
        seconds: 2.5,
        clients: 40,
        rate: 100.0,
        ..caching::Options::new(NO_PROGRAM)
    };
    let report = caching::run(&options, &silent).expect("a report");
    // A figure that could not be measured misses its goal, and a note says why.
    assert!(report.figures.iter().all(|figure| figure.sluice.is_none()));
    assert_eq!(missed(&report.figures).count(), 7, "{report:?}");
    let why = |note: &&String| note.contains(NO_PROGRAM);
    assert_eq!(report.notes.iter().filter(why).count(), 2, "{report:?}");
    if let Err(missing) = nginx {
        eprintln!("skipped: {missing}");
        return;
    }
    let figure = |key: &str| {
        let found = report.figures.iter().find(|figure| figure.spec.key == key);
        found.and_then(|figure| figure.rival).expect("a figure")
    };
    assert_eq!((figure("crowd"), figure("crowd_errors")), (1.0, 0.0));
    assert_eq!((figure("vary"), figure("vary_errors")), (4.0, 0.0));
    assert!((2.0..=4.0).contains(&figure("micro")), "{report:?}");
    assert!(figure("micro_max") >= figure("micro_p50"), "{report:?}");
    assert_eq!(servers(&report.configurations), ["nginx"]);
    for rival in Rival::ALL {
        if rival.version().is_ok() {
            let options = caching::Options {
                against: Some(rival),
                parts: vec![Part::Crowd],
                ..options.clone()
            };
            let report = caching::run(&options, &silent).expect("a report");
            let crowd = &report.figures[0];
            assert!(
                crowd.rival.is_some_and(|requests| requests >= 1.0),
                "{report:?}"
            );
            assert_eq!(servers(&report.configurations).len(), 1, "{report:?}");
        }
    }
}

/// Slow disks that limit even a debug build, and short runs.
fn slow_disks() -> placement::Options {
    placement::Options {
        nginx: Rival::Nginx.version().is_ok(),
        parts: vec![placement::Part::Slow],
        rate: 16 << 20,
        size: 64 << 20,
        rounds: 1,
        seconds: 1.5,
        ..placement::Options::new(NO_PROGRAM)
    }
}

#[test]
fn placement_is_measured_on_disks_of_the_lab() {
    if let Err(error) = SlowDisk::new(1 << 20, Default::default()) {
        eprintln!("skipped: {error:#}");
        return;
    }
    let options = slow_disks();
    let report = placement::run(&options, &silent).expect("a report");
    let why = |note: &&String| note.contains(NO_PROGRAM);
    assert_eq!(report.notes.iter().filter(why).count(), 4, "{report:?}");
    assert!(report.figures.iter().all(|figure| figure.sluice.is_none()));
    if !options.nginx {
        eprintln!("skipped: nginx");
        return;
    }
    let names: Vec<&str> = report.layouts.iter().map(|row| &*row.name).collect();
    let (own, joined) = names.split_at(4);
    let expected = [
        "nginx single",
        "nginx single, threads",
        "nginx hash",
        "nginx hash, threads",
    ];
    assert_eq!(own, expected);
    let expected = [
        "nginx single, btrfs",
        "nginx mirror, btrfs",
        "nginx stripe, btrfs",
    ];
    let says_why = |note: &String| note.starts_with(expected[0]);
    match report.notes.iter().find(|note| says_why(note)) {
        Some(note) => eprintln!("skipped: {note}"),
        None => assert_eq!(joined, expected),
    }
    assert_eq!(servers(&report.configurations), names);
    for row in &report.layouts {
        // Without a cache, clients receive much more than the disks can write; with one, they wait for the disks.
        assert!(row.clients < row.plain, "{row:?}");
        assert_eq!((row.hits, row.shed), (0.0, 0.0), "{row:?}");
        for disk in &row.disks {
            assert!(disk.written_bytes > 0.0, "{row:?}");
            assert!(disk.written_bytes <= 1.01 * options.rate as f64, "{row:?}");
            assert!(disk.utilization > 0.0 && disk.wait_ms > 0.0, "{row:?}");
        }
    }
    assert!(report.render().contains("nginx hash: disk 2"));
}

#[test]
fn experiments_with_figures_check_their_options() {
    let caching = |change: fn(&mut caching::Options)| {
        let mut options = caching::Options::new(NO_PROGRAM);
        options.parts = vec![Part::Micro];
        change(&mut options);
        caching::run(&options, &silent).is_err()
    };
    assert!(caching(|options| options.clients = 3));
    assert!(caching(|options| options.seconds = f64::NAN));
    assert!(caching(|options| options.rate = 0.0));
    assert!(!caching(|_| ()));
    let purge = |change: fn(&mut purge::Options)| {
        let mut options = purge::Options::new(NO_PROGRAM);
        change(&mut options);
        purge::run(&options, &silent).is_err()
    };
    assert!(purge(|options| options.tagged = options.objects));
    assert!(purge(|options| options.tagged = 0));
    assert!(purge(|options| options.samples = 0));
    assert!(purge(|options| options.rules = 0));
    assert!(purge(|options| options.seconds = 0.0));
    assert!(!purge(|_| ()));
    let placement = |change: fn(&mut placement::Options)| {
        let mut options = slow_disks();
        options.nginx = false;
        change(&mut options);
        placement::run(&options, &silent).is_err()
    };
    assert!(placement(|options| options.rate = 0));
    assert!(placement(|options| options.size = 1 << 20));
    assert!(placement(|options| options.real_size = 0));
    assert!(placement(|options| options.rounds = 0));
    assert!(placement(|options| options.real_seconds = f64::NAN));
    assert!(placement(|options| options.workers = 0));
    assert!(!placement(|_| ()));
    let failed = |error: anyhow::Error| error.to_string().contains("sluice");
    let ramp = |change: fn(&mut ramp::Options)| {
        let mut options = ramp::Options::new(NO_PROGRAM);
        change(&mut options);
        ramp::run(&options, &silent).is_err_and(failed)
    };
    // Options that are accepted fail later, because the program does not start.
    assert!(!ramp(|options| options.rounds = 0));
    assert!(!ramp(|options| options.seconds = 0.0));
    assert!(!ramp(|options| options.half_seconds = f64::NAN));
    let slow = |change: fn(&mut slow_clients::Options)| {
        let mut options = slow_clients::Options::new(NO_PROGRAM);
        change(&mut options);
        slow_clients::run(&options, &silent).is_err_and(failed)
    };
    assert!(!slow(|options| options.each = 0));
    assert!(!slow(|options| options.seconds = f64::NAN));
    assert!(!slow(|options| options.rate = 0.0));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(cores < 2 || (ramp(|_| ()) && slow(|_| ())));
}
