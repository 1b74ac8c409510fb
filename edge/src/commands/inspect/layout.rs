//! Lays out lines of text for a terminal of some width: labels, wrapped text, tables, colours.

use crate::commands::output::harmless;

/// A space at which a line is never broken.
const GLUE: char = '\u{a0}';

/// The style in which text is laid out and coloured.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Width of the terminal in columns.
    pub width: usize,
    /// Whether only ASCII characters are used.
    pub ascii: bool,
    /// Whether colours are used.
    pub colour: bool,
}

/// Width in columns if the terminal's width is not known.
const WIDTH: usize = 80;
/// Plausible widths of a terminal, in columns. Other widths are replaced.
const WIDTHS: std::ops::RangeInclusive<u16> = 20..=500;
/// Column at which text begins after its label.
const INDENT: usize = 11;
/// Longest text from a server or client, in characters. A longer text is cut.
const FOREIGN_MAX: usize = 160;

impl Style {
    /// Returns the width to use on a terminal that reports `columns`. 0 means that the width is not
    /// known.
    pub fn width(columns: u16) -> usize {
        match columns {
            0 => WIDTH,
            n => usize::from(n.clamp(*WIDTHS.start(), *WIDTHS.end())),
        }
    }
}

/// A text that is being laid out.
pub struct Page<'a> {
    pub style: &'a Style,
    pub out: String,
}

