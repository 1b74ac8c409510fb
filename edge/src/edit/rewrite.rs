//! `rewrite`: changes the path of a request by regular expressions before the cache makes its key.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use regex::{Captures, Regex};

use crate::handler::{Answer, Handler, Request};
use crate::http::path_regex::{self, PATTERN_MAX, PatternError};
use crate::http::{Method, target};
use crate::reason::Reason;

/// Longest target that rules may make, in bytes.
const TARGET_MAX: usize = 64 << 10;

/// The rules of a route. Each is applied to the result of those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewrite {
    rules: Vec<RewriteRule>,
}

/// One rule: a pattern, and the text that replaces the part of the path that the pattern matches.
#[derive(Clone, Debug)]
pub struct RewriteRule {
    text: (Box<str>, Box<str>),
    regex: Regex,
    path: Vec<Piece>,
    /// New query parameters, which are put before those of the request.
    query: Option<Vec<Piece>>,
    /// Whether the query of the request is left out.
    drops_query: bool,
}

/// A piece of a replacement.
#[derive(Clone, Debug)]
enum Piece {
    Literal(Box<str>),
    /// The text of the group with this index.
    Group(usize),
}

impl PartialEq for RewriteRule {
    fn eq(&self, other: &RewriteRule) -> bool {
        self.text == other.text
    }
}

impl RewriteRule {
    /// Parses a rule. In the replacement, `$1` to `$9` and `${NAME}` are groups of the pattern, and
    /// `$$` is a dollar sign. Text after `?` is put before the query of the request, with a `?` at
    /// its end in place of it.
    ///
    /// # Errors
    ///
    /// The pattern or the replacement is invalid. The second value is true if the error concerns
    /// the replacement.
    pub fn parse(pattern: &str, replacement: &str) -> Result<RewriteRule, (PatternError, bool)> {
        let regex = path_regex::parse(pattern).map_err(|error| (error, false))?;
        let wrong = |error| (error, true);
        check_bytes(replacement).map_err(wrong)?;
        let drops_query = replacement.ends_with('?');
        let kept = replacement.strip_suffix('?').unwrap_or(replacement);
        let (path, query) = match kept.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (kept, None),
        };
        let path = pieces(path, &regex).map_err(wrong)?;
        let query = query.map(|query| pieces(query, &regex)).transpose();
        Ok(RewriteRule {
            text: (pattern.into(), replacement.into()),
            path,
            query: query.map_err(wrong)?,
            drops_query,
            regex,
        })
    }
}

/// Writes the rule as in the configuration, for messages.
impl std::fmt::Display for RewriteRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -> {}", self.text.0, self.text.1)
    }
}

fn wrong(why: impl Into<String>, help: impl Into<String>) -> PatternError {
    PatternError {
        what: "this replacement can't be used",
        why: why.into(),
        help: help.into(),
    }
}

fn check_bytes(replacement: &str) -> Result<(), PatternError> {
    if replacement.len() > PATTERN_MAX {
        return Err(wrong("it is too long", "use at most 4096 bytes"));
    }
    let unfit = |b: u8| !b.is_ascii_graphic() || matches!(b, b'#' | b'\\');
    match replacement.bytes().any(unfit) {
        true => Err(wrong(
            "spaces, `#`, backslashes and bytes beyond ASCII can't be part of a target",
            "write others percent-encoded, as in \"/caf%C3%A9\"; groups are written $1, not \\1",
        )),
        false => Ok(()),
    }
}

/// Splits a replacement into literals and groups.
fn pieces(text: &str, regex: &Regex) -> Result<Vec<Piece>, PatternError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        if at > 0 {
            pieces.push(Piece::Literal(rest[..at].into()));
        }
        let after = &rest[at + 1..];
        if let Some(further) = after.strip_prefix('$') {
            pieces.push(Piece::Literal("$".into()));
            rest = further;
            continue;
        }
        let (name, further) = group_name(after);
        pieces.push(Piece::Group(group(name, regex)?));
        rest = further;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.into()));
    }
    Ok(pieces)
}

/// Splits the text after a `$` into the name of a group and the rest. A number has one digit, as in
/// nginx, unless it is in braces.
fn group_name(after: &str) -> (&str, &str) {
    if let Some((name, further)) = after.strip_prefix('{').and_then(|a| a.split_once('}')) {
        return (name, further);
    }
    let end = match after.as_bytes() {
        [b'0'..=b'9', ..] => 1,
        _ => {
            let other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            after.find(other).unwrap_or(after.len())
        }
    };
    after.split_at(end)
}

