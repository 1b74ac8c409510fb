//! Sluice beside its peers: the table with the most important figure of each experiment, for all servers of a run.

use serde_json::Value;

use super::super::page::{Cell, Table};
use super::super::run::Run;
use super::super::values::{MISSING, digits, list, number, text};
use super::{byte_range, is_sluice, keepalive, placement, slow_clients, static_files, storm};

/// A figure of all servers.
struct Figure {
    what: &'static str,
    experiment: &'static str,
    /// Returns the names of servers, with their modes, and their values.
    values: fn(&Value) -> Vec<(String, String)>,
}

const FIGURES: [Figure; 12] = [
    Figure {
        what: "ten bytes in the middle of an uncached file of a slow origin",
        experiment: "byte-range",
        values: |data| byte_range::times(data, "cold"),
    },
    Figure {
        what: "the whole file, uncached",
        experiment: "byte-range",
        values: |data| byte_range::times(data, "whole"),
    },
    Figure {
        what: "storm of ranges: bytes sent by the origin over distinct blocks",
        experiment: "storm",
        values: |data| rows(data, |row| number(row, "over"), storm::times),
    },
    Figure {
        what: "storm while files change: bytes sent by the origin over bytes that clients received",
        experiment: "storm-changing",
        values: |data| rows(data, storm::over_received, storm::times),
    },
    Figure {
        what: "storm while files change: bodies cut",
        experiment: "storm-changing",
        values: |data| rows(data, |row| number(row, "cut"), digits),
    },
    Figure {
        what: "storm while files change: requests failed",
        experiment: "storm-changing",
        values: |data| rows(data, |row| number(row, "failed"), digits),
    },
    Figure {
        what: "bytes sent to clients while a slow disk fills, over those without a cache",
        experiment: "placement",
        values: placement::shares,
    },
    Figure {
        what: "requests to a far, loaded server: reused connections over one for each request",
        experiment: "keepalive",
        values: keepalive::factors,
    },
    Figure {
        what: "rate of 5 KB files held with a connection for each request, one core",
        experiment: "static",
        values: |data| static_files::values(data, "rising.held"),
    },
    Figure {
        what: "CPU time for a static file of 5 KB",
        experiment: "static",
        values: |data| static_files::values(data, "keepalive.cpu_us"),
    },
    Figure {
        what: "memory of an open connection",
        experiment: "static",
        values: |data| static_files::values(data, "connections.bytes_each"),
    },
    Figure {
        what: "99th percentile of an ordinary client among slow ones",
        experiment: "slow-clients",
        values: slow_clients::percentiles,
    },
];

/// Returns a value of all rows that have it.
fn rows(
    data: &Value,
    value: fn(&Value) -> Option<f64>,
    show: fn(f64) -> String,
) -> Vec<(String, String)> {
    list(data, "rows")
        .filter_map(|row| Some((text(row, "name")?.to_owned(), show(value(row)?))))
        .collect()
}

/// Returns the table of all figures that a run has.
pub(in super::super) fn table(run: &Run) -> Table {
    let mut table = Table::new(
        "Sluice beside its peers",
        &["figure", "Sluice", "nginx", "others"],
    );
    for figure in &FIGURES {
        let mut steps = run.steps.iter();
        let step = steps.find(|step| step.name == figure.experiment);
        let values = step
            .and_then(|step| step.data.as_ref())
            .map(figure.values)
            .unwrap_or_default();
        if values.is_empty() {
            continue;
        }
        table.row(figure.what, cells(&values));
    }
    table
}

/// Returns the cells of one row. The mode of a server stands before its value, and so does the name of others.
fn cells(values: &[(String, String)]) -> [Cell; 3] {
    let of = |is_meant: &dyn Fn(&str) -> bool, prefix: &str| {
        let meant = values.iter().filter(|(name, _)| is_meant(name));
        let shown: Vec<String> = meant
            .map(|(name, value)| {
                let name = name.strip_prefix(prefix).unwrap_or(name).trim_start();
                format!("{name} {value}").trim_start().to_owned()
            })
            .collect();
        match shown.is_empty() {
            true => Cell::text(MISSING),
            false => Cell::measured(shown.join(", ")),
        }
    };
    let is_nginx = |name: &str| name.starts_with("nginx");
    [
        of(&is_sluice, "Sluice"),
        of(&is_nginx, "nginx"),
        of(&|name| !is_sluice(name) && !is_nginx(name), ""),
    ]
}
