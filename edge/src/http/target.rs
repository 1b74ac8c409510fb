//! Validation and normalisation of request targets and hosts. Routes, cache keys and origins see
//! only the normal form.

use std::net::Ipv6Addr;

use super::{Method, Scheme, Version};
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
    while let [byte, after @ ..] = rest {
        rest = after;
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
/// to `out` in lower case, without an empty port, without leading zeros of the port (RFC 3986 6.2.3)
/// and without the dot that marks a name as complete (RFC 1034 3.1). An empty Host is valid and
/// appends nothing.
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
    let name = match name {
        [start @ .., b'.'] if !start.is_empty() => start,
        _ => name,
    };
    // `check_address` and `check_name` permit only ASCII, so this conversion succeeds.
    out.push_str(std::str::from_utf8(name).map_err(|_| HostError::Byte)?);
    out[start..].make_ascii_lowercase();
    append_port(port, out)
}

/// Returns the host of an authority, without port and trailing dot.
pub fn host_of(authority: &str) -> &str {
    let host = match authority.starts_with('[') {
        true => authority
            .find(']')
            .map_or(authority, |end| &authority[..=end]),
        false => authority
            .split_once(':')
            .map_or(authority, |(host, _)| host),
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// Returns the value of Host of a request with this number of Host lines, of which `host` is one;
/// `None` if a request of HTTP/1.0 has none.
///
/// # Errors
///
/// The reason for status 400: the request has no Host or several (RFC 9112 3.2), or an empty one.
pub fn only_host(
    lines: usize,
    host: Option<&[u8]>,
    version: Version,
) -> Result<Option<&[u8]>, Reason> {
    match (lines, host) {
        (0, _) if version == Version::Http10 => Ok(None),
        (0, _) => Err(Reason::NoHost),
        (1, Some(host)) if !host.is_empty() || version == Version::Http10 => Ok(Some(host)),
        (1, _) => Err(Reason::EmptyHost),
        _ => Err(Reason::RepeatedHost),
    }
}

/// Checks a reg-name (RFC 3986 3.2.2), which includes IPv4 addresses.
fn check_name(name: &[u8]) -> Result<(), HostError> {
    if name.ends_with(b"..") {
        return Err(HostError::Byte);
    }
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
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(HostError::Port);
    }
    let number: u16 = text.parse().map_err(|_| HostError::Port)?;
    out.push(':');
    out.push_str(itoa::Buffer::new().format(number));
    Ok(())
}

#[cfg(test)]
mod tests;
