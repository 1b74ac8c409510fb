//! Makes URLs fit to be shown: secrets are masked, and all but visible ASCII is escaped.

use std::fmt::Write;

use percent_encoding::percent_decode;

/// Longest URL that is shown, in bytes. A longer one is cut and ends in `...`.
pub(super) const URL_MAX: usize = 512;
/// Text in place of a secret.
const MASK: &str = "***";
/// Longest value that is searched for secrets of a URL within it, in bytes.
const NESTED_MAX: usize = 4096;

/// Names of query parameters that are secrets, in lower case and without `-`, `_` and `.`.
const SECRET: &[&str] = &[
    "authorization",
    "bearer",
    "code",
    "codeverifier",
    "connectsid",
    "cookie",
    "hdnea",
    "hdntl",
    "hdnts",
    "md5",
    "otp",
    "otpcode",
    "pass",
    "pin",
    "pincode",
    "sas",
    "session",
    "sid",
    "sign",
    "ticket",
    "verify",
];
/// Ends of names that make them names of secrets, as in `x-auth-sig`.
const SECRET_ENDS: &[&str] = &["auth", "hmac", "jwt", "key", "pwd", "sig"];
/// Parts of names that make them names of secrets.
const SECRET_PARTS: &[&str] = &[
    "assertion",
    "credential",
    "csrf",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "sessid",
    "sessionid",
    "signature",
    "token",
    "xsrf",
];

/// The rules by which secrets in URLs are masked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlMask {
    /// Names of further secret parameters, in their reduced form.
    names: Vec<Box<str>>,
}

impl UrlMask {
    /// Creates the rules. `names` are secret parameters in addition to the usual ones.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> UrlMask {
        let mut names: Vec<Box<str>> = names
            .into_iter()
            .map(|name| reduced(name.as_bytes()).into())
            .collect();
        names.sort_unstable();
        names.dedup();
        UrlMask { names }
    }

    /// Returns a URL as it may be shown: at most 512 bytes of visible ASCII, in which user information
    /// and the values of secret parameters are masked. `is_cut` says whether the end of the URL is
    /// missing already.
    pub fn shown(&self, url: &[u8], is_cut: bool) -> String {
        let mut out = String::with_capacity(url.len().min(URL_MAX) + 8);
        self.write(url, is_cut, &mut out);
        out
    }

    /// Appends a URL as `shown` returns it.
    pub(super) fn write(&self, url: &[u8], is_cut: bool, out: &mut String) {
        let mut rest = url;
        if let Some(at) = authority_at(url) {
            let (scheme, after) = url.split_at(at);
            let end = after.iter().position(|b| b"/?#\\".contains(b));
            let (authority, path) = after.split_at(end.unwrap_or(after.len()));
            escape(out, scheme);
            match authority.iter().rposition(|b| *b == b'@') {
                Some(at) => {
                    out.push_str(MASK);
                    escape(out, &authority[at..]);
                }
                None => escape(out, authority),
            }
            rest = path;
        }
        self.write_path(rest, out);
        if is_cut || out.len() > URL_MAX {
            out.truncate(out.floor_char_boundary(URL_MAX - 3));
            out.push_str("...");
        }
    }

    /// Appends path and query. Parameters may be anywhere in them, as in `/a;jsessionid=1`.
    fn write_path(&self, rest: &[u8], out: &mut String) {
        let is_separator = |b: &u8| b"?&;#".contains(b);
        let mut at = rest.iter().position(is_separator).unwrap_or(rest.len());
        let path = &rest[..at];
        match has_user(&decoded(path)) {
            true => out.push_str("/***"),
            false => escape(out, path),
        }
        while at < rest.len() && out.len() <= URL_MAX {
            let after = &rest[at + 1..];
            let end = after.iter().position(is_separator).unwrap_or(after.len());
            escape(out, &rest[at..=at]);
            self.write_parameter(&after[..end], out);
            at += 1 + end;
        }
    }

    fn write_parameter(&self, parameter: &[u8], out: &mut String) {
        let Some(at) = parameter.iter().position(|b| *b == b'=') else {
            match self.has_secret(parameter) {
                true => out.push_str(MASK),
                false => escape(out, parameter),
            }
            return;
        };
        let (name, value) = (&parameter[..at], &parameter[at + 1..]);
        escape(out, &parameter[..=at]);
        match self.is_secret(name) || self.has_secret(value) {
            true => out.push_str(MASK),
            false => escape(out, value),
        }
    }

    /// Whether the value of the parameter with this name is a secret.
    fn is_secret(&self, name: &[u8]) -> bool {
        let name = reduced(name);
        SECRET.contains(&&*name)
            || SECRET_ENDS.iter().any(|end| name.ends_with(end))
            || SECRET_PARTS.iter().any(|part| name.contains(part))
            || self.names.iter().any(|own| **own == *name)
    }

    /// Whether a value is a secret, or contains a URL with one, as in `next=%2Fa%3Ftoken%3D1`.
    fn has_secret(&self, value: &[u8]) -> bool {
        if value.len() > NESTED_MAX {
            return true;
        }
        let text = decoded(value);
        let mut parts = text.split(|b| b"?&;#".contains(b));
        looks_secret(&text)
            || has_user(&text)
            || has_password(&text)
            || parts.any(|part| {
                let at = part.iter().position(|b| *b == b'=');
                at.is_some_and(|at| self.is_secret(&part[..at]))
            })
    }
}

