//! Tests of the history as a whole: points from readings, queries, limits, saving and restoring.

use std::time::Instant;

use parking_lot::RwLock;
use proptest::prelude::*;

use super::*;
use crate::sys::disk::private::PrivateFolder;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::histogram_counters::HistogramCounters;
use crate::telemetry::measures::Measures;
use crate::telemetry::traffic_table::RouteMeasures;
use crate::telemetry::{FilesNumbers, Numbers, RouteNumbers, ServerMeasures};

/// A Unix time at which steps of all rings begin.
const START_S: u64 = 1_800_000_000;
const DAY_S: u64 = 24 * 3600;

/// Returns a layout with one counter (`requests`), five gauges, of which one has a series (`open`), one more counter,
/// and a histogram of durations (`connect_duration`).
fn layout(scope: Scope) -> Layout {
    Layout::new(scope)
        .with_counter("requests", "Requests.")
        .with_numbers::<FilesNumbers>(|name| name == "open")
        .with_histograms(&ServerMeasures::METRICS[..1], |_| true)
}

fn history(scope: Scope) -> History {
    History::new([layout(scope)], usize::MAX)
}

/// A source of readings of one member.
struct Source {
    scope: Scope,
    now_s: u64,
    requests: u64,
    open: u64,
    durations: HistogramCounters,
}

impl Source {
    fn new(scope: Scope) -> Source {
        Source {
            scope,
            now_s: START_S,
            requests: 0,
            open: 0,
            durations: HistogramCounters::default(),
        }
    }

    /// Takes a reading after this many seconds.
    fn note(&mut self, history: &mut History, name: &str, after_s: u64) -> bool {
        let now_s = self.now_s + after_s;
        let tick = tick(self.now_s, now_s);
        self.now_s = now_s;
        let files = FilesNumbers {
            open: self.open,
            ..FilesNumbers::default()
        };
        let numbers: Vec<u64> = [self.requests].into_iter().chain(files.values()).collect();
        let reading = Values {
            numbers: &numbers,
            histograms: &[&self.durations.values()],
        };
        history.note(self.scope, name, &tick, reading)
    }
}

fn tick(before_s: u64, now_s: u64) -> Tick {
    let moment = |unix_s: u64| Moment {
        unix_s,
        monotonic_us: unix_s * 1_000_000,
    };
    Tick::between(moment(before_s), moment(now_s))
}

/// Returns the values of one series since `from_s`, and the length of their steps.
fn read(history: &History, scope: Scope, series: &str, from_s: u64, now_s: u64) -> Answer {
    let period = Period {
        from_s,
        to_s: now_s,
        now_s,
        points: POINTS_MAX,
    };
    let answer = history.series(scope, "", &[series], &period);
    answer.expect("the series exists")
}

#[test]
fn points_are_rates_means_and_percentiles() {
    let (mut history, mut source) = (history(Scope::Edge), Source::new(Scope::Edge));
    for second in 1..=120 {
        source.requests += second;
        source.open = 7;
        source.durations.record(1_000 * second);
        source.note(&mut history, "", 1);
    }
    let now_s = source.now_s;
    let one = |series| {
        read(&history, Scope::Edge, series, START_S, now_s)
            .series
            .remove(0)
    };
    let rates: Vec<_> = (1..=120).map(|n| Some(f64::from(n))).collect();
    assert_eq!(one("requests"), rates);
    assert_eq!(one("open"), [Some(7.0); 120]);
    let median = one("connect_duration_p50")[99].expect("a duration");
    assert!((0.075..=0.125).contains(&median), "{median}");
    // The coarser rings have the sums and the merged histograms of their whole steps.
    let long_ago = START_S - 2 * DAY_S;
    let minutes = read(&history, Scope::Edge, "requests", long_ago, now_s);
    assert_eq!((minutes.step_s, minutes.series[0].len()), (60, 2882));
    assert_eq!(minutes.series[0][2880..], [Some(30.5), Some(90.5)]);
    let largest = |series| {
        let answer = read(&history, Scope::Edge, series, long_ago, now_s);
        answer.series[0][2881].expect("a duration")
    };
    let (median, most) = (
        largest("connect_duration_p50"),
        largest("connect_duration_max"),
    );
    assert!((0.07..=0.115).contains(&median), "{median}");
    assert!((0.119..=0.15).contains(&most), "{most}");
}