impl Page<'_> {
    /// Adds a line without wrapping it. `GLUE` is replaced by spaces.
    pub fn line(&mut self, text: &str) {
        self.out += &text.replace(GLUE, " ");
        self.out.push('\n');
    }

    /// Adds a label, and then text that is wrapped at its spaces.
    pub fn entry(&mut self, label: &str, text: &str) {
        self.atoms(label, text.split(' ').map(str::to_owned));
    }

    /// Adds a label, and then words that are never broken.
    pub fn atoms(&mut self, label: &str, atoms: impl IntoIterator<Item = String>) {
        let mut line = match label {
            "" => String::new(),
            label => format!("{label:INDENT$}"),
        };
        let indent = line.len();
        let mut empty = true;
        for atom in atoms {
            if !empty && columns(&line) + 1 + columns(&atom) > self.style.width {
                self.line(line.trim_end());
                line = " ".repeat(indent);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line += &atom;
            empty = false;
        }
        self.line(line.trim_end());
    }

    /// Adds a label, and then rows under a heading, in the best layout that fits the width. If no
    /// layout fits, each row becomes a paragraph.
    pub fn table<const N: usize>(&mut self, label: &str, heading: [&str; N], rows: &[[String; N]]) {
        let heading = heading.map(str::to_owned);
        let lines: Vec<&[String; N]> = std::iter::once(&heading).chain(rows).collect();
        let width = self.style.width;
        let fitting = |layout: &&Layout| layout.widths(&lines, width).is_some();
        let chosen = LAYOUTS.iter().find(fitting);
        let Some((layout, widths)) = chosen.and_then(|l| Some((l, l.widths(&lines, width)?)))
        else {
            self.paragraphs(label, &heading, rows);
            return;
        };
        let mut label = label;
        if layout.indent == 0 {
            self.line(label);
            label = "";
        }
        for cells in lines {
            for text in layout.fold(cells, &widths) {
                let indent = layout.indent;
                self.line(format!("{label:indent$}{text}").trim_end());
                label = "";
            }
        }
    }

    fn paragraphs<const N: usize>(
        &mut self,
        label: &str,
        heading: &[String; N],
        rows: &[[String; N]],
    ) {
        for (index, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(heading).filter(|(text, _)| *text != "-");
            let text: Vec<String> = cells
                .map(|(text, name)| match name.as_str() {
                    "" => text.clone(),
                    name => format!("{name} {text}"),
                })
                .filter(|text| !text.is_empty())
                .collect();
            let label = if index == 0 { label } else { " " };
            self.entry(label, &text.join(", "));
        }
    }

    /// Returns the text in this colour (a number of ECMA-48's SGR), if colours are used.
    pub fn painted(&self, text: &str, colour: &str) -> String {
        match self.style.colour {
            true => format!("\x1b[{colour}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Returns a text from a server or client, cut if it is too long, with all invisible characters
    /// escaped.
    pub fn escaped(&self, text: &str) -> String {
        let short: String = text.chars().take(FOREIGN_MAX).collect();
        let cut = if short.len() < text.len() { "..." } else { "" };
        let shown = match self.style.ascii {
            false => harmless(&short),
            true => harmless(&short)
                .chars()
                .map(|c| match c.is_ascii() {
                    true => c.to_string(),
                    false => c.escape_unicode().to_string(),
                })
                .collect(),
        };
        shown + cut
    }
}

/// The layout of a table.
struct Layout {
    /// Columns before the table, for its label. 0 if the table is below its label.
    indent: usize,
    /// Number of columns between two cells.
    gap: usize,
    /// Characters after which a cell may be broken.
    breaks: &'static [char],
}

/// All layouts, from the best to the narrowest.
const LAYOUTS: [Layout; 4] = [
    Layout {
        indent: INDENT,
        gap: 2,
        breaks: &[],
    },
    Layout {
        indent: INDENT,
        gap: 2,
        breaks: &[' '],
    },
    Layout {
        indent: 0,
        gap: 2,
        breaks: &[' '],
    },
    Layout {
        indent: 0,
        gap: 1,
        breaks: &[' ', '-'],
    },
];

impl Layout {
    /// Returns the widths of the cells in a table no wider than `width`, or `None` if the table
    /// can't be that narrow. Spare columns go to the first cells.
    fn widths<const N: usize>(&self, lines: &[&[String; N]], width: usize) -> Option<[usize; N]> {
        let (mut least, mut most) = ([0; N], [0; N]);
        for cells in lines {
            for (index, text) in cells.iter().enumerate() {
                let pieces = self.pieces(text).map(|piece| columns(bare(piece)));
                least[index] = pieces.max().unwrap_or(0).max(least[index]);
                most[index] = columns(text).max(most[index]);
            }
        }
        let taken = self.indent + least.iter().sum::<usize>() + self.gap * (N - 1);
        let mut spare = width.checked_sub(taken)?;
        for (least, most) in least.iter_mut().zip(most) {
            let more = spare.min(most - *least);
            *least += more;
            spare -= more;
        }
        Some(least)
    }

    fn pieces<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let breaks = self.breaks;
        text.split_inclusive(move |c| breaks.contains(&c))
    }

    /// Returns the lines of one row, whose cells are wrapped.
    fn fold<const N: usize>(&self, cells: &[String; N], widths: &[usize; N]) -> Vec<String> {
        let folded: Vec<Vec<String>> = cells
            .iter()
            .zip(widths)
            .map(|(text, width)| self.fold_cell(text, *width))
            .collect();
        let height = folded.iter().map(Vec::len).max().unwrap_or(0);
        let line = |number: usize| {
            let mut line = String::new();
            for (cell, width) in folded.iter().zip(widths) {
                let text = cell.get(number).map_or("", String::as_str);
                line += text;
                line += &" ".repeat((width + self.gap).saturating_sub(columns(text)));
            }
            line
        };
        (0..height).map(line).collect()
    }

    fn fold_cell(&self, text: &str, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = String::new();
        for piece in self.pieces(text) {
            if !line.is_empty() && columns(&line) + columns(bare(piece)) > width {
                lines.push(bare(&line).to_owned());
                line.clear();
            }
            line += piece;
        }
        lines.push(bare(&line).to_owned());
        lines
    }
}

/// Returns the text without trailing spaces.
fn bare(text: &str) -> &str {
    text.trim_end_matches(' ')
}

/// Returns the text with its spaces replaced by spaces at which no line is broken.
pub fn glued(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// Returns the number of columns that a text takes. Colours are its only escape sequences and take
/// none.
fn columns(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let plain = parts.next().map_or(0, |part| part.chars().count());
    let coloured = |part: &str| {
        part.split_once('m')
            .map_or(0, |(_, text)| text.chars().count())
    };
    plain + parts.map(coloured).sum::<usize>()
}
