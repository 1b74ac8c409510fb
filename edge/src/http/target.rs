//! Validation and normalisation of request targets and hosts. Routes, cache keys and origins see
//! only the normal form.

use std::net::Ipv6Addr;

use super::{Method, Scheme};
use crate::reason::Reason;

/// The form of a request target (RFC 9112 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// A path and query.
    Origin,
    /// A complete URI (RFC 9112 3.2.2). The authority is not validated yet; `host` validates it.
    Absolute {
        /// `http` or `https`.
        scheme: Scheme,
        /// Host and optional port, as received; not empty.
        authority: &'a [u8],
    },
    /// `*`, with OPTIONS.
    Asterisk,
    /// The host and port of CONNECT, not validated. The caller refuses such requests.
    Authority,
}

/// Errors in a request target. A request with such a target is refused with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// The target is empty, or is no path, URI or asterisk; or an asterisk without OPTIONS.
    NoTarget,
    /// The scheme is neither http nor https.
    Scheme,
    /// The URI has no host.
    NoHost,
    /// The URI contains user information (RFC 9110 4.2.4).
    UserInfo,
    /// The target contains `#`, a backslash, a space, a control character or a byte beyond ASCII.
    Byte,
    /// The path contains `%` without two hexadecimal digits after it.
    Percent,
    /// The path contains `%00`.
    Nul,
    /// Dot segments lead above the root.
    AboveRoot,
    /// The path contains a dot segment for servers that treat `%2F` or `%5C` as a slash, or that
    /// remove parameters after `;`.
    HiddenDots,
}

impl TargetError {
    /// Returns the reason that logs and the response's body give for the refusal.
    pub fn reason(self) -> Reason {
        match self {
            TargetError::NoTarget => Reason::NoTarget,
            TargetError::Scheme => Reason::TargetScheme,
            TargetError::NoHost => Reason::TargetNoHost,
            TargetError::UserInfo => Reason::TargetUserinfo,
            TargetError::Byte => Reason::TargetByte,
            TargetError::Percent => Reason::TargetPercent,
            TargetError::Nul => Reason::TargetNul,
            TargetError::AboveRoot => Reason::TargetAboveRoot,
            TargetError::HiddenDots => Reason::TargetHiddenDots,
        }
    }
}

/// Validates a request target and appends its normal form to `out`: an absolute path and query, or
/// `*`.
///
/// In the path, escaped unreserved characters are decoded and other escapes written in capitals
/// (RFC 3986 6.2.2.1, 6.2.2.2), so that no other spelling leads to another route. Then dot segments
/// are removed (5.2.4). All other bytes are kept. Queries are not changed: a bare `%` is common in
/// them, and nothing parses them.
///
/// After an error the content of `out` is unspecified.
pub fn canonical<'a>(
    method: &Method,
    raw: &'a [u8],
    out: &mut String,
) -> Result<Form<'a>, TargetError> {
    match raw {
        _ if *method == Method::Connect => Ok(Form::Authority),
        [b'/', ..] => append_path_and_query(raw, out).map(|()| Form::Origin),
        b"*" if *method == Method::Options => {
            out.push('*');
            Ok(Form::Asterisk)
        }
        _ => absolute(method, raw, out),
    }
}

fn absolute<'a>(method: &Method, raw: &'a [u8], out: &mut String) -> Result<Form<'a>, TargetError> {
    let colon = memchr::memmem::find(raw, b"://").ok_or(TargetError::NoTarget)?;
    let scheme = match &raw[..colon] {
        name if name.eq_ignore_ascii_case(b"http") => Scheme::Http,
        name if name.eq_ignore_ascii_case(b"https") => Scheme::Https,
        _ => return Err(TargetError::Scheme),
    };
    let rest = &raw[colon + 3..];
    let end = rest.iter().position(|b| b"/?#\\".contains(b));
    let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
    match authority {
        [] | [b':', ..] => return Err(TargetError::NoHost),
        _ if authority.contains(&b'@') => return Err(TargetError::UserInfo),
        _ => {}
    }
    match path {
        // OPTIONS for the server as a whole (RFC 9112 3.2.4).
        [] if *method == Method::Options => out.push('*'),
        [] => out.push('/'),
        [b'/', ..] => append_path_and_query(path, out)?,
        _ => {
            out.push('/');
            append_query(path, out)?;
        }
    }
    Ok(Form::Absolute { scheme, authority })
}

/// Classes of bytes in a target.
const PLAIN: u8 = 0;
const REFUSED: u8 = 1;
const PERCENT: u8 = 2;
const DOT: u8 = 3;
const QUERY: u8 = 4;

