//! Regular expressions of the configuration, with limits of their size.

use regex::{Regex, RegexBuilder};

/// Most bytes of a compiled regex, and most bytes of its lazily built automaton.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Longest pattern, in bytes.
pub const PATTERN_MAX: usize = 4 << 10;

/// Error: a pattern can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// The error itself.
    pub what: &'static str,
    /// The reason for the error, shown at the pattern's position in the file.
    pub why: String,
    /// Advice on how to correct the pattern.
    pub help: String,
}

/// Compiles a regular expression that an operator wrote, as `compile` does.
///
/// # Errors
///
/// The expression is also refused if it is longer than `PATTERN_MAX`.
pub fn parse(pattern: &str) -> Result<Regex, PatternError> {
    let what = "this regular expression can't be used";
    if pattern.len() > PATTERN_MAX {
        return Err(PatternError {
            what,
            why: "it is too long".to_owned(),
            help: "use at most 4096 bytes".to_owned(),
        });
    }
    compile(pattern, what)
}

/// Compiles a regular expression that takes time linear in the length of the text it is compared
/// with.
///
/// # Errors
///
/// The expression can't be parsed, or becomes too large. `what` is the title of the error.
pub fn compile(pattern: &str, what: &'static str) -> Result<Regex, PatternError> {
    let error = |why: String, help: &str| PatternError {
        what,
        why,
        help: help.to_owned(),
    };
    RegexBuilder::new(pattern)
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(REGEX_BYTES_MAX)
        .nest_limit(64)
        .build()
        .map_err(|e| match e {
            regex::Error::CompiledTooBig(_) => error(
                "it becomes larger than 1 MiB".to_owned(),
                "use smaller repetitions; inside (?-u:…) `\\w` and `\\d` stand for ASCII only",
            ),
            e => error(
                last_line(&e.to_string()),
                "the syntax is that of Rust's regex crate: no look-around, no back-references; \
                 single quotes spare doubled backslashes",
            ),
        })
}

/// Returns the last line of an error of the regex crate, which names the error. The lines before it
/// show the pattern.
fn last_line(text: &str) -> String {
    let line = text.trim_end().lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
