//! The section of the budget experiment.

use serde_json::Value;

use super::super::page::{Cell, Table, measured};
use super::super::svg::Line;
use super::super::values::{digits, list, number, with_unit};
use super::Section;
use super::charts::{Dimension, Kind, lines_from_zero};
use crate::budget::allowance;

pub(super) const SECTION: Section = Section {
    name: "budget",
    title: "Single bytes of a huge file",
    question: "How much can one client make the origin send?",
    method: "One client requests single bytes at random offsets of a file of 100 GB. A cache that fetches a block of \
             1 MiB for each byte lets the client cause a million times the traffic that it receives; Sluice's setting \
             client_budget limits this. A debt as large as the whole budget is forgiven within ten minutes. So once the \
             budget is used up, the origin's rate must be near this allowance, whatever the rate of the requests is.",
    article: "",
    summary,
    body,
    tables: |data| vec![table(&marks(data))],
};

const MEBIBYTE: f64 = 1_048_576.0;

/// One measurement: seconds, requests, requests without the right byte, and bytes of the origin since the start; bytes per
/// second, and bytes for each request, since the previous measurement.
struct Mark {
    seconds: f64,
    requests: f64,
    not_right: f64,
    bytes: f64,
    rate: f64,
    each: f64,
}

fn marks(data: &Value) -> Vec<Mark> {
    let mut before = (0.0, 0.0, 0.0);
    let read = |mark: &Value| {
        let not_right = number(mark, "not_right")?;
        let requests = number(mark, "right")? + not_right;
        let bytes = number(mark, "origin_bytes")?;
        let seconds = number(mark, "seconds")?;
        let each = (bytes - before.1) / f64::max(requests - before.0, 1.0);
        let rate = (bytes - before.1) / f64::max(seconds - before.2, 1e-3);
        before = (requests, bytes, seconds);
        Some(Mark {
            seconds,
            requests,
            not_right,
            bytes,
            rate,
            each,
        })
    };
    list(data, "marks").filter_map(read).collect()
}

fn summary(data: &Value) -> Vec<String> {
    let last = marks(data).pop().map(|mark| {
        let allowed = allowed(data).map_or_else(String::new, |rate| {
            format!("; the budget allows {rate} beyond the requested bytes")
        });
        format!(
            "After {} requests for one byte each, of which {} had a wrong response or none, the origin had sent {} MiB; at the \
             end, it sent {}{allowed}.",
            measured(&digits(mark.requests)),
            measured(&digits(mark.not_right)),
            measured(&digits(mark.bytes / MEBIBYTE)),
            measured(&kilobytes(mark.rate)),
        )
    });
    last.into_iter().collect()
}

/// Returns the bytes per second that the budget of this run allows, as text; `None` without a limit.
fn allowed(data: &Value) -> Option<String> {
    let budget = data.get("client_budget").and_then(Value::as_u64);
    allowance(budget).map(kilobytes)
}

fn kilobytes(bytes: f64) -> String {
    with_unit(Some(bytes / 1e3), "kB/s")
}

fn table(marks: &[Mark]) -> Table {
    let mut table = Table::new(
        "Over time",
        &[
            "after",
            "requests",
            "wrong or no response",
            "origin sent",
            "rate since",
            "for each request since",
        ],
    );
    for mark in marks {
        let cells = [
            Cell::measured(digits(mark.requests)),
            Cell::measured(digits(mark.not_right)),
            Cell::measured(with_unit(Some(mark.bytes / MEBIBYTE), "MiB")),
            Cell::measured(kilobytes(mark.rate)),
            Cell::measured(with_unit(Some(mark.each), "bytes")),
        ];
        table.row(format!("{:.1} s", mark.seconds), cells);
    }
    table
}

fn body(data: &Value) -> String {
    let marks = marks(data);
    let points = marks
        .iter()
        .map(|mark| (mark.seconds, mark.bytes / MEBIBYTE));
    let line = Line {
        class: "a",
        name: "Sluice".to_owned(),
        points: points.collect(),
    };
    let x = Dimension {
        name: "seconds",
        kind: Kind::Linear,
        show: digits,
    };
    let y = Dimension {
        name: "MiB sent by the origin",
        ..x
    };
    lines_from_zero("The origin's traffic", vec![line], x, y) + &table(&marks).render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_origins_rate_stands_beside_the_allowance_of_the_budget() {
        let mark = |seconds: f64, requests: u64, bytes: u64| json!({ "seconds": seconds, "right": requests, "not_right": 0, "origin_bytes": bytes });
        let mut data = json!({ "client_budget": null,
            "marks": [mark(2.0, 64, 67_000_000), mark(12.0, 1064, 68_100_000)] });
        let sentence = summary(&data).join(" ");
        assert!(
            sentence.ends_with(
                "at the end, it sent <b class=\"m\">110 kB/s</b>; the budget allows 112 kB/s beyond the requested bytes."
            ),
            "{sentence}"
        );
        // The line begins at zero.
        let body = body(&data);
        assert!(body.contains("points=\"0.0,220.0 "), "{body}");
        data["client_budget"] = json!(0);
        assert!(!summary(&data).join(" ").contains("allows"));
        data["client_budget"] = json!(6_000_000);
        assert!(summary(&data).join(" ").contains("allows 10 kB/s"));
    }

    #[test]
    fn wrong_and_missing_responses_are_in_sentence_and_table() {
        let data = json!({ "marks": [
            { "seconds": 2.0, "right": 60, "not_right": 4, "origin_bytes": 1000 },
            { "seconds": 4.0, "right": 100, "not_right": 23, "origin_bytes": 2000 }] });
        let sentence = summary(&data).join(" ");
        let expected = "After <b class=\"m\">123</b> requests for one byte each, of which <b class=\"m\">23</b> had a wrong response or none, the origin";
        assert!(sentence.starts_with(expected), "{sentence}");
        let table = table(&marks(&data));
        let cells = table.rows().iter().map(|row| row[2].value());
        assert_eq!(cells.collect::<Vec<_>>(), ["4", "23"]);
        assert_eq!(table.titles()[2], "wrong or no response");
    }
}
