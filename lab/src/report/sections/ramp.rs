//! The section of the ramp experiment.

use serde_json::Value;

use super::super::page::{Cell, Table, measured};
use super::super::svg::Line;
use super::super::values::{digits, list, number, text, with_unit};
use super::charts::{Dimension, Kind, lines};
use super::figures::{self, figure};
use super::{AT_LEAST, Section, colour, is_sluice};

pub(super) const SECTION: Section = Section {
    name: "ramp",
    title: "Short connections at a rising rate",
    question: "How many connections per second does a server on one core hold, and how long do requests take?",
    method: "Clients request files of 5 KB with one connection for each request. The rate rises until the server falls \
             behind; a rate is held while the median latency is at most 1.1 ms. Latencies count from the scheduled time \
             of a request. One core is the server's, one the load generator's.",
    article: "nginx on two virtual cores replied after 1.1 ms for rates up to 30,000 connections per second; Apache needed \
              more than 100 ms and was saturated at 6,000.",
    summary,
    body,
    tables: |data| vec![beside_the_article(data), figures::table(data)],
};

/// The article's rate: connections per second on two virtual cores.
const ARTICLE_RATE: f64 = 30_000.0;

fn held(data: &Value, server: &str) -> Option<f64> {
    number(figure(data, "held")?, server)
}

/// Returns the begin of a held rate: "at least" if the load generator was the limit in one of the server's ramps.
fn bound(data: &Value, server: &str) -> &'static str {
    let is_own = server == "sluice";
    let mut ramps = list(data, "ramps")
        .filter(|ramp| text(ramp, "name").is_some_and(|name| is_sluice(name) == is_own));
    match ramps.any(is_limited) {
        true => AT_LEAST,
        false => "",
    }
}

/// Whether the load generator was the limit of a ramp, so that the server may hold more.
pub(super) fn is_limited(ramp: &Value) -> bool {
    ramp.get("limited").and_then(Value::as_bool) == Some(true)
}

fn summary(data: &Value) -> Vec<String> {
    let shown = |server, rate| format!("{}{}", bound(data, server), measured(&digits(rate)));
    let held = held(data, "sluice").map(|rate| {
        let nginx = held(data, "rival").map_or_else(String::new, |rate| {
            format!(", nginx {}", shown("rival", rate))
        });
        format!(
            "With a connection for each request, Sluice on one core held {} requests per second{nginx}.",
            shown("sluice", rate)
        )
    });
    held.into_iter().collect()
}

fn beside_the_article(data: &Value) -> Table {
    let mut table = Table::new(
        "Beside the article",
        &["", "article, nginx", "nginx here", "Sluice here"],
    );
    let here = |server| {
        let rate = with_unit(held(data, server), "/s");
        Cell::measured(format!("{}{rate}", bound(data, server)))
    };
    let article = Cell::article(format!("{} /s, two cores", digits(ARTICLE_RATE)));
    table.row(
        "rate with a median of 1.1 ms",
        [article, here("rival"), here("sluice")],
    );
    table
}

fn body(data: &Value) -> String {
    let mut html = beside_the_article(data).render();
    html.push_str(&chart(data));
    html.push_str(&figures::table_and_notes(data));
    html
}

/// Draws the latencies of the first ramp of each server by rate.
fn chart(data: &Value) -> String {
    let mut ramps: Vec<(&str, &Value)> = Vec::new();
    for ramp in list(data, "ramps") {
        if let Some(name) = text(ramp, "name")
            && ramps.iter().all(|(drawn, _)| *drawn != name)
        {
            ramps.push((name, ramp));
        }
    }
    latency_by_rate("First ramp of each server", data, &ramps)
}

/// Draws median and 99th percentile of ramps by rate. `data` has the first and last rate and the duration of a ramp.
pub(super) fn latency_by_rate(caption: &str, data: &Value, ramps: &[(&str, &Value)]) -> String {
    let mut all = Vec::new();
    for (name, ramp) in ramps {
        for (field, what) in [("p50_us", "median"), ("p99_us", "99th percentile")] {
            all.push(Line {
                class: class(name, field),
                name: format!("{name}, {what}"),
                points: points(data, ramp, field),
            });
        }
    }
    let x = Dimension {
        name: "requests per second",
        kind: Kind::Linear,
        show: digits,
    };
    let y = Dimension {
        name: "latency in ms",
        kind: Kind::Powers,
        show: digits,
    };
    lines(caption, all, x, y)
}

fn class(server: &str, field: &str) -> &'static str {
    match (colour(server), field) {
        ("a", "p50_us") => "a",
        ("a", _) => "a dashed",
        ("b", "p50_us") => "b",
        ("b", _) => "b dashed",
        ("e", "p50_us") => "e",
        ("e", _) => "e dashed",
        (_, "p50_us") => "c",
        _ => "c dashed",
    }
}

fn points(data: &Value, ramp: &Value, field: &str) -> Vec<(f64, f64)> {
    let (from, to) = (number(data, "rates.0"), number(data, "rates.1"));
    let (Some(from), Some(to), Some(seconds)) = (from, to, number(data, "seconds")) else {
        return Vec::new();
    };
    let point = |window: &Value| {
        let share = number(window, "begin")? / seconds.max(1e-9);
        Some((from + share * (to - from), number(window, field)? / 1000.0))
    };
    list(ramp, "windows").filter_map(point).collect()
}
