//! Configured rules for primary keys: the template and the query parameters.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use super::{COOKIE, HEADER, Key, KeyHash, LITERAL, Omitted, Text, append_extra, render};
use crate::http::fields::is_token;
use crate::http::pattern::Pattern;
use crate::http::vary::Reductions;
use crate::http::{Fields, Scheme, cookies, hop, vary};

/// Largest number of headers, cookies and literals in a template.
pub const EXTRAS_MAX: usize = 16;

/// Rules for building primary keys. By default a key consists of scheme, host, path and query,
/// unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    omitted: Omitted,
    extras: Vec<Extra>,
    /// Whether query parameters are sorted by name; parameters of the same name keep their order.
    pub sort: bool,
    /// Query parameters to remove.
    pub ignore: Vec<Pattern>,
    /// The only query parameters to keep; if empty, all are kept.
    pub only: Vec<Pattern>,
    /// Language tags that Accept-Language is reduced to, in keys, variants and shared fetches; if
    /// empty, it is not reduced.
    pub languages: Vec<Box<str>>,
}

/// A header, cookie or literal that a key contains in addition to the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Extra {
    /// A request header, in lower case.
    Header(String),
    Cookie(String),
    Literal(String),
}

/// An error in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The byte range of the template that the error concerns.
    pub at: Range<usize>,
    /// A description of the error.
    pub what: String,
    /// Advice on how to correct the template.
    pub help: String,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for KeyError {}

impl KeyRules {
    /// Parses a template such as `{scheme}{host}{path}{query}{header:X-Tenant}`.
    ///
    /// `{path}` is required. Requests that differ only in an omitted `{scheme}`, `{host}` or
    /// `{query}` share responses. Without `{query}`, requests to the origin have no query.
    /// `{header:…}`, `{cookie:…}` and literal text are added to the key. The order of the parts has
    /// no effect on which requests share a key.
    pub fn parse(template: &str) -> Result<KeyRules, KeyError> {
        let mut rules = KeyRules::default();
        let mut seen = Vec::new();
        let mut at = 0;
        while at < template.len() {
            let rest = &template[at..];
            let end = match rest.strip_prefix('{') {
                None => at + rest.find('{').unwrap_or(rest.len()),
                Some(inside) => match inside.find('}') {
                    Some(close) => at + close + 2,
                    None => {
                        let help = "end it with `}`";
                        return Err(error(
                            at..template.len(),
                            "this brace is never closed",
                            help,
                        ));
                    }
                },
            };
            rules.add(&template[at..end], at..end, &mut seen)?;
            at = end;
        }
        if !seen.contains(&"{path}") {
            let help = "add {path}: without it, all paths of a route would share one response";
            return Err(error(0..template.len(), "a key needs the path", help));
        }
        rules.omitted = Omitted {
            scheme: !seen.contains(&"{scheme}"),
            host: !seen.contains(&"{host}"),
            query: !seen.contains(&"{query}"),
        };
        Ok(rules)
    }

