//! The parts of an HTML page that needs no other file: its head with the style, escaped text, tables and lists.

use std::fmt::Write as _;

/// The style of all reports: light and dark, for screens from 360 pixels on and for paper.
const STYLE: &str = include_str!("style.css");

/// Returns the beginning of a page, up to the start of its body.
pub fn begin(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )
}

/// Most rows of a table that is stacked on narrow screens.
const STACKED_MAX: usize = 16;

/// The end of a page that [`begin`] began.
pub const END: &str = "</body>\n</html>\n";

/// Escapes text for the content of an element or an attribute in double quotes. Control characters that HTML does not allow
/// are replaced.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns a measured value within a sentence.
pub(super) fn measured(value: &str) -> String {
    format!("<b class=\"m\">{}</b>", escape(value))
}

/// Returns a paragraph of text.
pub(super) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// Returns content that is shown after a click.
pub(super) fn details(summary: &str, content: &str) -> String {
    let summary = escape(summary);
    format!("<details><summary>{summary}</summary>\n{content}</details>\n")
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    class: Option<&'static str>,
    text: String,
}

impl Cell {
    /// Returns a cell with text.
    pub fn text(text: impl Into<String>) -> Cell {
        let text = text.into();
        Cell { class: None, text }
    }

    /// Returns a cell with a value that was measured.
    pub fn measured(text: impl Into<String>) -> Cell {
        Cell {
            class: Some("m"),
            text: text.into(),
        }
    }

    /// Returns a cell with a value that was chosen, such as a goal.
    pub fn chosen(text: impl Into<String>) -> Cell {
        Cell {
            class: Some("n"),
            text: text.into(),
        }
    }

    /// Returns a cell with a figure of an article.
    pub fn article(text: impl Into<String>) -> Cell {
        Cell {
            class: Some("d"),
            text: text.into(),
        }
    }

    /// Returns a cell that says whether a goal was reached; empty if this is not known.
    pub fn verdict(is_met: Option<bool>) -> Cell {
        match is_met {
            Some(true) => Cell::text("yes"),
            Some(false) => Cell {
                class: Some("no"),
                text: "no".to_owned(),
            },
            None => Cell::text(""),
        }
    }
}

impl Cell {
    /// Returns the text of the cell.
    pub(super) fn value(&self) -> &str {
        &self.text
    }

    /// Whether the cell has a value that was measured.
    #[cfg(test)]
    pub(super) fn is_measured(&self) -> bool {
        self.class == Some("m")
    }
}

/// A space at which a line does not break.
const NO_BREAK: &str = "\u{a0}";

impl Cell {
    /// Returns the text, whose line breaks only before a parenthesis if the cell has a value with a unit.
    fn unbroken(&self) -> String {
        match self.class {
            Some("m" | "n") => {
                let text = self.text.replace(' ', NO_BREAK);
                text.replace("\u{a0}(", " (")
            }
            _ => self.text.clone(),
        }
    }
}

/// A table whose first column names the rows.
#[derive(Debug, Clone)]
pub struct Table {
    caption: String,
    titles: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Returns a table without rows.
    pub fn new(caption: &str, titles: &[&str]) -> Table {
        Table {
            caption: caption.to_owned(),
            titles: titles.iter().map(|title| (*title).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; its first cell is its name.
    pub fn row(&mut self, name: impl Into<String>, cells: impl IntoIterator<Item = Cell>) {
        let name = [Cell::text(name)].into_iter();
        self.rows.push(name.chain(cells).collect());
    }

    /// Returns the caption.
    pub(super) fn caption(&self) -> &str {
        &self.caption
    }

    /// Returns the titles of the columns.
    pub(super) fn titles(&self) -> &[String] {
        &self.titles
    }

    /// Returns all rows. The first cell of each is its name.
    pub(super) fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table. On narrow screens, a short table shows the cells of a row below one another, and a long one
    /// scrolls. A table without rows is left out.
    pub fn render(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let caption = escape(&self.caption);
        let class = match self.rows.len() {
            ..=STACKED_MAX => " class=\"stacked\"",
            _ => "",
        };
        // The roles keep the table's structure for readers when the style shows it in another way.
        let mut html = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{caption}\">\n\
             <table role=\"table\"{class}>\n<caption>{caption}</caption>\n\
             <thead role=\"rowgroup\"><tr role=\"row\">"
        );
        for (place, title) in self.titles.iter().enumerate() {
            let class = match self.is_number(place) {
                true => " class=\"m\"",
                false => "",
            };
            let title = escape(title);
            // Writing to a String can't fail.
            let _ = match title.is_empty() {
                true => write!(html, "<td role=\"cell\"></td>"),
                false => write!(
                    html,
                    "<th role=\"columnheader\" scope=\"col\"{class}>{title}</th>"
                ),
            };
        }
        html.push_str("</tr></thead>\n<tbody role=\"rowgroup\">\n");
        for row in &self.rows {
            html.push_str(&self.row_html(row));
        }
        html.push_str("</tbody>\n</table>\n</div>\n");
        html
    }

    fn row_html(&self, row: &[Cell]) -> String {
        let mut html = String::from("<tr role=\"row\">");
        for (place, cell) in row.iter().enumerate() {
            let text = escape(&cell.unbroken());
            if place == 0 {
                let _ = write!(html, "<th role=\"rowheader\" scope=\"row\">{text}</th>");
                continue;
            }
            let class = cell.class.map(|class| format!(" class=\"{class}\""));
            let label = self.titles.get(place).map_or("", String::as_str);
            let _ = write!(
                html,
                "<td role=\"cell\" data-label=\"{}\"{}>{text}</td>",
                escape(label),
                class.unwrap_or_default()
            );
        }
        html.push_str("</tr>\n");
        html
    }

    /// Returns whether a column has numbers, whose titles are at the right, too.
    fn is_number(&self, place: usize) -> bool {
        let cell = self.rows.iter().find_map(|row| row.get(place));
        place > 0 && cell.is_some_and(|cell| cell.class.is_some_and(|class| class != "no"))
    }
}

/// Encodes bytes in base64 (RFC 4648 4).
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() {
                digit as char
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(
            escape("<a href=\"'&\">"),
            "&lt;a href=&quot;&#39;&amp;&quot;&gt;"
        );
        assert_eq!(escape("a\u{1b}[2J\0\n"), "a\u{fffd}[2J\u{fffd}\n");
    }

    #[test]
    fn bytes_are_encoded_as_in_the_rfc() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn a_table_names_its_rows_and_columns_and_escapes_both() {
        let mut table = Table::new("times & more", &["", "ms"]);
        assert_eq!((table.is_empty(), table.render()), (true, String::new()));
        table.row("<cold>", [Cell::measured("12")]);
        let html = table.render();
        assert!(html.contains("aria-label=\"times &amp; more\""), "{html}");
        let title = "<th role=\"columnheader\" scope=\"col\" class=\"m\">ms</th>";
        assert!(html.contains(title), "{html}");
        let row = "<th role=\"rowheader\" scope=\"row\">&lt;cold&gt;</th>\
                   <td role=\"cell\" data-label=\"ms\" class=\"m\">12</td></tr>";
        assert!(html.contains(row), "{html}");
    }
}
