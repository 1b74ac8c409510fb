//! Maps the path of a request to the path of a file, without I/O.

use std::borrow::Cow;

/// The file path of a request, relative to the root.
#[derive(Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// Valid file names separated by single slashes; empty for the root.
    pub names: Cow<'a, [u8]>,
    /// Whether the path ends in a slash and so names a folder.
    pub is_folder: bool,
}

impl Located<'_> {
    /// Returns the normal spelling of this path: without empty segments, and with only the
    /// necessary escapes (RFC 3986 3.3). Routes match the spelling of paths. Under a second
    /// spelling, another route could match the path and serve the file without the rules of the
    /// file's own route.
    pub fn spelling(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let mut path = String::with_capacity(self.names.len() + 2);
        path.push('/');
        for byte in &*self.names {
            if *byte == b'/' || is_plain(*byte) {
                path.push(char::from(*byte));
            } else {
                path.push('%');
                path.push(char::from(DIGITS[usize::from(byte >> 4)]));
                path.push(char::from(DIGITS[usize::from(byte & 0xf)]));
            }
        }
        if self.is_folder && !self.names.is_empty() {
            path.push('/');
        }
        path
    }

    /// Whether the request's `path` has the normal spelling.
    pub fn is_spelled(&self, path: &str) -> bool {
        match &self.names {
            // Borrowed names are identical to the path's bytes.
            Cow::Borrowed(names) => names.iter().all(|b| *b == b'/' || is_plain(*b)),
            Cow::Owned(_) => self.spelling() == path,
        }
    }
}

/// Whether a byte needs no escape in a path: pchar of RFC 3986 3.3.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

/// Longest path in bytes: the kernel accepts none that is longer (PATH_MAX).
const LENGTH_MAX: usize = 4095;

/// Maps a path in the normal form of `http::target`. `hidden` permits names that begin with a dot;
/// names below `.well-known` (RFC 8615) are always permitted. Returns `None` if no file can have
/// such a name.
pub fn locate(path: &str, hidden: bool) -> Option<Located<'_>> {
    let path = path.as_bytes();
    let rest = path.strip_prefix(b"/")?;
    if rest.len() > LENGTH_MAX {
        return None;
    }
    let is_plain = memchr::memchr(b'%', rest).is_none()
        && memchr::memmem::find(path, b"//").is_none()
        && memchr::memmem::find(path, b"/.").is_none();
    if is_plain {
        let names = rest.strip_suffix(b"/").unwrap_or(rest);
        return Some(Located {
            names: Cow::Borrowed(names),
            is_folder: names.len() < rest.len() || rest.is_empty(),
        });
    }
    let mut names = Vec::with_capacity(rest.len());
    for name in rest.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        if !names.is_empty() {
            names.push(b'/');
        }
        let begin = names.len();
        decode(name, &mut names)?;
        if !is_name(&names[begin..], hidden, begin == 0) {
            return None;
        }
    }
    Some(Located {
        names: Cow::Owned(names),
        is_folder: rest.is_empty() || rest.ends_with(b"/"),
    })
}

/// Whether the name is a valid file name that may be requested.
fn is_name(name: &[u8], hidden: bool, first: bool) -> bool {
    let dotted = match name {
        b"." | b".." => return false,
        [b'.', ..] => hidden || (first && name == b".well-known"),
        _ => true,
    };
    // A slash or backslash in a name was escaped in the request; no file name contains one.
    dotted && !name.iter().any(|b| *b < b' ' || b"/\\\x7f".contains(b))
}

/// Decodes percent-escapes (RFC 3986 2.1).
fn decode(name: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = name;
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let digits = std::str::from_utf8(rest.get(at + 1..at + 3)?).ok()?;
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        out.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(path: &str) -> Option<(String, bool)> {
        let located = locate(path, false)?;
        let names = String::from_utf8(located.names.into_owned()).ok()?;
        Some((names, located.is_folder))
    }

    #[test]
    fn names_are_decoded_and_never_lead_out() {
        for (path, expected, is_folder) in [
            ("/", "", true),
            ("//", "", true),
            ("/a", "a", false),
            ("/a/b.c", "a/b.c", false),
            ("/a/", "a", true),
            ("//a///b//", "a/b", true),
            ("/a%20b/c%C3%A4", "a b/cä", false),
            ("/.well-known/acme/x", ".well-known/acme/x", false),
        ] {
            let expected = (expected.to_owned(), is_folder);
            assert_eq!(names(path), Some(expected), "{path}");
        }
        for refused in [
            "",
            "a",
            "*",
            "/..",
            "/a/..",
            "/../a",
            "/.",
            "/%2e%2e/a",
            "/a/%2E%2E",
            "/a...b/..c.",
            "/a%2Fb",
            "/a%5Cb",
            "/a%5c..%5cb",
            "/a%00b",
            "/a%0Ab",
            "/a%7F",
            "/a%",
            "/a%2",
            "/a%+1",
            "/a%zz",
            "/.git/config",
            "/a/.htaccess",
            "/a/.well-known/x",
            "/.well-known/.x",
        ] {
            assert_eq!(names(refused), None, "{refused}");
        }
        assert_eq!(names(&format!("/{}", "a".repeat(5000))), None);
        let hidden = locate("/.git/config", true).map(|l| l.names.into_owned());
        assert_eq!(hidden.as_deref(), Some(&b".git/config"[..]));
        assert_eq!(locate("/a/..", true), None);
    }

    #[test]
    fn each_path_has_one_spelling() {
        for (path, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("//a//b", "/a/b"),
            ("/a//", "/a/"),
            ("/%40admin/x", "/@admin/x"),
            ("/@admin/x", "/@admin/x"),
            ("/a%20b/%C3%A4", "/a%20b/%C3%A4"),
            ("/a{b", "/a%7Bb"),
            ("/a%7Bb", "/a%7Bb"),
            ("/a%25b", "/a%25b"),
            ("/a%3Fb", "/a%3Fb"),
            ("//.well-known/x", "/.well-known/x"),
        ] {
            let located = locate(path, false).expect("a path");
            assert_eq!(located.spelling(), expected, "{path}");
            assert_eq!(located.is_spelled(path), path == expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn only_the_normal_spelling_is_accepted(path in "(/|%[2347][0-9A-F]|[.a%{@0-9])*") {
            let path = format!("/{path}");
            if let Some(located) = locate(&path, true) {
                let spelling = located.spelling();
                prop_assert_eq!(located.is_spelled(&path), spelling == path);
                prop_assert!(!spelling.starts_with("//"));
                let again = locate(&spelling, true);
                prop_assert!(again.as_ref().is_some_and(|again| again.is_spelled(&spelling)));
                prop_assert_eq!(again, Some(located));
            }
        }

        #[test]
        fn every_path_stays_below_the_root(path in "(/|%2[eEfF]|%5c|[.a%0-9])*") {
            for hidden in [false, true] {
                if let Some(located) = locate(&format!("/{path}"), hidden) {
                    for name in located.names.split(|b| *b == b'/') {
                        prop_assert!(![&b"."[..], b".."].contains(&name));
                        prop_assert!(!name.contains(&b'\\') && !name.contains(&0));
                        prop_assert!(!name.is_empty() || located.names.is_empty());
                    }
                    prop_assert!(!located.names.starts_with(b"/"));
                }
            }
        }
    }
}
