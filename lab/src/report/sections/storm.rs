//! The sections of the storm of random ranges, without and with changing files.

use serde_json::Value;

use super::super::page::{Cell, Table, escape, measured};
use super::super::svg::{Bar, Group};
use super::super::values::{digits, list, milliseconds, number, text, with_unit};
use super::charts::{Kind, bar, bars, range};
use super::{AT_LEAST, Section, is_sluice};

pub(super) const SECTION: Section = Section {
    name: "storm",
    title: "A storm of random ranges",
    question: "What does the origin send if many clients request ranges, and is every byte right?",
    method: "Many clients with addresses of their own request random ranges, suffixes and whole files of 20 files from \
             1 byte to 100 MB. Each byte is a function of file, version and offset, so a wrong or mixed body is detected. \
             The bytes that the origin sent are compared with the distinct blocks that clients requested: they are equal if \
             each block is fetched once, as a whole. Sluice fetches the requested bytes first, and completes their block only \
             while fewer fetches run in that part of the file than one request may have, so its value can be below 1.",
    article: "",
    summary: |data| summary(data, &BLOCKS),
    body: |data| body(data, &BLOCKS),
    tables: |data| vec![table(data, &BLOCKS)],
};

pub(super) const CHANGING: Section = Section {
    name: "storm-changing",
    title: "The same storm while files change",
    question: "Is any body mixed from two versions, and how many are cut?",
    method: "The same requests, while one file after the other gets a new version and responses are fresh for one second. The \
             faster a server is, the fewer versions its clients meet, so the bytes that the origin sent are compared with \
             those that clients received, and not with the blocks of all versions.",
    summary: |data| summary(data, &RECEIVED),
    body: |data| body(data, &RECEIVED),
    tables: |data| vec![table(data, &RECEIVED)],
    ..SECTION
};

/// The quantity by which the bytes that the origin sent are divided.
struct Measure {
    /// Title of the column.
    column: &'static str,
    /// End of the sentence: the origin sent … times …
    words: &'static str,
    /// Caption of the chart.
    caption: &'static str,
    /// Returns the quotient of a row.
    of: fn(&Value) -> Option<f64>,
    /// Name of its spread in the record.
    spread: &'static str,
}

/// The distinct blocks that clients requested. They are the same for all servers if no file changes.
const BLOCKS: Measure = Measure {
    column: "over blocks",
    words: "the bytes of the distinct blocks that clients requested",
    caption: "Bytes sent by the origin over distinct blocks",
    of: |row| number(row, "over"),
    spread: "over",
};

/// The bytes that clients received.
const RECEIVED: Measure = Measure {
    column: "over bytes received",
    words: "the bytes that clients received",
    caption: "Bytes sent by the origin over bytes that clients received",
    of: over_received,
    spread: "received",
};

/// Returns the bytes that the origin sent over those that clients received: the median of the rounds, if there are several.
pub(super) fn over_received(row: &Value) -> Option<f64> {
    let received = number(row, "got").filter(|bytes| *bytes > 0.0)?;
    number(row, "spread.received.median").or_else(|| Some(number(row, "sent")? / received))
}

fn sluice(data: &Value) -> Option<&Value> {
    list(data, "rows").find(|row| text(row, "name").is_some_and(is_sluice))
}

fn summary(data: &Value, measure: &Measure) -> Vec<String> {
    let Some(row) = sluice(data) else {
        return Vec::new();
    };
    let value = |path| with_unit(number(row, path), "");
    let wrong = format!(
        "Of {} responses, {} had a wrong byte, {} failed and {} were cut.",
        measured(&value("requests")),
        measured(&value("wrong")),
        measured(&value("failed")),
        measured(&value("cut"))
    );
    let others: String = list(data, "rows")
        .filter_map(|row| Some((text(row, "name")?, (measure.of)(row)?)))
        .filter(|(name, _)| name.starts_with("nginx"))
        .map(|(name, over)| format!("; {}: {}", escape(name), measured(&digits(over))))
        .collect();
    let over = (measure.of)(row).map(|over| {
        format!(
            "The origin sent {} times {}{others}.",
            measured(&digits(over)),
            measure.words
        )
    });
    let early: Vec<&str> = list(data, "rows")
        .filter(|row| is_ended_early(row))
        .filter_map(|row| text(row, "name"))
        .collect();
    let early = (!early.is_empty()).then(|| {
        let names = escape(&early.join(", "));
        format!("The time limit ended the storm before all requests were sent: {names}.")
    });
    [wrong].into_iter().chain(over).chain(early).collect()
}

/// Whether the time limit ended the storm of this cache, so that its counts are lower bounds.
pub(super) fn is_ended_early(row: &Value) -> bool {
    row.get("ended_early").and_then(Value::as_bool) == Some(true)
}