#[test]
fn what_a_disk_did_before_is_in_no_point() {
    let (mut history, mut source) = (history(Scope::Volume), Source::new(Scope::Volume));
    source.requests = 1_000_000;
    source.note(&mut history, "", 10);
    source.requests += 50;
    source.note(&mut history, "", 10);
    let rates = read(&history, Scope::Volume, "requests", START_S, source.now_s);
    assert_eq!(rates.series[0], [None, Some(5.0)]);
}

#[test]
fn a_period_without_requests_has_rates_of_zero_and_no_percentiles() {
    let (mut history, mut source) = (history(Scope::Edge), Source::new(Scope::Edge));
    source.note(&mut history, "", 1);
    let one = |series| {
        read(&history, Scope::Edge, series, START_S, source.now_s)
            .series
            .remove(0)
    };
    assert_eq!(one("requests"), [Some(0.0)]);
    assert_eq!(one("connect_duration_p99"), [None]);
}

#[test]
fn a_stopped_clock_leaves_a_gap_and_a_counter_that_begins_again_counts_from_zero() {
    let (mut history, mut source) = (history(Scope::Edge), Source::new(Scope::Edge));
    source.requests = 10;
    source.note(&mut history, "", 1);
    source.requests = 70;
    source.note(&mut history, "", 60);
    source.requests = 4;
    source.note(&mut history, "", 1);
    let answer = read(&history, Scope::Edge, "requests", START_S, source.now_s);
    let mut expected = [None; 62];
    (expected[0], expected[60], expected[61]) = (Some(10.0), Some(1.0), Some(4.0));
    assert_eq!(answer.series[0], expected);
}

#[test]
fn neighbours_are_combined_in_steps_that_stay_where_they_are() {
    let (mut history, mut source) = (history(Scope::Edge), Source::new(Scope::Edge));
    for second in 0..1_000 {
        source.requests += second % 10;
        source
            .durations
            .record(if second % 10 == 5 { 1_000_000 } else { 100 });
        source.note(&mut history, "", 1);
    }
    let ask = |from_s: u64, points: usize| {
        let period = Period {
            from_s,
            to_s: source.now_s,
            now_s: source.now_s,
            points,
        };
        let series = ["requests", "connect_duration_max"];
        history
            .series(Scope::Edge, "", &series, &period)
            .expect("both exist")
    };
    let answer = ask(START_S, 100);
    assert_eq!((answer.step_s, answer.from_s), (10, START_S));
    assert_eq!(answer.series[0], [Some(4.5); 100], "the mean of rates");
    let slow = answer.series[1].iter().flatten();
    assert!(slow.clone().count() == 100 && slow.clone().all(|value| *value > 0.9));
    assert_eq!(ask(START_S + 7, 100).from_s, START_S);
    assert_eq!(ask(START_S + 17, 100).series[0], [Some(4.5); 99]);
    for points in 0..200 {
        let answer = ask(START_S + 3, points);
        assert!(answer.series[0].len() <= points.max(POINTS_MIN), "{points}");
        assert_eq!(answer.from_s % answer.step_s, 0);
    }
}