/// Returns the index of the group with this number or name.
fn group(name: &str, regex: &Regex) -> Result<usize, PatternError> {
    let count = regex.captures_len();
    if let Ok(index) = name.parse::<usize>() {
        if index < count {
            return Ok(index);
        }
        let why = match count - 1 {
            0 => format!("there is no group {index}: the pattern has none"),
            1 => format!("there is no group {index}: the pattern has one group"),
            n => format!("there is no group {index}: the pattern has {n} groups"),
        };
        return Err(wrong(
            why,
            "put the part to be kept in parentheses, as in ^/old/(.*)$",
        ));
    }
    let mut names = regex.capture_names();
    if let Some(index) = names.position(|known| known == Some(name)) {
        return Ok(index);
    }
    Err(wrong(
        format!("there is no group `{name}`"),
        other_variable(name),
    ))
}

/// Advice for a variable of nginx, or for an unknown name.
fn other_variable(name: &str) -> &'static str {
    match name {
        "uri" | "document_uri" | "request_uri" => {
            "for the whole path, write the pattern ^(.*)$ and use $1"
        }
        "args" | "query_string" | "is_args" => {
            "leave it out: the query is kept, unless the replacement ends with `?`"
        }
        "scheme" | "host" | "http_host" | "server_name" => {
            "a rewrite changes only the path; for another host write `proxy` or `redirect`"
        }
        "" => "write $1 for a group, or $$ for a dollar sign",
        _ => "write $1 for the first group, or name a group in the pattern: (?<name>…)",
    }
}

impl Rewrite {
    /// Creates a list of rules.
    pub fn new(rules: Vec<RewriteRule>) -> Rewrite {
        Rewrite { rules }
    }

    /// Returns the rules in their order.
    pub fn rules(&self) -> &[RewriteRule] {
        &self.rules
    }

    /// Applies the rules to a target in normal form. Returns `None` if no rule matches.
    ///
    /// # Errors
    ///
    /// The result is not a valid target, or longer than 64 KiB.
    pub fn apply(&self, target: &str) -> Result<Option<String>, Reason> {
        if target == "*" {
            return Ok(None);
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let (mut path, mut query) = (Cow::Borrowed(path), query.map(Cow::Borrowed));
        let mut is_changed = false;
        for rule in &self.rules {
            let Some(captures) = rule.regex.captures(&path) else {
                continue;
            };
            let new_query = rule.new_query(&captures, query.as_deref())?;
            let new_path = rule.new_path(&captures, &path)?;
            (path, query, is_changed) = (Cow::Owned(new_path), new_query.map(Cow::Owned), true);
        }
        if !is_changed {
            return Ok(None);
        }
        let mut raw = path.into_owned();
        if let Some(query) = query {
            raw.push('?');
            raw.push_str(&query);
        }
        let mut out = String::with_capacity(raw.len());
        match target::canonical(&Method::Get, raw.as_bytes(), &mut out) {
            Ok(target::Form::Origin) if out.len() <= TARGET_MAX => Ok(Some(out)),
            _ => Err(Reason::BadRewrite),
        }
    }
}

impl RewriteRule {
    fn new_path(&self, captures: &Captures<'_>, path: &str) -> Result<String, Reason> {
        let matched = captures.get_match().range();
        let mut out = path[..matched.start].to_owned();
        expand(&self.path, captures, &mut out)?;
        out.push_str(&path[matched.end..]);
        Ok(out)
    }

    fn new_query(
        &self,
        captures: &Captures<'_>,
        query: Option<&str>,
    ) -> Result<Option<String>, Reason> {
        let own = query.filter(|_| !self.drops_query);
        let Some(pieces) = &self.query else {
            return Ok(own.map(str::to_owned));
        };
        let mut out = String::new();
        expand(pieces, captures, &mut out)?;
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            if !out.is_empty() {
                out.push('&');
            }
            out.push_str(own);
        }
        Ok(Some(out))
    }
}

/// Appends the pieces. Fails if the text becomes too long, before memory is taken for it.
fn expand(pieces: &[Piece], captures: &Captures<'_>, out: &mut String) -> Result<(), Reason> {
    for piece in pieces {
        let text = match piece {
            Piece::Literal(text) => text,
            Piece::Group(index) => captures.get(*index).map_or("", |group| group.as_str()),
        };
        if out.len() + text.len() > TARGET_MAX {
            return Err(Reason::BadRewrite);
        }
        out.push_str(text);
    }
    Ok(())
}

/// A handler that rewrites the targets of requests.
pub struct Rewriting {
    rewrite: Arc<Rewrite>,
    inner: Rc<dyn Handler>,
}

impl Rewriting {
    /// Creates a handler that rewrites the targets of the requests to `inner`.
    pub fn new(rewrite: Arc<Rewrite>, inner: Rc<dyn Handler>) -> Rewriting {
        Rewriting { rewrite, inner }
    }
}

