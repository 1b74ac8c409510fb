//! The section of the slow-clients experiment.

use serde_json::Value;

use super::super::page::{Cell, Table, escape, measured};
use super::super::svg::{Bar, Group};
use super::super::values::{MISSING, digits, list, milliseconds, number, text, time, with_unit};
use super::charts::{Kind, bar, bars};
use super::{Section, figures, is_sluice};

pub(super) const SECTION: Section = Section {
    name: "slow-clients",
    title: "Thousands of slow clients",
    question: "What does an ordinary client notice of thousands of slow clients, and when does the server cut these?",
    method: "Clients that send heads or bodies byte by byte, or that do not read their responses, stay connected while an \
             ordinary client requests files of 5 KB at a constant rate. Latencies are those of its good responses; its \
             failed requests, also those before the slow clients came, are counted apart. Servers have their default limits.",
    article: "",
    summary,
    body,
    tables: |data| vec![figures::table(data), ordinary(data), cuts(data)],
};

/// Returns a latency of the ordinary client in milliseconds; `None` if there was no good response.
fn latency(siege: &Value, path: &str) -> Option<f64> {
    // Earlier records have zeros if there was no good response. A latency is never zero.
    let us = number(siege, path).filter(|us| *us > 0.0);
    us.map(|us| us / 1000.0)
}

/// Whether the ordinary client was measured among the slow ones.
fn is_measured(siege: &Value) -> bool {
    number(siege, "requests").is_some() || number(siege, "under.p99_us").is_some()
}

/// Returns the 99th percentiles of the ordinary client's good responses with all servers, and the numbers of its failed
/// requests.
pub(super) fn percentiles(data: &Value) -> Vec<(String, String)> {
    let named = |siege: &Value| {
        let errors = number(siege, "errors").map(|errors| format!(" ({} failed)", digits(errors)));
        let p99 = time(latency(siege, "under.p99_us"));
        let name = text(siege, "name")?.to_owned();
        Some((name, format!("{p99}{}", errors.unwrap_or_default())))
    };
    let sieges = list(data, "sieges").filter(|siege| is_measured(siege));
    sieges.filter_map(named).collect()
}

/// Returns a phrase about the ordinary client with one server; `None` if it was not measured.
fn phrase(siege: &Value) -> Option<String> {
    let name = escape(text(siege, "name").filter(|_| is_measured(siege))?);
    let errors = number(siege, "errors").map(|errors| measured(&digits(errors)));
    let errors = errors.map(|errors| format!(" ({errors} failed)"));
    let p99 = match latency(siege, "under.p99_us") {
        Some(ms) => format!("{} with {name}", measured(&milliseconds(ms))),
        None => format!("{MISSING} with {name}, which sent no good response"),
    };
    Some(p99 + &errors.unwrap_or_default())
}

fn summary(data: &Value) -> Vec<String> {
    let of = |is_meant: fn(&str) -> bool| {
        let mut sieges = list(data, "sieges");
        sieges.find(|siege| text(siege, "name").is_some_and(is_meant))
    };
    let clients = number(data, "each").map_or_else(|| MISSING.to_owned(), digits);
    let sentence = of(is_sluice).and_then(phrase).map(|sluice| {
        let nginx = of(|name| name == "nginx").and_then(phrase);
        let nginx = nginx.map_or_else(String::new, |nginx| format!(", {nginx}"));
        format!(
            "The 99th percentile of an ordinary client's good responses among {} slow clients of each kind was {sluice}{nginx}.",
            measured(&clients)
        )
    });
    sentence.into_iter().collect()
}

fn body(data: &Value) -> String {
    let mut html = chart(data);
    html.push_str(&figures::table(data).render());
    html.push_str(&cuts(data).render());
    html.push_str(&ordinary(data).render());
    html
}