#[test]
fn the_table_is_sorted_by_its_first_series() {
    let mut history = history(Scope::Route);
    for (name, rate) in [("slow", 1), ("fast", 50), ("none", 0)] {
        let mut source = Source::new(Scope::Route);
        for _ in 0..6 {
            source.requests += 10 * rate;
            source.note(&mut history, name, 10);
        }
    }
    let now_s = START_S + 60;
    let period = Period {
        from_s: now_s - 30,
        to_s: now_s,
        now_s,
        points: 2,
    };
    let table = |rows_max| {
        let series = ["requests", "connect_duration_p99"];
        history
            .table(Scope::Route, &series, &period, rows_max)
            .expect("both exist")
    };
    let rows: Vec<_> = table(10)
        .into_iter()
        .map(|row| (row.member, row.values))
        .collect();
    let row = |name: &str, rate| (name.to_owned(), vec![Some(rate), None]);
    assert_eq!(
        rows,
        [row("fast", 50.0), row("slow", 1.0), row("none", 0.0)]
    );
    assert_eq!(table(1).len(), 1);
}

#[test]
fn unknown_names_are_errors_that_name_them() {
    let mut history = history(Scope::Edge);
    Source::new(Scope::Edge).note(&mut history, "", 1);
    let period = Period {
        from_s: 0,
        to_s: START_S,
        now_s: START_S,
        points: 10,
    };
    let ask = |name, series| history.series(Scope::Edge, name, &[series], &period);
    assert!(ask("", "requests").is_ok());
    let error = ask("x", "requests")
        .expect_err("no such member")
        .to_string();
    assert_eq!(
        error,
        "the scope edge has no member \"x\" with a history: GET /members lists them"
    );
    let error = ask("", "y").expect_err("no such series").to_string();
    assert!(error.contains("no series \"y\""), "{error}");
    assert!(
        history
            .series(Scope::Route, "", &["requests"], &period)
            .is_err()
    );
}

#[test]
fn the_newest_point_is_read_without_a_period() {
    let (mut history, mut source) = (history(Scope::Edge), Source::new(Scope::Edge));
    source.requests = 5;
    source.note(&mut history, "", 1);
    let positions = history
        .positions(Scope::Edge, &["open", "requests"])
        .expect("both exist");
    let newest = history.newest(Scope::Edge, "", &positions);
    assert_eq!(newest, Ok(Some((START_S, vec![Some(0.0), Some(5.0)]))));
    assert!(history.newest(Scope::Edge, "x", &positions).is_err());
}

