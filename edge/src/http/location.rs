//! Resolves Location and Content-Location to the resources that an unsafe request has invalidated
//! (RFC 9111 4.4, RFC 3986 5).

use super::key::without_default_port;
use super::{Method, Scheme, target};

/// Longer references are ignored.
pub(super) const BYTES_MAX: usize = 8 << 10;

/// The base of a reference: the target of the request.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// The request's scheme.
    pub scheme: Scheme,
    /// Host and optional port in lower case; empty if the request has no host.
    pub authority: &'a str,
    /// Path and query in normal form.
    pub target: &'a str,
}

/// Resolves a reference to path and query on the base's own origin, in the normal form of request
/// targets. Returns `None` for another scheme, host or port, because a response must not invalidate
/// those (RFC 9111 4.4), and for anything that can't be a request target.
pub fn same_host_target(base: Base<'_>, reference: &[u8]) -> Option<(String, Option<String>)> {
    let reference = reference.trim_ascii();
    if reference.len() > BYTES_MAX {
        return None;
    }
    let fragment = memchr::memchr(b'#', reference).unwrap_or(reference.len());
    let path_and_query = own_part(base, &reference[..fragment])?;
    let (base_path, base_query) = split_query(base.target.as_bytes());
    let (path, query) = split_query(path_and_query);
    let (path, query) = match (path, query) {
        (b"", None) if path_and_query.len() < fragment => (b"/".to_vec(), None),
        (b"", None) => (base_path.to_vec(), base_query),
        (b"", query) if path_and_query.len() < fragment => (b"/".to_vec(), query),
        (b"", query) => (base_path.to_vec(), query),
        ([b'/', ..], query) => (path.to_vec(), query),
        (path, query) => {
            let folder = memchr::memrchr(b'/', base_path).map_or(0, |slash| slash + 1);
            ([&base_path[..folder], path].concat(), query)
        }
    };
    let mut raw = without_dots(&path);
    if let Some(query) = query {
        raw.push(b'?');
        raw.extend_from_slice(query);
    }
    let mut text = String::with_capacity(raw.len());
    match target::canonical(&Method::Get, &raw, &mut text) {
        Ok(target::Form::Origin) => {}
        _ => return None,
    }
    Some(match text.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (text, None),
    })
}

/// Returns the path and query of a reference whose scheme and authority are absent or equal to the
/// base's; otherwise `None`.
fn own_part<'a>(base: Base<'_>, reference: &'a [u8]) -> Option<&'a [u8]> {
    let end = reference.iter().position(|b| b":/?".contains(b));
    let rest = match end.filter(|&end| reference[end] == b':') {
        Some(colon) => {
            let own = reference[..colon].eq_ignore_ascii_case(base.scheme.as_str().as_bytes());
            let rest = &reference[colon + 1..];
            // A reference with a scheme but without an authority can't be a request target.
            return (own && rest.starts_with(b"//"))
                .then(|| after_authority(base, rest))
                .flatten();
        }
        None => reference,
    };
    match rest.starts_with(b"//") {
        true => after_authority(base, rest),
        false => Some(rest),
    }
}

/// Returns the text after `//` and an authority that equals the base's; `None` for another
/// authority.
fn after_authority<'a>(base: Base<'_>, reference: &'a [u8]) -> Option<&'a [u8]> {
    let rest = &reference[2..];
    let end = rest.iter().position(|b| b"/?".contains(b));
    let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let mut host = String::new();
    target::host(authority, &mut host).ok()?;
    let same = without_default_port(base.scheme, &host)
        == without_default_port(base.scheme, base.authority);
    (same && !host.is_empty()).then_some(rest)
}

