//! The section of the experiment with static files.

use serde_json::Value;

use super::super::page::{Cell, Table, escape, measured, paragraph};
use super::super::svg::{Bar, Group, Line};
use super::super::values::{digits, list, milliseconds, number, text, with_unit};
use super::charts::{Dimension, Kind, article, bar, bars, lines};
use super::ramp::{self, latency_by_rate};
use super::{AT_LEAST, AT_MOST, Section, colour, figures, is_sluice};
use crate::ramp::climb;
use crate::spread::{Spread, noise_rule};

pub(super) const SECTION: Section = Section {
    name: "static",
    title: "Small static files at scale",
    question: "How many small files, users and connections does a server on one core handle, and what do they cost?",
    method: "Files of 5 KB from one worker on one core: to saturation with open connections and with a connection for each \
             request, at a rate that rises until the server falls behind, and over thousands of open connections. A rate \
             is held while the median latency is at most 1.1 ms; latencies count from the scheduled time of a request.",
    article: "nginx on two virtual cores replied after 1.1 ms for rates up to 30,000 connections per second with about 17 MB \
              of memory, and kept 10,000 idle connections in about 2.5 MB. Apache needed more than 100 ms, was saturated at \
              6,000 per second, and took 100 MB for each process.",
    summary,
    body,
    tables,
};

/// Formats a figure: median, with the lowest and highest round.
type Show = fn(f64) -> String;

/// A figure of the article beside ours: its name, the article's values for nginx and Apache, the path of ours, and the
/// format.
struct Known {
    what: &'static str,
    nginx: &'static str,
    apache: &'static str,
    path: &'static str,
    show: Show,
}

const ARTICLE: [Known; 4] = [
    Known {
        what: "held rate, a connection for each request",
        nginx: "30,000/s, two cores",
        apache: "6,000/s, saturated",
        path: "rising.held",
        show: per_second,
    },
    Known {
        what: "mean latency up to that rate",
        nginx: "1.10 ms",
        apache: "over 100 ms",
        path: "rising.mean_us",
        show: microseconds,
    },
    Known {
        what: "memory at that load",
        nginx: "17 MB",
        apache: "100 MB a process",
        path: "rising.memory_bytes",
        show: megabytes,
    },
    Known {
        what: "memory of an open connection",
        nginx: "250 bytes",
        apache: "",
        path: "connections.bytes_each",
        show: bytes,
    },
];

/// The article's rate of nginx on two virtual cores, and of Apache.
const ARTICLE_RATES: (f64, f64) = (30_000.0, 6000.0);

/// Figures of the tables: title, path, format.
const CAPACITY: [(&str, &str, Show); 4] = [
    ("open connections: rate", "keepalive.rate", per_second),
    ("CPU per request", "keepalive.cpu_us", microseconds),
    ("a connection each: rate", "close.rate", per_second),
    ("CPU per request", "close.cpu_us", microseconds),
];
const MANY: [(&str, &str, Show); 5] = [
    ("memory at rest", "connections.rest_bytes", megabytes),
    ("all open", "connections.open_bytes", megabytes),
    ("each", "connections.bytes_each", bytes),
    ("median latency", "connections.p50_us", microseconds),
    ("99th percentile", "connections.p99_us", microseconds),
];

fn per_second(rate: f64) -> String {
    format!("{}/s", digits(rate))
}

fn microseconds(us: f64) -> String {
    milliseconds(us / 1000.0)
}

fn megabytes(bytes: f64) -> String {
    format!("{} MB", digits(bytes / 1e6))
}

fn bytes(bytes: f64) -> String {
    format!("{} bytes", digits(bytes))
}

fn servers(data: &Value) -> impl Iterator<Item = (&str, &Value)> + Clone {
    list(data, "servers").filter_map(|server| Some((text(server, "name")?, server)))
}

fn median(server: &Value, path: &str) -> Option<f64> {
    number(server, &format!("{path}.median"))
}

