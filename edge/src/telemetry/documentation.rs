//! Writes `docs/metrics.md` from the table of metrics, and tests that the page is current.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use super::metric::{Scope, Unit};
use super::{
    BufferNumbers, CacheNumbers, CertificateNumbers, CertificateTotals, CompressNumbers,
    EffectiveState, FIELD_NAMES, Failures, FilesNumbers, Kind, Measures, Metric, Numbers,
    ProcessNumbers, Reasons, RouteNumbers, ServerMeasures, ServerNumbers, VolumeFlags,
    VolumeNumbers, WorkerMeasures, WorkerNumbers,
};

const BEGINNING: &str = "\
# Metrics

This page lists every counter, gauge and histogram. It is written from the tables in `edge/src/telemetry/table.rs` and
`traffic_table.rs`.

`GET /status` at the admin address returns the numbers as JSON, `GET /metrics` in Prometheus' text format (version
0.0.4), or as OpenMetrics (version 1.0.0) if `Accept` asks for `application/openmetrics-text`; `sluice status` prints the
most important ones. For Prometheus, times are in seconds and sizes in bytes, and the unit is at the end of the name. A counter only rises, and begins at 0 when the process starts,
unless the table says otherwise. A gauge rises and falls. The labels name what a number belongs to. Their values come
from the configuration, never from a client, so that the number of time series is bounded.

`/status` also has `recent`: rates, hit ratios and request durations over the last ten seconds. `seconds` is the length
of the period; `requests`, `client_bytes_out` and `upstream_bytes_in` are numbers per second; `hit_ratio` is the share
of the requests to caches that were served from stored bytes (`cache_hits` and `cache_validated`, of these and
`cache_misses`, `cache_collapsed` and `cache_passes`), and `byte_hit_ratio` the share of the body bytes
(`cache_hit_bytes` of `cache_response_bytes`). A ratio is null without requests.

The histograms in `/status`, such as `request_duration`, have the percentiles `p50_us`, `p95_us` and `p99_us` and the
maximum `max_us` in microseconds since the start (`p50_bytes` and so on in bytes for `body_size`), and
`recent.request_duration` those of the last ten seconds. They are estimates, which `sluice status` marks with `~`:
Sluice counts values in 64 buckets of the same width per power of two, and shows the middle of a bucket, which differs
from the true value by at most 1/128 (0.8%). Values below 128 are exact. The histograms of `/metrics` have 15 finite
bounds: powers of two from 16 µs to 16.8 s, and from 255 bytes to 64 GiB.

Of the requests that are answered without waiting, one in 16 is measured, since reading the clock takes a
noticeable part of the time of a hit from memory. The others count with the duration of the last measured one. Requests
in the access log are all measured.

Only counters have the label `route`, so that a thousand routes cost Prometheus 18,000 time series and no more.

`sluice_info` is a gauge with the value 1 and the label `version`.
";

struct Section {
    title: &'static str,
    /// Sentence that says where the section's numbers are in the status.
    place: &'static str,
    /// The section's metrics, and whether the status has them under their own names.
    sets: Vec<(&'static [Metric], bool)>,
    /// The scope of the metrics, if they are sums over the members of another scope.
    sums: Option<Scope>,
}

impl Section {
    /// Returns the metrics, and whether the status has them under their own names.
    fn metrics(&self) -> impl Iterator<Item = (Metric, bool)> {
        let sets = self.sets.iter();
        sets.flat_map(|(metrics, in_status)| {
            let metrics = metrics.iter();
            metrics.map(|metric| {
                (
                    metric.of_scope(self.sums.unwrap_or(metric.scope)),
                    *in_status,
                )
            })
        })
    }
}

fn sections() -> Vec<Section> {
    let section = |title, place, sets| Section {
        title,
        place,
        sets,
        sums: None,
    };
    let sums = |title, place, scope| Section {
        sums: Some(scope),
        ..section(title, place, vec![(RouteNumbers::METRICS, true)])
    };
    vec![
        section(
            "Process",
            "In the status: `process`.",
            vec![(ProcessNumbers::METRICS, true)],
        ),
        section(
            "Workers",
            "In the status: a list `workers`, and their sum in `counters`.",
            vec![
                (WorkerNumbers::METRICS, true),
                (WorkerMeasures::METRICS, true),
            ],
        ),
        section(
            "Reasons",
            "In the status: an object `requests_by_reason`, which has no reason that no request had. `docs/reasons.md` lists the reasons.",
            vec![(&[Reasons::METRIC], true)],
        ),
        section(
            "Routes",
            "Not in the status. A route is named by the first host of its site, or `*` for a site without hosts, and its \
             condition. Routes go on counting over a reload under their names. A route that got no request \
             has no numbers. Requests that Sluice refuses before it knows their route belong to the workers' numbers only.",
            vec![(RouteNumbers::METRICS, false)],
        ),
        sums(
            "Sites",
            "In the status: `sites`, by name. Sums over the routes of the site, with routes that a reload removed.",
            Scope::Site,
        ),
        sums(
            "Requests of caches",
            "In the status: `cache_traffic`, by name. Sums over the routes of the cache, with routes that a reload removed.",
            Scope::Cache,
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
                (ServerMeasures::METRICS, true),
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
        for (metric, in_status) in section.metrics() {
            page += &row(metric, in_status);
        }
    }
    page
}

fn labels(section: &Section) -> String {
    let scope = section.sums.unwrap_or(section.sets[0].0[0].scope);
    match scope.labels() {
        [] => String::new(),
        [label] => format!(" For Prometheus: the label `{label}`."),
        labels => format!(" For Prometheus: the labels `{}`.", labels.join("`, `")),
    }
}

fn row(metric: Metric, in_status: bool) -> String {
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

fn all() -> Vec<Metric> {
    let sections = sections();
    let all = sections.iter().flat_map(Section::metrics);
    all.map(|(metric, _)| metric).collect()
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
        // Neither the samples nor the families of OpenMetrics share a name.
        assert!(names.insert(metric.family_name()), "{metric:?}");
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
    let of_unit = |name, scope, unit| Metric {
        unit,
        ..number(name, scope, Kind::Counter)
    };
    for (name, scope, unit, expected) in [
        (
            "bytes_in",
            Scope::Server,
            Unit::Bytes,
            "sluice_server_in_bytes_total",
        ),
        (
            "write_ms",
            Scope::Volume,
            Unit::Milliseconds,
            "sluice_volume_write_seconds_total",
        ),
        (
            "bytes",
            Scope::Cache,
            Unit::Bytes,
            "sluice_cache_bytes_total",
        ),
        (
            "size",
            Scope::Volume,
            Unit::Bytes,
            "sluice_volume_size_bytes_total",
        ),
    ] {
        assert_eq!(of_unit(name, scope, unit).exposed_name(), expected);
    }
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
