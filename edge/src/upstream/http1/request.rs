//! Builds the head of the request that the origin gets from the client's request.

use std::io::Write as _;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::handler::{Fault, Head, Peer};
use crate::http::fields::{is_field_value, is_token};
use crate::http::hop::is_in;
use crate::http::{Fields, Method, Version};
use crate::reason::Reason;
use crate::upstream::hop::{self, HopByHop};

/// Sluice's name in Via.
pub(super) const PSEUDONYM: &[u8] = b"sluice";

/// Largest number of instances of Sluice that a request may have passed. A request with more in Via
/// is in a loop.
const PASSES_MAX: usize = 8;

/// Most protocols forwarded in Upgrade. Real requests name one.
const PROTOCOLS_MAX: usize = 16;

/// Headers that are not copied: Sluice writes its own, or they belong to framing.
const REPLACED: &[&str] = &["host", "content-length", "expect"];

/// The parts from which a request's head is built.
pub(in crate::upstream) struct Source<'a> {
    pub(in crate::upstream) head: &'a Head,
    pub(in crate::upstream) peer: &'a Peer,
    /// Value of Host sent in place of the client's.
    pub(in crate::upstream) host: Option<&'a str>,
    /// Value of Host sent when neither client nor configuration name one (HTTP/1.0).
    pub(in crate::upstream) fallback_host: &'a str,
    /// Bytes of content, if known.
    pub(in crate::upstream) length: Option<u64>,
}

/// Appends the request's head to `out`, without the empty line that ends it.
///
/// Hop-by-hop headers are not forwarded (`hop`). Forwarded and X-Forwarded-* are replaced by the
/// client's address, as known from its connection and from trusted proxies. Header names are sent
/// in lower case.
pub(in crate::upstream) fn build(source: &Source<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let head = source.head;
    refuse_loops(&head.fields)?;
    out.reserve(head.target.len() + head.fields.text().len() + 3 * head.authority.len() + 320);
    request_line(head, out)?;
    line(out, b"host", host(source).as_bytes());
    copy_fields(head, source.length.is_none(), out)?;
    line(out, b"via", via(head.version).as_bytes());
    announce_client(source, out);
    write_options(head, out)?;
    frame(&head.method, source.length, out);
    Ok(())
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a header line whose name and value were not checked yet. Writes the name in lower case,
/// and fails if either is invalid.
fn checked_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Fault> {
    if !is_token(name) || !is_field_value(value) {
        return Err(Reason::SendFailed.into());
    }
    let start = out.len();
    line(out, name, value);
    out[start..start + name.len()].make_ascii_lowercase();
    Ok(())
}

/// Writes the request line. The target is sent as received, except for a few bytes that a URI must
/// not contain although clients send them: these are percent-encoded, which does not change the
/// URI's meaning (RFC 3986 2.1).
fn request_line(head: &Head, out: &mut Vec<u8>) -> Result<(), Fault> {
    let (method, target) = (head.method.as_str().as_bytes(), head.target.as_bytes());
    if !is_token(method) || target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Reason::SendFailed.into());
    }
    out.extend_from_slice(method);
    out.push(b' ');
    match needs_encoding(head) {
        true => encode(target, out),
        false => out.extend_from_slice(target),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    Ok(())
}

fn needs_encoding(head: &Head) -> bool {
    let (path, query) = match memchr::memchr(b'?', head.target.as_bytes()) {
        Some(at) => head.target.as_bytes().split_at(at),
        None => (head.target.as_bytes(), &b""[..]),
    };
    memchr::memchr3(b'<', b'>', b'`', path).is_some()
        || memchr::memchr3(b'<', b'>', b'"', query).is_some()
}

fn encode(target: &[u8], out: &mut Vec<u8>) {
    for &b in target {
        match b {
            b'<' | b'>' | b'"' | b'`' => {
                // Writing to a `Vec` does not fail.
                let _ = write!(out, "%{b:02X}");
            }
            _ => out.push(b),
        }
    }
}

/// Refuses a request whose Via has Sluice's name too often (RFC 9110 7.6.3).
fn refuse_loops(fields: &Fields) -> Result<(), Fault> {
    let is_own = |member: &&[u8]| {
        let mut parts = member.split(|b| b.is_ascii_whitespace());
        parts.nth(1) == Some(PSEUDONYM)
    };
    match fields.members("via").filter(is_own).count() {
        0..PASSES_MAX => Ok(()),
        _ => Err(Reason::Loop.into()),
    }
}

fn host<'a>(source: &Source<'a>) -> &'a str {
    let authority = source.head.authority.as_str();
    match source.host {
        Some(configured) => configured,
        None if !authority.is_empty() && is_field_value(authority.as_bytes()) => authority,
        None => source.fallback_host,
    }
}

