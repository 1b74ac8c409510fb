//! The section of the slow-clients experiment.

use serde_json::Value;

use super::super::page::{Cell, Table, measured};
use super::super::svg::{Bar, Group};
use super::super::values::{MISSING, digits, list, milliseconds, number, text, time, with_unit};
use super::charts::{Kind, bar, bars};
use super::{Section, figures, is_sluice};

pub(super) const SECTION: Section = Section {
    name: "slow-clients",
    title: "Thousands of slow clients",
    question: "What does an ordinary client notice of thousands of slow clients, and when does the server cut these?",
    method: "Clients that send heads or bodies byte by byte, or that do not read their responses, stay connected while an \
             ordinary client requests files of 5 KB at a constant rate. Servers have their default limits.",
    article: "",
    summary,
    body,
    tables: |data| vec![figures::table(data), ordinary(data), cuts(data)],
};

fn p99(siege: &Value) -> Option<String> {
    number(siege, "under.p99_us").map(|us| milliseconds(us / 1000.0))
}

/// Returns the 99th percentiles of the ordinary client with all servers.
pub(super) fn percentiles(data: &Value) -> Vec<(String, String)> {
    let named = |siege| Some((text(siege, "name")?.to_owned(), p99(siege)?));
    list(data, "sieges").filter_map(named).collect()
}

fn summary(data: &Value) -> Vec<String> {
    let ours = |siege: &&Value| text(siege, "name").is_some_and(is_sluice);
    let sluice = list(data, "sieges").find(ours).and_then(p99);
    let nginx = list(data, "sieges").find(|siege| text(siege, "name") == Some("nginx"));
    let clients = number(data, "each").map_or_else(|| MISSING.to_owned(), digits);
    let sentence = sluice.map(|ms| {
        let nginx = nginx.and_then(p99);
        let nginx = nginx.map_or_else(String::new, |ms| format!(", with nginx {}", measured(&ms)));
        format!(
            "Among {} slow clients of each kind, 99 of 100 requests of an ordinary client took at most {} with Sluice{nginx}.",
            measured(&clients),
            measured(&ms)
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
            ..bar(
                name,
                number(siege, field).map(|us| us / 1000.0),
                milliseconds,
            )
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
        let ms = |path: &str| Cell::measured(time(number(siege, path).map(|us| us / 1000.0)));
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
