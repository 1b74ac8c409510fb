//! The condition of one route: on the path and on the query of a request.

use std::sync::Arc;

use regex::Regex;

use super::glob;
use crate::http::path_regex::{self, PATTERN_MAX, PatternError, compile};

/// The condition that a request must satisfy for a route. Paths and queries are compared as they
/// are in the request, without percent-decoding: the same bytes go into the cache's key and to the
/// origin. Clones share the patterns.
#[derive(Clone, Debug, PartialEq)]
pub struct Matcher {
    path: PathPattern,
    /// Pattern that must be found in the query. A request without a query has an empty one.
    query: Option<Arc<Pattern>>,
}

/// The condition on the path.
#[derive(Clone, Debug, PartialEq)]
enum PathPattern {
    Any,
    Exact(Arc<str>),
    Prefix(Arc<str>),
    Suffix(Arc<str>),
    Glob(Arc<Pattern>),
    Regex(Arc<Pattern>),
}

/// The form of a condition on the path, with its text.
pub(super) enum Shape<'a> {
    /// Any path.
    Any,
    /// This path.
    Exact(&'a str),
    /// Paths that begin with this text.
    Prefix(&'a str),
    /// Paths that end with this text.
    Suffix(&'a str),
    /// Paths that match a glob, which begins with this text.
    Glob(&'a str),
    /// Paths that match this regular expression.
    Regex(&'a str),
}

/// A compiled regex, and the text from which it was compiled.
#[derive(Debug)]
struct Pattern {
    text: Box<str>,
    regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Matcher {
    /// Returns a condition that every request satisfies.
    pub fn any() -> Matcher {
        Matcher {
            path: PathPattern::Any,
            query: None,
        }
    }

    /// Parses `path = "…"`: a path or a glob. A `*` at the end stands for the rest of the path, and
    /// a `*` at the beginning for any beginning. Elsewhere `*` stands for a part of one segment,
    /// and `**` for any number of segments.
    ///
    /// # Errors
    ///
    /// No request can have such a path.
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
                PathPattern::Glob(Arc::new(Pattern {
                    text: text.into(),
                    regex,
                }))
            }
        };
        Ok(Matcher { path, query: None })
    }

    /// Parses `path_regex = '…'`: a regular expression in the syntax of the regex crate, which may
    /// match anywhere in the path. Matching takes time linear in the path's length.
    ///
    /// # Errors
    ///
    /// The expression can't be parsed, or becomes too large.
    pub fn path_regex(text: &str) -> Result<Matcher, PatternError> {
        Ok(Matcher {
            path: PathPattern::Regex(pattern(text)?),
            query: None,
        })
    }

    /// Adds the condition that this regular expression is found in the query.
    ///
    /// # Errors
    ///
    /// The expression can't be parsed, or becomes too large.
    pub fn with_query(self, text: &str) -> Result<Matcher, PatternError> {
        Ok(Matcher {
            query: Some(pattern(text)?),
            ..self
        })
    }

    /// Whether a target in origin-form (path and query) satisfies the condition.
    #[inline]
    pub fn matches(&self, target: &str) -> bool {
        let path = match &self.path {
            PathPattern::Any => true,
            PathPattern::Exact(path) => match target.strip_prefix(&**path) {
                Some(rest) => rest.is_empty() || rest.starts_with('?'),
                None => false,
            },
            // A prefix contains no `?`, so comparing it with the whole target compares it with the
            // path.
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

    /// Returns the text with which all matching paths begin, if the condition is a path or a prefix
    /// without other globs.
    #[inline]
    pub(super) fn prefix(&self) -> Option<&str> {
        match &self.path {
            PathPattern::Exact(text) | PathPattern::Prefix(text) => Some(text),
            PathPattern::Any
            | PathPattern::Suffix(_)
            | PathPattern::Glob(_)
            | PathPattern::Regex(_) => None,
        }
    }

    /// Returns the part of a matching path that `proxy` with a path replaces, and whether that part
    /// is the whole path. `None` if the pattern does not say which part of a path it fixes.
    pub fn replaceable(&self) -> Option<(&str, bool)> {
        match &self.path {
            PathPattern::Any => Some(("/", false)),
            PathPattern::Prefix(prefix) => Some((prefix, false)),
            PathPattern::Exact(path) => Some((path, true)),
            PathPattern::Suffix(_) | PathPattern::Glob(_) | PathPattern::Regex(_) => None,
        }
    }

    /// Returns the form of the condition on the path, with its text.
    pub(super) fn shape(&self) -> Shape<'_> {
        match &self.path {
            PathPattern::Any => Shape::Any,
            PathPattern::Exact(text) => Shape::Exact(text),
            PathPattern::Prefix(text) => Shape::Prefix(text),
            PathPattern::Suffix(text) => Shape::Suffix(text),
            PathPattern::Glob(pattern) => Shape::Glob(glob::literal_prefix(&pattern.text)),
            PathPattern::Regex(pattern) => Shape::Regex(&pattern.text),
        }
    }

    /// Returns the regular expression of the condition on the query.
    pub(super) fn query(&self) -> Option<&str> {
        Some(&self.query.as_ref()?.text)
    }

    /// Whether every request that satisfies `other` certainly satisfies this condition, except for
    /// the target `*` of OPTIONS.
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

/// Splits a target into its path, and its query without the `?`.
fn split(target: &str) -> (&str, &str) {
    target.split_once('?').unwrap_or((target, ""))
}

/// Returns the reason why no request can have this path, and advice on how to correct it. Returns
/// `None` if the path is possible.
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

fn pattern(text: &str) -> Result<Arc<Pattern>, PatternError> {
    Ok(Arc::new(Pattern {
        text: text.into(),
        regex: path_regex::parse(text)?,
    }))
}

/// Writes the condition as in the configuration, for messages.
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