/// Returns the beginning of the authority in a URL with or without a scheme; `None` if there is none.
fn authority_at(url: &[u8]) -> Option<usize> {
    if url.starts_with(b"//") {
        return Some(2);
    }
    let colon = find(url, b"://")?;
    let is_scheme = url[..colon].iter().all(u8::is_ascii_alphanumeric);
    is_scheme.then_some(colon + 3)
}

/// Whether a decoded text contains a URL with user information.
fn has_user(text: &[u8]) -> bool {
    find(text, b"://").is_some_and(|at| text[at..].contains(&b'@'))
}

/// Whether a decoded text begins with name and password of a user, as in `me:secret@host`.
fn has_password(text: &[u8]) -> bool {
    let end = text.iter().position(|b| b"/?#".contains(b));
    let authority = &text[..end.unwrap_or(text.len())];
    let user = authority.iter().rposition(|b| *b == b'@');
    user.is_some_and(|at| authority[..at].contains(&b':'))
}

/// Decodes a part of a URL, which may be encoded several times.
fn decoded(part: &[u8]) -> Vec<u8> {
    let mut text = part.to_vec();
    for _ in 0..3 {
        text = percent_decode(&text).collect();
    }
    text
}

/// Whether a decoded value is a JSON Web Token (RFC 7519) or a bearer token with its scheme (RFC 6750 2.1), whatever its
/// name.
fn looks_secret(value: &[u8]) -> bool {
    let scheme = value.get(..6).unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"bearer") && value.len() > 6
        || value.starts_with(b"eyJ") && value.iter().filter(|b| **b == b'.').count() >= 2
}

