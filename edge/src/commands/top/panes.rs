//! Lays out and draws the tables of `sluice top`.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::model::Model;
use super::tables::{self, Cell, Order, Pane};
use super::theme::Theme;

/// Least lines of a table that is shown: its headings and a row.
const LINES_MIN: u16 = 2;
/// Space between columns.
const GAP: u16 = 2;
/// Mark of the column by which rows are sorted, and of the reverse order.
const MARKS: [&str; 2] = ["▼", "▲"];

/// Returns the tables that are shown, with their areas from top to bottom. The table with the focus gets its room first,
/// the others in order as far as there is room.
pub fn layout(model: &Model, area: Rect) -> Vec<(Pane, Rect)> {
    let wanted = |pane: Pane| {
        let rows = pane.len(&model.snapshot).unwrap_or(0);
        u16::try_from(rows + 1).unwrap_or(u16::MAX)
    };
    let mut heights = [0; Pane::ALL.len()];
    let mut left = area.height;
    let others = Pane::ALL.into_iter().filter(|pane| *pane != model.focus);
    for pane in std::iter::once(model.focus).chain(others) {
        // A line stays free between tables.
        let gap = u16::from(left < area.height);
        if model.has(pane) && left >= LINES_MIN + gap {
            let height = wanted(pane).min(left - gap);
            heights[pane.index()] = height;
            left -= height + gap;
        }
    }
    let mut y = area.y;
    let shown = Pane::ALL.into_iter().zip(heights);
    let shown = shown.filter(|(_, height)| *height > 0);
    shown
        .map(|(pane, height)| {
            let part = Rect { y, height, ..area };
            y += height + 1;
            (pane, part)
        })
        .collect()
}

/// A column as shown.
struct Column {
    title: String,
    width: u16,
    is_number: bool,
}

/// Draws a table: its headings, and rows from the table's offset on.
pub fn draw(buffer: &mut Buffer, area: Rect, pane: Pane, model: &Model, theme: Theme) {
    let order = model.order(pane);
    let rows = tables::rows(pane, &model.snapshot, order);
    let columns = fitting(columns(pane, order, &rows), area.width);
    let headings = columns.iter().map(|column| {
        let is_number = column.is_number;
        aligned(&column.title, column.width, is_number)
    });
    let style = match pane == model.focus {
        true => theme.focused(),
        false => theme.heading(),
    };
    let line = headings.collect::<Vec<_>>().join(&" ".repeat(GAP.into()));
    let heading = Rect { height: 1, ..area };
    Line::styled(aligned(&line, area.width, false), style).render(heading, buffer);
    let visible = rows.iter().skip(model.offset(pane));
    for (y, row) in (area.y + 1..area.bottom()).zip(visible) {
        let line = Rect {
            y,
            height: 1,
            ..area
        };
        draw_row(row, &columns, theme).render(line, buffer);
    }
}

fn draw_row(row: &[Cell], columns: &[Column], theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (cell, column) in row.iter().zip(columns) {
        let width = Span::raw(cell.text.as_str()).width() as u16;
        let free = " ".repeat(column.width.saturating_sub(width).into());
        let text = Span::styled(cell.text.clone(), theme.mood(cell.mood));
        match cell.is_number {
            true => spans.extend([Span::raw(free), text]),
            false => spans.extend([text, Span::raw(free)]),
        }
        spans.push(Span::raw(" ".repeat(GAP.into())));
    }
    Line::from(spans)
}

/// Returns a text with spaces up to this width, before the text if it is to the right.
fn aligned(text: &str, width: u16, to_right: bool) -> String {
    let width = usize::from(width);
    match to_right {
        true => format!("{text:>width$}"),
        false => format!("{text:width$}"),
    }
}

/// Returns the columns with the widths of their widest cells.
fn columns(pane: Pane, order: Order, rows: &[Vec<Cell>]) -> Vec<Column> {
    let titles = pane.columns().into_iter().enumerate();
    titles
        .map(|(index, title)| {
            let title = match order.column == Some(index) {
                true => format!("{title}{}", MARKS[usize::from(order.is_reversed)]),
                false => title.to_owned(),
            };
            let cells = rows.iter().filter_map(|row| row.get(index));
            let widths = cells.clone().map(|cell| Span::raw(&*cell.text).width());
            let width = widths.chain([title.chars().count()]).max().unwrap_or(0);
            Column {
                title,
                width: u16::try_from(width).unwrap_or(u16::MAX),
                is_number: cells.clone().next().is_some_and(|cell| cell.is_number),
            }
        })
        .collect()
}

/// Leaves the columns that fit. The first one always stays, and the last one may be cut if it is text.
fn fitting(columns: Vec<Column>, width: u16) -> Vec<Column> {
    let mut begins = 0u16;
    let mut fits = |column: &Column| {
        let ends = begins.saturating_add(column.width);
        let is_shown = begins == 0 || ends <= width || (!column.is_number && begins < width);
        begins = ends.saturating_add(GAP);
        is_shown
    };
    columns
        .into_iter()
        .take_while(|column| fits(column))
        .collect()
}
