//! Lines of text for a terminal of some width: labels, wrapped text, tables, colours.

use super::super::harmless;

/// A space at which no line is broken.
const GLUE: char = '\u{a0}';

/// How to draw.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// No other characters than those of ASCII.
    pub ascii: bool,
    /// With colours.
    pub colour: bool,
}

/// Columns where nobody says how many there are.
const WIDTH: usize = 80;
/// Fewer and more are not believed.
const WIDTHS: std::ops::RangeInclusive<u16> = 20..=500;
/// Where text begins after its label.
const INDENT: usize = 11;
/// Longer texts that others chose are cut.
const FOREIGN_MAX: usize = 160;

impl Look {
    /// The columns of a terminal that says it has so many; 0 for one that doesn't say.
    pub fn width(columns: u16) -> usize {
        match columns {
            0 => WIDTH,
            n => usize::from(n.clamp(*WIDTHS.start(), *WIDTHS.end())),
        }
    }
}

/// A text in the making.
pub struct Paper<'a> {
    pub look: &'a Look,
    pub out: String,
}

impl Paper<'_> {
    /// A line as it is; where it was not to be broken, there are spaces now.
    pub fn line(&mut self, text: &str) {
        self.out += &text.replace(GLUE, " ");
        self.out.push('\n');
    }

    /// A label, then text that is broken at its spaces.
    pub fn entry(&mut self, label: &str, text: &str) {
        self.atoms(label, text.split(' ').map(str::to_owned));
    }

    /// A label, then pieces that are never broken.
    pub fn atoms(&mut self, label: &str, atoms: impl IntoIterator<Item = String>) {
        let mut line = match label {
            "" => String::new(),
            label => format!("{label:INDENT$}"),
        };
        let indent = line.len();
        let mut empty = true;
        for atom in atoms {
            if !empty && columns(&line) + 1 + columns(&atom) > self.look.width {
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

    /// A label, then rows under a heading; each row a paragraph where the table would be too wide.
    pub fn table<const N: usize>(&mut self, label: &str, heading: [&str; N], rows: &[[String; N]]) {
        let mut widths = heading.map(str::len);
        for row in rows {
            for (width, text) in widths.iter_mut().zip(row) {
                *width = columns(text).max(*width);
            }
        }
        let wide = INDENT + widths.iter().sum::<usize>() + 2 * (N - 1);
        let heading = heading.map(str::to_owned);
        if wide > self.look.width {
            self.paragraphs(label, &heading, rows);
            return;
        }
        for (index, row) in std::iter::once(&heading).chain(rows).enumerate() {
            let label = if index == 0 { label } else { "" };
            let mut line = format!("{label:INDENT$}");
            for (text, width) in row.iter().zip(widths) {
                line += text;
                line += &" ".repeat(width - columns(text) + 2);
            }
            self.line(line.trim_end());
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

    /// In this colour (a number of ECMA-48's SGR), where there are colours.
    pub fn painted(&self, text: &str, colour: &str) -> String {
        match self.look.colour {
            true => format!("\x1b[{colour}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Text that a server or client chose: nothing in it reaches the terminal but what can be seen.
    pub fn foreign(&self, text: &str) -> String {
        let short: String = text.chars().take(FOREIGN_MAX).collect();
        let cut = if short.len() < text.len() { "..." } else { "" };
        let shown = match self.look.ascii {
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

/// This text in one piece.
pub fn glued(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// Columns that a text takes, not counting colours (the only escape sequences there are in it).
fn columns(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let plain = parts.next().map_or(0, |part| part.chars().count());
    let coloured = |part: &str| {
        part.split_once('m')
            .map_or(0, |(_, text)| text.chars().count())
    };
    plain + parts.map(coloured).sum::<usize>()
}
