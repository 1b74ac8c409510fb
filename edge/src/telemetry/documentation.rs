//! Writes `docs/metrics.md` from the table of metrics, and tests that the page is current.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use super::metric::Scope;
use super::{
    BufferNumbers, CacheNumbers, CertificateNumbers, CertificateTotals, CompressNumbers, Counters,
    EffectiveState, FIELD_NAMES, Failures, FilesNumbers, Kind, Metric, Numbers, ProcessNumbers,
    ServerCounters, ServerNumbers, VolumeFlags, VolumeNumbers, WorkerNumbers,
};

const BEGINNING: &str = "\
# Metrics

This page lists every counter, gauge and histogram. It is written from the table in `edge/src/telemetry/table.rs`.

`GET /status` at the admin address returns the numbers as JSON, `GET /metrics` in Prometheus' text format (version
0.0.4); `sluice status` prints the most important ones. A counter only rises, and begins at 0 when the process starts,
unless the table says otherwise. A gauge rises and falls. The labels name what a number belongs to. Their values come
from the configuration, never from a client, so that the number of time series is bounded.

`/status` also has `recent`: rates, hit ratios and request durations over the last ten seconds. `seconds` is the length
of the period; `requests`, `client_bytes_out` and `upstream_bytes_in` are numbers per second; `hit_ratio` is the share
of the requests to caches that were served from stored bytes (`cache_hits` and `cache_validated`, of these and
`cache_misses`, `cache_collapsed` and `cache_passes`), and `byte_hit_ratio` the share of the body bytes
(`cache_hit_bytes` of `cache_response_bytes`). A ratio is null without requests.

`request_duration` in `/status` has the percentiles `p50_us`, `p90_us` and `p99_us` in microseconds since the start, and
`recent.request_duration` those of the last ten seconds. They are estimates, which `sluice status` marks with `~`:
Sluice counts durations in buckets whose bounds are at most 25% apart, and interpolates within a bucket, so an estimate
differs by at most 25% from the counted durations. A duration above 50 s counts as 50 s. The histogram
`sluice_request_duration_seconds` of `/metrics` has fewer buckets, with the bounds 10, 20 and 50 µs and so on up to
50 s. Of the requests that are answered without waiting, one in 16 is measured, since reading the clock takes a
noticeable part of the time of a hit from memory. The others count with the duration of the last measured one. Requests
in the access log are all measured.

`sluice_info` is a gauge with the value 1 and the label `version`.
";

struct Section {
    title: &'static str,
    /// Sentence that says where the section's numbers are in the status.
    place: &'static str,
    /// The section's metrics, and whether the status has them under their own names.
    sets: Vec<(&'static [Metric], bool)>,
}

fn sections() -> Vec<Section> {
    let section = |title, place, sets| Section { title, place, sets };
    vec![
        section(
            "Process",
            "In the status: `uptime_s`, `reload.generation` and `tls_files_refused`.",
            vec![(ProcessNumbers::METRICS, false)],
        ),
        section(
            "Workers",
            "In the status: a list `workers`, and their sum in `counters`.",
            vec![
                (WorkerNumbers::METRICS, true),
                (Counters::HISTOGRAMS, false),
            ],
        ),
        section(
            "Caches",
            "In the status: `caches`, by name.",
            vec![(CacheNumbers::METRICS, true)],
        ),
        section(
            "Buffers of bodies",
            "In the status: `buffers`.",
            vec![(BufferNumbers::METRICS, true)],
        ),
        section(
            "Compression",
            "In the status: `compress`, if a route compresses.",
            vec![(CompressNumbers::METRICS, true)],
        ),
        section(
            "Volumes",
            "In the status: a list `volumes`, where `state` says whether the volume is used.",
            vec![
                (VolumeFlags::METRICS, false),
                (VolumeNumbers::METRICS, true),
            ],
        ),
        section(
            "Static files",
            "In the status: a list `files`.",
            vec![(FilesNumbers::METRICS, true)],
        ),
        section(
            "All certificates",
            "In the status: `certificates`.",
            vec![(CertificateTotals::METRICS, true)],
        ),
        section(
            "Single certificates",
            "In the status: a list `list` in `certificates`, with the fields of `GET /certificates` \
             ([more](tls.md#seeing-certificates)). If there are more than 1,000 certificates, the list and the metrics have \
             those with warnings first, then those that expire first.",
            vec![(CertificateNumbers::METRICS, false)],
        ),
        section(
            "Servers of upstreams",
            "In the status: `upstreams`, by name, each with a list `servers`, and with their sum in `total`. The histograms \
             are percentiles there, as in `request_duration`, of which `sluice status` shows the 50th and the 99th \
             (`163µs/175µs`), and `failures_by_reason` is an object, which has no reason \
             without failures. `state` is a text there: `up`, `drain`, `down`, `checking`, `unhealthy`, `ejected`, `unreachable`, \
             `resolving` or `unresolved` ([more](configuration.md#taking-servers-out-of-use)). \
             For Prometheus, `failures_by_reason` has the label `reason`, too, and `state` the label `state`.",
            vec![
                (ServerNumbers::METRICS, true),
                (ServerCounters::HISTOGRAMS, true),
                (&[Failures::METRIC, EffectiveState::METRIC], true),
            ],
        ),
    ]
}

fn page() -> String {
    let mut page = BEGINNING.to_owned();
    for section in sections() {
        // Writing to a String can't fail, here and in the rest of this file.
        let _ = writeln!(
            page,
            "\n## {}\n\n{}{}",
            section.title,
            section.place,
            labels(&section)
        );
        page +=
            "\n| in the status | for Prometheus | kind | unit | meaning |\n|---|---|---|---|---|\n";
        for (metrics, in_status) in section.sets {
            for metric in metrics {
                page += &row(metric, in_status);
            }
        }
    }
    page
}

fn labels(section: &Section) -> String {
    let scope = section.sets[0].0[0].scope;
    match scope.labels() {
        [] => String::new(),
        [label] => format!(" For Prometheus: the label `{label}`."),
        labels => format!(" For Prometheus: the labels `{}`.", labels.join("`, `")),
    }
}

fn row(metric: &Metric, in_status: bool) -> String {
    let name = match in_status {
        true => format!("`{}`", metric.name),
        false => String::new(),
    };
    format!(
        "| {name} | `{}` | {} | {} | {} |\n",
        metric.exposed_name(),
        metric.kind.as_str(),
        metric.unit.as_str(),
        metric.help,
    )
}

fn all() -> Vec<&'static Metric> {
    let sections = sections();
    let sets = sections.iter().flat_map(|section| &section.sets);
    sets.flat_map(|(metrics, _)| *metrics).collect()
}

