//! Parses and checks the head of the origin's response.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status as Parse};
use smallvec::SmallVec;

use crate::handler::Fault;
use crate::http::fields::is_field_value;
use crate::http::hop::is_hop_by_hop;
use crate::http::{Fields, Method, Status, Version};
use crate::reason::Reason;
use crate::upstream::hop::{self, HopByHop};
use crate::upstream::inbound::{Content, LINES_MAX, Received};

/// A parsed head, and what it says about its connection.
#[derive(Debug)]
pub(super) struct Parsed {
    /// Length of the head, in bytes.
    pub(super) length: usize,
    /// Whether the connection may be used again after this response.
    pub(super) keeps: bool,
    /// Seconds after which the server closes the connection if it is idle, as far as the server
    /// says.
    pub(super) idle_timeout_s: Option<u64>,
    pub(super) head: Received,
}

/// Parses the head at the beginning of `bytes`. Returns `None` while the head is incomplete. The
/// framing depends on the request's `method`.
pub(super) fn parse(method: &Method, bytes: &[u8]) -> Result<Option<Parsed>, Fault> {
    let mut lines = [const { MaybeUninit::<Header<'_>>::uninit() }; LINES_MAX];
    let mut head = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default()
        .parse_response_with_uninit_headers(&mut head, bytes, &mut lines)
        .map_err(|_| Fault::from(Reason::BadHead))?;
    let (Parse::Complete(length), Some(status @ 100..), Some(minor)) =
        (parsed, head.code, head.version)
    else {
        return match parsed {
            Parse::Partial => Ok(None),
            Parse::Complete(_) => Err(Reason::BadHead.into()),
        };
    };
    let version = match minor {
        0 => Version::Http10,
        _ => Version::Http11,
    };
    let headers: &[Header<'_>] = head.headers;
    let own = OwnLines::of(headers);
    let protocols = match status {
        101 => own.values(Own::Upgrade).map(<[u8]>::to_vec).collect(),
        _ => SmallVec::new(),
    };
    Ok(Some(Parsed {
        length,
        keeps: version == Version::Http11
            && !says_close(&own)
            && !(status == 204 && declares_content(&own)),
        idle_timeout_s: idle_timeout_s(&own),
        head: Received {
            status,
            version,
            content: content(method, status, version, &own)?,
            fields: forwarded(status, headers, &own, length),
            protocols,
        },
    }))
}

/// Headers about the connection or the framing, which are not forwarded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Connection,
    ContentLength,
    KeepAlive,
    TransferEncoding,
    Upgrade,
    /// Any other hop-by-hop header.
    Other,
}

impl Own {
    /// Returns the kind of a header, or `None` if the header is about the message.
    fn of(name: &str) -> Option<Own> {
        let is = |own: &str| name.eq_ignore_ascii_case(own);
        // Names are compared only with those of the same length, since every line passes here.
        match name.len() {
            7 if is("upgrade") => Some(Own::Upgrade),
            10 if is("connection") => Some(Own::Connection),
            10 if is("keep-alive") => Some(Own::KeepAlive),
            14 if is("content-length") => Some(Own::ContentLength),
            17 if is("transfer-encoding") => Some(Own::TransferEncoding),
            _ => is_hop_by_hop(name.as_bytes()).then_some(Own::Other),
        }
    }
}

/// The values of a head's lines about the connection and the framing. A head has few of them, so that
/// looking for a kind among them is quick.
struct OwnLines<'a>(SmallVec<[(Own, &'a [u8]); 6]>);

impl<'a> OwnLines<'a> {
    fn of(headers: &[Header<'a>]) -> OwnLines<'a> {
        let mut lines = SmallVec::new();
        for header in headers {
            if let Some(own) = Own::of(header.name) {
                lines.push((own, header.value));
            }
        }
        OwnLines(lines)
    }

    /// Returns the values of all lines of this kind.
    fn values(&self, kind: Own) -> impl Iterator<Item = &'a [u8]> + Clone {
        let of_kind = move |&&(own, _): &&(Own, &[u8])| own == kind;
        self.0.iter().filter(of_kind).map(|&(_, value)| value)
    }

    /// Returns the list members of all lines of this kind, including empty ones.
    fn members(&self, kind: Own) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.values(kind)
            .flat_map(|value| value.split(|&b| b == b','))
            .map(<[u8]>::trim_ascii)
    }
}

