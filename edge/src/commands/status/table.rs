//! Writes a table in `sluice status`.

use std::fmt::Write;

/// Returns a table with aligned columns: those for which `is_text` holds to the left, and the others, which are numbers,
/// to the right.
pub fn table<const N: usize>(
    heading: &[&str; N],
    is_text: fn(usize) -> bool,
    rows: &[[String; N]],
) -> String {
    let heading = heading.map(str::to_owned);
    let lines: Vec<&[String; N]> = std::iter::once(&heading).chain(rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match is_text(column) {
            true => format!("{cell:width$}"),
            false => format!("{cell:>width$}"),
        });
        let cells: Vec<String> = cells.collect();
        // Writing to a String can't fail.
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}