const CLASS: [u8; 256] = {
    let mut class = [PLAIN; 256];
    let mut b = 0;
    while b < 256 {
        if b <= b' ' as usize || b >= 0x7f {
            class[b] = REFUSED;
        }
        b += 1;
    }
    class[b'#' as usize] = REFUSED;
    class[b'\\' as usize] = REFUSED;
    class[b'%' as usize] = PERCENT;
    class[b'.' as usize] = DOT;
    class[b'?' as usize] = QUERY;
    class
};

/// Appends a target that begins with `/`. A path without escapes and dot segments takes one scan
/// and one copy.
fn append_path_and_query(raw: &[u8], out: &mut String) -> Result<(), TargetError> {
    let mut rewrite = false;
    let mut path_end = raw.len();
    for (i, &b) in raw.iter().enumerate() {
        match CLASS[usize::from(b)] {
            PLAIN => {}
            REFUSED => return Err(TargetError::Byte),
            PERCENT => {
                let byte = check_percent(&raw[i..])?;
                let small = raw[i + 1..i + 3].iter().any(u8::is_ascii_lowercase);
                rewrite |= small || is_unreserved(byte) || is_slash(byte);
            }
            DOT => rewrite |= raw[i - 1] == b'/',
            _ => {
                path_end = i;
                break;
            }
        }
    }
    let (path, query) = raw.split_at(path_end);
    if rewrite {
        append_normal(path, out)?;
    } else {
        append_checked(path, out)?;
    }
    append_query(query, out)
}

/// Appends an empty text or a query that begins with `?`.
fn append_query(query: &[u8], out: &mut String) -> Result<(), TargetError> {
    if query.iter().any(|&b| CLASS[usize::from(b)] == REFUSED) {
        return Err(TargetError::Byte);
    }
    append_checked(query, out)
}

fn append_checked(bytes: &[u8], out: &mut String) -> Result<(), TargetError> {
    out.push_str(std::str::from_utf8(bytes).map_err(|_| TargetError::Byte)?);
    Ok(())
}

/// Returns the byte that the escape (such as `%2F`) at the start of `bytes` encodes.
fn check_percent(bytes: &[u8]) -> Result<u8, TargetError> {
    let hex = |at: usize| bytes.get(at).and_then(|&b| char::from(b).to_digit(16));
    let (Some(high), Some(low)) = (hex(1), hex(2)) else {
        return Err(TargetError::Percent);
    };
    match (high << 4 | low) as u8 {
        0 => Err(TargetError::Nul),
        byte => Ok(byte),
    }
}

/// Whether the byte is an unreserved character (RFC 3986 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Whether some servers treat the byte as a separator of segments.
fn is_slash(byte: u8) -> bool {
    byte == b'/' || byte == b'\\'
}

/// Appends an absolute, validated path, normalised and without dot segments (RFC 3986 6.2.2,
/// 5.2.4).
fn append_normal(path: &[u8], out: &mut String) -> Result<(), TargetError> {
    let root = out.len();
    let mut segments = path[1..].split(|&b| b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        let start = out.len();
        out.push('/');
        let hidden = append_segment(segment, out)?;
        match dots(&out[start + 1..]) {
            Some(count) => {
                out.truncate(start);
                if count == 2 {
                    let slash = out[root..].rfind('/').ok_or(TargetError::AboveRoot)?;
                    out.truncate(root + slash);
                }
                if last {
                    out.push('/');
                }
            }
            None if hidden => return Err(TargetError::HiddenDots),
            None => {}
        }
    }
    Ok(())
}

/// Appends a segment in normal form; returns whether it contains a dot segment between escaped
/// slashes or before a semicolon.
fn append_segment(segment: &[u8], out: &mut String) -> Result<bool, TargetError> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let (mut part, mut slashes, mut hidden) = (out.len(), false, false);
    let mut rest = segment;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte != b'%' {
            out.push(char::from(*byte));
            continue;
        }
        let decoded = check_percent(&segment[segment.len() - rest.len() - 1..])?;
        rest = &rest[2..];
        if is_unreserved(decoded) {
            out.push(char::from(decoded));
            continue;
        }
        let end = out.len();
        out.push('%');
        out.push(char::from(DIGITS[usize::from(decoded >> 4)]));
        out.push(char::from(DIGITS[usize::from(decoded & 0xf)]));
        if is_slash(decoded) {
            hidden |= dots(&out[part..end]).is_some() || dots_before_semicolon(&out[part..end]);
            (part, slashes) = (out.len(), true);
        }
    }
    let last = &out[part..];
    Ok(hidden || dots_before_semicolon(last) || (slashes && dots(last).is_some()))
}