impl Handler for Rewriting {
    fn handle(&self, mut request: Request) -> Answer {
        match self.rewrite.apply(&request.head.target) {
            Ok(None) => {}
            Ok(Some(target)) => request.head.target = target,
            Err(reason) => return Answer::Ready(Err(reason.into())),
        }
        self.inner.handle(request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewrite(rules: &[(&str, &str)]) -> Rewrite {
        let rule = |(pattern, replacement): &(&str, &str)| {
            RewriteRule::parse(pattern, replacement).expect("a rule")
        };
        Rewrite::new(rules.iter().map(rule).collect())
    }

    fn apply(rules: &[(&str, &str)], target: &str) -> Result<Option<String>, Reason> {
        rewrite(rules).apply(target)
    }

    #[test]
    fn the_matched_part_of_the_path_is_replaced_and_the_query_kept() {
        for (rule, target, expected) in [
            (
                ("^/video/(.*)$", "/v2/$1"),
                "/video/a?b=c",
                Some("/v2/a?b=c"),
            ),
            (("^/video/", "/v2/"), "/video/a", Some("/v2/a")),
            (
                ("^/(\\d+)/(?<name>[a-z]+)", "/${name}/$1"),
                "/12/ab/c",
                Some("/ab/12/c"),
            ),
            (("^/(.)", "/$10"), "/a", Some("/a0")),
            (("^/a(b)?$", "/x$1"), "/a", Some("/x")),
            (("^/a$", "/b?x=1"), "/a", Some("/b?x=1")),
            (("^/a$", "/b?x=1"), "/a?y", Some("/b?x=1&y")),
            (("^/a$", "/b?x=1?"), "/a?y", Some("/b?x=1")),
            (("^/a/(.*)$", "/b?"), "/a/c?y", Some("/b")),
            (("^/a/(.*)$", "/b?file=$1"), "/a/c", Some("/b?file=c")),
            (("^/a", "/$$"), "/a", Some("/$")),
            (("^/b", "/c"), "/a?/b", None),
            (("^/b", "/c"), "*", None),
        ] {
            let applied = apply(&[rule], target).expect("a target");
            assert_eq!(applied.as_deref(), expected, "{rule:?} {target}");
        }
    }

    #[test]
    fn rules_apply_to_the_results_of_earlier_ones() {
        let rules = [("^/a/", "/b/"), ("^/b/", "/c/"), ("^/a/", "/d/")];
        assert_eq!(apply(&rules, "/a/x"), Ok(Some("/c/x".to_owned())));
        assert_eq!(apply(&rules, "/b/x"), Ok(Some("/c/x".to_owned())));
    }

    #[test]
    fn results_that_are_no_targets_are_refused() {
        for (rule, target) in [
            (("^/(.*)$", "$1"), "/a"),
            (("^.*$", ""), "/a"),
            (("^/x", "/.."), "/x"),
            (("^/(.*)$", "http://$1"), "/a"),
            (("^/(.*)$", "/%$1"), "/zz"),
        ] {
            assert_eq!(apply(&[rule], target), Err(Reason::BadRewrite), "{rule:?}");
        }
        let doubled = [("^/(.*)$", "/$1$1"); 12];
        assert_eq!(
            apply(&doubled, "/aaaaaaaaaaaaaaaa"),
            Err(Reason::BadRewrite)
        );
    }

    #[test]
    fn results_have_the_normal_form() {
        let rule = [("^/a/", "/b/./%7e/")];
        assert_eq!(apply(&rule, "/a/x"), Ok(Some("/b/~/x".to_owned())));
    }

    #[test]
    fn malformed_replacements_have_an_error() {
        let error = |pattern: &str, replacement: &str| {
            let (error, in_replacement) =
                RewriteRule::parse(pattern, replacement).expect_err(replacement);
            assert!(in_replacement);
            format!("{}; {}", error.why, error.help)
        };
        for (pattern, replacement, says) in [
            ("^/a", "/$1", "there is no group 1: the pattern has none"),
            ("^/(a)", "/$2", "the pattern has one group"),
            ("^/a", "$uri", "write the pattern ^(.*)$ and use $1"),
            ("^/a", "/b?$args", "the query is kept"),
            ("^/a", "/b/\\1", "groups are written $1"),
            ("^/a", "/$", "$$ for a dollar sign"),
            ("^/a", "/é", "percent-encoded"),
        ] {
            let text = error(pattern, replacement);
            assert!(text.contains(says), "{replacement}: {text}");
        }
        assert!(RewriteRule::parse("(?=a)", "/b").is_err_and(|(_, replacement)| !replacement));
    }

    proptest! {
        #[test]
        fn a_result_is_a_canonical_target(
            pattern in "\\^?/?[a-b(.*)?/]{0,8}",
            replacement in "/?[a-b./$1?%2e]{0,12}",
            target in "/[ab./]{0,8}(\\?[ab%]{0,4})?",
        ) {
            let mut normal = String::new();
            prop_assume!(target::canonical(&Method::Get, target.as_bytes(), &mut normal).is_ok());
            if let Ok(rule) = RewriteRule::parse(&pattern, &replacement)
                && let Ok(Some(result)) = Rewrite::new(vec![rule]).apply(&normal)
            {
                let mut again = String::new();
                prop_assert!(target::canonical(&Method::Get, result.as_bytes(), &mut again).is_ok());
                prop_assert_eq!(again, result);
            }
        }
    }
}
