//! Response heads as bytes: what the handler gave, and the fields that are the connection's.

use std::time::{Duration, UNIX_EPOCH};

use crate::handler::Response;
use crate::http::{Status, Version};

/// How a response's content is delimited (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// No content, whatever the head declares: HEAD, 1xx, 204, 304.
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// Chunked, with trailers if the client takes them.
    Chunked {
        /// Whether trailer fields may follow.
        trailers: bool,
    },
    /// Until the connection closes: for HTTP/1.0 where the length is not known.
    UntilClose,
}

/// What of the request decides over the response's framing.
#[derive(Clone, Copy)]
pub struct Asked {
    /// The request's version.
    pub version: Version,
    /// Whether it was HEAD.
    pub head: bool,
    /// Whether the client takes trailers.
    pub trailers: bool,
}

/// What becomes of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Another request may follow.
    Keep {
        /// `Keep-Alive: timeout=`, in seconds.
        timeout_s: Option<u64>,
    },
    /// It closes after this response.
    Close,
    /// It becomes a tunnel.
    Upgrade,
}

/// How the content of `response` is to be delimited.
pub fn delivery(response: &Response, asked: Asked) -> Delivery {
    if asked.head || is_without_content(response.status) {
        return Delivery::None;
    }
    match response.content_length() {
        Some(length) => Delivery::Length(length),
        None if asked.version == Version::Http10 => Delivery::UntilClose,
        None => Delivery::Chunked {
            trailers: asked.trailers,
        },
    }
}

/// 1xx, 204 and 304 never have content (RFC 9110 6.4.1).
fn is_without_content(status: Status) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// Appends the head of a final response.
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
    if !response.stored.contains("date") && !has_date(response.fields.text()) {
        out.extend_from_slice(date);
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
    connection(out, persistence, version);
    out.extend_from_slice(b"\r\n");
}

/// Appends a 1xx head.
pub fn interim(out: &mut Vec<u8>, status: Status, fields: &[u8]) {
    status_line(out, status);
    out.extend_from_slice(fields);
    out.extend_from_slice(b"\r\n");
}

/// Whether there is a Date among lines: a message keeps the date of its origination (RFC 9110 6.6.1).
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
            // What a GET would have declared; never invented (RFC 9110 8.6).
            let declared = match response.status {
                100..=199 | 204 => None,
                _ if response.body.is_empty() => response.length,
                _ => response.content_length(),
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

/// The reason phrase of RFC 9110 15; empty for others.
fn reason(status: Status) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("")
}

/// A `Date` line for this time.
pub fn date_line(unix_s: u64) -> Vec<u8> {
    let time = UNIX_EPOCH + Duration::from_secs(unix_s);
    format!("date: {}\r\n", httpdate::HttpDate::from(time)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Body;
    use crate::http::CacheStatus;

    const GET: Asked = Asked {
        version: Version::Http11,
        head: false,
        trailers: false,
    };

    fn rendered(response: &Response, asked: Asked, persistence: Persistence) -> String {
        let mut out = Vec::new();
        let delivery = delivery(response, asked);
        let date = date_line(784_111_777);
        head(
            &mut out,
            response,
            delivery,
            persistence,
            asked.version,
            &date,
        );
        String::from_utf8(out).expect("a head in ASCII")
    }

    #[test]
    fn a_hit_is_stored_lines_and_what_changes() {
        let mut response = Response::new(200);
        response.stored = [("etag", "\"x\"")].into_iter().collect();
        response.age_s = Some(7);
        response.cache = Some(CacheStatus::hit(53));
        response.body = Body::Bytes(bytes::Bytes::from_static(b"abc"));
        let keep = Persistence::Keep {
            timeout_s: Some(15),
        };
        assert_eq!(
            rendered(&response, GET, keep),
            "HTTP/1.1 200 OK\r\netag: \"x\"\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nage: 7\r\n\
             cache-status: sluice; hit; ttl=53\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\
             keep-alive: timeout=15\r\n\r\n"
        );
    }

    #[test]
    fn a_date_that_is_there_stays() {
        let mut response = Response::new(404);
        response.stored = [("x", "y"), ("Date", "then")].into_iter().collect();
        let text = rendered(&response, GET, Persistence::Close);
        assert_eq!(
            text,
            "HTTP/1.1 404 Not Found\r\nx: y\r\nDate: then\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }

    #[test]
    fn no_length_is_invented_for_head_and_304() {
        let mut response = Response::new(304);
        let keep = Persistence::Keep { timeout_s: None };
        assert!(!rendered(&response, GET, keep).contains("content-length"));
        response.status = 200;
        let head = Asked { head: true, ..GET };
        assert!(!rendered(&response, head, keep).contains("content-length"));
        response.length = Some(12);
        assert!(rendered(&response, head, keep).contains("content-length: 12"));
        let old = Asked {
            version: Version::Http10,
            ..GET
        };
        assert!(rendered(&response, old, keep).contains("connection: keep-alive"));
    }
}
