//! Renders the head and the trailers of a request as header blocks (RFC 9113 8.3.1).

use crate::http::{Fields, Method};
use crate::http2::hpack::{Encoder, Indexing, append_independent};
use crate::http2::malformed::is_connection_specific;
use crate::upstream::header_lines::HeaderLines;
use crate::upstream::outbound::Outbound;

/// Headers that no recipient may add to a table, since their values are secrets (RFC 7541 7.1.3).
const SECRETS: [&[u8]; 3] = [b"authorization", b"cookie", b"proxy-authorization"];
/// Headers whose values are the same in most requests on a connection.
const REPEATED: [&[u8]; 3] = [b"via", b"x-forwarded-proto", b"cdn-loop"];

/// The amount that each field adds to the size of its list, beside its name and its value.
const FIELD_OVERHEAD: u64 = 32;
/// The fields of which the size is not counted singly: `:method`, `:scheme`, `te` and `content-length`.
const FRAMING_FIELDS: u64 = 256;

/// The lines of a head as HTTP/2 sends them.
struct Lines<'a> {
    encoder: &'a mut Encoder,
    out: &'a mut Vec<u8>,
}

impl HeaderLines for Lines<'_> {
    fn line_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::new();
        write(&mut value);
        self.line(name, &value);
    }

    fn line(&mut self, name: &[u8], value: &[u8]) {
        match name.iter().any(u8::is_ascii_uppercase) {
            true => self.lower(&name.to_ascii_lowercase(), value),
            false => self.lower(name, value),
        }
    }
}

impl Lines<'_> {
    fn lower(&mut self, name: &[u8], value: &[u8]) {
        if is_connection_specific(name) {
            return;
        }
        // A value in HTTP/2 has no white space around it (RFC 9113 8.2.1).
        let value = value.trim_ascii();
        if REPEATED.contains(&name) {
            return self.encoder.field(self.out, name, value, Indexing::Field);
        }
        let indexing = match SECRETS.contains(&name) {
            true => Indexing::Never,
            false => Indexing::Without,
        };
        append_independent(self.out, name, value, indexing);
    }
}

/// Counts the size of a header list.
struct Size(u64);

impl HeaderLines for Size {
    fn line_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::new();
        write(&mut value);
        self.line(name, &value);
    }

    fn line(&mut self, name: &[u8], value: &[u8]) {
        self.0 += name.len() as u64 + value.len() as u64 + FIELD_OVERHEAD;
    }
}

/// Returns the size of the header list of a request, or a little more (RFC 9113 6.5.2).
pub(super) fn size(outbound: &Outbound<'_>) -> u64 {
    let mut size = Size(FRAMING_FIELDS);
    size.line(b":path", outbound.target.as_bytes());
    size.line(b":authority", outbound.host.as_bytes());
    outbound.add_headers(&mut size);
    size.0
}

/// Appends the fields of a request's head. `is_encrypted`: the connection has TLS.
pub(super) fn head(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    outbound: &Outbound<'_>,
    is_encrypted: bool,
) {
    let method = &outbound.head.method;
    let scheme: &[u8] = if is_encrypted { b"https" } else { b"http" };
    let mut target = Vec::with_capacity(outbound.target.len());
    outbound.write_target(&mut target);
    append_independent(
        out,
        b":method",
        method.as_str().as_bytes(),
        Indexing::Without,
    );
    append_independent(out, b":scheme", scheme, Indexing::Without);
    append_independent(out, b":path", &target, Indexing::Without);
    if !outbound.host.is_empty() {
        let host = outbound.host.as_bytes();
        encoder.field(out, b":authority", host, Indexing::Field);
    }
    let mut lines = Lines { encoder, out };
    outbound.add_headers(&mut lines);
    if outbound.accepts_trailers() {
        append_independent(lines.out, b"te", b"trailers", Indexing::Without);
    }
    match outbound.upload.length() {
        Some(0) if !matches!(method, Method::Post | Method::Put | Method::Patch) => {}
        Some(length) => {
            let mut digits = itoa::Buffer::new();
            lines.line(b"content-length", digits.format(length).as_bytes());
        }
        None => {}
    }
}

/// Appends the fields of trailers.
pub(super) fn trailers(encoder: &mut Encoder, out: &mut Vec<u8>, fields: &Fields) {
    let mut lines = Lines { encoder, out };
    for (name, value) in fields.iter() {
        lines.line(name, value);
    }
}
