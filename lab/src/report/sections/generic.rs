//! Tables of all numbers of a report whose form is not known.

use serde_json::{Map, Value};

use super::super::page::{Cell, Table};
use super::super::values::digits;
use super::{Section, figures};

/// The section of an experiment without one of its own.
pub(super) const OTHER: Section = Section {
    name: "",
    title: "",
    question: "",
    method: "",
    article: "",
    summary: no_summary,
    body,
    tables: |data| vec![figures::table(data)],
};

/// Most rows of a table.
const ROWS_MAX: usize = 100;
/// Greatest depth of lists in lists.
const DEPTH_MAX: usize = 4;

fn no_summary(data: &Value) -> Vec<String> {
    figures::goals_met(data).into_iter().collect()
}

/// Renders the figures, if there are some, and all other numbers.
pub(super) fn body(data: &Value) -> String {
    figures::table(data).render() + &rest(data)
}

/// Renders all numbers except the figures.
pub(super) fn rest(data: &Value) -> String {
    let mut html = scalars(data);
    for (name, value) in data.as_object().into_iter().flatten() {
        if name != "figures" && name != "notes" {
            lists(name, value, DEPTH_MAX, &mut html);
        }
    }
    html + &figures::notes(data)
}

fn scalars(data: &Value) -> String {
    let mut table = Table::new("Values", &["name", "value"]);
    for (name, value) in data.as_object().into_iter().flatten() {
        if let Some(cell) = cell(value) {
            table.row(words(name), [cell]);
        }
    }
    table.render()
}

/// Adds a table for a list of objects, and tables for the lists within them.
fn lists(name: &str, value: &Value, depth: usize, html: &mut String) {
    if depth == 0 {
        return;
    }
    if let Some(object) = value.as_object() {
        html.push_str(&scalars(value));
        for (inner, value) in object {
            lists(&format!("{name}: {inner}"), value, depth - 1, html);
        }
        return;
    }
    let rows: Vec<&Map<String, Value>> = value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .collect();
    let mut columns: Vec<&str> = Vec::new();
    for (name, value) in rows.iter().flat_map(|row| row.iter()) {
        if cell(value).is_some() && !columns.contains(&name.as_str()) && name != "name" {
            columns.push(name);
        }
    }
    let titles: Vec<String> = columns.iter().map(|column| words(column)).collect();
    let titles: Vec<&str> = [""]
        .into_iter()
        .chain(titles.iter().map(String::as_str))
        .collect();
    let mut table = Table::new(&words(name), &titles);
    for (number, row) in (1..).zip(&rows).take(ROWS_MAX) {
        let first = row.get("name").and_then(Value::as_str);
        let cells = columns.iter().map(|column| {
            let cell = row.get(*column).and_then(cell);
            cell.unwrap_or_else(|| Cell::text(""))
        });
        table.row(
            first.map_or_else(|| number.to_string(), str::to_owned),
            cells.collect::<Vec<_>>(),
        );
    }
    html.push_str(&table.render());
    for (number, row) in (1..).zip(rows).take(ROWS_MAX) {
        let of = row.get("name").and_then(Value::as_str);
        let of = of.map_or_else(|| number.to_string(), str::to_owned);
        for (inner, value) in row.iter().filter(|(_, value)| value.is_array()) {
            lists(&format!("{name}, {of}: {inner}"), value, depth - 1, html);
        }
    }
}

fn cell(value: &Value) -> Option<Cell> {
    match value {
        Value::Number(number) => number.as_f64().map(|number| Cell::measured(digits(number))),
        Value::String(text) => Some(Cell::text(text)),
        Value::Bool(flag) => Some(Cell::text(if *flag { "yes" } else { "no" })),
        // A median with its spread.
        Value::Object(spread) => {
            let read =
                serde_json::from_value::<crate::spread::Spread>(Value::Object(spread.clone()));
            read.ok().map(|spread| Cell::measured(spread.show(digits)))
        }
        _ => None,
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}