/// Whether the part is a dot segment for servers that remove everything after `;` in a segment
/// before they remove dot segments, as servlet containers do.
fn dots_before_semicolon(part: &str) -> bool {
    let rest = part.strip_prefix("..").or_else(|| part.strip_prefix('.'));
    rest.is_some_and(|rest| rest.starts_with(';') || rest.starts_with("%3B"))
}

/// Returns the number of dots, if the segment is `.` or `..`.
fn dots(segment: &str) -> Option<u8> {
    match segment {
        "." => Some(1),
        ".." => Some(2),
        _ => None,
    }
}

/// Errors in a host. A request with such a host is refused with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// The host has a port but no name.
    NoName,
    /// The host is longer than any valid name.
    TooLong,
    /// The host contains a byte that no name has, including the `@` of user information.
    Byte,
    /// The text in brackets is not an IPv6 address.
    Address,
    /// The port is not a number up to 65535.
    Port,
}

impl HostError {
    /// Returns the reason that logs and the response's body give for the refusal.
    pub fn reason(self) -> Reason {
        match self {
            HostError::NoName => Reason::HostNoName,
            HostError::TooLong => Reason::HostTooLong,
            HostError::Byte => Reason::HostByte,
            HostError::Address => Reason::HostAddress,
            HostError::Port => Reason::HostPort,
        }
    }
}

/// Longest host in bytes. Names have at most 253 bytes (RFC 1035); brackets and a port add a few.
const HOST_BYTES_MAX: usize = 270;

/// Validates the value of Host or a URI's authority (RFC 9110 7.2, RFC 3986 3.2.2) and appends it
/// to `out` in lower case, without an empty port. An empty Host is valid and appends nothing.
///
/// After an error the content of `out` is unspecified.
pub fn host(raw: &[u8], out: &mut String) -> Result<(), HostError> {
    if raw.len() > HOST_BYTES_MAX {
        return Err(HostError::TooLong);
    }
    let name_end = match raw {
        [] => return Ok(()),
        [b'[', ..] => 1 + memchr::memchr(b']', raw).ok_or(HostError::Address)?,
        _ => memchr::memchr(b':', raw).unwrap_or(raw.len()),
    };
    let (name, port) = raw.split_at(name_end);
    match name {
        [] => return Err(HostError::NoName),
        [b'[', address @ .., b']'] => check_address(address)?,
        _ => check_name(name)?,
    }
    let start = out.len();
    // `check_address` and `check_name` permit only ASCII, so this conversion succeeds.
    out.push_str(std::str::from_utf8(name).map_err(|_| HostError::Byte)?);
    out[start..].make_ascii_lowercase();
    append_port(port, out)
}

/// Checks a reg-name (RFC 3986 3.2.2), which includes IPv4 addresses.
fn check_name(name: &[u8]) -> Result<(), HostError> {
    for (i, &b) in name.iter().enumerate() {
        let valid = match b {
            b'%' => matches!(check_percent(&name[i..]), Ok(b'!'..)),
            _ => b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&b),
        };
        if !valid {
            return Err(HostError::Byte);
        }
    }
    Ok(())
}

/// Checks an IPv6 address without a zone.
fn check_address(address: &[u8]) -> Result<(), HostError> {
    let text = std::str::from_utf8(address).map_err(|_| HostError::Address)?;
    let parsed: Result<Ipv6Addr, _> = text.parse();
    parsed.map(|_| ()).map_err(|_| HostError::Address)
}

