//! The section of the byte-range experiment.

use serde_json::Value;

use super::super::page::{Cell, Table, details, escape, measured};
use super::super::svg::{Bar, Group};
use super::super::values::{MISSING, list, milliseconds, named, number, text, time, with_unit};
use super::charts::{Kind, article, bar, bars, range};
use super::{Section, figures, is_sluice};

pub(super) const SECTION: Section = Section {
    name: "byte-range",
    title: "Ranges of a file that is not cached",
    question: "How long do ten bytes in the middle of a large uncached file take if the origin is slow?",
    method: "A file of 10 MiB, an origin that is limited on each connection, and a cache that is empty at the beginning \
             of each round. One client requests bytes 5000000-5000009 (cold), the same again at once, and bytes further \
             on; a second one requests the whole of another file. Times are those from sending a request to the last \
             byte of its response; every byte is verified.",
    article: "nginx in front of an origin with 1 MB/s: the whole file, the whole file with a cache lock, and slices of 1 MiB.",
    summary,
    body,
    tables,
};

/// The modes that the article measured: the mode, the row of nginx and of Sluice here, the kind of request, and the
/// article's seconds.
const ARTICLE: [(&str, &str, &str, &str, f64); 5] = [
    (
        "whole file: cold range",
        "nginx whole",
        "Sluice whole",
        "cold",
        5.35,
    ),
    (
        "cache lock: cold range",
        "nginx lock",
        "Sluice lock",
        "cold",
        5.42,
    ),
    (
        "cache lock: again, during the fetch",
        "nginx lock",
        "Sluice lock",
        "again",
        0.042,
    ),
    (
        "cache lock: once the file is cached",
        "nginx lock",
        "Sluice lock",
        "warm",
        0.012,
    ),
    (
        "slices of 1 MiB: cold range",
        "nginx slice",
        "Sluice slice",
        "cold",
        0.977,
    ),
];

/// Kinds of requests: field, name.
const KINDS: [(&str, &str); 9] = [
    ("cold", "cold range"),
    ("same", "same range meanwhile"),
    ("again", "same range afterwards"),
    ("far", "range further on"),
    ("in", "range within a running fetch"),
    ("landed", "bytes that have arrived"),
    ("gap", "bytes that have not"),
    ("whole", "whole file"),
    ("warm", "cached range"),
];

fn total(data: &Value, row: &str, kind: &str) -> Option<f64> {
    number(named(data, "rows", row)?, &format!("ms.{kind}.total"))
}

/// Returns the times of Sluice's main mode and of all rivals for a kind of request.
pub(super) fn times(data: &Value, kind: &str) -> Vec<(String, String)> {
    let main = main_row(data);
    let names = list(data, "rows").filter_map(|row| text(row, "name"));
    let meant = names.filter(|name| match is_sluice(name) {
        true => Some(*name) == main,
        false => !name.starts_with("origin"),
    });
    meant
        .filter_map(|name| Some((name.to_owned(), milliseconds(total(data, name, kind)?))))
        .collect()
}

/// Returns the fill mode of Sluice whose sentence is in the summary: the default, or else the first.
fn main_row(data: &Value) -> Option<&str> {
    let names = || list(data, "rows").filter_map(|row| text(row, "name"));
    let usual = names().find(|name| *name == "Sluice auto");
    usual.or_else(|| names().find(|name| is_sluice(name)))
}

fn summary(data: &Value) -> Vec<String> {
    let Some(main) = main_row(data) else {
        return Vec::new();
    };
    let cold = total(data, main, "cold").map(|ms| {
        let others = [
            ("nginx slice", "nginx with slices"),
            ("nginx whole", "nginx with the whole file"),
        ];
        let others: Vec<String> = others
            .iter()
            .filter_map(|(row, name)| Some((name, total(data, row, "cold")?)))
            .map(|(name, ms)| format!("{name} needed {}", measured(&milliseconds(ms))))
            .collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("; {}", others.join(", ")),
        };
        let ms = measured(&milliseconds(ms));
        format!("A range in the middle of an uncached file came after {ms} with Sluice{others}.")
    });
    let over = named(data, "rows", main).and_then(|row| number(row, "ranges.over"));
    let over = over.map(|over| {
        let over = measured(&format!("{over:.2}"));
        format!("For four ranges the origin sent {over} times the bytes of the blocks that contain them.")
    });
    cold.into_iter()
        .chain(whole(data, main))
        .chain(over)
        .chain(failures(data))
        .collect()
}

/// Returns the sentence about the whole file.
fn whole(data: &Value, main: &str) -> Option<String> {
    let ms = total(data, main, "whole")?;
    let nginx = total(data, "nginx slice", "whole").map_or_else(String::new, |ms| {
        format!("; with nginx and slices {}", measured(&milliseconds(ms)))
    });
    Some(format!(
        "The whole file took {} with Sluice{nginx}.",
        measured(&milliseconds(ms))
    ))
}