#[test]
fn members_beyond_the_limit_have_no_history_until_another_one_is_gone() {
    let bytes = layout(Scope::Route).member_bytes();
    let mut history = History::new([layout(Scope::Route)], 2 * bytes);
    let mut sources = ["a", "b", "c"].map(|name| (name, Source::new(Scope::Route)));
    // Requests of a time without a history.
    sources[2].1.requests = 5000;
    let mut note = |history: &mut History, of: &[usize]| {
        let mut noted = Vec::new();
        for (at, (name, source)) in sources.iter_mut().enumerate() {
            match of.contains(&at) {
                true => noted.push(source.note(history, name, 10)),
                false => source.now_s += 10,
            }
        }
        noted
    };
    for _ in 0..10 {
        assert_eq!(note(&mut history, &[0, 1, 2]), [true, true, false]);
    }
    assert_eq!(history.bytes(), 2 * bytes);
    let mut times = 0;
    while note(&mut history, &[1, 2]) == [true, false] {
        times += 1;
        assert!(times < 10, "the member that is gone keeps its memory");
    }
    assert_eq!(history.names(Scope::Route).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(note(&mut history, &[1, 2]), [true, true]);
    let now_s = START_S + 10 * (times + 12);
    let period = Period {
        from_s: START_S,
        to_s: now_s,
        now_s,
        points: 600,
    };
    let late = history.series(Scope::Route, "c", &["requests"], &period);
    let late = late.expect("a member").series.remove(0);
    assert!(late.iter().flatten().all(|rate| *rate == 0.0), "{late:?}");
    assert_eq!(history.bytes(), 2 * bytes);
    history.prune(START_S + 9 * DAY_S);
    assert_eq!(
        (history.names(Scope::Route).count(), history.bytes()),
        (0, 0)
    );
}

/// Returns a history with one member of each scope, and the time of its last readings.
fn filled() -> (History, u64) {
    let mut history = History::new([layout(Scope::Edge), layout(Scope::Route)], usize::MAX);
    let (mut edge, mut route) = (Source::new(Scope::Edge), Source::new(Scope::Route));
    for second in 1..=700 {
        edge.requests += second;
        edge.note(&mut history, "", 1);
        if second % 10 == 0 {
            route.requests += second;
            route.note(&mut history, "", 10);
        }
    }
    (history, edge.now_s)
}

/// Returns the bytes of a file with all points.
fn saved(history: &mut History) -> Vec<u8> {
    let mut file = Vec::new();
    history.write_beginning(&mut file);
    for scope in [Scope::Edge, Scope::Route] {
        history.write_points(scope, "", true, &mut file);
    }
    file
}

/// Returns all values of a series in each ring.
fn all_values(history: &History, scope: Scope, series: &str, now_s: u64) -> Vec<Answer> {
    let ages = [1, DAY_S / 3, 6 * DAY_S].map(|age_s| now_s - age_s);
    let answers = ages
        .iter()
        .map(|from_s| read(history, scope, series, *from_s, now_s));
    answers.collect()
}

#[test]
fn a_saved_history_is_restored() {
    let (mut before, now_s) = filled();
    let file = saved(&mut before);
    let mut after = History::new([layout(Scope::Edge), layout(Scope::Route)], usize::MAX);
    assert!(after.restore(&*file, now_s).is_none());
    for scope in [Scope::Edge, Scope::Route] {
        for series in ["requests", "open", "connect_duration_p99"] {
            let [before, after] = [&before, &after].map(|h| all_values(h, scope, series, now_s));
            assert_eq!(before, after, "{scope:?} {series}");
        }
    }
    // Restored points are not saved again.
    let mut more = Vec::new();
    after.write_points(Scope::Edge, "", false, &mut more);
    assert!(more.is_empty());
    // The process was not running for a minute.
    let mut source = Source::new(Scope::Edge);
    source.now_s = now_s + 60;
    source.requests = 3;
    source.note(&mut after, "", 1);
    let answer = read(&after, Scope::Edge, "requests", now_s - 1, source.now_s);
    assert_eq!(answer.series[0].first(), Some(&Some(700.0)));
    assert_eq!(answer.series[0][1..61], [None; 60]);
    assert_eq!(answer.series[0].last(), Some(&Some(3.0)));
}

#[test]
fn another_version_of_the_series_is_restored_by_name() {
    let (mut before, now_s) = filled();
    let file = saved(&mut before);
    let other = Layout::new(Scope::Edge)
        .with_counter("new", "New.")
        .with_counter("requests", "Requests.");
    let mut after = History::new([other], usize::MAX);
    assert!(after.restore(&*file, now_s).is_none());
    let one = |series| {
        read(&after, Scope::Edge, series, now_s - 2, now_s)
            .series
            .remove(0)
    };
    assert_eq!(one("requests"), [Some(699.0), Some(700.0)]);
    assert_eq!(one("new"), [None, None]);
}

#[test]
fn old_points_and_points_of_the_future_are_not_restored() {
    let (mut before, now_s) = filled();
    let file = saved(&mut before);
    let layouts = || [layout(Scope::Edge), layout(Scope::Route)];
    let mut later = History::new(layouts(), usize::MAX);
    assert!(later.restore(&*file, now_s + 8 * DAY_S).is_none());
    assert_eq!(later.names(Scope::Edge).count(), 0);
    let mut earlier = History::new(layouts(), usize::MAX);
    assert!(earlier.restore(&*file, START_S + 100).is_none());
    let points = read(&earlier, Scope::Edge, "requests", START_S, START_S + 700);
    assert_eq!(points.series[0].iter().flatten().count(), 100);
    let mut limited = History::new(layouts(), 0);
    assert!(limited.restore(&*file, now_s).is_none());
    assert_eq!(limited.bytes(), 0);
}

#[test]
fn a_folder_gets_the_whole_history_first_and_then_new_points() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (history, now_s) = filled();
    let history = RwLock::new(history);
    let mut source = Source::new(Scope::Edge);
    (source.now_s, source.requests) = (now_s, (1..=700).sum());
    let length = || {
        let reader = PrivateFolder::read_only(folder.path()).reader("points");
        let mut file = reader.expect("readable").expect("saved");
        std::io::copy(&mut file, &mut std::io::sink()).expect("readable")
    };
    let mut saver = Saver::open(folder.path()).expect("the folder can be used");
    assert!(Saver::open(folder.path()).is_err(), "one process at a time");
    saver.save(&history).expect("saved");
    let whole = length();
    source.requests += 8;
    source.note(&mut history.write(), "", 1);
    saver.save(&history).expect("saved");
    let appended = length() - whole;
    assert!(
        (1..1000).contains(&appended),
        "{appended} bytes for a point"
    );
    saver.save(&history).expect("saved");
    assert_eq!(length(), whole + appended);
    drop(saver);
    let mut restored = History::new([layout(Scope::Edge)], usize::MAX);
    let mut saver = Saver::open(folder.path()).expect("the folder can be used");
    assert!(saver.restore(&mut restored, source.now_s).is_none());
    let answer = read(&restored, Scope::Edge, "requests", now_s - 1, source.now_s);
    assert_eq!(answer.series[0], [Some(700.0), Some(8.0)]);
}

