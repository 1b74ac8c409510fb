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
            // Writing to a `Vec` does not fail.
            let _ = write!(out, "{}", peer.client);
            if let Some(proxy) = proxy {
                let _ = write!(out, ", {proxy}");
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
    // Writing to a `Vec` does not fail.
    lines.line_with(b"x-real-ip", |out| _ = write!(out, "{}", peer.client));
}

/// Writes `for=…;host=…;proto=…` (RFC 7239 4). The host is quoted, since it may contain a colon.
fn write_element(out: &mut Vec<u8>, peer: &Peer, authority: Option<&[u8]>) {
    if !peer.shared {
        write_node(out, peer.client);
        out.push(b';');
    }
    if let Some(authority) = authority {
        out.extend_from_slice(b"host=\"");
        for &b in authority {
            if matches!(b, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(b);
        }
        out.extend_from_slice(b"\";");
    }
    out.extend_from_slice(b"proto=");
    out.extend_from_slice(peer.scheme.as_str().as_bytes());
}

/// Writes `for=…` (RFC 7239 6). IPv6 addresses are quoted, since they contain colons.
fn write_node(out: &mut Vec<u8>, address: IpAddr) {
    // Writing to a `Vec` does not fail.
    let _ = match address {
        IpAddr::V4(address) => write!(out, "for={address}"),
        IpAddr::V6(address) => write!(out, "for=\"[{address}]\""),
    };
}
