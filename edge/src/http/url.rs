//! URLs and prefixes of URLs that operators write, normalised like a request's scheme, host and
//! target.

use std::fmt;

use super::target::{self, HostError, TargetError};
use super::{Method, Scheme, key};

/// A URL in the normal form of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: String,
    /// The path in normal form.
    pub path: String,
    /// The query; `None` differs from an empty query.
    pub query: Option<String>,
}

/// A prefix of URLs: `http://host/path`, `//host/path` for any scheme, or `/path` for any host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The scheme; `None` for any.
    pub scheme: Option<Scheme>,
    /// The authority; `None` for any.
    pub authority: Option<String>,
    /// The prefix of path and query, compared byte by byte.
    pub path: String,
}

/// Returns the error about a URL without its scheme, with advice in brackets.
fn no_scheme(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = if rest.starts_with('/') { "HOST" } else { "" };
    format!("a URL begins with http:// or https://\n(write http://{host}{rest})")
}

impl Url {
    /// Parses a URL and normalizes it.
    ///
    /// # Errors
    /// Describes for the operator what is wrong with the URL.
    pub fn parse(url: &str) -> Result<Url, String> {
        // Schemes are case-insensitive (RFC 3986 3.1).
        let (scheme, rest) = split_scheme(url).ok_or_else(|| no_scheme(url))?;
        let (authority, target) = parse_host(rest)?;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (target, None),
        };
        Ok(Url {
            scheme,
            authority,
            path,
            query,
        })
    }
}

/// Formats the URL in the form that cache keys contain.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = key::normal_host(Some(self.scheme), &self.authority);
        write!(f, "{}://{host}{}", self.scheme.as_str(), self.path)?;
        match &self.query {
            Some(query) => write!(f, "?{query}"),
            None => Ok(()),
        }
    }
}

/// Formats the prefix in the form that cache keys contain.
impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}:", scheme.as_str())?;
        }
        if let Some(authority) = &self.authority {
            write!(f, "//{}", key::normal_host(self.scheme, authority))?;
        }
        f.write_str(&self.path)
    }
}

impl Start {
    /// Parses a prefix of URLs and normalizes it.
    ///
    /// # Errors
    /// Describes for the operator what is wrong with the prefix.
    pub fn parse(text: &str) -> Result<Start, String> {
        check_end(text)?;
        let (scheme, rest) = match (split_scheme(text), text.strip_prefix("//")) {
            (Some((scheme, rest)), _) => (Some(scheme), rest),
            (None, Some(rest)) => (None, rest),
            (None, None) if text.starts_with('/') => {
                return Ok(Start {
                    scheme: None,
                    authority: None,
                    path: parse_target(text)?,
                });
            }
            _ => {
                return Err(
                    "a prefix begins with http://HOST/, https://HOST/, //HOST/ or /".to_owned(),
                );
            }
        };
        let (authority, path) = parse_host(rest)?;
        Ok(Start {
            scheme,
            authority: Some(authority),
            path,
        })
    }
}

/// Refuses a prefix whose end suggests that it covers less than it does.
fn check_end(text: &str) -> Result<(), String> {
    if let Some(start) = text.strip_suffix('*') {
        return Err(format!(
            "a prefix needs no * at its end: {start} covers all URLs that begin with it"
        ));
    }
    // Dot segments and `*` are special only in the path, so the query is not checked.
    let path = text
        .split('?')
        .next()
        .filter(|path| path.len() == text.len());
    let last = path
        .and_then(|path| path.rsplit('/').next())
        .unwrap_or_default();
    // Normalisation would turn a last segment `.` or `..` into the folder or its parent (RFC 3986
    // 5.2.4), so the prefix would cover more than it seems.
    if matches!(&*last.to_ascii_lowercase().replace("%2e", "."), "." | "..") {
        let folder = &text[..text.len() - last.len()];
        return Err(format!(
            "a prefix can't end in {last}, as no URL does: write {folder} to cover this folder, or write its parent folder"
        ));
    }
    Ok(())
}

fn split_scheme(url: &str) -> Option<(Scheme, &str)> {
    let (name, rest) = url.split_once("://")?;
    let is = |scheme: &Scheme| name.eq_ignore_ascii_case(scheme.as_str());
    let scheme = [Scheme::Http, Scheme::Https].into_iter().find(is)?;
    Some((scheme, rest))
}

/// Splits the text after `//` into host, and path with query.
fn parse_host(rest: &str) -> Result<(String, String), String> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    if host.is_empty() {
        return Err("a URL names a host, as in http://cdn.example.com/".to_owned());
    }
    let mut authority = String::new();
    target::host(host.as_bytes(), &mut authority).map_err(|error| wrong_host(host, error))?;
    let path = match path.starts_with('/') {
        true => parse_target(path)?,
        false => parse_target(&format!("/{path}"))?,
    };
    Ok((authority, path))
}

fn parse_target(path: &str) -> Result<String, String> {
    if path.contains('#') {
        return Err("remove the fragment (from # on): clients never send it".to_owned());
    }
    let mut canonical = String::new();
    target::canonical(&Method::Get, path.as_bytes(), &mut canonical).map_err(wrong_target)?;
    Ok(canonical)
}

