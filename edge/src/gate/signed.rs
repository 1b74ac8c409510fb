//! Signed URLs: the format of signatures, their place in a URL's query, and their check.
//!
//! A signature is HMAC-SHA256 (RFC 2104) over three lines, without a newline after the last:
//!
//! ```text
//! 1767225600                      expiry, Unix time in seconds
//! /videos/1/film.mp4?lang=de      path and query without the signature's parameters
//! 192.0.2.7                       the client's address, or nothing if any client may use the URL
//! ```
//!
//! A signature for all paths with a common prefix has `prefix /videos/1/` as its second line.
//! Because a path begins with a slash, the two kinds can't be confused.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::reason::Reason;

/// Smallest key in bytes.
pub const KEY_BYTES_MIN: usize = 16;
/// Largest key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Largest number of digits of an expiry.
const DIGITS_MAX: usize = 12;
/// Longest prefix in bytes, as encoded in the query.
const PREFIX_BYTES_MAX: usize = 2048;
/// Bytes of a signature (SHA-256, FIPS 180-4).
const SIGNATURE_BYTES: usize = 32;

/// Options of `[site.route.signed_urls]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Keys given in the configuration. A signature made with any of the keys is accepted.
    pub keys: Vec<Secret>,
    /// Files that contain one more accepted key each.
    pub key_files: Vec<PathBuf>,
    /// Whether a signature is valid only for the client address that it was made for.
    pub client: bool,
    /// Whether a signature may cover all paths with a common prefix.
    pub prefix: bool,
    /// Names of the query parameters.
    pub names: Names,
}

/// Names of the signature's query parameters, all different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Name of the query parameter that contains the expiry.
    pub expires: Box<str>,
    /// Name of the query parameter that contains the signature.
    pub signature: Box<str>,
    /// Name of the query parameter that contains the common prefix of the signed paths.
    pub prefix: Box<str>,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            expires: "expires".into(),
            signature: "signature".into(),
            prefix: "prefix".into(),
        }
    }
}

/// A signing key as configured. The debug output does not contain the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Box<[u8]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads a key from a file's content: all of it except trailing white space.
    ///
    /// # Errors
    /// Describes what is wrong with the key.
    pub fn from_file(content: &[u8]) -> Result<Secret, &'static str> {
        let key = content.trim_ascii_end();
        match key.len() {
            0..KEY_BYTES_MIN => Err("a key needs at least 16 bytes"),
            KEY_BYTES_MIN..=KEY_BYTES_MAX => Ok(Secret(key.into())),
            _ => Err("a key has at most 1024 bytes"),
        }
    }
}

/// A signing key prepared for HMAC.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl Key {
    /// Prepares a key for HMAC, which accepts keys of any length.
    pub fn new(secret: &Secret) -> Option<Key> {
        Hmac::new_from_slice(&secret.0).ok().map(Key)
    }

    fn over(&self, expires: &str, what: &What<'_>, client: Option<IpAddr>) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(expires.as_bytes());
        let (before, text) = match what {
            What::Target(target) => ("\n", target),
            What::Prefix(prefix) => ("\nprefix ", prefix),
        };
        mac.update(before.as_bytes());
        mac.update(text.as_bytes());
        mac.update(b"\n");
        if let Some(client) = client {
            mac.update(client.to_canonical().to_string().as_bytes());
        }
        mac
    }

    /// Returns the signature for an expiry, a target or prefix, and a client, encoded for a URL's
    /// query.
    pub fn sign(&self, expires: &str, what: &What<'_>, client: Option<IpAddr>) -> String {
        let mac = self.over(expires, what, client);
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }

    /// Whether this key made the signature of a URL. The comparison takes constant time.
    fn made(&self, claim: &Claim<'_>, client: Option<IpAddr>) -> bool {
        let mac = self.over(claim.expires, &claim.what(), client);
        mac.verify_slice(&claim.signature).is_ok()
    }
}

