//! URLs that operators write, put into the same form as a request's scheme, host and target.

use super::{Method, Scheme, target};

/// A URL that a request may be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: String,
    /// The path in canonical form.
    pub path: String,
    /// The query; `None` is not the same as an empty one.
    pub query: Option<String>,
}

/// The beginning of URLs: `http://host/path`, of any scheme `//host/path`, of any host `/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// `None`: any.
    pub scheme: Option<Scheme>,
    /// `None`: any.
    pub authority: Option<String>,
    /// How path and query begin, letter by letter.
    pub path: String,
}

impl Url {
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(url: &str) -> Result<Url, String> {
        // Schemes are the same in capitals (RFC 3986 3.1).
        let (scheme, rest) =
            split_scheme(url).ok_or_else(|| "a URL begins with http:// or https://".to_owned())?;
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

impl Start {
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Start, String> {
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

fn split_scheme(url: &str) -> Option<(Scheme, &str)> {
    let (name, rest) = url.split_once("://")?;
    let is = |scheme: &Scheme| name.eq_ignore_ascii_case(scheme.as_str());
    let scheme = [Scheme::Http, Scheme::Https].into_iter().find(is)?;
    Some((scheme, rest))
}

/// Host, and path with query, of what follows `//`.
fn parse_host(rest: &str) -> Result<(String, String), String> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    if host.is_empty() {
        return Err("a URL names a host, as in http://cdn.example.com/".to_owned());
    }
    let mut authority = String::new();
    target::host(host.as_bytes(), &mut authority).map_err(|error| wrong(error.word()))?;
    let path = match path.starts_with('/') {
        true => parse_target(path)?,
        false => parse_target(&format!("/{path}"))?,
    };
    Ok((authority, path))
}

fn parse_target(path: &str) -> Result<String, String> {
    if path.contains('#') {
        return Err("leave out what begins with #: clients keep it to themselves".to_owned());
    }
    let mut canonical = String::new();
    target::canonical(&Method::Get, path.as_bytes(), &mut canonical)
        .map_err(|error| wrong(error.word()))?;
    Ok(canonical)
}

fn wrong(word: &str) -> String {
    format!("this is no URL ({word})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_url_is_refused() {
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
        for url in ["http://a/b#c", "http://a#c"] {
            let fragment = Url::parse(url).expect_err("a fragment");
            assert!(fragment.starts_with("leave out what begins with #"));
        }
    }

    #[test]
    fn a_prefix_has_a_whole_host_or_none() {
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
}