/// Takes readings with these increases of the counter, each this many seconds after the one before. Returns the time
/// and the counter of each reading.
fn note_all(history: &mut History, increases: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut source = Source::new(Scope::Edge);
    let note = |(increase, seconds): &(u64, u64)| {
        source.requests += increase;
        source.note(history, "", *seconds);
        (source.now_s, source.requests)
    };
    increases.iter().map(note).collect()
}

/// Returns the sum of a rate's points, each times its length.
fn total(answer: &Answer) -> f64 {
    let rates = answer.series[0].iter().flatten();
    rates.sum::<f64>() * answer.step_s as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In each ring, the rates of all steps that have ended add up to the increase of the counter.
    #[test]
    fn rates_add_up_to_the_counter(increases in prop::collection::vec((0u64..5000, Just(1u64)), 1..400)) {
        let mut history = history(Scope::Edge);
        let counts = note_all(&mut history, &increases);
        let now_s = START_S + counts.len() as u64;
        for (step_s, from_s) in [(1, START_S), (10, now_s - DAY_S / 3), (60, now_s - 2 * DAY_S)] {
            let answer = read(&history, Scope::Edge, "requests", from_s, now_s);
            prop_assert_eq!(answer.step_s, step_s);
            let ended_s = now_s / step_s * step_s;
            let counted = counts.iter().rfind(|(at_s, _)| *at_s <= ended_s);
            let expected = counted.map_or(0, |(_, count)| *count) as f64;
            let sum = total(&answer);
            prop_assert!((sum - expected).abs() <= expected / 900.0, "{} {} {}", sum, expected, step_s);
        }
    }

    /// Readings that were late stand for the seconds since the one before.
    #[test]
    fn rates_of_late_readings_add_up(increases in prop::collection::vec((0u64..5000, 1u64..15), 1..100)) {
        let mut history = history(Scope::Edge);
        let counts = note_all(&mut history, &increases);
        let (now_s, _) = counts[counts.len() - 1];
        for (step_s, from_s) in [(1, START_S), (10, now_s - DAY_S / 3), (60, now_s - 2 * DAY_S)] {
            let answer = read(&history, Scope::Edge, "requests", from_s, now_s);
            prop_assert_eq!(answer.step_s, step_s);
            let ended_s = now_s / step_s * step_s;
            // The reading that ended the last step, if one has ended.
            let mut readings = counts.iter().filter(|_| ended_s > START_S);
            let counted = readings.find(|(at_s, _)| *at_s >= ended_s);
            let expected = counted.map_or(0, |(_, count)| *count) as f64;
            let sum = total(&answer);
            prop_assert!((sum - expected).abs() <= expected / 900.0, "{} {} {}", sum, expected, step_s);
        }
    }

    #[test]
    fn damaged_files_are_restored_up_to_the_damage(at in any::<prop::sample::Index>(), by in 1u8..=255) {
        let (mut before, now_s) = filled();
        let mut file = saved(&mut before);
        let at = at.index(file.len());
        file[at] = file[at].wrapping_add(by);
        let mut after = History::new([layout(Scope::Edge), layout(Scope::Route)], usize::MAX);
        prop_assert!(after.restore(&*file, now_s).is_some());
        if after.names(Scope::Edge).count() > 0 {
            let [all, held] = [&before, &after].map(|history| {
                read(history, Scope::Edge, "requests", now_s - 700, now_s)
            });
            for (all, held) in all.series[0].iter().zip(&held.series[0]) {
                prop_assert!(held.is_none() || held == all);
            }
        }
    }
}