/// The target or the prefix that a signature covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A single path and query.
    Target(&'a str),
    /// All paths with this prefix.
    Prefix(&'a str),
}

/// A URL's target, split into the parameters of its signature and the rest.
#[derive(Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The expiry in Unix seconds, in digits as sent.
    pub expires: &'a str,
    /// The decoded signature.
    pub signature: [u8; SIGNATURE_BYTES],
    /// The signed prefix, if the signature covers one.
    pub prefix: Option<Cow<'a, str>>,
    /// The target without the signature's parameters.
    pub target: String,
}

impl Claim<'_> {
    fn what(&self) -> What<'_> {
        match &self.prefix {
            Some(prefix) => What::Prefix(prefix),
            None => What::Target(&self.target),
        }
    }
}

/// Splits a target into its signature and the rest. `prefix` says whether a signature may cover a
/// prefix; if not, the prefix parameter is part of the rest.
pub fn take_apart<'a>(target: &'a str, names: &Names, prefix: bool) -> Result<Claim<'a>, Reason> {
    let (path, query) = target.split_once('?').ok_or(Reason::SignatureMissing)?;
    let (mut expires, mut signature, mut begins) = (None, None, None);
    let mut rest = String::with_capacity(target.len());
    rest.push_str(path);
    let mut between = '?';
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let place = match name {
            name if name == &*names.expires => &mut expires,
            name if name == &*names.signature => &mut signature,
            name if prefix && name == &*names.prefix => &mut begins,
            _ => {
                rest.push(between);
                rest.push_str(parameter);
                between = '&';
                continue;
            }
        };
        // If a parameter appears twice, the program that signed the URL may use one of the values
        // and this check the other, so such URLs are refused.
        if place.replace(value).is_some() {
            return Err(Reason::SignatureWrong);
        }
    }
    let (Some(expires), Some(signature)) = (expires, signature) else {
        return Err(Reason::SignatureMissing);
    };
    let prefix = begins.map(|value| begins_with(path, value)).transpose()?;
    Ok(Claim {
        expires: digits(expires)?,
        signature: decoded(signature)?,
        prefix,
        target: rest,
    })
}

fn digits(text: &str) -> Result<&str, Reason> {
    let all = text.bytes().all(|b| b.is_ascii_digit());
    match all && (1..=DIGITS_MAX).contains(&text.len()) {
        true => Ok(text),
        false => Err(Reason::SignatureWrong),
    }
}

/// Decodes URL-safe base64 (RFC 4648 5), with or without a final `=`, or hexadecimal digits.
fn decoded(text: &str) -> Result<[u8; SIGNATURE_BYTES], Reason> {
    let mut bytes = [0; SIGNATURE_BYTES];
    if text.len() == 2 * SIGNATURE_BYTES {
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = hex(pair).ok_or(Reason::SignatureWrong)?;
        }
        return Ok(bytes);
    }
    let bare = text.strip_suffix('=').or(text.strip_suffix("%3D"));
    // `decode_slice` demands a buffer larger than the decoded bytes.
    let mut room = [0; SIGNATURE_BYTES + 4];
    match URL_SAFE_NO_PAD.decode_slice(bare.unwrap_or(text), &mut room) {
        Ok(SIGNATURE_BYTES) => {
            bytes.copy_from_slice(&room[..SIGNATURE_BYTES]);
            Ok(bytes)
        }
        _ => Err(Reason::SignatureWrong),
    }
}

fn hex(pair: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

/// Returns the decoded prefix if the path begins with it. The prefix must end with a slash, so that
/// `/videos/1/` is accepted and `/videos/1`, which would cover `/videos/12/`, is not.
fn begins_with<'a>(path: &str, value: &'a str) -> Result<Cow<'a, str>, Reason> {
    if value.len() > PREFIX_BYTES_MAX {
        return Err(Reason::SignatureWrong);
    }
    let prefix = unescaped(value).ok_or(Reason::SignatureWrong)?;
    let good = prefix.starts_with('/') && prefix.ends_with('/') && path.starts_with(&*prefix);
    good.then_some(prefix).ok_or(Reason::SignatureWrong)
}