/// Returns a name decoded, in lower case, and without `-`, `_` and `.`, so that all spellings are one.
fn reduced(name: &[u8]) -> String {
    percent_decode(name)
        .filter(|b| !b"-_.[]".contains(b))
        .map(|b| char::from(b.to_ascii_lowercase()))
        .collect()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Appends bytes, and percent-encodes all that a URL may not contain (RFC 3986 2). `'` stays, since a link to
/// the URL would otherwise be one to another URL.
fn escape(out: &mut String, bytes: &[u8]) {
    for &b in bytes {
        match b.is_ascii_graphic() && !b"\"<>\\`".contains(&b) {
            true => out.push(char::from(b)),
            // Writing to a String can't fail.
            false => _ = write!(out, "%{b:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_masked() {
        let mask = UrlMask::new(["mac", "Exp-Sig"]);
        let table = [
            ("http://a.example/x?y=1&z", "http://a.example/x?y=1&z"),
            ("http://u:p@a.example/x", "http://***@a.example/x"),
            ("http://u@p@a.example?x", "http://***@a.example?x"),
            ("//u:p@a.example/x", "//***@a.example/x"),
            ("http://a.example/@x", "http://a.example/@x"),
            (
                "/fetch?url=http%3A%2F%2Fa%2F%3Fsig%3D1&refresh=1",
                "/fetch?url=***&refresh=1",
            ),
            (
                "/servers?upstream=a&server=b",
                "/servers?upstream=a&server=b",
            ),
            ("/x?token=1&y=2", "/x?token=***&y=2"),
            ("/x?a=1;ACCESS_TOKEN=1", "/x?a=1;ACCESS_TOKEN=***"),
            (
                "/x?X-Amz-Signature=ab&X-Amz-Credential=c",
                "/x?X-Amz-Signature=***&X-Amz-Credential=***",
            ),
            ("/x?t%6Fken=1", "/x?t%6Fken=***"),
            (
                "/x?api_key=1&apikey=2&key=3",
                "/x?api_key=***&apikey=***&key=***",
            ),
            ("/x?mac=1&expsig=2&exp=3", "/x?mac=***&expsig=***&exp=3"),
            ("/x?expires=5&signature=a==", "/x?expires=5&signature=***"),
            ("/x;jsessionid=12/y?z", "/x;jsessionid=***?z"),
            ("/x?user[password]=p", "/x?user[password]=***"),
            ("/x?X-Auth-Sig=1&design=2", "/x?X-Auth-Sig=***&design=2"),
            ("/x#access_token=a", "/x#access_token=***"),
            ("http://a/y/http://u:p@h/x?a=1", "http://a/***?a=1"),
            ("/y?http%3A%2F%2Fu%3Ap%40h%2F&b=2", "/y?***&b=2"),
            ("/y?next=token%3DSECRET", "/y?next=***"),
            ("/x?next=%2Fa%3Ftoken%3D1&b=2", "/x?next=***&b=2"),
            ("/x?next=http%3A%2F%2Fu%3Ap%40h%2F", "/x?next=***"),
            ("/x?next=%252Fa%253Fsig%253D1", "/x?next=***"),
            ("/x?next=%2Fa%3Fpage%3D1", "/x?next=%2Fa%3Fpage%3D1"),
            ("/x?q=eyJh.eyJz.c2ln", "/x?q=***"),
            ("/x?eyJh.eyJz.c2ln", "/x?***"),
            ("/x?u=http://a:b@c/", "/x?u=***"),
            ("/x?u=a:b@c", "/x?u=***"),
            (
                "/x?to=a@b.example&at=c/d:e@f",
                "/x?to=a@b.example&at=c/d:e@f",
            ),
            ("/x?PHPSESSID=1", "/x?PHPSESSID=***"),
            ("/x?connect.sid=1&sides=2", "/x?connect.sid=***&sides=2"),
            ("/x?otp_code=1&passcode=2", "/x?otp_code=***&passcode=***"),
            ("/x?token%3D1&y", "/x?***&y"),
            ("/x?q=%65yJh.eyJz.c2ln", "/x?q=***"),
            ("/x?q=Bearer%20abc&r=bearer", "/x?q=***&r=bearer"),
            ("/signature/token=1/x", "/signature/token=1/x"),
            ("/x?=1&&=", "/x?=1&&="),
            ("", ""),
            ("*", "*"),
        ];
        for (url, shown) in table {
            assert_eq!(mask.shown(url.as_bytes(), false), shown);
        }
    }

    #[test]
    fn text_that_could_harm_is_escaped_and_long_text_cut() {
        let mask = UrlMask::default();
        let shown = mask.shown(b"/\x1b[2J<b>\"'\\\xff\xc3\xa4`\r\n\0", false);
        assert_eq!(shown, "/%1B[2J%3Cb%3E%22'%5C%FF%C3%A4%60%0D%0A%00");
        let long = mask.shown(format!("/{}", "x".repeat(600)).as_bytes(), false);
        assert!(long.len() == URL_MAX && long.ends_with("x..."));
        assert_eq!(mask.shown(b"/a", true), "/a...");
    }

    proptest! {
        #[test]
        fn a_shown_url_is_harmless_and_bounded(url in prop::collection::vec(any::<u8>(), 0..800)) {
            let shown = UrlMask::default().shown(&url, false);
            prop_assert!(shown.len() <= URL_MAX);
            prop_assert!(shown.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\`".contains(&b)));
        }

        #[test]
        fn no_secret_remains(before in "[a-z=&?;/%#]{0,40}", name in "token|sig|X-Amz-Signature|pass_word|PHPSESSID", after in "[a-z=&/%]{0,20}") {
            let url = format!("/x?{before}&{name}=S3CR3T&{after}");
            prop_assert!(!UrlMask::default().shown(url.as_bytes(), false).contains("S3CR3T"));
        }
    }
}