/// Appends the port: nothing, `:`, or `:` and a number.
fn append_port(port: &[u8], out: &mut String) -> Result<(), HostError> {
    let digits = match port {
        [] | [b':'] => return Ok(()),
        [b':', digits @ ..] => digits,
        _ => return Err(HostError::Byte),
    };
    let text = std::str::from_utf8(digits).map_err(|_| HostError::Port)?;
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) || text.parse::<u16>().is_err() {
        return Err(HostError::Port);
    }
    out.push(':');
    out.push_str(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(raw: &str) -> Result<String, TargetError> {
        let mut out = String::new();
        canonical(&Method::Get, raw.as_bytes(), &mut out).map(|_| out)
    }

    #[test]
    fn normal_targets_are_unchanged() {
        for target in [
            "/",
            "/a/b.html",
            "/a.b/..c/d..",
            "/a...",
            "/...",
            "/a//b/",
            "//",
            "/a%2Fb%5C%C3%A9",
            "/?",
            "/a?b?c",
            "/a?x=/../y&z=%",
            "/a?%zz%00%41%2f",
            "/a..%2Fb%5C.c",
            "/a;b=c,d!$&'()*+=:@~_-",
            "/\"<>^`{|}",
            "/a/b.",
            "/.a",
            "/.../b",
        ] {
            assert_eq!(get(target).as_deref(), Ok(target));
        }
    }

    #[test]
    fn dot_segments_are_removed() {
        for (target, expected) in [
            ("/a/b/c/./../../g", "/a/g"),
            ("/.", "/"),
            ("/./", "/"),
            ("/./a", "/a"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/../", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../c?../d", "/a/c?../d"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/%2e/b", "/b"),
            ("/a//../b", "/a/b"),
            ("/a/./b.c/..d", "/a/b.c/..d"),
            ("/..a/./%41", "/..a/A"),
            ("/.//x", "//x"),
        ] {
            assert_eq!(get(target).as_deref(), Ok(expected), "{target}");
        }
    }

    #[test]
    fn each_path_has_one_spelling() {
        for (target, expected) in [
            ("/%70rivate/x", "/private/x"),
            ("/%7Euser/%2d%5F%2E1", "/~user/-_.1"),
            ("/%2e%2e%2e", "/..."),
            ("/%41%2fb%5c", "/A%2Fb%5C"),
            ("/%c3%a9", "/%C3%A9"),
            ("/%2541", "/%2541"),
            ("/a;x/.a;/...;/..a;/;..", "/a;x/.a;/...;/..a;/;.."),
            ("/%25%34%31", "/%2541"),
            ("/a?%41", "/a?%41"),
        ] {
            assert_eq!(get(target).as_deref(), Ok(expected), "{target}");
        }
    }

    #[test]
    fn ambiguous_targets_are_refused() {
        for (target, error) in [
            ("", TargetError::NoTarget),
            ("a", TargetError::NoTarget),
            ("*", TargetError::NoTarget),
            ("?a", TargetError::NoTarget),
            ("/..", TargetError::AboveRoot),
            ("/../a", TargetError::AboveRoot),
            ("/a/../../b", TargetError::AboveRoot),
            ("/%2e%2e/b", TargetError::AboveRoot),
            ("/a/./../../b", TargetError::AboveRoot),
            ("/a#b", TargetError::Byte),
            ("/a?b#c", TargetError::Byte),
            ("/a b", TargetError::Byte),
            ("/a?b c", TargetError::Byte),
            ("/a\\b", TargetError::Byte),
            ("/a?\\", TargetError::Byte),
            ("/a\tb", TargetError::Byte),
            ("/a\u{7f}", TargetError::Byte),
            ("/\u{e9}", TargetError::Byte),
            ("/a?\0", TargetError::Byte),
            ("/%", TargetError::Percent),
            ("/%4", TargetError::Percent),
            ("/%4?1", TargetError::Percent),
            ("/%zz", TargetError::Percent),
            ("/a%00", TargetError::Nul),
            ("/a/..%2fadmin", TargetError::HiddenDots),
            ("/a/%2e%2E%2Fadmin", TargetError::HiddenDots),
            ("/a/x%2f..", TargetError::HiddenDots),
            ("/a/x%5C..%5cy", TargetError::HiddenDots),
            ("/a%5c.%2Fb", TargetError::HiddenDots),
            ("/v/1/..;/..;/x", TargetError::HiddenDots),
            ("/v/1/..;a=b", TargetError::HiddenDots),
            ("/v/1/%2e.%3b/x", TargetError::HiddenDots),
            ("/v/1/.;/x?y", TargetError::HiddenDots),
            ("/v/1/x%2f..;%2Fx", TargetError::HiddenDots),
            ("/v/1/x%5c..%3Ba", TargetError::HiddenDots),
        ] {
            assert_eq!(get(target), Err(error), "{target:?}");
        }
    }

    #[test]
    fn absolute_form_is_split_into_its_parts() {
        for (target, authority, expected) in [
            ("http://h", "h", "/"),
            ("HTTP://h:80/", "h:80", "/"),
            ("http://h?q", "h", "/?q"),
            ("http://H/a/../b?c", "H", "/b?c"),
            ("http://[::1]:8/x", "[::1]:8", "/x"),
        ] {
            let mut out = String::new();
            let form = canonical(&Method::Get, target.as_bytes(), &mut out);
            let expected_form = Form::Absolute {
                scheme: Scheme::Http,
                authority: authority.as_bytes(),
            };
            assert_eq!((form, &*out), (Ok(expected_form), expected), "{target}");
        }
        for (target, error) in [
            ("http:///a", TargetError::NoHost),
            ("http://", TargetError::NoHost),
            ("http://:80/", TargetError::NoHost),
            ("http://u@h/", TargetError::UserInfo),
            ("http://u:p@h/", TargetError::UserInfo),
            ("ftp://h/", TargetError::Scheme),
            ("://h/", TargetError::Scheme),
            ("http://h/../a", TargetError::AboveRoot),
            ("http://h#a", TargetError::Byte),
            ("http://h\\a", TargetError::Byte),
            ("http:/h", TargetError::NoTarget),
            ("h:80", TargetError::NoTarget),
        ] {
            assert_eq!(get(target), Err(error), "{target}");
        }
        let mut out = String::new();
        let form = canonical(&Method::Get, b"https://h/", &mut out);
        assert!(matches!(
            form,
            Ok(Form::Absolute {
                scheme: Scheme::Https,
                ..
            })
        ));
    }

    #[test]
    fn options_and_connect_have_their_own_forms() {
        let of = |method: Method, raw: &'static str| {
            let mut out = String::new();
            let form = canonical(&method, raw.as_bytes(), &mut out);
            (form, out)
        };
        assert_eq!(of(Method::Options, "*"), (Ok(Form::Asterisk), "*".into()));
        assert_eq!(of(Method::Options, "http://h").1, "*");
        assert_eq!(of(Method::Options, "http://h/").1, "/");
        assert_eq!(of(Method::Options, "/a").1, "/a");
        let connect = of(Method::Connect, "h:443");
        assert_eq!(connect, (Ok(Form::Authority), String::new()));
    }

    fn host_of(raw: &str) -> Result<String, HostError> {
        let mut out = String::new();
        host(raw.as_bytes(), &mut out).map(|()| out)
    }

    #[test]
    fn hosts_are_validated_and_lowercased() {
        for (raw, expected) in [
            ("", ""),
            ("Example.COM", "example.com"),
            ("example.com.", "example.com."),
            ("h:", "h"),
            ("h:0", "h:0"),
            ("h:65535", "h:65535"),
            ("h:00080", "h:00080"),
            ("1.2.3.4:80", "1.2.3.4:80"),
            ("[::1]", "[::1]"),
            ("[2001:DB8::1]:80", "[2001:db8::1]:80"),
            ("a_b-c~!$&'()*+,;=", "a_b-c~!$&'()*+,;="),
            ("%C3%A9", "%c3%a9"),
        ] {
            assert_eq!(host_of(raw).as_deref(), Ok(expected), "{raw}");
        }
        let long = "a".repeat(271);
        for (raw, error) in [
            (":80", HostError::NoName),
            (":", HostError::NoName),
            ("h:65536", HostError::Port),
            ("h:000080", HostError::Port),
            ("h:+80", HostError::Port),
            ("h:80:80", HostError::Port),
            ("h:a", HostError::Port),
            ("u@h", HostError::Byte),
            ("h/", HostError::Byte),
            ("h h", HostError::Byte),
            ("h, h", HostError::Byte),
            ("h?", HostError::Byte),
            ("h#", HostError::Byte),
            ("h\\", HostError::Byte),
            ("h%", HostError::Byte),
            ("h%00", HostError::Byte),
            ("h%0a", HostError::Byte),
            ("\u{e9}", HostError::Byte),
            ("a]", HostError::Byte),
            ("[::1]x", HostError::Byte),
            ("[::1", HostError::Address),
            ("[]", HostError::Address),
            ("[1.2.3.4]", HostError::Address),
            ("[fe80::1%25eth0]", HostError::Address),
            ("[v1.x]", HostError::Address),
            (&long, HostError::TooLong),
        ] {
            assert_eq!(host_of(raw), Err(error), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(raw in "/[a./%2eEfF5c?]{0,20}") {
            if let Ok(once) = get(&raw) {
                prop_assert!(once.starts_with('/'));
                let path = once.split('?').next().unwrap_or_default();
                prop_assert!(path.split('/').all(|s| dots(s).is_none()), "{}", once);
                prop_assert_eq!(get(&once), Ok(once.clone()));
            }
        }

        #[test]
        fn normalising_a_host_twice_changes_nothing(raw in "[a-zA-Z0-9.:\\[\\]%@-]{0,20}") {
            if let Ok(once) = host_of(&raw) {
                prop_assert_eq!(host_of(&once), Ok(once.clone()));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut out = String::new();
            let _ = canonical(&Method::Options, &bytes, &mut out);
            let _ = host(&bytes, &mut out);
        }
    }
}