/// Decodes percent-escapes. Returns `None` if an escape is malformed, or if the text contains bytes
/// that a request's target can't contain.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => hex(&[rest.next()?, rest.next()?])?,
            byte => byte,
        };
        if !byte.is_ascii_graphic() {
            return None;
        }
        out.push(char::from(byte));
    }
    Some(Cow::Owned(out))
}

/// Checks a target's signature and returns the target without it.
///
/// # Errors
/// As for `take_apart`, and `SignatureExpired` if the signature is correct but expired. The expiry
/// is checked last, so a client that guesses signatures always gets the same error.
pub fn check(
    target: &str,
    client: IpAddr,
    now_s: u64,
    options: &Options,
    keys: &[Key],
) -> Result<String, Reason> {
    let claim = take_apart(target, &options.names, options.prefix)?;
    let client = options.client.then_some(client);
    if !keys.iter().any(|key| key.made(&claim, client)) {
        return Err(Reason::SignatureWrong);
    }
    match claim.expires.parse::<u64>() {
        Ok(expires) if now_s <= expires => Ok(claim.target),
        _ => Err(Reason::SignatureExpired),
    }
}

/// Returns a target with its signature added to the query. `target` must be in normal form.
pub fn signed(
    key: &Key,
    names: &Names,
    target: &str,
    prefix: Option<&str>,
    expires_s: u64,
    client: Option<IpAddr>,
) -> String {
    let expires = expires_s.to_string();
    let what = prefix.map_or(What::Target(target), What::Prefix);
    let signature = key.sign(&expires, &what, client);
    let between = if target.contains('?') { '&' } else { '?' };
    let mut out = format!("{target}{between}{}={expires}", names.expires);
    if let Some(prefix) = prefix {
        // A `%` is escaped again because the check decodes the parameter once. `&` would end the
        // parameter, and `+` could be read as a space.
        let escaped = prefix.replace('%', "%25").replace('&', "%26");
        out += &format!("&{}={}", names.prefix, escaped.replace('+', "%2B"));
    }
    out + &format!("&{}={signature}", names.signature)
}