fn chart(data: &Value) -> String {
    let groups = list(data, "sieges").map(|siege| {
        let name = text(siege, "name").unwrap_or_default();
        let value = |field: &str, what: &str| Bar {
            name: what.to_owned(),
            ..bar(name, latency(siege, field), milliseconds)
        };
        Group {
            name: name.to_owned(),
            bars: vec![
                value("quiet.p99_us", "99th percentile, alone"),
                value("under.p99_us", "99th percentile, among slow clients"),
                value("under.max_us", "longest, among slow clients"),
            ],
        }
    });
    bars(
        "Latency of the ordinary client",
        &groups.collect::<Vec<_>>(),
        Kind::Powers,
    )
}

fn cuts(data: &Value) -> Table {
    let titles = [
        "server",
        "kind",
        "cut",
        "first after",
        "median",
        "last after",
        "never",
    ];
    let mut table = Table::new("When slow clients are cut", &titles);
    for siege in list(data, "sieges") {
        for row in list(siege, "kinds") {
            let after = |place: &str| {
                let seconds = number(row, &format!("after.{place}"));
                Cell::measured(
                    seconds.map_or_else(|| "-".to_owned(), |value| with_unit(Some(value), "s")),
                )
            };
            let count = |path| Cell::measured(with_unit(number(row, path), ""));
            let kind = Cell::text(text(row, "kind").unwrap_or_default());
            let cells = [
                kind,
                count("cut"),
                after("0"),
                after("1"),
                after("2"),
                count("never"),
            ];
            table.row(text(siege, "name").unwrap_or_default(), cells);
        }
    }
    table
}

fn ordinary(data: &Value) -> Table {
    let titles = [
        "server",
        "median",
        "99th percentile",
        "longest",
        "failed",
        "memory before",
        "memory, at most",
    ];
    let mut table = Table::new(
        "The ordinary client among the slow ones, and the server's memory",
        &titles,
    );
    for siege in list(data, "sieges") {
        let ms = |path: &str| Cell::measured(time(latency(siege, path)));
        let memory = |path| {
            Cell::measured(with_unit(
                number(siege, path).map(|bytes| bytes / 1e6),
                "MB",
            ))
        };
        let cells = [
            ms("under.p50_us"),
            ms("under.p99_us"),
            ms("under.max_us"),
            Cell::measured(with_unit(number(siege, "errors"), "")),
            memory("memory.0"),
            memory("memory.1"),
        ];
        table.row(text(siege, "name").unwrap_or_default(), cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn failed_requests_stand_beside_the_latency_of_the_good_responses() {
        let siege = |name: &str, requests: u64, errors: u64, under: Value| json!({ "name": name, "requests": requests, "errors": errors, "under": under });
        let fast = || json!({ "p50_us": 1000.0, "p99_us": 2000.0, "max_us": 3000.0 });
        let zeros = || json!({ "p50_us": 0.0, "p99_us": 0.0, "max_us": 0.0 });
        let mut data = json!({ "each": 1000, "sieges": [
            siege("Sluice", 6000, 9000, fast()), siege("nginx", 0, 15_000, zeros())] });
        let expected = "slow clients of each kind was <b class=\"m\">2 ms</b> with Sluice (<b class=\"m\">9,000</b> failed), \
                        not measured with nginx, which sent no good response (<b class=\"m\">15,000</b> failed).";
        let sentence = summary(&data).join(" ");
        assert!(sentence.ends_with(expected), "{sentence}");
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            named("Sluice", "2 ms (9,000 failed)"),
            named("nginx", "not measured (15,000 failed)"),
        ];
        assert_eq!(percentiles(&data), expected);
        // Later records have null in place of zeros.
        data["sieges"][1]["under"] = Value::Null;
        assert_eq!(percentiles(&data), expected);
        let table = ordinary(&data);
        let cells: Vec<&str> = table.rows()[1].iter().map(Cell::value).collect();
        assert_eq!(cells[1..4], [MISSING; 3]);
        let nothing = json!({ "sieges": [{ "name": "Sluice" }] });
        assert!(percentiles(&nothing).is_empty() && summary(&nothing).is_empty());
    }
}