fn says_close(own: &OwnLines<'_>) -> bool {
    own.members(Own::Connection)
        .any(|option| option.eq_ignore_ascii_case(b"close"))
}

/// Returns the shortest `timeout` in Keep-Alive, in seconds (RFC 2068 19.7.1.1).
fn idle_timeout_s(own: &OwnLines<'_>) -> Option<u64> {
    let parameters = own.members(Own::KeepAlive);
    let timeouts = parameters.filter_map(|parameter| {
        let (name, value) = parameter.split_at_checked(b"timeout".len())?;
        let value = value.trim_ascii_start().strip_prefix(b"=")?;
        let is_timeout = name.eq_ignore_ascii_case(b"timeout");
        is_timeout.then(|| digits(value.trim_ascii())).flatten()
    });
    timeouts.min()
}

/// Whether Content-Length or Transfer-Encoding announce content. A 204 must not have them (RFC 9110
/// 8.6, RFC 9112 6.1): a server that sends them may send content, too.
fn declares_content(own: &OwnLines<'_>) -> bool {
    let mut lengths = own.values(Own::ContentLength);
    lengths.any(|length| length != b"0") || own.values(Own::TransferEncoding).next().is_some()
}

/// Determines how the content is delimited (RFC 9112 6.3).
///
/// Transfer-Encoding together with Content-Length, a last coding other than chunked,
/// Transfer-Encoding in HTTP/1.0 and differing lengths are errors: two recipients may frame such a
/// message in two ways (RFC 9112 6.1, 6.3).
fn content(
    method: &Method,
    status: Status,
    version: Version,
    own: &OwnLines<'_>,
) -> Result<Content, Fault> {
    let chunked = is_chunked(own)?;
    let length = length(own)?;
    if chunked && (length.is_some() || version == Version::Http10) {
        return Err(Reason::BadHead.into());
    }
    Ok(match (method, status, length) {
        (_, 100..=199 | 204, _) => Content::None { declared: None },
        (Method::Head, _, declared) | (_, 304, declared) => Content::None { declared },
        (_, _, Some(0)) => Content::None { declared: None },
        (_, _, Some(length)) => Content::Sized(length),
        (_, _, None) if chunked => Content::Delimited,
        (_, _, None) => Content::UntilClose,
    })
}

/// Whether the content is chunked. Fails for any other transfer coding.
fn is_chunked(own: &OwnLines<'_>) -> Result<bool, Fault> {
    let mut codings = own.members(Own::TransferEncoding);
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(Reason::BadHead.into()),
    }
}

/// Returns the length on which all Content-Length values agree (RFC 9110 8.6 allows repetitions).
fn length(own: &OwnLines<'_>) -> Result<Option<u64>, Fault> {
    let mut length = None;
    for value in own.members(Own::ContentLength) {
        let parsed = digits(value).ok_or(Fault::from(Reason::BadHead))?;
        if length.replace(parsed).is_some_and(|other| other != parsed) {
            return Err(Reason::BadHead.into());
        }
    }
    Ok(length)
}

fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Returns the headers of a head of `length` bytes without hop-by-hop headers, with names in lower
/// case. A 426 keeps Upgrade, which names the protocols that the client has to use (RFC 9110
/// 15.5.22).
fn forwarded(status: Status, headers: &[Header<'_>], own: &OwnLines<'_>, length: usize) -> Fields {
    let named = HopByHop::new(own.values(Own::Connection));
    // The lines take no more bytes than the head; Via is added.
    let mut fields = Fields::with_capacity(length + 32, headers.len() + 1);
    for header in headers {
        let (name, value) = (header.name.as_bytes(), header.value);
        let is_forwarded = match Own::of(header.name) {
            None => !named.names(name),
            Some(Own::Upgrade) => status == 426,
            Some(_) => false,
        };
        // httparse accepts only field values.
        if is_forwarded {
            fields.append_lower(name, value);
        }
    }
    fields
}

/// Parses a trailer section and returns the headers that may be forwarded (RFC 9110 6.5.1).
pub(super) fn trailers(text: &[u8]) -> Result<Fields, &'static str> {
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let parsed = httparse::parse_headers(text, &mut lines);
    let Ok(Parse::Complete((length, lines))) = parsed else {
        return Err("bad trailers");
    };
    if length != text.len() {
        return Err("bytes after the trailers");
    }
    let mut fields = Fields::new();
    for line in lines {
        if hop::may_trail(line.name.as_bytes()) && is_field_value(line.value) {
            fields.append_lower(line.name.as_bytes(), line.value);
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::via;

    fn parsed(method: &Method, text: &str) -> Result<Parsed, Reason> {
        match parse(method, text.as_bytes()) {
            Ok(Some(parsed)) => Ok(parsed),
            Ok(None) => panic!("incomplete: {text:?}"),
            Err(fault) => Err(fault.reason),
        }
    }

    #[test]
    fn content_is_delimited_in_one_way_or_refused() {
        let of = |method: &Method, status: u16, lines: &[&str]| {
            let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let text = format!("HTTP/1.1 {status} X\r\n{lines}\r\n");
            parsed(method, &text).map(|parsed| parsed.head.content)
        };
        let (length, chunked) = ("Content-Length: 5", "Transfer-Encoding: Chunked");
        let (get, head) = (&Method::Get, &Method::Head);
        assert_eq!(of(get, 200, &[length]), Ok(Content::Sized(5)));
        assert_eq!(of(get, 200, &[length, length]), Ok(Content::Sized(5)));
        assert_eq!(of(get, 200, &[chunked]), Ok(Content::Delimited));
        assert_eq!(of(get, 200, &[]), Ok(Content::UntilClose));
        let declared = Ok(Content::None { declared: Some(5) });
        assert_eq!(of(head, 200, &[length]), declared);
        assert_eq!(of(get, 304, &[length]), declared);
        let none = Ok(Content::None { declared: None });
        assert_eq!(of(get, 204, &[length]), none);
        assert_eq!(of(get, 200, &["content-length: 0"]), none);
        for broken in [
            &[length, chunked][..],
            &[length, "content-length: 6"],
            &["content-length: 5, 6"],
            &["content-length: +5"],
            &["content-length:"],
            &["content-length: 99999999999999999999"],
            &["transfer-encoding: gzip"],
            &["transfer-encoding: gzip, chunked"],
            &["transfer-encoding: chunked, chunked"],
            &[chunked, chunked],
            &["transfer-encoding:"],
        ] {
            for method in [get, head] {
                assert_eq!(of(method, 200, broken), Err(Reason::BadHead), "{broken:?}");
            }
        }
    }

    #[test]
    fn values_have_no_control_characters() {
        for byte in 0..=255 {
            let text = [b"HTTP/1.1 200 OK\r\nx-a: a", &[byte][..], b"b\r\n\r\n"].concat();
            let is_value = is_field_value(&[byte]);
            // A single LF ends a line, and the next one is not a header.
            let accepted = matches!(parse(&Method::Get, &text), Ok(Some(_)));
            assert_eq!(accepted, is_value, "{byte}");
        }
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let text = "HTTP/1.1 200 OK\r\nConnection: x-hop, set-cookie\r\nKeep-Alive: timeout=5\r\n\
                    X-Hop: 1\r\nSet-Cookie: a=b\r\nContent-Length: 5\r\nUpgrade: h2c\r\n\
                    Via: 1.0 origin\r\n\r\n";
        let mut received = parsed(&Method::Get, text).expect("a correct head");
        assert!(received.keeps);
        via::add(&mut received.head.fields, received.head.version);
        assert_eq!(
            received.head.fields.text(),
            b"set-cookie: a=b\r\nvia: 1.0 origin\r\nvia: 1.1 sluice\r\n"
        );
    }

    #[test]
    fn a_connection_is_kept_only_with_http_1_1_without_close_and_without_content_of_a_204() {
        let keeps = |head: &str| parsed(&Method::Get, head).expect("a head").keeps;
        assert!(keeps("HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!keeps("HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keeps("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n"));
        assert!(keeps("HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n"));
        assert!(!keeps("HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n"));
        assert!(!keeps(
            "HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n"
        ));
        assert!(keeps("HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n"));
    }
}