/// Splits any text as a target, and panics if the parts violate the guarantees of [`take_apart`].
#[cfg(any(test, feature = "test-rigs"))]
pub fn exercise(target: &str) {
    let names = Names::default();
    for prefix in [false, true] {
        let Ok(claim) = take_apart(target, &names, prefix) else {
            continue;
        };
        let path = target.split('?').next();
        assert_eq!(claim.target.split('?').next(), path, "the path stays");
        assert!(claim.target.len() < target.len());
        let again = take_apart(&claim.target, &names, prefix);
        assert_eq!(again, Err(Reason::SignatureMissing), "{:?}", claim.target);
        if let Some(begins) = &claim.prefix {
            assert!(prefix && path.is_some_and(|path| path.starts_with(&**begins)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    const NOW: u64 = 1_767_225_600;

    fn key() -> Key {
        Key::new(&Secret(SECRET.into())).expect("a key")
    }

    fn options() -> Options {
        Options {
            keys: Vec::new(),
            key_files: Vec::new(),
            client: false,
            prefix: true,
            names: Names::default(),
        }
    }

    fn client(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn checked(target: &str) -> Result<String, Reason> {
        check(target, client("192.0.2.7"), NOW, &options(), &[key()])
    }

    /// The expected signatures were made with OpenSSL: `printf '%s\n%s\n%s' TIME WHAT CLIENT |
    /// openssl dgst -sha256 -hmac SECRET`.
    #[test]
    fn signatures_are_compatible_with_other_programs() {
        for (what, client_text, expected) in VECTORS {
            let client = (!client_text.is_empty()).then(|| client(client_text));
            let mac = key().over("1767225600", what, client);
            let bytes = mac.finalize().into_bytes();
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(&hex, expected, "{what:?}");
        }
    }

    const VECTORS: &[(What<'_>, &str, &str)] = &[
        (
            What::Target("/videos/1/film.mp4?lang=de"),
            "",
            "142eecfbea6dbfaecf05c22e6ef42450bed4ea1c5727c2b66f815dda23154733",
        ),
        (
            What::Target("/videos/1/film.mp4"),
            "192.0.2.7",
            "ee8497c5ab020610171829c8af28cd0b144aeb954f7d55bbf3a466a9c13b5970",
        ),
        (
            What::Prefix("/videos/1/"),
            "",
            "e770de75bf651d43c4b01e1091aa7b3563b62743ca7e9e13ea65671530386abb",
        ),
    ];

    #[test]
    fn a_signed_url_is_accepted_and_loses_its_signature() {
        for target in ["/a", "/a?", "/a?x=1&y", "/a?&&", "/%C3%A9?prefix"] {
            let url = signed(&key(), &Names::default(), target, None, NOW, None);
            let expected = match target {
                // A parameter named `prefix` is read as the signature's prefix, even if the site
                // means something else by it.
                "/%C3%A9?prefix" => Err(Reason::SignatureWrong),
                target => Ok(target.to_owned()),
            };
            assert_eq!(checked(&url), expected, "{url}");
        }
    }

    #[test]
    fn the_signature_may_be_anywhere_in_the_query_and_hexadecimal() {
        let signature = key().sign("1767225600", &What::Target("/a?x=1&y=2"), None);
        let bytes = decoded(&signature).expect("32 bytes");
        let hex: String = bytes.iter().map(|b| format!("{b:02X}")).collect();
        for written in [
            signature.clone(),
            format!("{signature}="),
            format!("{signature}%3D"),
            hex,
        ] {
            let url = format!("/a?signature={written}&x=1&expires=1767225600&y=2");
            assert_eq!(checked(&url).as_deref(), Ok("/a?x=1&y=2"), "{url}");
        }
    }

    #[test]
    fn a_url_that_was_not_signed_is_refused() {
        let names = Names::default();
        let url = signed(&key(), &names, "/a/b?x=1", None, NOW, None);
        assert!(checked(&url).is_ok());
        for (from, to) in [
            ("/a/b", "/a/c"),
            ("x=1", "x=2"),
            ("x=1", "x=1&y"),
            ("1767225600", "1767225601"),
            ("1767225600", "01767225600"),
            ("1767225600", "+1767225600"),
            ("1767225600", ""),
            ("1767225600", "9999999999999"),
            ("expires=", "expires=1767225600&expires="),
            ("signature=", "signature=&signature="),
            ("signature=", "signature=A"),
            ("signature=", "prefix=/a/&signature="),
            ("signature=", "prefix=&signature="),
        ] {
            let other = url.replacen(from, to, 1);
            assert_eq!(checked(&other), Err(Reason::SignatureWrong), "{other}");
        }
        for (from, to) in [
            ("&signature", "&Signature"),
            ("expires", "%65xpires"),
            ("?", "#"),
        ] {
            let other = url.replacen(from, to, 1);
            assert_eq!(checked(&other), Err(Reason::SignatureMissing), "{other}");
        }
        let other_key = Key::new(&Secret(b"another secret of bytes".as_slice().into()));
        let other_key = other_key.expect("a key");
        let by_other = signed(&other_key, &names, "/a/b?x=1", None, NOW, None);
        assert_eq!(checked(&by_other), Err(Reason::SignatureWrong));
        let both = [key(), other_key];
        let checked = check(&by_other, client("::1"), NOW, &options(), &both);
        assert_eq!(checked.as_deref(), Ok("/a/b?x=1"));
    }

    #[test]
    fn a_signature_is_valid_through_its_last_second() {
        let url = signed(&key(), &Names::default(), "/a", None, NOW, None);
        let at = |now| check(&url, client("::1"), now, &options(), &[key()]);
        assert_eq!(at(NOW).as_deref(), Ok("/a"));
        assert_eq!(at(NOW + 1), Err(Reason::SignatureExpired));
    }

    #[test]
    fn a_prefix_covers_only_the_paths_below_it() {
        let names = Names::default();
        let url = signed(&key(), &names, "/v/1/a.ts", Some("/v/1/"), NOW, None);
        let elsewhere = |path: &str| checked(&url.replacen("/v/1/a.ts", path, 1));
        assert_eq!(elsewhere("/v/1/a.ts").as_deref(), Ok("/v/1/a.ts"));
        assert_eq!(elsewhere("/v/1/x/b.ts").as_deref(), Ok("/v/1/x/b.ts"));
        assert_eq!(elsewhere("/v/12/a.ts"), Err(Reason::SignatureWrong));
        assert_eq!(elsewhere("/v/1"), Err(Reason::SignatureWrong));
        // A signature for the target `/v/1/` does not become one for the prefix `/v/1/` if a prefix
        // parameter is added.
        let folder = signed(&key(), &names, "/v/1/", None, NOW, None);
        let wider = folder.replacen("/v/1/", "/v/1/a.ts", 1) + "&prefix=/v/1/";
        assert_eq!(checked(&wider), Err(Reason::SignatureWrong));
        // A route without `prefix` refuses signatures that cover a prefix.
        let strict = Options {
            prefix: false,
            ..options()
        };
        let refused = check(&url, client("::1"), NOW, &strict, &[key()]);
        assert_eq!(refused, Err(Reason::SignatureWrong));
    }

    #[test]
    fn a_prefix_may_be_escaped() {
        let escaped = "/caf%C3%A9+&/";
        let target = format!("{escaped}a");
        let url = signed(&key(), &Names::default(), &target, Some(escaped), NOW, None);
        assert_eq!(checked(&url).as_deref(), Ok(&*target));
        let slashes = signed(&key(), &Names::default(), "/v/a", Some("/v/"), NOW, None);
        let slashes = slashes.replace("prefix=/v/", "prefix=%2Fv%2f");
        assert_eq!(checked(&slashes).as_deref(), Ok("/v/a"));
        for bad in ["%", "%2", "%zz", "%00", "%0a", "%20", "v/", "/v", "", "%ff"] {
            let other = slashes.replace("prefix=%2Fv%2f", &format!("prefix={bad}"));
            assert_eq!(checked(&other), Err(Reason::SignatureWrong), "{other}");
        }
    }

    #[test]
    fn a_signature_for_one_client_is_refused_for_others() {
        let own = Options {
            client: true,
            ..options()
        };
        let at = |url: &str, address: &str| check(url, client(address), NOW, &own, &[key()]);
        let names = Names::default();
        let url = signed(&key(), &names, "/a", None, NOW, Some(client("192.0.2.7")));
        assert_eq!(at(&url, "192.0.2.7").as_deref(), Ok("/a"));
        assert_eq!(at(&url, "::ffff:192.0.2.7").as_deref(), Ok("/a"));
        assert_eq!(at(&url, "192.0.2.8"), Err(Reason::SignatureWrong));
        assert_eq!(checked(&url), Err(Reason::SignatureWrong));
        let anyone = signed(&key(), &names, "/a", None, NOW, None);
        assert_eq!(at(&anyone, "192.0.2.7"), Err(Reason::SignatureWrong));
    }

    #[test]
    fn secrets_are_not_displayed_and_files_may_end_in_a_newline() {
        let secret = Secret::from_file(b"0123456789abcdef\n").expect("long enough");
        assert_eq!(&*secret.0, b"0123456789abcdef");
        assert_eq!(format!("{secret:?}"), "Secret");
        assert!(Secret::from_file(b"0123456789abcde \n").is_err());
        assert!(Secret::from_file(&[b'a'; KEY_BYTES_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_target_satisfies_the_guarantees(target in "/[a-c%/]{0,4}([?&](expires|signature|prefix|x)=?[0-9A-Za-z%/_=-]{0,64}){0,6}") {
            exercise(&target);
        }

        #[test]
        fn a_single_changed_byte_invalidates_the_signature(at in 0..200_usize, byte in b'!'..=b'~') {
            let url = signed(&key(), &Names::default(), "/a/b?x=1", None, NOW, None);
            let mut other = url.clone().into_bytes();
            let at = at % other.len();
            other[at] = byte;
            let other = String::from_utf8(other).expect("ASCII");
            if other != url {
                prop_assert!(checked(&other).is_err(), "{}", other);
            }
        }
    }
}
