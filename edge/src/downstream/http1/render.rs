//! Writes response heads: the handler's headers, and those that belong to the connection.

use crate::downstream::exchange::Extent;
use crate::handler::Response;
use crate::http::{Status, Version};

/// The way in which a response's content is delimited (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// No content, whatever the head declares: HEAD, 1xx, 204, 304.
    None,
    /// Content of exactly this many bytes.
    Length(u64),
    /// Chunked content, with trailers if the client accepts them.
    Chunked {
        /// Whether trailers may follow.
        trailers: bool,
    },
    /// Content that ends when the connection is closed: for HTTP/1.0 if the length is not known.
    UntilClose,
}

/// The connection's state after a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// The connection is kept for another request.
    Keep {
        /// Value of `Keep-Alive: timeout=`, in seconds.
        timeout_s: Option<u64>,
    },
    /// The connection is closed after this response.
    Close,
    /// The connection becomes a tunnel.
    Upgrade,
}

impl Delivery {
    /// Returns how content of this extent is delimited for a client of this version. `trailers`
    /// says that the client accepts trailers.
    pub fn of(extent: Extent, version: Version, trailers: bool) -> Delivery {
        match extent {
            Extent::None => Delivery::None,
            Extent::Exactly(length) => Delivery::Length(length),
            Extent::Unknown if version == Version::Http10 => Delivery::UntilClose,
            Extent::Unknown => Delivery::Chunked { trailers },
        }
    }
}

/// Appends the head of a final response; `date` is the value of a Date header.
pub fn head(
    out: &mut Vec<u8>,
    response: &Response,
    delivery: Delivery,
    persistence: Persistence,
    version: Version,
    date: &[u8],
) {
    out.reserve(response.stored.text().len() + response.fields.text().len() + 256);
    status_line(out, response.status);
    out.extend_from_slice(response.stored.text());
    out.extend_from_slice(response.fields.text());
    if !response.stored.has_date() && !has_date(response.fields.text()) {
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(age) = response.age_s {
        number_line(out, b"age: ", u64::from(age));
    }
    if let Some(cache) = &response.cache {
        out.extend_from_slice(b"cache-status: ");
        cache.render(out);
        out.extend_from_slice(b"\r\n");
    }
    framing(out, response, delivery);
    if response.status == 426 && response.fields.contains("upgrade") {
        // A sender of Upgrade has to name it in Connection (RFC 9110 7.8).
        out.extend_from_slice(b"connection: upgrade\r\n");
    }
    connection(out, persistence, version);
    out.extend_from_slice(b"\r\n");
}

/// Appends a 1xx head.
pub fn interim(out: &mut Vec<u8>, status: Status, fields: &[u8]) {
    status_line(out, status);
    out.extend_from_slice(fields);
    out.extend_from_slice(b"\r\n");
}

/// Whether these lines contain a Date header. If so, no other is added, since an origin's Date must
/// be kept (RFC 9110 6.6.1).
#[inline]
fn has_date(lines: &[u8]) -> bool {
    let mut rest = lines;
    while let Some((first, _)) = rest.split_first() {
        if (*first | 0x20) == b'd'
            && rest.get(4) == Some(&b':')
            && rest[..4].eq_ignore_ascii_case(b"date")
        {
            return true;
        }
        match memchr::memchr(b'\n', rest) {
            Some(lf) => rest = &rest[lf + 1..],
            None => return false,
        }
    }
    false
}

fn framing(out: &mut Vec<u8>, response: &Response, delivery: Delivery) {
    match delivery {
        Delivery::Length(length) => number_line(out, b"content-length: ", length),
        Delivery::Chunked { .. } => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Delivery::UntilClose => {}
        Delivery::None => {
            // The declared length is that of the response to a GET, if it is known (RFC 9110 8.6).
            let declared = match response.status {
                100..=199 | 204 => None,
                _ if response.body.is_empty() => response.length,
                _ => response.declared_length(),
            };
            if let Some(length) = declared {
                number_line(out, b"content-length: ", length);
            }
        }
    }
}

fn connection(out: &mut Vec<u8>, persistence: Persistence, version: Version) {
    match persistence {
        Persistence::Close => out.extend_from_slice(b"connection: close\r\n"),
        Persistence::Upgrade => out.extend_from_slice(b"connection: upgrade\r\n"),
        Persistence::Keep { timeout_s } => {
            if timeout_s.is_some() || version == Version::Http10 {
                out.extend_from_slice(b"connection: keep-alive\r\n");
            }
            if let Some(seconds) = timeout_s {
                number_line(out, b"keep-alive: timeout=", seconds);
            }
        }
    }
}

fn number_line(out: &mut Vec<u8>, name: &[u8], value: u64) {
    out.extend_from_slice(name);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn status_line(out: &mut Vec<u8>, status: Status) {
    match status {
        200 => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        206 => out.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n"),
        304 => out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n"),
        _ => {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
            out.push(b' ');
            out.extend_from_slice(reason(status).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Returns the reason phrase of RFC 9110 15, or an empty string for other statuses.
fn reason(status: Status) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Body;
    use crate::http::CacheStatus;

    /// Returns the head of a response to a GET, or to a HEAD if `is_head`.
    fn rendered(
        response: &Response,
        version: Version,
        is_head: bool,
        persistence: Persistence,
    ) -> String {
        let mut out = Vec::new();
        let delivery = Delivery::of(Extent::of(response, is_head), version, false);
        let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
        head(&mut out, response, delivery, persistence, version, date);
        String::from_utf8(out).expect("a head in ASCII")
    }

    #[test]
    fn a_hit_has_its_stored_lines_and_those_made_per_response() {
        let mut response = Response::new(200);
        response.stored = [("etag", "\"x\"")].into_iter().collect();
        response.age_s = Some(7);
        response.cache = Some(CacheStatus::hit(53));
        response.body = Body::Bytes(bytes::Bytes::from_static(b"abc"));
        let keep = Persistence::Keep {
            timeout_s: Some(15),
        };
        assert_eq!(
            rendered(&response, Version::Http11, false, keep),
            "HTTP/1.1 200 OK\r\netag: \"x\"\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nage: 7\r\n\
             cache-status: sluice; hit; ttl=53\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\
             keep-alive: timeout=15\r\n\r\n"
        );
    }

    #[test]
    fn a_stored_date_is_kept() {
        let mut response = Response::new(404);
        response.stored = [("x", "y"), ("Date", "then")].into_iter().collect();
        let text = rendered(&response, Version::Http11, false, Persistence::Close);
        assert_eq!(
            text,
            "HTTP/1.1 404 Not Found\r\nx: y\r\nDate: then\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }

    #[test]
    fn no_length_is_invented_for_head_and_304() {
        let mut response = Response::new(304);
        let keep = Persistence::Keep { timeout_s: None };
        assert!(!rendered(&response, Version::Http11, false, keep).contains("content-length"));
        response.status = 200;
        assert!(!rendered(&response, Version::Http11, true, keep).contains("content-length"));
        response.length = Some(12);
        assert!(rendered(&response, Version::Http11, true, keep).contains("content-length: 12"));
        assert!(
            rendered(&response, Version::Http10, false, keep).contains("connection: keep-alive")
        );
    }
}
