//! Warnings about variables of nginx, which Sluice uses as literal text.

use std::ops::Range;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::report::Problem;

/// Variables of nginx, each with Sluice's variables for the same value, of which the first one that a
/// key permits is proposed. Names that end in `_` are beginnings of names. `$is_args` is a part of
/// `{query}`.
const VARIABLES: &[(&str, &[&str])] = &[
    ("arg_", &[]),
    ("args", &["query"]),
    ("binary_remote_addr", &["client"]),
    ("body_bytes_sent", &["bytes"]),
    ("cookie_", &["cookie:NAME"]),
    ("document_uri", &["path"]),
    ("host", &["hostname", "host"]),
    ("hostname", &[]),
    ("http_", &["header:NAME", "request.NAME"]),
    ("https", &["scheme"]),
    ("is_args", &[""]),
    ("proxy_", &[]),
    ("query_string", &["query"]),
    ("remote_", &["client"]),
    ("request", &[]),
    ("request_method", &["method"]),
    ("request_time", &["request_time"]),
    ("request_uri", &["path}{query", "target"]),
    ("scheme", &["scheme"]),
    ("sent_http_", &[]),
    ("server_", &["hostname", "host"]),
    ("status", &["status"]),
    ("time_iso8601", &["time_iso"]),
    ("time_local", &["time_common"]),
    ("upstream_addr", &["upstream"]),
    ("upstream_status", &["upstream_status"]),
    ("upstream_", &[]),
    ("uri", &["path"]),
];

/// Returns the variable that Sluice has for one of nginx. `known` are the names of the variables that
/// are permitted.
pub fn ours(name: &str, known: &[&str]) -> Option<String> {
    let text = format!("${{{name}}}");
    rewritten(&text, &found(&text), known).filter(|ours| *ours != text && !ours.is_empty())
}

/// Warns if text, the value of a key, contains a variable of nginx. `known` are the names of the
/// variables that are permitted in it.
pub fn check(text: &Spanned<String>, known: &[&str], checks: &mut Checks) {
    let found = found(text.get_ref());
    let Some(first) = found.first() else {
        return;
    };
    let help = match rewritten(text.get_ref(), &found, known) {
        Some(text) => format!("write {text:?}"),
        None => {
            let known = known.iter().map(|name| format!("{{{name}}}"));
            let known: Vec<String> = known.collect();
            format!("the variables here are {}", known.join(", "))
        }
    };
    checks.push(
        Problem::warning(format!("`${}` is literal text here", first.name))
            .at(text.span())
            .label("variables are written in braces, without $")
            .help(help),
    );
}

/// A variable of nginx in a text.
struct Found<'a> {
    /// Position in the text.
    at: Range<usize>,
    name: &'a str,
    /// The part of the name that stands for `NAME`.
    rest: &'a str,
    ours: &'static [&'static str],
}

/// Returns the variables of nginx in a text.
fn found(text: &str) -> Vec<Found<'_>> {
    let dollars = text.match_indices('$');
    let found = dollars.filter_map(|(start, _)| {
        let inner = text[start + 1..].trim_start_matches('{');
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let length = inner.find(|c| !is_part(c)).unwrap_or(inner.len());
        let (name, after) = inner.split_at(length);
        let (theirs, ours) = VARIABLES.iter().find(|(theirs, _)| {
            *theirs == name || theirs.ends_with('_') && name.starts_with(theirs)
        })?;
        let is_braced = text[start + 1..].starts_with('{') && after.starts_with('}');
        let end = text.len() - after.len() + usize::from(is_braced);
        Some(Found {
            at: start..end,
            name,
            rest: name.strip_prefix(theirs).unwrap_or_default(),
            ours,
        })
    });
    found.collect()
}

/// Returns the text with Sluice's variables in place of all variables of nginx, if there is one for
/// each.
fn rewritten(text: &str, found: &[Found<'_>], known: &[&str]) -> Option<String> {
    let is_known = |ours: &&&str| {
        let mut parts = ours.split("}{");
        ours.is_empty() || parts.all(|part| known.contains(&part))
    };
    let (mut out, mut end) = (String::new(), 0);
    for variable in found {
        let ours = variable.ours.iter().find(is_known)?;
        out += &text[end..variable.at.start];
        if !ours.is_empty() {
            out += &format!(
                "{{{}}}",
                ours.replace("NAME", &variable.rest.replace('_', "-"))
            );
        }
        end = variable.at.end;
    }
    Some(out + &text[end..])
}
