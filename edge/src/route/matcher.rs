//! The condition of one route: on the path, and on the query.

use regex::{Regex, RegexBuilder};

use super::glob;

/// A compiled regex and its lazily built automaton may each take this many bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Longest pattern.
const PATTERN_MAX: usize = 4 << 10;

/// Which requests a route takes. Paths and queries are compared as the bytes of the request,
/// percent-encoding untouched: the same bytes that the cache's key and the origin get.
#[derive(Clone, Debug, PartialEq)]
pub struct Matcher {
    path: PathPattern,
    /// Found in the query; a request without a query has an empty one.
    query: Option<Pattern>,
}

/// The condition on the path.
#[derive(Clone, Debug, PartialEq)]
enum PathPattern {
    Any,
    Exact(Box<str>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    Glob(Pattern),
    Regex(Pattern),
}

/// A compiled regex, and the text that it was written as.
#[derive(Clone, Debug)]
struct Pattern {
    text: Box<str>,
    regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

/// A pattern that can't be used: the fact, the remark beside its place, the advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// The fact.
    pub what: &'static str,
    /// Why it is so.
    pub why: String,
    /// How to mend it.
    pub help: String,
}

impl Matcher {
    /// Matches every request.
    pub fn any() -> Matcher {
        Matcher {
            path: PathPattern::Any,
            query: None,
        }
    }

    /// From `path = "…"`: a path, or a glob. `*` at the end stands for the rest of the path, and at the
    /// beginning for any beginning; elsewhere it stands for a part of one segment, and `**` for any
    /// number of segments.
    ///
    /// # Errors
    /// If no request can have such a path.
    pub fn path(text: &str) -> Result<Matcher, PatternError> {
        if let Some((why, help)) = impossible(text) {
            return Err(PatternError {
                what: "this path can't match",
                why: why.to_owned(),
                help: help.to_owned(),
            });
        }
        let path = match glob::kind(text) {
            glob::Kind::Exact => PathPattern::Exact(text.into()),
            glob::Kind::Prefix(prefix) => PathPattern::Prefix(prefix.into()),
            glob::Kind::Suffix(suffix) => PathPattern::Suffix(suffix.into()),
            glob::Kind::Pattern => {
                let regex = compile(&glob::to_regex(text), "this path can't be used")?;
                PathPattern::Glob(Pattern {
                    text: text.into(),
                    regex,
                })
            }
        };
        Ok(Matcher { path, query: None })
    }

    /// From `path_regex = '…'`: a regular expression in the syntax of the regex crate, found anywhere
    /// in the path. Its time is linear in the path's length.
    ///
    /// # Errors
    /// If it can't be parsed, or becomes too large.
    pub fn path_regex(text: &str) -> Result<Matcher, PatternError> {
        Ok(Matcher {
            path: PathPattern::Regex(pattern(text)?),
            query: None,
        })
    }

    /// The same condition on the path, and that a regular expression is found in the query.
    ///
    /// # Errors
    /// If it can't be parsed, or becomes too large.
    pub fn with_query(self, text: &str) -> Result<Matcher, PatternError> {
        Ok(Matcher {
            query: Some(pattern(text)?),
            ..self
        })
    }

    /// Whether the route takes a target in origin-form (path and query).
    #[inline]
    pub fn matches(&self, target: &str) -> bool {
        let path = match &self.path {
            PathPattern::Any => true,
            PathPattern::Exact(path) => match target.strip_prefix(&**path) {
                Some(rest) => rest.is_empty() || rest.starts_with('?'),
                None => false,
            },
            // A prefix holds no `?`, so the text that it matches lies within the path.
            PathPattern::Prefix(prefix) => target.starts_with(&**prefix),
            PathPattern::Suffix(suffix) => split(target).0.ends_with(&**suffix),
            PathPattern::Glob(pattern) | PathPattern::Regex(pattern) => {
                pattern.regex.is_match(split(target).0)
            }
        };
        path && match &self.query {
            None => true,
            Some(query) => query.regex.is_match(split(target).1),
        }
    }

    /// Whether this certainly matches every request that `other` matches. (`*` of OPTIONS aside.)
    pub fn covers(&self, other: &Matcher) -> bool {
        let query = self.query.is_none() || self.query == other.query;
        query && self.path.covers(&other.path)
    }
}

impl PathPattern {
    fn covers(&self, other: &PathPattern) -> bool {
        match (self, other) {
            (PathPattern::Any, _) => true,
            (PathPattern::Prefix(p), _) if &**p == "/" => true,
            (PathPattern::Prefix(p), PathPattern::Exact(o) | PathPattern::Prefix(o)) => {
                o.starts_with(&**p)
            }
            (PathPattern::Prefix(p), PathPattern::Glob(o)) => {
                glob::literal_prefix(&o.text).starts_with(&**p)
            }
            (PathPattern::Suffix(s), PathPattern::Exact(o) | PathPattern::Suffix(o)) => {
                o.ends_with(&**s)
            }
            (PathPattern::Glob(g), PathPattern::Exact(o)) => g.regex.is_match(o),
            _ => self == other,
        }
    }
}

/// A target's path, and its query without the `?`.
fn split(target: &str) -> (&str, &str) {
    target.split_once('?').unwrap_or((target, ""))
}

/// Why no request can have such a path, and the advice.
fn impossible(text: &str) -> Option<(&'static str, &'static str)> {
    if text.len() > PATTERN_MAX {
        return Some(("it is too long", "use at most 4096 bytes"));
    }
    if !text.starts_with(['/', '*']) {
        return Some((
            "a path begins with `/`",
            "write it as in \"/static/*\", \"/favicon.ico\" or \"*.mp4\"",
        ));
    }
    if text.contains(['?', '#']) {
        return Some((
            "a path ends before `?` and `#`",
            "for a condition on the query, add `query` with a regular expression",
        ));
    }
    let visible = |b: u8| b.is_ascii_graphic() && b != b'\\';
    (!text.bytes().all(visible)).then_some((
        "a request's path has only visible ASCII characters",
        "write others percent-encoded, as in \"/caf%C3%A9\"",
    ))
}

fn pattern(text: &str) -> Result<Pattern, PatternError> {
    let what = "this regular expression can't be used";
    if text.len() > PATTERN_MAX {
        return Err(PatternError {
            what,
            why: "it is too long".to_owned(),
            help: "use at most 4096 bytes".to_owned(),
        });
    }
    Ok(Pattern {
        text: text.into(),
        regex: compile(text, what)?,
    })
}

fn compile(pattern: &str, what: &'static str) -> Result<Regex, PatternError> {
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

/// For people.
impl std::fmt::Display for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.path {
            PathPattern::Any => f.write_str("everything"),
            PathPattern::Exact(path) => f.write_str(path),
            PathPattern::Prefix(prefix) => write!(f, "{prefix}*"),
            PathPattern::Suffix(suffix) => write!(f, "*{suffix}"),
            PathPattern::Glob(pattern) => f.write_str(&pattern.text),
            PathPattern::Regex(pattern) => write!(f, "paths that match {}", pattern.text),
        }?;
        match &self.query {
            None => Ok(()),
            Some(query) => write!(f, " with a query that matches {}", query.text),
        }
    }
}

/// The last line of an error of the regex crate, which says the fault; the others draw the pattern.
fn last_line(text: &str) -> String {
    let line = text.trim_end().lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