/// A histogram like that of a busy route.
fn busy(seed: u64) -> Histogram {
    let counters = HistogramCounters::default();
    (0..500u64).for_each(|n| counters.record(200 + (n * n * seed) % 90_000));
    counters.values()
}

/// Fills all points of a member with values.
fn fill(member: &mut member::Member, now_s: u64) {
    for ring in &mut member.rings {
        let size = ring.size();
        let now = now_s / u64::from(size.step_s);
        for number in now - u64::from(size.points)..now {
            ring.push(number, &[number as u16 | 2; 32]);
        }
    }
}

/// Returns the resident memory of the process.
fn resident_bytes() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("the kernel's numbers");
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    4096 * pages.unwrap_or(0i64)
}

/// The history of 1,000 routes over a week is small, and reading it is fast. The bounds are far above the usual times.
#[test]
fn a_thousand_routes_with_a_week_of_history_are_read_at_once() {
    let mut history = History::new(layouts(), MEMORY_MAX);
    let names: Vec<String> = (0..1000).map(|n| format!("www{n}.example.com /")).collect();
    let histograms = busy(7);
    let now_s = START_S + 7 * DAY_S;
    let numbers = [7; RouteNumbers::METRICS.len()];
    let values = Values {
        numbers: &numbers,
        histograms: &[&histograms; RouteMeasures::METRICS.len()],
    };
    let before = resident_bytes();
    for name in &names {
        assert!(history.note(Scope::Route, name, &tick(now_s - 600, now_s), values));
        let member = history
            .member_mut(Scope::Route, name)
            .expect("it was added");
        fill(member, now_s);
    }
    let resident = resident_bytes() - before;
    let mib = history.bytes() as f64 / f64::from(1 << 20);
    assert!(mib < 136.0, "{mib} MiB");
    let period = Period {
        from_s: START_S,
        to_s: now_s,
        now_s,
        points: 600,
    };
    let began = Instant::now();
    let series = ["requests", "hits", "body_bytes", "request_duration_p99"];
    let answer = history
        .series(Scope::Route, &names[500], &series, &period)
        .expect("a route");
    let one = began.elapsed();
    assert_eq!(answer.series[0].len(), 504);
    let began = Instant::now();
    let table = history
        .table(Scope::Route, &series, &period, 50)
        .expect("all routes");
    let all = began.elapsed();
    assert_eq!(table.len(), 50);
    println!("{mib:.1} MiB, resident {resident}, one route {one:?}, all routes {all:?}");
    assert!(
        one.as_millis() < 100 && all.as_millis() < 2000,
        "{one:?} {all:?}"
    );
}
