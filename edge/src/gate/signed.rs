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

#[cfg(test)]
mod tests;

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

    fn over(&self, expires: &str, what: &Signed<'_>, client: Option<IpAddr>) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(expires.as_bytes());
        let (before, text) = match what {
            Signed::Target(target) => ("\n", target),
            Signed::Prefix(prefix) => ("\nprefix ", prefix),
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
    pub fn sign(&self, expires: &str, what: &Signed<'_>, client: Option<IpAddr>) -> String {
        let mac = self.over(expires, what, client);
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }

    /// Whether this key made the signature of a URL. The comparison takes constant time.
    fn made(&self, claim: &SignedTarget<'_>, client: Option<IpAddr>) -> bool {
        let mac = self.over(claim.expires, &claim.what(), client);
        mac.verify_slice(&claim.signature).is_ok()
    }
}

/// The target or the prefix that a signature covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed<'a> {
    /// A single path and query.
    Target(&'a str),
    /// All paths with this prefix.
    Prefix(&'a str),
}

/// A URL's target, split into the parameters of its signature and the rest.
#[derive(Debug, PartialEq, Eq)]
pub struct SignedTarget<'a> {
    /// The expiry in Unix seconds, in digits as sent.
    pub expires: &'a str,
    /// The decoded signature.
    pub signature: [u8; SIGNATURE_BYTES],
    /// The signed prefix, if the signature covers one.
    pub prefix: Option<Cow<'a, str>>,
    /// The target without the signature's parameters.
    pub target: String,
}

impl SignedTarget<'_> {
    fn what(&self) -> Signed<'_> {
        match &self.prefix {
            Some(prefix) => Signed::Prefix(prefix),
            None => Signed::Target(&self.target),
        }
    }
}

/// Splits a target into its signature and the rest. `prefix` says whether a signature may cover a
/// prefix; if not, the prefix parameter is part of the rest.
pub fn take_apart<'a>(
    target: &'a str,
    names: &Names,
    prefix: bool,
) -> Result<SignedTarget<'a>, Reason> {
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
    Ok(SignedTarget {
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
    let what = prefix.map_or(Signed::Target(target), Signed::Prefix);
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
