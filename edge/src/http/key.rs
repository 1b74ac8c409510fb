//! Cache keys (RFC 9111 2): the primary key identifies a resource, the variant key a variant of it.

mod rules;

use std::fmt;

use smallvec::SmallVec;

use super::Scheme;

pub use rules::KeyRules;

/// Keys of up to this many bytes are assembled on the stack.
const STACK_BYTES: usize = 512;

type Text = SmallVec<[u8; STACK_BYTES]>;

/// The primary key of a resource as a 128-bit hash. The method is not part of the key, because HEAD
/// and GET share stored responses (RFC 9110 9.3.2).
///
/// The hash is truncated BLAKE3, so nobody can construct two keys with the same hash, and the hash
/// can replace the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub u128);

impl KeyHash {
    /// Hashes the key with these parts, without allocating for keys of usual length.
    pub fn of(scheme: Scheme, authority: &str, path: &str, query: Option<&str>) -> KeyHash {
        KeyHash::of_bytes(&complete(scheme, authority, path, query))
    }

    /// Returns the hash of the variant of this resource that `selecting`, the output of
    /// `vary::select`, identifies. If `selecting` is empty (no Vary), the result is the primary
    /// key's hash.
    pub fn variant(self, selecting: &[u8]) -> KeyHash {
        if selecting.is_empty() {
            return self;
        }
        let mut text = Text::new();
        text.extend_from_slice(&self.0.to_le_bytes());
        text.extend_from_slice(selecting);
        // No primary key ends with this byte, so a variant's text never equals a primary key's
        // text.
        text.push(VARIANT);
        KeyHash::of_bytes(&text)
    }

    /// Hashes any bytes.
    pub fn of_bytes(bytes: &[u8]) -> KeyHash {
        let hash = blake3::hash(bytes);
        let mut half = [0; 16];
        half.copy_from_slice(&hash.as_bytes()[..16]);
        KeyHash(u128::from_le_bytes(half))
    }

    /// Returns the lower half of the hash, for tables, shards and fingerprints.
    pub fn low(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A primary key: scheme, authority, path, query and the additions of `KeyRules`, encoded as one
/// text.
///
/// The text begins with the URL parts: scheme and host flags (one byte), length of the authority
/// (four bytes, little-endian), authority, length of the path, path, and then 0 for no query, or 1,
/// length of the query and the query. The encoding of each added header, cookie or literal follows:
/// its kind (one byte), length of its name or of the literal, name or literal, and then 0, or 1,
/// length of the value and the value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    text: Box<[u8]>,
}

/// The parts of a key that come from the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The scheme; `None` if the key covers all schemes.
    pub scheme: Option<Scheme>,
    /// Host and port in lower case, without the scheme's default port; `None` if the key covers all
    /// hosts.
    pub authority: Option<&'a str>,
    /// The path.
    pub path: &'a str,
    /// The query; `None` differs from an empty query.
    pub query: Option<&'a str>,
}

/// Parts of the URL that the configured template leaves out of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Omitted {
    scheme: bool,
    host: bool,
    query: bool,
}

impl Key {
    /// Builds the key with these parts.
    pub fn new(scheme: Scheme, authority: &str, path: &str, query: Option<&str>) -> Key {
        Key {
            text: complete(scheme, authority, path, query).into_boxed_slice(),
        }
    }

    /// Returns the key with this text; `None` if the text is not a key's.
    pub fn of(text: &[u8]) -> Option<Key> {
        parts_of(text).map(|_| Key { text: text.into() })
    }

    /// Returns the hash of the key.
    #[cfg(any(test, feature = "test-rigs"))]
    pub fn hash(&self) -> KeyHash {
        KeyHash::of_bytes(&self.text)
    }

