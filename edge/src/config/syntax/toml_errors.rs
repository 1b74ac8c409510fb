//! Advice on syntax errors, which the TOML parser describes without a correction.

use std::ops::Range;

use crate::config::report::Problem;

/// Advice on an error of the TOML parser: a part of the parser's message, the beginning of the text
/// at the error's position, and the advice. The first entry that fits is used.
const ADVICE: &[(&str, &str, &str)] = &[
    (
        "missing escaped value",
        "",
        "in double quotes a backslash begins an escape: write the text in single quotes, as in '\\.mp4$'",
    ),
    (
        "expected newline",
        ";",
        "remove the semicolon: a line ends without one",
    ),
    ("expected newline", "", "write each key on its own line"),
    (
        "string values must be quoted",
        "",
        "write the value in quotes, as in \"10s\"; only numbers, true and false have none",
    ),
    (
        "key with no value",
        "",
        "write KEY = VALUE, as in `listen = \":8080\"`; a comment begins with #",
    ),
    ("invalid boolean", "", "write true or false in lower case"),
    (
        "invalid float",
        "",
        "write an address, a time or a size in quotes",
    ),
    (
        "invalid integer",
        "",
        "write an address, a time or a size in quotes",
    ),
    (
        "unclosed array table",
        "",
        "close the section with two brackets, as in [[route]]",
    ),
    ("invalid literal string", "", "end the text with a '"),
    ("invalid basic string", "", "end the text with a \""),
    (
        "missing comma between array elements",
        "",
        "write a comma between the values",
    ),
];

/// Returns advice on a syntax error at this position.
pub fn advice(message: &str, text: &str, at: &Range<usize>) -> Option<&'static str> {
    let found = text.get(at.start..).unwrap_or_default();
    let mut entries = ADVICE.iter();
    let entry = entries.find(|(part, start, _)| message.contains(part) && found.starts_with(start));
    entry.map(|(_, _, advice)| *advice)
}

/// Returns the one problem of a text in the language of nginx, Varnish or Caddy, if the syntax errors
/// `problems` show that it is one.
pub fn other_language(text: &str, problems: &[Problem]) -> Option<Problem> {
    let line = |problem: &Problem| {
        let at = problem.span.as_ref()?.start;
        let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
        text[start..].lines().next().map(str::trim)
    };
    let is_foreign = |problem: &&Problem| {
        let mut line = line(problem).into_iter();
        line.any(|line| line.ends_with(['{', '}', ';']) && !line.contains('='))
    };
    // TOML has no lines such as `upstream origin {`. One of the other lines may be a mistyped line of TOML.
    let is_block = |problem: &Problem| {
        let mut line = line(problem).into_iter();
        line.any(|line| line.contains(" {") && line.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    let mut foreign = problems.iter().filter(is_foreign);
    let first = foreign.next()?;
    if !is_block(first) {
        foreign.next()?;
    }
    let first = first.span.clone()?;
    Some(
        Problem::error("this is not a TOML file")
            .at(first)
            .label("this looks like the configuration of another program")
            .help(
                "write `listen = \":80\"`, and a [[route]] with `proxy = \"http://127.0.0.1:9000\"`; \
                 docs/configuration.md describes all keys",
            ),
    )
}