pub(super) fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// Applies remove_dot_segments (RFC 3986 5.2.4) to an absolute path. Surplus `..` segments lead to
/// the root here, while a request target with surplus `..` segments is refused.
pub(super) fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut segments = path
        .get(1..)
        .unwrap_or_default()
        .split(|&b| b == b'/')
        .peekable();
    while let Some(segment) = segments.next() {
        let dots = matches!(segment, b"." | b"..");
        if segment == b".." {
            let parent = memchr::memrchr(b'/', &out).unwrap_or(0);
            out.truncate(parent);
        }
        if !dots || segments.peek().is_none() {
            out.push(b'/');
        }
        if !dots {
            out.extend_from_slice(segment);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolved(target: &str, reference: &str) -> Option<String> {
        let base = Base {
            scheme: Scheme::Http,
            authority: "a.example",
            target,
        };
        let (path, query) = same_host_target(base, reference.as_bytes())?;
        Some(match query {
            Some(query) => format!("{path}?{query}"),
            None => path,
        })
    }

    #[test]
    fn references_are_resolved_as_in_rfc_3986() {
        for (reference, expected) in [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("g?y#s", "/b/c/g?y"),
            (";x", "/b/c/;x"),
            ("", "/b/c/d;p?q"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("/../g", "/g"),
            ("/./g", "/g"),
            ("g.", "/b/c/g."),
            ("..g", "/b/c/..g"),
            ("./g/.", "/b/c/g/"),
            ("g/../h", "/b/c/h"),
            ("g;x=1/../y", "/b/c/y"),
            ("g?y/../x", "/b/c/g?y/../x"),
        ] {
            assert_eq!(
                resolved("/b/c/d;p?q", reference).as_deref(),
                Some(expected),
                "{reference}"
            );
        }
    }

    #[test]
    fn references_get_the_spelling_of_request_targets() {
        for (reference, expected) in [
            (" /x ", "/x"),
            ("/%7euser/%c3%a9", "/~user/%C3%A9"),
            ("/a/%2e%2E/b", "/b"),
            ("/a?%41&b=%2f", "/a?%41&b=%2f"),
            ("/a?", "/a?"),
            ("/.//x", "//x"),
            ("/a/..//x", "//x"),
        ] {
            assert_eq!(
                resolved("/", reference).as_deref(),
                Some(expected),
                "{reference}"
            );
        }
    }

    #[test]
    fn references_to_other_origins_are_ignored() {
        for (reference, expected) in [
            ("http://a.example", "/"),
            ("HTTP://A.Example:80/x?y#z", "/x?y"),
            ("http://a.example:?y", "/?y"),
            ("http://a.example/../x", "/x"),
            ("//a.example/x", "/x"),
            ("//a.example", "/"),
            ("x/y:z", "/x/y:z"),
            ("./x:y", "/x:y"),
        ] {
            assert_eq!(
                resolved("/b?q", reference).as_deref(),
                Some(expected),
                "{reference}"
            );
        }
        for reference in [
            "https://a.example/x",
            "http://b.example/x",
            "http://a.example:8080/x",
            "http://u@a.example/x",
            "http://a.example@b.example/",
            "http://a.example.b/x",
            "//b.example/x",
            "//",
            "///x",
            "http:///x",
            "http:/x",
            "http:x",
            "ftp://a.example/x",
            "javascript:x",
            "x:y",
            "/\\b.example/x",
            "\\\\b.example",
            "http:\\\\a.example/x",
            "/a b",
            "/\u{e9}",
            "/%",
            "/%00",
            "/x/..%2fy",
            "/%2e%2e/y",
        ] {
            assert_eq!(resolved("/b?q", reference), None, "{reference}");
        }
        let nameless = Base {
            scheme: Scheme::Http,
            authority: "",
            target: "/",
        };
        assert_eq!(same_host_target(nameless, b"http://a/x"), None);
        assert_eq!(same_host_target(nameless, b"///x"), None);
        assert!(same_host_target(nameless, b"/x").is_some());
        let long = "/".repeat(BYTES_MAX + 1);
        assert_eq!(resolved("/", &long), None);
    }

    proptest! {
        #[test]
        fn a_resolved_reference_is_canonical(reference in "[ab./?#:%2eE]{0,16}|http://a\\.example[/.?a]{0,8}") {
            if let Some(text) = resolved("/b/c?q", &reference) {
                prop_assert_eq!(resolved("/", &text.replacen("//", "/.//", usize::from(text.starts_with("//")))), Some(text.clone()));
                let mut again = String::new();
                prop_assert!(target::canonical(&Method::Get, text.as_bytes(), &mut again).is_ok());
                prop_assert_eq!(again, text);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(reference in prop::collection::vec(any::<u8>(), 0..40)) {
            let base = Base { scheme: Scheme::Https, authority: "a", target: "/x?y" };
            let _ = same_host_target(base, &reference);
        }
    }
}