    /// Returns the text of the key. Two keys with the same text have the same parts.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the parts of the key that come from the URL.
    pub fn parts(&self) -> Parts<'_> {
        self.split().0
    }

    /// Returns the URL parts, and the encoded headers, cookies and literals after them.
    fn split(&self) -> (Parts<'_>, &[u8]) {
        // A key's text was assembled from parts, so parsing succeeds.
        parts_of(&self.text).unwrap_or((NO_PARTS, &[]))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, mut extras) = self.split();
        let scheme = parts.scheme.map_or("*", Scheme::as_str);
        let authority = parts.authority.unwrap_or("*");
        write!(f, "{scheme}://{authority}{}", parts.path)?;
        if let Some(query) = parts.query {
            write!(f, "?{query}")?;
        }
        while let Some(((name, value), rest)) = split_extra(extras) {
            write!(f, " {name}")?;
            if let Some(value) = value {
                write!(f, "={}", value.escape_ascii())?;
            }
            extras = rest;
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'a> Parts<'a> {
    /// Returns the parts of the key with this text; `None` if the text is not a key's.
    pub fn of(text: &'a [u8]) -> Option<Parts<'a>> {
        parts_of(text).map(|(parts, _)| parts)
    }
}

/// Returns the hash of only the URL parts of the key with this hash and text. All keys that differ
/// only in headers, cookies and literals have the same result. For a key without headers, cookies
/// and literals the result is the key's own hash.
pub fn resource_with(hash: KeyHash, text: &[u8]) -> KeyHash {
    match parts_of(text) {
        Some((_, extras)) if !extras.is_empty() => {
            KeyHash::of_bytes(&text[..text.len() - extras.len()])
        }
        _ => hash,
    }
}

/// Normalises a host as keys contain it: in lower case, without the default port. Without a scheme,
/// the default ports of both schemes are removed.
pub fn normal_host(scheme: Option<Scheme>, authority: &str) -> String {
    let normal = |authority, scheme| without_default_port(scheme, authority);
    let host = match scheme {
        Some(scheme) => normal(authority, scheme),
        None => [Scheme::Http, Scheme::Https]
            .into_iter()
            .fold(authority, normal),
    };
    host.to_ascii_lowercase()
}

/// Values and flags of the first byte of a key's text.
const HTTP: u8 = 0;
const HTTPS: u8 = 1;
const ANY_SCHEME: u8 = 2;
const ANY_HOST: u8 = 4;
/// Last byte of a variant's text.
const VARIANT: u8 = 0xff;

/// Kinds of additions in a key's text.
const HEADER: u8 = 1;
const COOKIE: u8 = 2;
const LITERAL: u8 = 3;

const NO_PARTS: Parts<'static> = Parts {
    scheme: None,
    authority: None,
    path: "",
    query: None,
};

/// Returns the text of a key that leaves nothing of the URL out, and adds nothing.
fn complete(scheme: Scheme, authority: &str, path: &str, query: Option<&str>) -> Text {
    let mut text = Text::new();
    render(
        &mut text,
        Omitted::default(),
        scheme,
        authority,
        path,
        query,
    );
    text
}

#[inline]
fn render(
    out: &mut Text,
    omitted: Omitted,
    scheme: Scheme,
    authority: &str,
    path: &str,
    query: Option<&str>,
) {
    let authority = match omitted.host {
        true => "",
        false => without_default_port(scheme, authority),
    };
    let scheme = match scheme {
        _ if omitted.scheme => ANY_SCHEME,
        Scheme::Http => HTTP,
        Scheme::Https => HTTPS,
    };
    out.push(scheme | if omitted.host { ANY_HOST } else { 0 });
    append_delimited(out, authority.as_bytes());
    let end = out.len();
    out[end - authority.len()..].make_ascii_lowercase();
    append_delimited(out, path.as_bytes());
    append_optional(out, query.map(str::as_bytes));
}

fn append_delimited(out: &mut Text, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn append_optional(out: &mut Text, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        append_delimited(out, bytes);
    }
}

fn append_extra(out: &mut Text, kind: u8, name: &str, value: Option<&[u8]>) {
    out.push(kind);
    append_delimited(out, name.as_bytes());
    append_optional(out, value);
}

/// Returns the authority without `:80` for http, `:443` for https, or an empty port (RFC 9110
/// 4.2.3).
#[inline]
pub fn without_default_port(scheme: Scheme, authority: &str) -> &str {
    let port = match scheme {
        Scheme::Http => "80",
        Scheme::Https => "443",
    };
    // In `[::80]` the last colon belongs to the address. The text after it, `80]`, is no port.
    let before = match authority.strip_suffix(port) {
        Some(before) => before.trim_end_matches('0'),
        None => authority,
    };
    before.strip_suffix(':').unwrap_or(authority)
}

/// Splits a key's text into its URL parts and the encoded headers, cookies and literals after them.
fn parts_of(text: &[u8]) -> Option<(Parts<'_>, &[u8])> {
    let (&first, rest) = text.split_first()?;
    let scheme = match first & !ANY_HOST {
        HTTP => Some(Scheme::Http),
        HTTPS => Some(Scheme::Https),
        ANY_SCHEME => None,
        _ => return None,
    };
    let (authority, rest) = split_text(rest)?;
    let authority = match (first & ANY_HOST, authority) {
        (0, authority) => Some(authority),
        (_, "") => None,
        _ => return None,
    };
    let (path, rest) = split_text(rest)?;
    let (query, rest) = split_optional(rest)?;
    let query = query.map(std::str::from_utf8).transpose().ok()?;
    let parts = Parts {
        scheme,
        authority,
        path,
        query,
    };
    Some((parts, rest))
}

/// Name and value of the first header, cookie or literal in the encoded additions, and the rest of
/// the text.
type Extra<'a> = ((&'a str, Option<&'a [u8]>), &'a [u8]);

