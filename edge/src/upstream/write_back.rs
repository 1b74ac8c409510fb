//! Writes headers of responses back: turns an origin's own URLs, paths and domains into those under
//! which the client knows them.

use std::net::IpAddr;

use super::options::{Server, name_of};
use super::path_map::PathMap;
use crate::http::Fields;
use crate::http::key::without_default_port;

/// The names under which the origin and the client know a resource.
pub(super) struct Names<'a> {
    /// The replacement of paths, if `proxy` has a path.
    pub(super) path: Option<&'a PathMap>,
    /// The servers of the upstream.
    pub(super) servers: &'a [Server],
    /// The Host that the origin received.
    pub(super) host: &'a str,
    /// The authority of the client's request; empty if it has none.
    pub(super) client: &'a str,
}

/// Longer values are left as they are.
const VALUE_MAX: usize = 16 << 10;

/// Rewrites Location, Content-Location, Refresh, and Domain and Path of cookies.
pub(super) fn apply(fields: &mut Fields, names: &Names<'_>) {
    if !fields.iter().any(|(name, _)| kind(name).is_some()) {
        return;
    }
    let mut changed = Fields::new();
    for (name, value) in fields.iter() {
        let text = std::str::from_utf8(value).ok();
        let text = text.filter(|text| text.len() <= VALUE_MAX);
        let new = match (kind(name), text) {
            (Some(Kind::Reference), Some(text)) => names.reference(text.trim()),
            (Some(Kind::Refresh), Some(text)) => names.refresh(text),
            (Some(Kind::Cookie), Some(text)) => names.cookie(text),
            (None, _) | (_, None) => None,
        };
        match new {
            Some(new) => changed.append_bytes(name, new.as_bytes()),
            None => changed.append_bytes(name, value),
        }
    }
    *fields = changed;
}

/// The headers that are rewritten.
enum Kind {
    Reference,
    Refresh,
    Cookie,
}

fn kind(name: &[u8]) -> Option<Kind> {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    match name.len() {
        7 if is(b"refresh") => Some(Kind::Refresh),
        8 if is(b"location") => Some(Kind::Reference),
        10 if is(b"set-cookie") => Some(Kind::Cookie),
        16 if is(b"content-location") => Some(Kind::Reference),
        _ => None,
    }
}

impl Names<'_> {
    /// Returns the reference for the client, or `None` if it stays as it is.
    fn reference(&self, text: &str) -> Option<String> {
        // Browsers take a backslash for a slash, so that such a path could name another host.
        if text.contains('\\') {
            return None;
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => match text.strip_prefix("//") {
                Some(rest) => (None, rest),
                None if text.starts_with('/') => return self.mapped(text),
                None => return None,
            },
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = format!("{slash}{path}");
        // The origin got the client's Host, and names the resource by it. Scheme and host are
        // kept: a redirect to the same URL with https must not lead back to http.
        if self.host.eq_ignore_ascii_case(self.client)
            && same(scheme, authority, scheme, self.client)
        {
            let start = &text[..text.len() - rest.len() + end];
            return Some(format!("{start}{}", self.mapped(&path)?));
        }
        if !self.is_own(scheme, authority) {
            return None;
        }
        match self.path {
            None => Some(unambiguous(path)),
            Some(_) => self.mapped(&path),
        }
    }

    /// Returns the path, with the query and fragment after it, under which the client knows an
    /// absolute path of the origin.
    fn mapped(&self, text: &str) -> Option<String> {
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let (path, rest) = text.split_at(end);
        let path = self.path?.to_client(path)?;
        Some(unambiguous(format!("{path}{rest}")))
    }

    /// Whether this is a name of the origin itself. The scheme must be that of the connection to
    /// it, since a redirect to https on the origin would otherwise lead back to the same URL.
    fn is_own(&self, scheme: Option<&str>, authority: &str) -> bool {
        let mut servers = self.servers.iter();
        servers.any(|server| {
            let own = Some(server.scheme.as_str());
            let scheme = scheme.or(own);
            same(scheme, authority, own, &server.authority())
                || same(scheme, authority, own, self.host)
        })
    }

    /// Rewrites `5; url=/a` (a header that browsers follow, and no RFC defines).
    fn refresh(&self, text: &str) -> Option<String> {
        let at = text.find([';', ','])?;
        let rest = &text[at + 1..];
        let url = rest.trim_start();
        let is_url = url
            .get(..3)
            .is_some_and(|word| word.eq_ignore_ascii_case("url"));
        let url = is_url.then(|| url[3..].trim_start())?;
        let url = url.strip_prefix('=')?.trim_start();
        let start = &text[..text.len() - url.len()];
        let quote = url.chars().next().filter(|c| matches!(c, '"' | '\''));
        let Some(quote) = quote else {
            return Some(format!("{start}{}", self.reference(url.trim_end())?));
        };
        let (inside, end) = url[1..].split_once(quote)?;
        Some(format!(
            "{start}{quote}{}{quote}{end}",
            self.reference(inside)?
        ))
    }

    /// Rewrites Path and Domain of a cookie.
    fn cookie(&self, text: &str) -> Option<String> {
        let mut parts = text.split(';');
        let mut out = parts.next()?.to_owned();
        let mut is_changed = false;
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim(), value.trim());
            let new = match () {
                () if name.eq_ignore_ascii_case("path") => self.cookie_path(value),
                () if name.eq_ignore_ascii_case("domain") => self.cookie_domain(value),
                () => None,
            };
            is_changed |= new.is_some();
            match new.as_deref() {
                None => out.extend([";", part]),
                // Without Domain, the cookie is for the host of the request.
                Some("") => {}
                Some(new) => out.extend(["; ", name, "=", new]),
            }
        }
        is_changed.then_some(out)
    }

    fn cookie_path(&self, path: &str) -> Option<String> {
        let path = path.starts_with('/').then_some(path)?;
        self.path?.to_client(path)
    }

    /// Returns the client's host in place of a domain that covers the origin and not the client's
    /// host, which browsers would refuse. The result is empty if the client's host is no name.
    fn cookie_domain(&self, domain: &str) -> Option<String> {
        let domain = domain.strip_prefix('.').unwrap_or(domain);
        let domain = domain.trim_matches(['[', ']']);
        let client = name_of(self.client);
        if domain.is_empty() || covers(domain, client) {
            return None;
        }
        let mut servers = self.servers.iter().map(|server| &*server.host);
        let is_own = covers(domain, name_of(self.host)) || servers.any(|host| covers(domain, host));
        let is_name = client.parse::<IpAddr>().is_err();
        is_own.then(|| match is_name {
            true => client.to_owned(),
            false => String::new(),
        })
    }
}