fn wrong_host(host: &str, error: HostError) -> String {
    let why = match error {
        _ if host.contains('@') => {
            "remove user name and password, up to the @: stored responses don't depend on them"
        }
        HostError::Byte if !host.is_ascii() => {
            "write the host's name in ASCII, as browsers send it: xn--…"
        }
        HostError::Byte => "the host has a character that is not permitted in a name",
        HostError::NoName => "the host has a port but no name",
        HostError::TooLong => "the host is longer than any name",
        HostError::Address => "the text in brackets is not an IPv6 address",
        HostError::Port => "the port must be a number up to 65535",
    };
    format!("this is not a valid URL: {why}")
}

fn wrong_target(error: TargetError) -> String {
    let why = match error {
        TargetError::Byte => {
            "spaces, backslashes and characters outside ASCII must be escaped, as in %20 or %C3%A9"
        }
        TargetError::Percent => {
            "a % must be followed by two hexadecimal digits; a literal % is %25"
        }
        TargetError::Nul => "a path can't contain %00",
        TargetError::AboveRoot => "its .. segments lead above the root",
        TargetError::HiddenDots => {
            "it has a dot segment beside an escaped slash or backslash, or before a semicolon"
        }
        TargetError::NoTarget
        | TargetError::Scheme
        | TargetError::NoHost
        | TargetError::UserInfo => "it has no path",
    };
    format!("this is not a valid URL: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_urls_are_refused() {
        let url = |text: &str| Url::parse(text).expect(text);
        assert_eq!(url("http://a"), url("HTTP://A/"));
        assert_eq!(url("http://a?b=c"), url("Http://a/?b=c"));
        assert_eq!(url("http://a/%62"), url("http://a/b"));
        assert_ne!(url("http://a/"), url("https://a/"));
        for bad in [
            "",
            "a/b",
            "ftp://a/",
            "http://a/..",
            "http://a%00/",
            "http://",
            "http:///b",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
        for (bad, said) in [
            ("http://u:p@a/", "remove user name and password"),
            ("http://é/", "in ASCII"),
            ("http://a/é", "as in %20 or %C3%A9"),
            ("http://a/a b", "as in %20 or %C3%A9"),
            ("http://a/%zz", "two hexadecimal digits"),
            ("http://a:x/", "the port must be a number"),
        ] {
            let why = Url::parse(bad).expect_err(bad);
            assert!(why.contains(said), "{bad}: {why}");
        }
        for url in ["http://a/b#c", "http://a#c"] {
            let fragment = Url::parse(url).expect_err("a fragment");
            assert!(fragment.starts_with("remove the fragment"));
        }
    }

    #[test]
    fn a_prefix_has_a_complete_host_or_none() {
        let start = |text: &str| Start::parse(text).expect(text);
        let of = |scheme, authority: Option<&str>, path: &str| Start {
            scheme,
            authority: authority.map(str::to_owned),
            path: path.to_owned(),
        };
        assert_eq!(start("http://A"), of(Some(Scheme::Http), Some("a"), "/"));
        assert_eq!(start("//a:8080/b/"), of(None, Some("a:8080"), "/b/"));
        assert_eq!(start("/b?c="), of(None, None, "/b?c="));
        for bad in ["", "a/", "b", "///", "ftp://a/", "/b%", "/b#c", "/.."] {
            assert!(Start::parse(bad).is_err(), "{bad}");
        }
    }

    // Normalisation would turn `/a/..` into `/`, a prefix that covers everything.
    #[test]
    fn prefixes_with_a_misleading_end_are_refused() {
        for bad in [
            "/.",
            "/a/.",
            "/a/..",
            "//a/b/..",
            "http://a/b/.",
            "/a/%2e%2E",
            "/a/b/%2e",
        ] {
            let why = Start::parse(bad).expect_err(bad);
            assert!(why.starts_with("a prefix can't end in "), "{bad}: {why}");
        }
        for (good, path) in [
            ("/a/../b", "/b"),
            ("/a/./", "/a/"),
            ("/a/../", "/"),
            ("/.a", "/.a"),
            ("/a..", "/a.."),
            ("/a?b/..", "/a?b/.."),
        ] {
            let start = Start::parse(good).map(|start| start.path);
            assert_eq!(start.as_deref(), Ok(path), "{good}");
        }
        let why = Start::parse("http://a/img/*").expect_err("a star");
        assert!(why.starts_with("a prefix needs no *"), "{why}");
        assert!(Start::parse("/*/a").is_ok());
    }

    #[test]
    fn urls_are_displayed_as_keys_contain_them() {
        for url in ["http://A:80/%62?c", "HTTP://a/x/../b?c"] {
            assert_eq!(Url::parse(url).expect(url).to_string(), "http://a/b?c");
        }
        for (prefix, shown) in [
            ("http://A:80/%62", "http://a/b"),
            ("https://a:80", "https://a:80/"),
            ("//A:443/x/../b?", "//a/b?"),
            ("/%7ea", "/~a"),
        ] {
            let start = Start::parse(prefix).map(|start| start.to_string());
            assert_eq!(start.as_deref(), Ok(shown), "{prefix}");
        }
    }
}
