//! Resolves the reference of a redirect to the URL that it names (RFC 9110 10.2.2, RFC 3986 5).

use super::key::without_default_port;
use super::location::{BYTES_MAX, Base, split_query, without_dots};
use super::{Method, Scheme, target};

/// The URL that a reference names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The scheme.
    pub scheme: Scheme,
    /// Host in lower case, and the port if it is not the scheme's default.
    pub authority: String,
    /// Path and query, percent-encoded as in the reference, because signatures of URLs may cover
    /// that; without dot segments.
    pub target: String,
}

/// Resolves a reference. Returns `None` for anything that can't be the URL of a request: another
/// scheme than http and https, user information, port 0, bytes that a URI can't contain, or more
/// than 8 KiB.
pub fn resolve(base: Base<'_>, reference: &[u8]) -> Option<Resolved> {
    let reference = reference.trim_ascii();
    if reference.len() > BYTES_MAX || !reference.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let fragment = memchr::memchr(b'#', reference).unwrap_or(reference.len());
    let reference = &reference[..fragment];
    let (scheme, rest) = scheme_of(base, reference)?;
    let (authority, raw) = match rest.strip_prefix(b"//") {
        Some(rest) => {
            let end = rest.iter().position(|b| b"/?".contains(b));
            let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
            (host(scheme, authority)?, absolute(rest))
        }
        None => (base.authority.to_owned(), relative(base, rest)),
    };
    // The canonical form is only a check: it fails for targets that can be read in two ways.
    let mut canonical = String::new();
    match target::canonical(&Method::Get, &raw, &mut canonical) {
        Ok(target::Form::Origin) => {}
        _ => return None,
    }
    Some(Resolved {
        scheme,
        authority,
        target: String::from_utf8(raw).ok()?,
    })
}

/// Splits a reference into its scheme, or that of the base, and the rest.
fn scheme_of<'a>(base: Base<'_>, reference: &'a [u8]) -> Option<(Scheme, &'a [u8])> {
    let end = reference.iter().position(|b| b":/?".contains(b));
    let Some(colon) = end.filter(|&end| reference[end] == b':') else {
        return Some((base.scheme, reference));
    };
    let (name, rest) = (&reference[..colon], &reference[colon + 1..]);
    let is = |scheme: &Scheme| name.eq_ignore_ascii_case(scheme.as_str().as_bytes());
    let scheme = [Scheme::Http, Scheme::Https].into_iter().find(is)?;
    // Clients disagree about `http:path` (RFC 3986 5.4.2).
    rest.starts_with(b"//").then_some((scheme, rest))
}

/// Returns an authority in the form of `Resolved::authority`.
fn host(scheme: Scheme, raw: &[u8]) -> Option<String> {
    let mut authority = String::new();
    target::host(raw, &mut authority).ok()?;
    let length = without_default_port(scheme, &authority).len();
    authority.truncate(length);
    (!authority.is_empty() && !authority.ends_with(":0")).then_some(authority)
}

/// Returns path and query after an authority.
fn absolute(rest: &[u8]) -> Vec<u8> {
    let (path, query) = split_query(rest);
    match path {
        b"" => with_query(b"/".to_vec(), query),
        path => with_query(without_dots(path), query),
    }
}

/// Returns path and query of a reference without an authority (RFC 3986 5.2.2).
fn relative(base: Base<'_>, reference: &[u8]) -> Vec<u8> {
    let (base_path, base_query) = split_query(base.target.as_bytes());
    match split_query(reference) {
        (b"", None) => with_query(base_path.to_vec(), base_query),
        (b"", query) => with_query(base_path.to_vec(), query),
        (path @ [b'/', ..], query) => with_query(without_dots(path), query),
        (path, query) => {
            let folder = memchr::memrchr(b'/', base_path).map_or(0, |slash| slash + 1);
            let merged = [&base_path[..folder], path].concat();
            with_query(without_dots(&merged), query)
        }
    }
}

