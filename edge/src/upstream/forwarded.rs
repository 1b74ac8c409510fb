//! The headers that name the client to the origin: X-Forwarded-* and Forwarded.

use std::io::Write as _;
use std::net::IpAddr;

use super::header_lines::HeaderLines;
use crate::handler::Peer;
use crate::http::fields::is_field_value;

/// Adds X-Forwarded-* and Forwarded: the client, then the trusted proxy that named it, if there is
/// one. Entries about earlier hops are not forwarded, since they cannot be verified. A request that
/// is made for several clients names none of them.
pub(super) fn add(peer: &Peer, authority: &[u8], lines: &mut impl HeaderLines) {
    let authority = Some(authority).filter(|host| !host.is_empty() && is_field_value(host));
    let proxy = peer.address.ip().to_canonical();
    let proxy = (proxy != peer.client && !peer.shared).then_some(proxy);
    if !peer.shared {
        lines.line_with(b"x-forwarded-for", |out| {
            append_address(out, peer.client);
            if let Some(proxy) = proxy {
                out.extend_from_slice(b", ");
                append_address(out, proxy);
            }
        });
    }
    lines.line(b"x-forwarded-proto", peer.scheme.as_str().as_bytes());
    if let Some(authority) = authority {
        lines.line(b"x-forwarded-host", authority);
    }
    lines.line_with(b"forwarded", |out| {
        write_element(out, peer, authority);
        if let Some(proxy) = proxy {
            out.extend_from_slice(b", ");
            write_node(out, proxy);
        }
    });
}

/// Adds X-Real-IP, which nginx users send in place of X-Forwarded-For.
pub(super) fn add_real_ip(peer: &Peer, lines: &mut impl HeaderLines) {
    if peer.shared {
        return;
    }
    lines.line_with(b"x-real-ip", |out| append_address(out, peer.client));
}

/// Writes `for=…;host=…;proto=…` (RFC 7239 4). The host is quoted, since it may contain a colon.
fn write_element(out: &mut Vec<u8>, peer: &Peer, authority: Option<&[u8]>) {
    if !peer.shared {
        write_node(out, peer.client);
        out.push(b';');
    }
    if let Some(authority) = authority {
        out.extend_from_slice(b"host=\"");
        append_escaped(out, authority);
        out.extend_from_slice(b"\";");
    }
    out.extend_from_slice(b"proto=");
    out.extend_from_slice(peer.scheme.as_str().as_bytes());
}

/// Appends the text of a quoted string (RFC 9110 5.6.4).
fn append_escaped(out: &mut Vec<u8>, mut text: &[u8]) {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        out.extend_from_slice(&text[..at]);
        out.extend_from_slice(&[b'\\', text[at]]);
        text = &text[at + 1..];
    }
    out.extend_from_slice(text);
}

/// Writes `for=…` (RFC 7239 6). IPv6 addresses are quoted, since they contain colons.
fn write_node(out: &mut Vec<u8>, address: IpAddr) {
    let (before, after): (&[u8], &[u8]) = match address {
        IpAddr::V4(_) => (b"for=", b""),
        IpAddr::V6(_) => (b"for=\"[", b"]\""),
    };
    out.extend_from_slice(before);
    append_address(out, address);
    out.extend_from_slice(after);
}

/// Appends an address. Formatting that of IPv4 with `write!` takes 1,900 instructions, which every
/// request would spend twice.
fn append_address(out: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        // Writing to a `Vec` does not fail.
        let _ = write!(out, "{address}");
        return;
    };
    let mut digits = itoa::Buffer::new();
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        out.extend_from_slice(digits.format(octet).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        for text in [
            "0.0.0.0",
            "192.0.2.10",
            "255.255.255.255",
            "2001:db8::1",
            "::ffff:192.0.2.1",
        ] {
            let address: IpAddr = text.parse().expect("an address");
            let mut out = Vec::new();
            append_address(&mut out, address);
            assert_eq!(out, address.to_string().as_bytes());
        }
    }

    #[test]
    fn quotes_and_backslashes_are_escaped() {
        let mut out = Vec::new();
        append_escaped(&mut out, br#"a"b\c""#);
        assert_eq!(out, br#"a\"b\\c\""#);
    }
}