fn is_scheme(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// Whether two schemes and authorities are equal, apart from the case and the default port.
fn same(scheme: Option<&str>, authority: &str, other: Option<&str>, other_authority: &str) -> bool {
    let plain = |text: &str| {
        let scheme = match scheme {
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => crate::http::Scheme::Https,
            _ => crate::http::Scheme::Http,
        };
        without_default_port(scheme, text).to_ascii_lowercase()
    };
    let schemes = match (scheme, other) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        (one, other) => one.is_none() && other.is_none(),
    };
    schemes && !authority.is_empty() && plain(authority) == plain(other_authority)
}

/// Returns the path so that its beginning can't be taken for a host (RFC 3986 4.2).
pub(super) fn unambiguous(path: String) -> String {
    match path.starts_with("//") {
        true => format!("/.{path}"),
        false => path,
    }
}

/// Whether a cookie with this domain is for this host (RFC 6265 5.1.3).
fn covers(domain: &str, host: &str) -> bool {
    let Some(start) = host.len().checked_sub(domain.len()) else {
        return false;
    };
    let is_end = host
        .get(start..)
        .is_some_and(|end| end.eq_ignore_ascii_case(domain));
    is_end && (start == 0 || host.as_bytes()[start - 1] == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Scheme;

    fn server() -> Server {
        Server {
            scheme: Scheme::Http,
            h2c: false,
            host: "origin.example".to_owned(),
            port: 9000,
            srv: false,
            unix: None,
            weight: 1,
            backup: false,
            down: false,
            max_connections: None,
        }
    }

    fn rewritten(map: Option<&PathMap>, host: &str, name: &str, value: &str) -> String {
        let names = Names {
            path: map,
            servers: &[server()],
            host,
            client: "cdn.example.net",
        };
        let mut fields: Fields = [("X-One", "1"), (name, value)].into_iter().collect();
        apply(&mut fields, &names);
        assert_eq!(fields.get("x-one"), Some(&b"1"[..]));
        assert_eq!(fields.len(), 2);
        let value = fields.get(name).expect("the header");
        String::from_utf8(value.to_vec()).expect("text")
    }

    #[test]
    fn urls_of_the_origin_become_paths_of_the_client() {
        let map = PathMap::new("/a/", "/base", false);
        let location =
            |value: &str| rewritten(Some(&map), "origin.example:9000", "Location", value);
        for (value, expected) in [
            ("http://origin.example:9000/base/x?y#z", "/a/x?y#z"),
            ("HTTP://Origin.Example:9000/base/", "/a/"),
            ("http://origin.example:9000/base", "/a"),
            ("//origin.example:9000/base/x", "/a/x"),
            ("/base/x?y", "/a/x?y"),
            ("/base//x", "/a//x"),
            // Paths that are not below the base have no URL for clients.
            (
                "http://origin.example:9000/other",
                "http://origin.example:9000/other",
            ),
            ("http://origin.example:9000", "http://origin.example:9000"),
            ("/other", "/other"),
            // Other schemes, ports and hosts are other resources.
            (
                "https://origin.example:9000/base/x",
                "https://origin.example:9000/base/x",
            ),
            (
                "http://origin.example/base/x",
                "http://origin.example/base/x",
            ),
            (
                "http://cdn.example.net/base/x",
                "http://cdn.example.net/base/x",
            ),
            ("x/y", "x/y"),
            ("?x", "?x"),
            ("/\\evil.example", "/\\evil.example"),
            ("mailto:a@b", "mailto:a@b"),
            ("", ""),
        ] {
            assert_eq!(location(value), expected, "{value}");
        }
        let content = rewritten(Some(&map), "o", "Content-Location", "/base/x");
        assert_eq!(content, "/a/x");
    }

    #[test]
    fn a_path_never_becomes_a_host() {
        let root = PathMap::new("/a/", "/", false);
        let map = PathMap::new("/", "/base", false);
        for (map, value, expected) in [
            (
                None,
                "http://origin.example:9000//evil.example/",
                "/.//evil.example/",
            ),
            (Some(&map), "/base//evil.example/", "/.//evil.example/"),
            (Some(&root), "/x", "/a/x"),
        ] {
            let location = rewritten(map, "o", "Location", value);
            assert_eq!(location, expected);
        }
    }

    #[test]
    fn an_origin_that_got_the_clients_host_names_the_client() {
        let map = PathMap::new("/a/", "/base", false);
        let location = |value: &str| rewritten(Some(&map), "cdn.example.net", "Location", value);
        for (value, expected) in [
            (
                "http://cdn.example.net/base/x",
                "http://cdn.example.net/a/x",
            ),
            // The client asked by http, so leading back to http would be a loop.
            (
                "https://cdn.example.net:443/base/x",
                "https://cdn.example.net:443/a/x",
            ),
            ("http://origin.example:9000/base/x", "/a/x"),
        ] {
            assert_eq!(location(value), expected);
        }
        let plain = rewritten(
            None,
            "cdn.example.net",
            "Location",
            "http://cdn.example.net/x",
        );
        assert_eq!(plain, "http://cdn.example.net/x");
    }

    #[test]
    fn urls_in_refresh_are_rewritten() {
        for (value, expected) in [
            ("5; url=http://origin.example:9000/x", "5; url=/x"),
            ("0;URL='http://origin.example:9000/x'", "0;URL='/x'"),
            (
                "0, url = \"http://origin.example:9000/x\" ",
                "0, url = \"/x\" ",
            ),
            ("5", "5"),
            (
                "5; url=http://other.example/",
                "5; url=http://other.example/",
            ),
            (
                "5; url='http://origin.example:9000/x",
                "5; url='http://origin.example:9000/x",
            ),
        ] {
            assert_eq!(rewritten(None, "o", "Refresh", value), expected);
        }
    }

    #[test]
    fn cookies_get_the_clients_path_and_domain() {
        let map = PathMap::new("/a/", "/base", false);
        let cookie = |value: &str| rewritten(Some(&map), "www.origin.example", "Set-Cookie", value);
        for (value, expected) in [
            (
                "a=/base/; Path=/base/x; HttpOnly",
                "a=/base/; Path=/a/x; HttpOnly",
            ),
            ("a=b; path=/base", "a=b; path=/a"),
            ("a=b;Path=/", "a=b;Path=/"),
            (
                "a=b; Domain=origin.example; Secure",
                "a=b; Domain=cdn.example.net; Secure",
            ),
            (
                "a=b; domain=.www.origin.example",
                "a=b; domain=cdn.example.net",
            ),
            ("a=b; Domain=example.net", "a=b; Domain=example.net"),
            ("a=b; Domain=other.example", "a=b; Domain=other.example"),
            ("a=b; Domain=", "a=b; Domain="),
            ("a", "a"),
        ] {
            assert_eq!(cookie(value), expected);
        }
        let names = Names {
            path: None,
            servers: &[server()],
            host: "o",
            client: "192.0.2.7:80",
        };
        let cookie = names.cookie("a=b; Domain=origin.example; Secure");
        assert_eq!(cookie.as_deref(), Some("a=b; Secure"));
        let v6 = Server {
            host: "::1".to_owned(),
            ..server()
        };
        let cookie = |client, host| {
            let names = Names {
                path: None,
                servers: std::slice::from_ref(&v6),
                host,
                client,
            };
            names.cookie("a=b; Domain=[::1]")
        };
        for host in ["[::1]:9000", "o"] {
            let rewritten = cookie("cdn.example.net", host);
            assert_eq!(rewritten.as_deref(), Some("a=b; Domain=cdn.example.net"));
            assert_eq!(cookie("[::1]:80", host), None);
            assert_eq!(cookie("[::2]:80", host).as_deref(), Some("a=b"));
        }
    }
}
