//! The condition of one route.

use regex::{Regex, RegexBuilder};

/// A compiled regex and its lazily built automaton may each take this many bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Longest pattern.
const PATTERN_MAX: usize = 4 << 10;

/// Which requests a route takes. Paths are compared as the bytes that came, percent-encoding
/// untouched: the same bytes that the cache's key and the origin get.
#[derive(Clone, Debug)]
pub enum Matcher {
    /// All.
    Any,
    /// This path, with any query.
    Exact(Box<str>),
    /// Every path that begins like this.
    Prefix(Box<str>),
    /// Path and query in which the pattern is found.
    Regex(Regex),
}

/// What is wrong with a pattern: the fact, the place's remark, the advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// What is wrong.
    pub what: &'static str,
    /// Why it is.
    pub why: String,
    /// How to mend it.
    pub help: String,
}

impl Matcher {
    /// From `path = "…"`: a path, or with a `*` at its end all that begin like it.
    ///
    /// # Errors
    /// When no request could have that path.
    pub fn path(text: &str) -> Result<Matcher, PatternError> {
        let error = |why: &str, help: &str| {
            Err(PatternError {
                what: "this path can't match",
                why: why.to_owned(),
                help: help.to_owned(),
            })
        };
        let (path, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if text.len() > PATTERN_MAX {
            return error("it is too long", "use at most 4096 bytes");
        }
        if !path.starts_with('/') {
            return error(
                "a path begins with `/`",
                "write it as in \"/static/*\" or \"/favicon.ico\"",
            );
        }
        if path.contains('*') {
            return error(
                "a `*` may only be the last character",
                "for anything else use `match` with a regular expression",
            );
        }
        if path.contains(['?', '#']) {
            return error(
                "a path ends before `?` and `#`",
                "to look at the query, use `match` with a regular expression",
            );
        }
        if !path.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
            return error(
                "a request's path has only visible ASCII characters",
                "write others percent-encoded, as in \"/caf%C3%A9\"",
            );
        }
        let path = path.into();
        Ok(if is_prefix {
            Matcher::Prefix(path)
        } else {
            Matcher::Exact(path)
        })
    }

    /// From `match = '…'`: a regular expression in the syntax of the regex crate, found anywhere in
    /// path and query. Its time is linear in the target's length.
    ///
    /// # Errors
    /// When it can't be parsed or becomes too large.
    pub fn regex(pattern: &str) -> Result<Matcher, PatternError> {
        let error = |why: String, help: &str| PatternError {
            what: "this regular expression can't be used",
            why,
            help: help.to_owned(),
        };
        if pattern.len() > PATTERN_MAX {
            return Err(error("it is too long".to_owned(), "use at most 4096 bytes"));
        }
        RegexBuilder::new(pattern)
            .size_limit(REGEX_BYTES_MAX)
            .dfa_size_limit(REGEX_BYTES_MAX)
            .nest_limit(64)
            .build()
            .map(Matcher::Regex)
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

    /// Whether a target in origin-form (path and query) is meant.
    #[inline]
    pub fn matches(&self, target: &str) -> bool {
        match self {
            Matcher::Any => true,
            Matcher::Exact(path) => match target.strip_prefix(&**path) {
                Some(rest) => rest.is_empty() || rest.starts_with('?'),
                None => false,
            },
            // A prefix holds no `?`, so what it matches lies within the path.
            Matcher::Prefix(prefix) => target.starts_with(&**prefix),
            Matcher::Regex(regex) => regex.is_match(target),
        }
    }

    /// Whether this certainly matches every request that `other` matches. (`*` of OPTIONS aside.)
    pub fn covers(&self, other: &Matcher) -> bool {
        match (self, other) {
            (Matcher::Any, _) => true,
            (Matcher::Prefix(p), Matcher::Any | Matcher::Regex(_)) => &**p == "/",
            (Matcher::Prefix(p), Matcher::Exact(o) | Matcher::Prefix(o)) => o.starts_with(&**p),
            _ => self == other,
        }
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Matcher) -> bool {
        match (self, other) {
            (Matcher::Any, Matcher::Any) => true,
            (Matcher::Exact(a), Matcher::Exact(b)) | (Matcher::Prefix(a), Matcher::Prefix(b)) => {
                a == b
            }
            (Matcher::Regex(a), Matcher::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

/// In words, for people.
impl std::fmt::Display for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Matcher::Any => f.write_str("everything"),
            Matcher::Exact(path) => f.write_str(path),
            Matcher::Prefix(prefix) => write!(f, "{prefix}*"),
            Matcher::Regex(regex) => write!(f, "what matches {}", regex.as_str()),
        }
    }
}

/// The regex crate draws the pattern with its fault; the last line says what it is.
fn last_line(text: &str) -> String {
    let line = text.trim_end().lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
