//! A request to a server, in parts from which each protocol renders its own head.

use std::io::Write as _;

use super::forwarded;
use super::header_lines::HeaderLines;
use super::hop::HopByHop;
use super::route_headers::RouteHeaders;
use super::upload::Upload;
use super::via;
use crate::handler::{Fault, Head, Peer, loops};
use crate::http::fields::{is_field_value, is_token};
use crate::http::hop::{is_in, is_reported, reads_as, reads_as_prefix};
use crate::http::trace_context::{PARENT_HEADER, STATE_HEADER};
use crate::http::{RequestId, TraceContext};
use crate::reason::Reason;
use crate::sign::Signature;

/// Headers that are not copied: Sluice writes its own, or they belong to framing.
const REPLACED: &[&str] = &["host", "content-length", "expect"];

/// The header that carries the request's id.
const ID_HEADER: &[u8] = RequestId::HEADER.as_bytes();

/// A request to a server.
pub(super) struct Outbound<'a> {
    /// The request's head, with the client's headers.
    pub(super) head: &'a Head,
    /// The request's target, which may differ from that of `head`.
    pub(super) target: &'a str,
    pub(super) peer: &'a Peer,
    /// Value of Host (`:authority` in HTTP/2).
    pub(super) host: &'a str,
    /// Host that the client has named, for X-Forwarded-Host; empty if the server must not get it.
    pub(super) forwarded_host: &'a str,
    /// The headers that the route's configuration names.
    pub(super) route: &'a RouteHeaders,
    /// Whether the request has Via.
    pub(super) via: bool,
    /// Whether X-Real-IP names the client.
    pub(super) x_real_ip: bool,
    pub(super) upload: &'a Upload,
    /// The signature of the request, if the upstream signs requests.
    pub(super) signature: Option<Signature>,
}

/// Fails if the request can't be sent to any server: it is in a loop, or its method, target or
/// headers are not valid.
pub(super) fn check(head: &Head, target: &str) -> Result<(), Fault> {
    if loops::is_loop(head) {
        return Err(Reason::Loop.into());
    }
    let (method, target) = (head.method.as_str().as_bytes(), target.as_bytes());
    let mut fields = head.fields.iter();
    let valid = is_token(method)
        && !target.is_empty()
        && target.iter().all(u8::is_ascii_graphic)
        && fields.all(|(name, value)| is_token(name) && is_field_value(value));
    match valid {
        true => Ok(()),
        false => Err(Reason::SendFailed.into()),
    }
}

impl Outbound<'_> {
    /// Appends the target. The target is sent as it is, except for a few bytes that a URI must
    /// not contain although clients send them: these are percent-encoded, which does not change the
    /// URI's meaning (RFC 3986 2.1).
    pub(super) fn write_target(&self, out: &mut Vec<u8>) {
        let target = self.target.as_bytes();
        if !needs_encoding(target) {
            return out.extend_from_slice(target);
        }
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

    /// Adds the request's headers to `lines`, without Host and without those of the connection and
    /// of framing.
    ///
    /// Hop-by-hop headers are not forwarded (`hop`), and neither are headers from which an origin may
    /// take URL, host or method, unless the route names them. Forwarded and X-Forwarded-* are replaced by
    /// the client's address, as known from its connection and from trusted proxies.
    pub(super) fn add_headers(&self, lines: &mut impl HeaderLines) {
        let fields = &self.head.fields;
        let hop_by_hop = HopByHop::of(fields);
        // Trailers can follow only content of unknown length.
        let trailers = self.upload.length().is_none();
        let id = self.head.id.as_ref();
        for (name, value) in fields.iter() {
            if hop_by_hop.covers(name) || is_in(REPLACED, name) || is_reported(name) {
                continue;
            }
            if self.route.withholds(name) || (id.is_some() && reads_as(name, ID_HEADER)) {
                continue;
            }
            if self.signature.is_some() && is_of_signature(name) {
                continue;
            }
            if self.head.trace.is_some() && is_of_trace(name) {
                continue;
            }
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            if (is("trailer") && !trailers) || (is("via") && !self.via) {
                continue;
            }
            lines.line(name, value);
        }
        if let Some(signature) = &self.signature {
            for (name, value) in signature.headers() {
                lines.line(name.as_bytes(), value.as_bytes());
            }
        }
        if let Some(id) = id {
            lines.line(ID_HEADER, id.as_str().as_bytes());
        }
        if let Some(trace) = &self.head.trace {
            add_trace(trace, lines);
        }
        if self.via {
            lines.line(b"via", via::entry(self.head.version).as_bytes());
        }
        lines.line_with(loops::HEADER.as_bytes(), |out| {
            loops::append_entry(self.head, out);
        });
        forwarded::add(self.peer, self.forwarded_host.as_bytes(), lines);
        if self.x_real_ip {
            forwarded::add_real_ip(self.peer, lines);
        }
    }

    /// Whether the client accepts trailers (RFC 9110 6.5.1).
    pub(super) fn accepts_trailers(&self) -> bool {
        let mut codings = self.head.fields.members("te");
        codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
    }
}

/// Adds the headers of a trace.
fn add_trace(trace: &TraceContext, lines: &mut impl HeaderLines) {
    lines.line_with(PARENT_HEADER.as_bytes(), |out| trace.write_parent(out));
    if let Some(state) = trace.state() {
        lines.line(STATE_HEADER.as_bytes(), state.as_bytes());
    }
}

/// Whether a header is one of W3C Trace Context, which Sluice replaces.
fn is_of_trace(name: &[u8]) -> bool {
    reads_as(name, PARENT_HEADER.as_bytes()) || reads_as(name, STATE_HEADER.as_bytes())
}

/// Whether the client's value of a header is not sent in signed requests: with the credentials of the configuration,
/// X-Amz-Copy-Source and others would give a client access to further objects.
fn is_of_signature(name: &[u8]) -> bool {
    reads_as(name, b"authorization") || reads_as_prefix(name, b"x-amz-")
}

fn needs_encoding(target: &[u8]) -> bool {
    let (path, query) = match memchr::memchr(b'?', target) {
        Some(at) => target.split_at(at),
        None => (target, &b""[..]),
    };
    memchr::memchr3(b'<', b'>', b'`', path).is_some()
        || memchr::memchr3(b'<', b'>', b'"', query).is_some()
}