fn spread(server: &Value, path: &str) -> Option<Spread> {
    let value = path
        .split('.')
        .try_fold(server, |value, part| value.get(part))?;
    serde_json::from_value(value.clone()).ok()
}

fn shown(server: &Value, path: &str, show: Show) -> Cell {
    let value =
        spread(server, path).map(|spread| format!("{}{}", bound(server, path), spread.show(show)));
    Cell::measured(value.unwrap_or_else(|| with_unit(None, "")))
}

fn summary(data: &Value) -> Vec<String> {
    let Some((_, ours)) = servers(data).find(|(name, _)| is_sluice(name)) else {
        return Vec::new();
    };
    let others = |path: &str, show: Show| -> String {
        let others = servers(data).filter(|(name, _)| !is_sluice(name));
        let others =
            others.filter_map(|(name, server)| Some((name, server, median(server, path)?)));
        let phrase = |(name, server, value)| {
            format!(
                ", {} {}{}",
                escape(name),
                bound(server, path),
                measured(&show(value))
            )
        };
        others.map(phrase).collect()
    };
    let held = median(ours, "rising.held").map(|rate| {
        let others = others("rising.held", per_second);
        let rate = format!(
            "{}{}",
            bound(ours, "rising.held"),
            measured(&per_second(rate))
        );
        format!("On one core and with a connection for each request, Sluice held {rate} of 5 KB files{others}.")
    });
    let cpu = median(ours, "keepalive.cpu_us").map(|us| {
        let others = others("keepalive.cpu_us", microseconds);
        let us = measured(&microseconds(us));
        format!("A request on an open connection cost Sluice {us} of CPU time{others}.")
    });
    held.into_iter().chain(cpu).collect()
}

fn body(data: &Value) -> String {
    [
        beside_the_article(data).render(),
        held_rates(data),
        latencies(data),
        saturation(data).render(),
        cpu(data),
        many(data).render(),
        memory(data),
        costs(data).render(),
        ratios(data),
        figures::notes(data),
    ]
    .concat()
}

/// Returns the medians of a figure of the tables for all servers, marked if they are lower bounds.
pub(super) fn values(data: &Value, path: &str) -> Vec<(String, String)> {
    let tables = CAPACITY
        .iter()
        .chain(&MANY)
        .map(|(_, path, show)| (*path, *show));
    let known = ARTICLE.iter().map(|known| (known.path, known.show));
    let Some((_, show)) = tables.chain(known).find(|(known, _)| *known == path) else {
        return Vec::new();
    };
    let value = |(name, server): (&str, &Value)| {
        let value = show(median(server, path)?);
        Some((name.to_owned(), format!("{}{value}", bound(server, path))))
    };
    servers(data).filter_map(value).collect()
}

fn tables(data: &Value) -> Vec<Table> {
    let first = [beside_the_article(data), saturation(data), many(data)];
    let last = [costs(data), comparisons(data)];
    first.into_iter().chain(last).collect()
}

fn saturation(data: &Value) -> Table {
    table(
        data,
        "Saturation: medians of the rounds, lowest and highest",
        &CAPACITY,
    )
}

fn many(data: &Value) -> Table {
    table(data, "Many open connections", &MANY)
}

/// Whether the load generator was the limit of a rate in one of the rounds, so that the server may do more.
fn is_limited(server: &Value, path: &str) -> bool {
    let busy = |run: &Value| number(run, "load_busy").is_some_and(|busy| busy > climb::BUSY);
    match path {
        "rising.held" | "held" => list(server, "rising.runs")
            .filter_map(|run| run.get("ramp"))
            .any(ramp::is_limited),
        "keepalive.rate" | "keepalive" => list(server, "keepalive.runs").any(busy),
        "close.rate" | "close" => list(server, "close.runs").any(busy),
        _ => false,
    }
}

