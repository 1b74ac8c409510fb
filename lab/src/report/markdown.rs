//! Markdown for the published page: escaped text, tables, and sentences of the summary.

use super::page::Table;

/// Escapes text for Markdown, also within a table. Line ends become spaces, and other control characters are replaced.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&' => {
                escaped.push('\\');
                escaped.push(c);
            }
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Converts a sentence of the summary from HTML. Measured values become bold.
pub(super) fn sentence(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some((before, after)) = rest.split_once('<') {
        text.push_str(&escape(&unescape(before)));
        let (tag, after) = after.split_once('>').unwrap_or((after, ""));
        if matches!(tag, "b class=\"m\"" | "/b" | "strong" | "/strong") {
            text.push_str("**");
        }
        rest = after;
    }
    text + &escape(&unescape(rest))
}

/// Reverses the escaping of HTML.
fn unescape(html: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    let replace = |text: String, (from, to): (&str, &str)| text.replace(from, to);
    pairs.into_iter().fold(html.to_owned(), replace)
}

/// Renders a table under its caption; nothing without rows.
pub(super) fn table(table: &Table) -> String {
    if table.is_empty() {
        return String::new();
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let titles = table.titles().iter().map(|title| escape(title));
    let mut text = format!(
        "**{}**\n\n{}",
        escape(table.caption()),
        line(titles.collect())
    );
    text.push_str(&line(vec!["---".to_owned(); table.titles().len()]));
    for row in table.rows() {
        text.push_str(&line(row.iter().map(|cell| escape(cell.value())).collect()));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::page::{Cell, measured};
    use super::*;

    #[test]
    fn text_and_tables_are_escaped() {
        let mut one = Table::new("a | b", &["", "1*"]);
        assert_eq!(table(&one), "");
        one.row("<x>\n", [Cell::measured("7 | ms\u{1b}")]);
        assert_eq!(
            table(&one),
            "**a \\| b**\n\n|  | 1\\* |\n| --- | --- |\n| \\<x\\>  | 7 \\| ms\u{fffd} |\n\n"
        );
    }

    #[test]
    fn sentences_keep_their_values_and_lose_their_markup() {
        let html = format!(
            "With {} it took {}.",
            super::super::page::escape("<a> & 'b'"),
            measured("4 > 3")
        );
        assert_eq!(sentence(&html), "With \\<a\\> \\& 'b' it took **4 \\> 3**.");
        assert_eq!(sentence("<strong>Note:</strong> x"), "**Note:** x");
    }
}