#[test]
fn the_page_about_metrics_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let expected = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/metrics.md is out of date. Write it again with \
         `UPDATE_DOCS=1 cargo test -p sluice --lib the_page_about_metrics_is_current`"
    );
}

#[test]
fn the_page_about_logs_lists_every_field_of_a_template() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/logs.md");
    let page = std::fs::read_to_string(&path).expect("the page can be read");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    for name in FIELD_NAMES {
        let quoted = format!("`{name}`");
        let is_first = |row: &&str| {
            row.split('|')
                .nth(1)
                .is_some_and(|cell| cell.contains(&quoted))
        };
        assert!(rows.iter().any(is_first), "{name}");
    }
}

#[test]
fn every_metric_has_its_own_name_and_a_meaning() {
    let mut names = BTreeSet::new();
    for metric in all() {
        assert!(names.insert(metric.exposed_name()), "{metric:?}");
        assert!(metric.help.ends_with('.'), "{metric:?}");
        let gauge_of_worker = metric.scope == Scope::Worker && metric.kind == Kind::Gauge;
        assert_eq!(metric.name.ends_with("_now"), gauge_of_worker, "{metric:?}");
    }
}

#[test]
fn a_scopes_number_never_takes_the_name_of_a_workers() {
    let number = |name, scope, kind| Metric {
        name,
        kind,
        scope,
        ..*CacheNumbers::METRICS.first().expect("a number")
    };
    let exposed = |name, scope| number(name, scope, Kind::Counter).exposed_name();
    for (name, scope, expected) in [
        ("hits", Scope::Cache, "sluice_cache_hits_by_cache_total"),
        (
            "requests",
            Scope::Upstream,
            "sluice_upstream_requests_by_upstream_total",
        ),
        ("hits", Scope::Route, "sluice_route_hits_total"),
        ("requests", Scope::Route, "sluice_route_requests_total"),
        (
            "volume_hits",
            Scope::Cache,
            "sluice_cache_volume_hits_total",
        ),
    ] {
        assert_eq!(exposed(name, scope), expected);
    }
    let idle = number("idle", Scope::Upstream, Kind::Gauge);
    assert_eq!(idle.exposed_name(), "sluice_upstream_idle_by_upstream");
    let workers: BTreeSet<_> = WorkerNumbers::METRICS
        .iter()
        .map(Metric::exposed_name)
        .collect();
    for worker in WorkerNumbers::METRICS {
        for scope in [Scope::Cache, Scope::Upstream, Scope::Route, Scope::Server] {
            let prefixes = ["cache_", "upstream_", "route_", "server_"];
            let name = prefixes
                .iter()
                .find_map(|prefix| worker.name.strip_prefix(prefix));
            let scoped = number(name.unwrap_or(worker.name), scope, worker.kind);
            assert!(!workers.contains(&scoped.exposed_name()), "{scoped:?}");
        }
    }
}

#[test]
fn numbers_are_read_back_by_their_names() {
    let numbers = CacheNumbers::read(|name| name.len() as u64);
    assert_eq!((numbers.objects, numbers.limit), (7, 5));
    let values: Vec<u64> = numbers.values().collect();
    assert_eq!(values.len(), CacheNumbers::METRICS.len());
    let position = CacheNumbers::METRICS.iter().position(|m| m.name == "limit");
    assert_eq!(position.map(|at| values[at]), Some(5));
}