/// Returns the begin of a figure: "at least" if it is a lower bound.
fn bound(server: &Value, path: &str) -> &'static str {
    match is_limited(server, path) {
        true => AT_LEAST,
        false => "",
    }
}

fn beside_the_article(data: &Value) -> Table {
    let here: Vec<String> = servers(data)
        .map(|(name, _)| format!("{name} here"))
        .collect();
    let titles = ["", "article, nginx", "article, Apache"].into_iter();
    let titles: Vec<&str> = titles.chain(here.iter().map(String::as_str)).collect();
    let mut table = Table::new("Beside the article", &titles);
    for known in ARTICLE {
        let ours = servers(data).map(|(_, server)| shown(server, known.path, known.show));
        let known_cells = [Cell::article(known.nginx), Cell::article(known.apache)];
        table.row(known.what, known_cells.into_iter().chain(ours));
    }
    table
}

fn table(data: &Value, caption: &str, figures: &[(&str, &str, Show)]) -> Table {
    let titles = figures.iter().map(|(title, ..)| *title);
    let titles: Vec<&str> = ["server"].into_iter().chain(titles).collect();
    let mut table = Table::new(caption, &titles);
    for (name, server) in servers(data) {
        table.row(
            name,
            figures
                .iter()
                .map(|(_, path, show)| shown(server, path, *show)),
        );
    }
    table
}

/// Returns a bar with whiskers for a figure of a server.
fn spread_bar(name: &str, server: &Value, path: &str, show: Show) -> Bar {
    let spread = spread(server, path);
    let several = spread.as_ref().filter(|spread| spread.rounds.len() > 1);
    Bar {
        spread: several.map(|spread| (spread.low, spread.high)),
        ..bar(name, spread.as_ref().map(|spread| spread.median), show)
    }
}

fn held_rates(data: &Value) -> String {
    let mut all = vec![
        article("article: nginx, two cores", ARTICLE_RATES.0, per_second),
        article(
            "article: Apache, two cores, saturated",
            ARTICLE_RATES.1,
            per_second,
        ),
    ];
    all.extend(
        servers(data).map(|(name, server)| spread_bar(name, server, "rising.held", per_second)),
    );
    let group = Group {
        name: String::new(),
        bars: all,
    };
    match servers(data).next() {
        Some(_) => bars("Rate held with a median of 1.1 ms", &[group], Kind::Linear),
        None => String::new(),
    }
}

fn latencies(data: &Value) -> String {
    let ramps: Vec<(&str, &Value)> = servers(data)
        .filter_map(|(name, server)| Some((name, list(server, "rising.runs").next()?.get("ramp")?)))
        .collect();
    latency_by_rate("First rising load of each server", data, &ramps)
}

fn cpu(data: &Value) -> String {
    let group = |name: &str, path: &str| Group {
        name: name.to_owned(),
        bars: servers(data)
            .map(|(name, server)| spread_bar(name, server, path, microseconds))
            .collect(),
    };
    let groups = [
        group("Open connections", "keepalive.cpu_us"),
        group("A connection for each request", "close.cpu_us"),
    ];
    bars(
        "CPU time of the server for each request",
        &groups,
        Kind::Linear,
    )
}

fn memory(data: &Value) -> String {
    let line = |(name, server): (&str, &Value)| {
        let run = list(server, "connections.runs").next()?;
        let point =
            |sample: &Value| Some((number(sample, "at")?, number(sample, "resident")? / 1e6));
        Some(Line {
            class: colour(name),
            name: name.to_owned(),
            points: list(run, "samples").filter_map(point).collect(),
        })
    };
    let x = Dimension {
        name: "seconds",
        kind: Kind::Linear,
        show: digits,
    };
    let y = Dimension {
        name: "resident memory in MB",
        ..x
    };
    let count = with_unit(number(data, "connections"), "connections");
    lines(
        &format!("While {count} open"),
        servers(data).filter_map(line).collect(),
        x,
        y,
    )
}