/// Returns the begin of a count: "at least" if the time limit ended the storm of this cache.
pub(super) fn bound(row: &Value) -> &'static str {
    match is_ended_early(row) {
        true => AT_LEAST,
        false => "",
    }
}

fn table(data: &Value, measure: &Measure) -> Table {
    let has_cpu = list(data, "rows").any(|row| number(row, "cpu_us").is_some());
    let mut titles = vec![
        "cache",
        "requests",
        "wrong",
        "failed",
        "cut",
        "stale",
        "origin requests",
        "origin sent",
        measure.column,
        "sent to clients",
    ];
    titles.extend(has_cpu.then_some("CPU per request"));
    let mut table = Table::new("Responses, and the origin's cost", &titles);
    for row in list(data, "rows") {
        let value = |path: &str| number(row, path);
        let bound = bound(row);
        let count = |path| Cell::measured(format!("{bound}{}", with_unit(value(path), "")));
        let rate = value("got").zip(value("took"));
        let rate = rate.map(|(bytes, seconds)| bytes / 1e6 / seconds.max(1e-3));
        let cells = [
            count("requests"),
            count("wrong"),
            count("failed"),
            count("cut"),
            count("stale"),
            count("origin"),
            Cell::measured(format!(
                "{bound}{}",
                with_unit(value("sent").map(|bytes| bytes / 1e6), "MB")
            )),
            Cell::measured(with_unit((measure.of)(row), "×")),
            Cell::measured(with_unit(rate, "MB/s")),
        ];
        let cpu = value("cpu_us").map(|us| microseconds(us) + &between(row));
        let cpu = has_cpu.then(|| Cell::measured(cpu.unwrap_or_default()));
        table.row(
            text(row, "name").unwrap_or_default(),
            cells.into_iter().chain(cpu),
        );
    }
    table
}

/// Returns the range of the CPU time in several rounds, in brackets.
fn between(row: &Value) -> String {
    match range(row, "spread.cpu_us") {
        Some((low, high)) => format!(" ({} to {})", microseconds(low), microseconds(high)),
        None => String::new(),
    }
}

fn microseconds(us: f64) -> String {
    milliseconds(us / 1000.0)
}

fn body(data: &Value, measure: &Measure) -> String {
    let named = list(data, "rows").filter_map(|row| Some((text(row, "name")?, row)));
    let bars_of_rows = named.map(|(name, row)| Bar {
        spread: range(row, &format!("spread.{}", measure.spread)),
        ..bar(name, (measure.of)(row), times)
    });
    let group = Group {
        name: String::new(),
        bars: bars_of_rows.collect(),
    };
    let chart = bars(measure.caption, &[group], Kind::Linear);
    table(data, measure).render() + &chart
}

/// Formats a quotient.
pub(super) fn times(value: f64) -> String {
    format!("{} ×", digits(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Spread;
    use serde_json::json;

    #[test]
    fn a_storm_with_changes_compares_the_bytes_sent_with_those_received() {
        // The second server is slower, so more versions were requested from it.
        let row = |name: &str, touched: f64| {
            json!({ "name": name, "requests": 9, "wrong": 0, "failed": 0, "cut": 0, "sent": 300e6, "got": 200e6,
                "touched": touched, "over": 300e6 / touched, "took": 1.0 })
        };
        let data = json!({ "rows": [row("Sluice auto", 800e6), row("nginx slice", 200e6)] });
        let changing = (CHANGING.summary)(&data).join(" ");
        let expected = "The origin sent <b class=\"m\">1.50</b> times the bytes that clients received; \
                        nginx slice: <b class=\"m\">1.50</b>.";
        assert!(changing.contains(expected), "{changing}");
        let body = (CHANGING.body)(&data);
        assert!(
            body.contains("1.50\u{a0}×") && !body.contains("blocks"),
            "{body}"
        );
        let unchanging = (SECTION.summary)(&data).join(" ");
        assert!(
            unchanging.contains("<b class=\"m\">0.375</b> times the bytes of the distinct blocks")
        );
        let spread = |rounds: &[f64]| Spread::of(rounds.to_vec()).expect("numbers");
        let mut rounds = row("Sluice auto", 800e6);
        rounds["cpu_us"] = json!(25.0);
        rounds["spread"] = json!({ "over": spread(&[0.2, 0.5]), "received": spread(&[1.0, 3.0, 2.0]),
            "cpu_us": spread(&[20.0, 40.0, 25.0]) });
        assert_eq!(over_received(&rounds), Some(2.0));
        let body = (CHANGING.body)(&json!({ "rows": [rounds] }));
        assert!(
            body.contains("(20\u{a0}µs\u{a0}to\u{a0}40\u{a0}µs)"),
            "{body}"
        );
        let nothing = json!({ "sent": 1, "got": 0 });
        assert_eq!(over_received(&nothing), None);
    }
}