fn split_extra(bytes: &[u8]) -> Option<Extra<'_>> {
    let (HEADER..=LITERAL, rest) = bytes.split_first()? else {
        return None;
    };
    let (name, rest) = split_text(rest)?;
    let (value, rest) = split_optional(rest)?;
    Some(((name, value), rest))
}

fn split_optional(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    match bytes.split_first()? {
        (0, rest) => Some((None, rest)),
        (1, rest) => split_delimited(rest).map(|(text, rest)| (Some(text), rest)),
        _ => None,
    }
}

fn split_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (text, rest) = split_delimited(bytes)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

fn split_delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(scheme: Scheme, authority: &str, target: &str) -> Key {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let key = Key::new(scheme, authority, path, query);
        assert_eq!(key.hash(), KeyHash::of(scheme, authority, path, query));
        key
    }

    #[test]
    fn the_same_resource_has_one_key() {
        let plain = key(Scheme::Http, "example.com", "/a?b");
        for authority in [
            "EXAMPLE.com",
            "example.com:80",
            "example.com:",
            "example.com:0080",
        ] {
            assert_eq!(key(Scheme::Http, authority, "/a?b"), plain, "{authority}");
        }
        let v6 = key(Scheme::Https, "[::443]:443", "/");
        assert_eq!(v6.parts().authority, Some("[::443]"));
        assert_eq!(v6, key(Scheme::Https, "[::443]", "/"));
    }

    #[test]
    fn different_resources_have_different_keys() {
        let keys = [
            key(Scheme::Http, "a", "/b"),
            key(Scheme::Https, "a", "/b"),
            key(Scheme::Http, "a:443", "/b"),
            key(Scheme::Http, "a:99999", "/b"),
            key(Scheme::Http, "a:8080", "/b"),
            key(Scheme::Http, "a", "/B"),
            key(Scheme::Http, "a", "/b?"),
            key(Scheme::Http, "a", "/b?c"),
            key(Scheme::Http, "a", "/%62"),
            key(Scheme::Http, "", "/b"),
        ];
        for (i, one) in keys.iter().enumerate() {
            for other in &keys[i + 1..] {
                assert!(one != other && one.hash() != other.hash(), "{one} {other}");
            }
        }
        assert_eq!(keys[7].to_string(), "http://a/b?c");
    }

    #[test]
    fn variants_differ_from_each_other_and_from_the_key() {
        let primary = KeyHash::of(Scheme::Http, "a", "/", None);
        let other = KeyHash::of(Scheme::Http, "b", "/", None);
        assert_eq!(primary.variant(b""), primary);
        assert_ne!(primary.variant(b"x"), primary);
        assert_ne!(primary.variant(b"x"), primary.variant(b"y"));
        assert_ne!(primary.variant(b"x"), other.variant(b"x"));
        assert_eq!(primary.to_string().len(), 32);
        assert_eq!(u128::from(primary.low()), primary.0 & u128::from(u64::MAX));
    }

    #[test]
    fn only_texts_of_keys_are_accepted() {
        let long = format!("/{}", "x".repeat(2 * STACK_BYTES));
        let key = key(Scheme::Http, "a", &long);
        assert_eq!(Parts::of(key.text()), Some(key.parts()));
        for cut in 0..key.text().len() - long.len() {
            assert_eq!(Parts::of(&key.text()[..cut]), None);
        }
        assert_eq!(Parts::of(b"\x03\0\0\0\0\0\0\0\0\0"), None);
        assert_eq!(Parts::of(b"\0\xff\xff\xff\xff"), None);
    }

    fn parts() -> impl Strategy<Value = (bool, String, String, Option<String>)> {
        let part = || "[a\\x00\\x01:/?]{0,4}";
        (any::<bool>(), part(), part(), prop::option::of(part()))
    }

    proptest! {
        #[test]
        fn different_parts_never_give_the_same_text(one in parts(), other in parts()) {
            let make = |(secure, authority, path, query): &(bool, String, String, Option<String>)| {
                let scheme = if *secure { Scheme::Https } else { Scheme::Http };
                Key::new(scheme, authority, path, query.as_deref())
            };
            let (a, b) = (make(&one), make(&other));
            prop_assert_eq!(a.parts() == b.parts(), a.text() == b.text());
            prop_assert_eq!(a.parts() == b.parts(), a.hash() == b.hash());
            prop_assert_eq!(a.parts().path, &one.2);
            prop_assert_eq!(a.parts().query, one.3.as_deref());
            let (shown, given) = (a.parts().authority, one.1.as_str());
            prop_assert!(shown == Some(given) || given.strip_suffix(':') == shown);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let hash = KeyHash::of_bytes(&bytes);
            resource_with(hash, &bytes);
            let shown = Key { text: bytes.into() }.to_string();
            prop_assert!(!shown.is_empty());
        }
    }
}