/// Copies the headers that are forwarded. Trailer is copied only if the content is chunked, since
/// only then trailers can follow.
fn copy_fields(head: &Head, trailers: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
    let hop_by_hop = HopByHop::of(&head.fields);
    for (name, value) in head.fields.iter() {
        if hop_by_hop.covers(name) || is_in(REPLACED, name) || hop::is_forwarding(name) {
            continue;
        }
        if !trailers && name.eq_ignore_ascii_case(b"trailer") {
            continue;
        }
        checked_line(out, name, value)?;
    }
    Ok(())
}

/// Returns Sluice's entry in Via, with the version in which the message was received (RFC 9110
/// 7.6.3).
pub(super) fn via(version: Version) -> &'static str {
    match version {
        Version::Http10 => "1.0 sluice",
        Version::Http11 => "1.1 sluice",
        Version::Http2 => "2.0 sluice",
        Version::Http3 => "3.0 sluice",
    }
}

/// Writes X-Forwarded-* and Forwarded: the client, then the trusted proxy that named it, if there
/// is one. Entries about earlier hops are not forwarded, since they cannot be verified.
fn announce_client(source: &Source<'_>, out: &mut Vec<u8>) {
    let (peer, authority) = (source.peer, source.head.authority.as_bytes());
    let proxy = peer.address.ip().to_canonical();
    let proxy = (proxy != peer.client).then_some(proxy);
    // Writing to a `Vec` does not fail.
    let _ = write!(out, "x-forwarded-for: {}", peer.client);
    if let Some(proxy) = proxy {
        let _ = write!(out, ", {proxy}");
    }
    out.extend_from_slice(b"\r\n");
    line(out, b"x-forwarded-proto", peer.scheme.as_str().as_bytes());
    if !authority.is_empty() && is_field_value(authority) {
        line(out, b"x-forwarded-host", authority);
    }
    out.extend_from_slice(b"forwarded: ");
    write_forwarded(out, source);
    if let Some(proxy) = proxy {
        out.extend_from_slice(b", ");
        write_node(out, proxy);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes `for=…` (RFC 7239 6). IPv6 addresses are quoted, since they contain colons.
fn write_node(out: &mut Vec<u8>, address: IpAddr) {
    // Writing to a `Vec` does not fail.
    let _ = match address {
        IpAddr::V4(address) => write!(out, "for={address}"),
        IpAddr::V6(address) => write!(out, "for=\"[{address}]\""),
    };
}

/// Writes `for=…;host=…;proto=…` (RFC 7239 4). The host is quoted, since it may contain a colon.
fn write_forwarded(out: &mut Vec<u8>, source: &Source<'_>) {
    write_node(out, source.peer.client);
    let authority = source.head.authority.as_bytes();
    if !authority.is_empty() && is_field_value(authority) {
        out.extend_from_slice(b";host=\"");
        for &b in authority {
            if matches!(b, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(b);
        }
        out.push(b'"');
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(source.peer.scheme.as_str().as_bytes());
}

/// Returns the protocols that are forwarded in Upgrade (RFC 9110 7.8). HTTP/2 in clear text and TLS
/// are left out: requests inside these would bypass every rule of the configuration.
pub(in crate::upstream) fn protocols(head: &Head) -> impl Iterator<Item = &[u8]> {
    let asked = head.upgrade.then(|| head.fields.members("upgrade"));
    let asked = asked.into_iter().flatten().take(PROTOCOLS_MAX);
    asked.filter(|protocol| {
        let name = protocol.split(|&b| b == b'/').next().unwrap_or_default();
        !is_in(&["h2c", "tls"], name.trim_ascii())
    })
}

/// Writes Connection for the options that the client requested: another protocol, or trailers.
fn write_options(head: &Head, out: &mut Vec<u8>) -> Result<(), Fault> {
    let protocols: SmallVec<[&[u8]; 4]> = protocols(head).collect();
    if !protocols.is_empty() {
        checked_line(out, b"upgrade", &protocols.join(&b", "[..]))?;
        line(out, b"connection", b"upgrade");
    }
    let mut codings = head.fields.members("te");
    if codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers")) {
        line(out, b"te", b"trailers");
        line(out, b"connection", b"te");
    }
    Ok(())
}

/// Writes the header that frames the content (RFC 9112 6): Content-Length, also 0 for methods that
/// usually have content (RFC 9110 8.6), or chunked if the length is not known.
fn frame(method: &Method, length: Option<u64>, out: &mut Vec<u8>) {
    match length {
        Some(0) if !matches!(method, Method::Post | Method::Put | Method::Patch) => {}
        Some(length) => {
            line(
                out,
                b"content-length",
                itoa::Buffer::new().format(length).as_bytes(),
            );
        }
        None => line(out, b"transfer-encoding", b"chunked"),
    }
}