fn with_query(mut path: Vec<u8>, query: Option<&[u8]>) -> Vec<u8> {
    if let Some(query) = query {
        path.push(b'?');
        path.extend_from_slice(query);
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolved(target: &str, reference: &[u8]) -> Option<String> {
        let base = Base {
            scheme: Scheme::Http,
            authority: "a.example",
            target,
        };
        let url = resolve(base, reference)?;
        let scheme = url.scheme.as_str();
        Some(format!("{scheme}://{}{}", url.authority, url.target))
    }

    #[test]
    fn references_are_resolved_against_the_request() {
        for (reference, expected) in [
            // RFC 3986 5.4.1.
            ("g", "http://a.example/b/c/g"),
            ("./g", "http://a.example/b/c/g"),
            ("g/", "http://a.example/b/c/g/"),
            ("/g", "http://a.example/g"),
            ("//g", "http://g/"),
            ("?y", "http://a.example/b/c/d;p?y"),
            ("g?y", "http://a.example/b/c/g?y"),
            ("#s", "http://a.example/b/c/d;p?q"),
            ("g#s", "http://a.example/b/c/g"),
            ("g?y#s", "http://a.example/b/c/g?y"),
            ("", "http://a.example/b/c/d;p?q"),
            (".", "http://a.example/b/c/"),
            ("..", "http://a.example/b/"),
            ("../g", "http://a.example/b/g"),
            ("../..", "http://a.example/"),
            ("../../../g", "http://a.example/g"),
            ("g?y/../x", "http://a.example/b/c/g?y/../x"),
            // Other hosts and schemes.
            ("https://b.example", "https://b.example/"),
            ("HTTPS://B.Example:443/x?y#z", "https://b.example/x?y"),
            ("http://b.example:0443?y", "http://b.example:443/?y"),
            ("http://b.example./x", "http://b.example/x"),
            ("//b.example:8080/x", "http://b.example:8080/x"),
            ("http://[::1]:81/x", "http://[::1]:81/x"),
            ("http://169.254.169.254/x", "http://169.254.169.254/x"),
            ("https://b.example/../x/./y", "https://b.example/x/y"),
            // The spelling of path and query stays.
            (
                "https://b.example/%7ea%2fb?X=%2F%7e",
                "https://b.example/%7ea%2fb?X=%2F%7e",
            ),
            (" /x ", "http://a.example/x"),
        ] {
            let url = resolved("/b/c/d;p?q", reference.as_bytes());
            assert_eq!(url.as_deref(), Some(expected), "{reference}");
        }
    }

    #[test]
    fn references_that_are_no_url_of_a_request_are_refused() {
        for reference in [
            "ftp://b.example/",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "gopher://b.example/",
            "http:x",
            "http:/x",
            "http://",
            "http:///x",
            "//",
            "///x",
            "http://u@b.example/",
            "http://u:p@b.example/",
            "http://a.example@b.example/",
            "http://a.example:80@b.example/",
            "http://b.example:0/",
            "http://b.example:00/",
            "http://b.example:65536/",
            "http://b.example:x/",
            "http://[::1/",
            "http://[fe80::1%25eth0]/",
            "http://b.example\\@a.example/",
            "/\\b.example",
            "\\\\b.example",
            "/a b",
            "/a\tb",
            "/a\r\nHost: b",
            "/\u{0}",
            "/\u{7f}",
            "/\u{e9}",
            "/%",
            "/%0",
            "/%00",
        ] {
            assert_eq!(resolved("/b?q", reference.as_bytes()), None, "{reference}");
        }
        let long = [b"/".as_slice(), &vec![b'a'; BYTES_MAX]].concat();
        assert_eq!(resolved("/", &long), None);
        assert!(resolved("/", &long[1..]).is_some());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(reference in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(url) = resolved("/x?y", &reference) {
                prop_assert!(url.bytes().all(|b| b.is_ascii_graphic() && b != b'\\' && b != b'#'));
            }
        }

        #[test]
        fn a_resolved_url_resolves_to_itself(
            reference in "(https?:)?(//[a-c:0-9.]{0,8})?[ab./?#:%2eE]{0,16}"
        ) {
            if let Some(url) = resolved("/b/c?q", reference.as_bytes()) {
                prop_assert_eq!(resolved("/", url.as_bytes()), Some(url));
            }
        }
    }
}
