//! Renders the head of a request.

use smallvec::SmallVec;

use crate::http::{Method, Version};
use crate::upstream::header_lines::HeaderLines;
use crate::upstream::outbound::Outbound;
use crate::upstream::upgrade;

/// The lines of a head as HTTP/1.1 sends them.
struct Lines<'a>(&'a mut Vec<u8>);

impl HeaderLines for Lines<'_> {
    fn line_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend_from_slice(name);
        self.0[start..].make_ascii_lowercase();
        self.0.extend_from_slice(b": ");
        write(self.0);
        self.0.extend_from_slice(b"\r\n");
    }
}

/// Appends the complete head of a request in this version of HTTP/1 to `out`. `last`: the connection
/// is closed after this exchange.
pub(super) fn render(outbound: &Outbound<'_>, version: Version, last: bool, out: &mut Vec<u8>) {
    let head = outbound.head;
    out.reserve(outbound.target.len() + head.fields.text().len() + 3 * head.authority.len() + 320);
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    outbound.write_target(out);
    let is_old = version == Version::Http10;
    out.extend_from_slice(match is_old {
        true => b" HTTP/1.0\r\n",
        false => b" HTTP/1.1\r\n",
    });
    let mut lines = Lines(out);
    lines.line(b"host", outbound.host.as_bytes());
    outbound.add_headers(&mut lines);
    // HTTP/1.0 has neither upgrades nor trailers.
    let upgrades = !is_old && add_options(outbound, &mut lines);
    add_framing(&head.method, outbound.upload.length(), &mut lines);
    // `close` is not sent together with `upgrade`, since an upgraded connection ends when its
    // tunnel does.
    if last && !upgrades {
        lines.line(b"connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
}

/// Adds Connection for the options that the client requested: another protocol, or trailers.
/// Returns whether the request asks for another protocol.
fn add_options(outbound: &Outbound<'_>, lines: &mut Lines<'_>) -> bool {
    let protocols: SmallVec<[&[u8]; 4]> = upgrade::protocols(outbound.head).collect();
    if !protocols.is_empty() {
        lines.line(b"upgrade", &protocols.join(&b", "[..]));
        lines.line(b"connection", b"upgrade");
    }
    if outbound.accepts_trailers() {
        lines.line(b"te", b"trailers");
        lines.line(b"connection", b"te");
    }
    !protocols.is_empty()
}

/// Adds the header that frames the content (RFC 9112 6): Content-Length, also 0 for methods that
/// usually have content (RFC 9110 8.6), or chunked if the length is not known.
fn add_framing(method: &Method, length: Option<u64>, lines: &mut Lines<'_>) {
    match length {
        Some(0) if !matches!(method, Method::Post | Method::Put | Method::Patch) => {}
        Some(length) => {
            let mut digits = itoa::Buffer::new();
            lines.line(b"content-length", digits.format(length).as_bytes());
        }
        None => lines.line(b"transfer-encoding", b"chunked"),
    }
}
