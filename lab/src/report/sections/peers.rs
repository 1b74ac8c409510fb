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
        values: |data| quotients(data, |row| number(row, "over")),
    },
    Figure {
        what: "storm while files change: bytes sent by the origin over bytes that clients received",
        experiment: "storm-changing",
        values: |data| quotients(data, storm::over_received),
    },
    Figure {
        what: "storm while files change: bodies cut",
        experiment: "storm-changing",
        values: |data| counts(data, "cut"),
    },
    Figure {
        what: "storm while files change: requests failed",
        experiment: "storm-changing",
        values: |data| counts(data, "failed"),
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
        what: "99th percentile of an ordinary client's good responses among slow clients, and its failed requests",
        experiment: "slow-clients",
        values: slow_clients::percentiles,
    },
];

/// Returns a count of a storm for all caches that have it, marked as a lower bound if the time limit ended the storm.
fn counts(data: &Value, path: &str) -> Vec<(String, String)> {
    let value = |row: &Value| {
        let count = digits(number(row, path)?);
        let name = text(row, "name")?.to_owned();
        Some((name, format!("{}{count}", storm::bound(row))))
    };
    list(data, "rows").filter_map(value).collect()
}

/// Returns a quotient of two counts of a storm for all caches that have it, with a remark if the time limit ended the
/// storm. Such a quotient is no bound, since both counts are too small.
fn quotients(data: &Value, of: fn(&Value) -> Option<f64>) -> Vec<(String, String)> {
    let value = |row: &Value| {
        let quotient = storm::times(of(row)?);
        let name = text(row, "name")?.to_owned();
        let remark = match storm::is_ended_early(row) {
            true => " (ended early)",
            false => "",
        };
        Some((name, format!("{quotient}{remark}")))
    };
    list(data, "rows").filter_map(value).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn storms_that_ended_early_are_marked() {
        let row = |name: &str, ended_early: bool| json!({ "name": name, "over": 1.5, "cut": 7, "ended_early": ended_early });
        let data = json!({ "rows": [row("Sluice auto", false), row("nginx slice", true)] });
        let named = |one: &str, other: &str| {
            let names = ["Sluice auto", "nginx slice"].map(str::to_owned);
            let values = [one, other].map(str::to_owned);
            names.into_iter().zip(values).collect::<Vec<_>>()
        };
        assert_eq!(counts(&data, "cut"), named("7", "at least 7"));
        let over = quotients(&data, |row| number(row, "over"));
        assert_eq!(over, named("1.50 ×", "1.50 × (ended early)"));
    }
}
