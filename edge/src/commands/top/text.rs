//! Prints a snapshot of `sluice top` as lines of text.

use std::fmt::Write;

use ratatui::text::Span;

use super::facts;
use super::model::Model;
use super::tables::{self, Order, Pane};

/// Returns the title, the facts and all tables.
pub fn text(model: &Model) -> String {
    let mut out = facts::title(model) + "\n";
    // Writing to a String can't fail, here and in the rest of this file.
    for note in &model.snapshot.notes {
        let _ = writeln!(out, "{note}");
    }
    for fact in facts::facts(&model.snapshot.traffic) {
        let _ = writeln!(out, "{:20} {}", fact.label, fact.value);
    }
    for pane in Pane::ALL.into_iter().filter(|pane| model.has(*pane)) {
        out.push('\n');
        table(pane, model, &mut out);
    }
    out
}

fn table(pane: Pane, model: &Model, out: &mut String) {
    let rows = tables::rows(pane, &model.snapshot, Order::default());
    let titles = pane.columns();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| Span::raw(&*row[column].text).width());
        cells.chain([titles[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let is_number = |column: usize| rows.first().is_some_and(|row| row[column].is_number);
    let mut line = |texts: Vec<&str>| {
        let cells = texts.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (text, width))| {
            let free = " ".repeat(width.saturating_sub(Span::raw(*text).width()));
            match is_number(column) {
                true => format!("{free}{text}"),
                false => format!("{text}{free}"),
            }
        });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(titles.clone());
    for row in &rows {
        line(row.iter().map(|cell| cell.text.as_str()).collect());
    }
}