/// Returns a sentence with the caches that were not measured.
fn failures(data: &Value) -> Option<String> {
    let failed = list(data, "rows").filter(|row| row.get("error").is_some_and(Value::is_string));
    let names: Vec<&str> = failed.filter_map(|row| text(row, "name")).collect();
    (!names.is_empty()).then(|| {
        let names = escape(&names.join(", "));
        format!("Not measured, since a request failed: {names}.")
    })
}

fn tables(data: &Value) -> Vec<Table> {
    vec![beside_the_article(data), costs(data), all_times(data)]
}

fn body(data: &Value) -> String {
    let mut html = beside_the_article(data).render();
    html.push_str(&chart(data));
    html.push_str(&costs(data).render());
    html.push_str(&details("All times", &all_times(data).render()));
    html.push_str(&figures::notes(data));
    html
}

fn beside_the_article(data: &Value) -> Table {
    let titles = ["request", "article, nginx", "nginx here", "Sluice here"];
    let mut table = Table::new("Beside the article", &titles);
    for (what, nginx, sluice, kind, seconds) in ARTICLE {
        let here = |row| Cell::measured(time(total(data, row, kind)));
        let cells = [
            Cell::article(milliseconds(seconds * 1000.0)),
            here(nginx),
            here(sluice),
        ];
        table.row(what, cells);
    }
    if let Some(auto) = total(data, "Sluice auto", "cold") {
        let nothing = || Cell::text("");
        let cells = [nothing(), nothing(), Cell::measured(milliseconds(auto))];
        table.row("Sluice's default mode (auto): cold range", cells);
    }
    table
}

fn chart(data: &Value) -> String {
    let group = |name: &str, kind: &str, extra: Vec<_>| {
        let rows = list(data, "rows").filter(|row| row.get("ms").is_some());
        let rows = rows.filter_map(|row| Some((text(row, "name")?, row)));
        let here = rows.map(|(name, row)| Bar {
            spread: range(row, &format!("spread.ms.{kind}.total")),
            ..bar(name, number(row, &format!("ms.{kind}.total")), milliseconds)
        });
        Group {
            name: name.to_owned(),
            bars: extra.into_iter().chain(here).collect(),
        }
    };
    let cold = vec![
        article("article: nginx, whole file", 5350.0, milliseconds),
        article("article: nginx, slices", 977.0, milliseconds),
    ];
    let groups = [
        group("Cold range", "cold", cold),
        group("The same range again", "again", Vec::new()),
        group("Whole file", "whole", Vec::new()),
    ];
    bars("Time to the last byte", &groups, Kind::Powers)
}

/// Returns a cell with the CPU time of a request in milliseconds; empty if it was not measured.
fn cpu(ms: Option<f64>) -> Cell {
    Cell::measured(ms.map_or_else(String::new, milliseconds))
}

fn costs(data: &Value) -> Table {
    let has_cpu = list(data, "rows").any(|row| number(row, "cpu_ms.median").is_some());
    let mut titles = vec![
        "cache",
        "requests for ranges",
        "origin sent for ranges",
        "over blocks",
        "origin sent for the file",
        "same byte, at most",
    ];
    titles.extend(has_cpu.then_some("CPU per request"));
    let mut table = Table::new("Cost for the origin", &titles);
    for row in list(data, "rows") {
        let Some(name) = text(row, "name").filter(|name| !name.starts_with("origin")) else {
            continue;
        };
        let value = |path: &str| number(row, path);
        let mebibytes =
            |path| with_unit(value(path).map(|bytes| bytes / f64::from(1 << 20)), "MiB");
        let times = |value: Option<f64>| with_unit(value, "×");
        let most = ["ranges.most", "file.most"].into_iter().filter_map(value);
        let most = most.reduce(f64::max);
        let cells = match text(row, "error") {
            Some(error) => vec![Cell::text(format!("{MISSING}: {error}"))],
            None => vec![
                Cell::measured(with_unit(value("ranges.req"), "")),
                Cell::measured(mebibytes("ranges.sent")),
                Cell::measured(times(value("ranges.over"))),
                Cell::measured(mebibytes("file.sent")),
                Cell::measured(times(most)),
            ],
        };
        let cpu = has_cpu.then(|| cpu(value("cpu_ms.median")));
        table.row(name, cells.into_iter().chain(cpu));
    }
    table
}

fn all_times(data: &Value) -> Table {
    let names = KINDS.iter().map(|(_, name)| *name);
    let titles: Vec<&str> = ["cache"].into_iter().chain(names).collect();
    let mut table = Table::new("Times to the last byte", &titles);
    for row in list(data, "rows").filter(|row| row.get("ms").is_some()) {
        let cell = |(kind, _): &(&str, &str)| {
            Cell::measured(time(number(row, &format!("ms.{kind}.total"))))
        };
        table.row(
            text(row, "name").unwrap_or_default(),
            KINDS.iter().map(cell),
        );
    }
    table
}