    /// Adds one part of the template: literal text, or an expression in braces.
    fn add<'a>(
        &mut self,
        part: &'a str,
        at: Range<usize>,
        seen: &mut Vec<&'a str>,
    ) -> Result<(), KeyError> {
        let extra = match part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            None if part.contains('}') => {
                return Err(error(
                    at,
                    "a `}` without `{`",
                    "braces can't be part of a key",
                ));
            }
            None => Extra::Literal(part.to_owned()),
            Some(_) if seen.contains(&part) => {
                return Err(error(at, "this occurs twice", "remove one of them"));
            }
            Some("scheme" | "host" | "path" | "query") => {
                seen.push(part);
                return Ok(());
            }
            Some(inside) => {
                seen.push(part);
                extra(inside, at.clone())?
            }
        };
        if self.extras.len() == EXTRAS_MAX {
            let what = format!("more than {EXTRAS_MAX} headers, cookies and literals");
            return Err(error(
                at,
                what,
                "each of them multiplies the stored responses",
            ));
        }
        self.extras.push(extra);
        Ok(())
    }

    /// Adds a text that all keys contain, so that they differ from those of other rules.
    pub fn add_literal(&mut self, text: String) {
        self.extras.push(Extra::Literal(text));
    }

    /// Whether keys consist of the unchanged scheme, host, path and query, as in `KeyHash::of`.
    pub fn is_plain(&self) -> bool {
        self.omitted == Omitted::default() && self.extras.is_empty() && self.takes_query_as_it_is()
    }

    /// Whether keys contain request headers or cookies.
    pub fn needs_fields(&self) -> bool {
        self.headers().next().is_some() || self.cookies().next().is_some()
    }

    /// Returns the request headers in the key, in lower case. Shared fetches carry them.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.extras.iter().filter_map(|extra| match extra {
            Extra::Header(name) => Some(&**name),
            _ => None,
        })
    }

    /// Returns the cookies in the key. Shared fetches carry them, in the form of `cookies::only`.
    pub fn cookies(&self) -> impl Iterator<Item = &str> {
        self.extras.iter().filter_map(|extra| match extra {
            Extra::Cookie(name) => Some(&**name),
            _ => None,
        })
    }

    /// Builds the key of a request.
    pub fn key(
        &self,
        scheme: Scheme,
        authority: &str,
        path: &str,
        query: Option<&str>,
        fields: &Fields,
    ) -> Key {
        let text = self.text(scheme, authority, path, query, fields);
        Key {
            text: text.into_boxed_slice(),
        }
    }

    /// Computes the hash of the key without building it.
    pub fn hash(
        &self,
        scheme: Scheme,
        authority: &str,
        path: &str,
        query: Option<&str>,
        fields: &Fields,
    ) -> KeyHash {
        KeyHash::of_bytes(&self.text(scheme, authority, path, query, fields))
    }

    fn text(
        &self,
        scheme: Scheme,
        authority: &str,
        path: &str,
        query: Option<&str>,
        fields: &Fields,
    ) -> Text {
        let mut text = Text::new();
        self.render(&mut text, scheme, authority, path, query);
        self.append_extras(fields, &mut text);
        text
    }

    /// Returns these rules without headers, cookies and literals: those rules on which the result
    /// of `resource` depends.
    pub fn of_urls(&self) -> KeyRules {
        KeyRules {
            extras: Vec::new(),
            languages: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the hash of a URL under these rules. The result equals `resource_with` of every key
    /// of this URL.
    pub fn resource(
        &self,
        scheme: Scheme,
        authority: &str,
        path: &str,
        query: Option<&str>,
    ) -> KeyHash {
        let mut text = Text::new();
        self.render(&mut text, scheme, authority, path, query);
        KeyHash::of_bytes(&text)
    }

    fn render(
        &self,
        out: &mut Text,
        scheme: Scheme,
        authority: &str,
        path: &str,
        query: Option<&str>,
    ) {
        let query = self.query(query);
        render(out, self.omitted, scheme, authority, path, query.as_deref());
    }

    fn append_extras(&self, fields: &Fields, out: &mut Text) {
        for extra in &self.extras {
            match extra {
                Extra::Header(name) => {
                    let normal = Reductions {
                        codings: None,
                        languages: &self.languages,
                    };
                    let value = vary::normal_value(fields, name, normal);
                    append_extra(out, HEADER, name, value.as_deref());
                }
                Extra::Cookie(name) => {
                    append_extra(out, COOKIE, name, cookies::value(fields, name));
                }
                Extra::Literal(text) => append_extra(out, LITERAL, text, None),
            }
        }
    }

    /// Returns the query as it is in keys and in requests to the origin: sorted and without ignored
    /// parameters, if so configured. Escapes are not decoded. If any rule applies, empty parameters
    /// are dropped, and a query without parameters becomes `None`.
    pub fn query<'a>(&self, query: Option<&'a str>) -> Option<Cow<'a, str>> {
        let query = query.filter(|_| !self.omitted.query)?;
        if self.takes_query_as_it_is() {
            return Some(Cow::Borrowed(query));
        }
        let mut kept: SmallVec<[&str; 16]> = query
            .split('&')
            .filter(|parameter| !parameter.is_empty() && self.keeps(name_of(parameter)))
            .collect();
        if self.sort {
            kept.sort_by_key(|parameter| name_of(parameter));
        }
        if kept.is_empty() {
            return None;
        }
        let same = kept.iter().copied().eq(query.split('&'));
        Some(match same {
            true => Cow::Borrowed(query),
            false => Cow::Owned(kept.join("&")),
        })
    }

    fn takes_query_as_it_is(&self) -> bool {
        !self.sort && self.ignore.is_empty() && self.only.is_empty()
    }

    fn keeps(&self, name: &str) -> bool {
        let among = |list: &[Pattern]| list.iter().any(|pattern| pattern.matches(name.as_bytes()));
        (self.only.is_empty() || among(&self.only)) && !among(&self.ignore)
    }
}