fn costs(data: &Value) -> Table {
    let price = number(data, "price.per_hour").map_or_else(String::new, digits);
    let currency = text(data, "price.currency").unwrap_or_default();
    let each = number(data, "price.requests_per_user").map_or_else(String::new, digits);
    let caption = format!(
        "Users who make {each} requests per second each, on a machine for {price} {currency} per hour"
    );
    let mut table = Table::new(
        &caption,
        &[
            "server",
            "capacity",
            "users",
            "cost of 1,000 users per hour",
        ],
    );
    for (name, server) in servers(data) {
        for cost in list(server, "costs") {
            let capacity = match text(cost, "capacity") {
                Some("keepalive") => "saturated, open connections",
                Some("close") => "saturated, a connection each",
                Some("held") => "held rate",
                _ => "",
            };
            // A server that may do more serves more users, each for less.
            let is_limited = is_limited(server, text(cost, "capacity").unwrap_or_default());
            let bounds = match is_limited {
                true => [AT_LEAST, AT_MOST],
                false => ["", ""],
            };
            let value = |path, bound| {
                let value = spread(cost, path).map(|spread| spread.show(digits));
                let value = value.map(|value| format!("{bound}{value}"));
                Cell::measured(value.unwrap_or_else(|| with_unit(None, "")))
            };
            let [users, price] = bounds;
            let cells = [
                Cell::text(capacity),
                value("users", users),
                value("per_1000_users", price),
            ];
            table.row(name, cells);
        }
    }
    table
}

/// Returns the begin of a ratio of Sluice's figure to a rival's, and a remark if both are lower bounds.
fn ratio_bound(data: &Value, rival: &str, figure: &str) -> (&'static str, &'static str) {
    let path = match figure {
        "held" => "held",
        "keepalive_rate" => "keepalive",
        "close_rate" => "close",
        _ => return ("", ""),
    };
    let limited = |is_meant: &dyn Fn(&str) -> bool| {
        let mut meant = servers(data).filter(|(name, _)| is_meant(name));
        meant.any(|(_, server)| is_limited(server, path))
    };
    match (limited(&is_sluice), limited(&|name| name == rival)) {
        (false, false) => ("", ""),
        (true, false) => (AT_LEAST, ""),
        (false, true) => (AT_MOST, ""),
        (true, true) => ("", "unknown: both are lower bounds"),
    }
}

/// Renders the ratios and the rule for noise.
fn ratios(data: &Value) -> String {
    let table = comparisons(data);
    if table.is_empty() {
        return String::new();
    }
    let rule = format!("A difference is within the noise if {}.", noise_rule());
    table.render() + &paragraph(&rule)
}

fn comparisons(data: &Value) -> Table {
    let mut table = Table::new(
        "Sluice's figures divided by those of others",
        &["figure", "server", "ratio", ""],
    );
    for one in list(data, "comparisons") {
        let key = text(one, "figure").unwrap_or_default();
        let rival = text(one, "rival").unwrap_or_default();
        let (bound, remark) = ratio_bound(data, rival, key);
        let figure = match key {
            "keepalive_rate" => "rate, open connections",
            "keepalive_cpu_us" => "CPU per request, open connections",
            "close_rate" => "rate, a connection each",
            "close_cpu_us" => "CPU per request, a connection each",
            "held" => "held rate",
            "mean_us" => "mean latency up to the held rate",
            "open_bytes" => "memory with all connections",
            "bytes_each" => "memory of a connection",
            "p99_us" => "99th percentile with all connections",
            other => other,
        };
        let is_noise = one.get("within_noise").and_then(Value::as_bool) == Some(true);
        let noise = if is_noise { "within the noise" } else { "" };
        let ratio = with_unit(number(one, "ratio"), "");
        let cells = [
            Cell::text(rival),
            Cell::measured(format!("{bound}{ratio}")),
            Cell::text(if remark.is_empty() { noise } else { remark }),
        ];
        table.row(figure, cells);
    }
    table
}