/// Formats an equivalent template.
impl fmt::Display for KeyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.omitted.scheme, "{scheme}"),
            (self.omitted.host, "{host}"),
            (false, "{path}"),
            (self.omitted.query, "{query}"),
        ];
        for (_, part) in parts.iter().filter(|(omitted, _)| !omitted) {
            f.write_str(part)?;
        }
        for extra in &self.extras {
            match extra {
                Extra::Header(name) => write!(f, "{{header:{name}}}")?,
                Extra::Cookie(name) => write!(f, "{{cookie:{name}}}")?,
                Extra::Literal(text) => f.write_str(text)?,
            }
        }
        Ok(())
    }
}

/// Returns the parameter's name: everything before the first `=`.
fn name_of(parameter: &str) -> &str {
    parameter
        .split_once('=')
        .map_or(parameter, |(name, _)| name)
}

/// Parses `header:NAME` or `cookie:NAME`, the text between the braces.
fn extra(inside: &str, at: Range<usize>) -> Result<Extra, KeyError> {
    let (kind, name) = inside.split_once(':').unwrap_or((inside, ""));
    if !matches!(kind, "header" | "cookie") {
        let what = format!("there is no variable {{{inside}}}");
        let help =
            "the variables are {scheme}, {host}, {path}, {query}, {header:NAME} and {cookie:NAME}";
        return Err(error(at, what, help));
    }
    if !is_token(name.as_bytes()) {
        let what = format!("`{name}` is not a valid {kind} name");
        let help = format!("write a name after the colon: {{{kind}:NAME}}");
        return Err(error(at, what, help));
    }
    if kind == "cookie" {
        return Ok(Extra::Cookie(name.to_owned()));
    }
    let name = name.to_ascii_lowercase();
    if let Some(why) = hop::why_never_sent(name.as_bytes()) {
        let what = format!("`{name}` can't be part of a key");
        return Err(error(at, what, format!("{why}; {}", instead(&name))));
    }
    if name == "cookie" {
        let help = "name single cookies: {cookie:NAME}";
        return Err(error(
            at,
            "the complete Cookie header differs for every client",
            help,
        ));
    }
    Ok(Extra::Header(name))
}

/// Suggests what to put into the template instead of a header that can't be part of a key.
fn instead(name: &str) -> &'static str {
    match name {
        _ if name.contains("host") => "use {host}, the host of the request",
        _ if name.contains("proto") || name.contains("scheme") || name.contains("ssl") => {
            "use {scheme}, the scheme of the request"
        }
        _ if name.contains("url") || name.contains("uri") => "use {path}, the path of the request",
        _ => "remove it",
    }
}

fn error(at: Range<usize>, what: impl Into<String>, help: impl Into<String>) -> KeyError {
    KeyError {
        at,
        what: what.into(),
        help: help.into(),
    }
}
