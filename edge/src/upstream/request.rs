//! The request that the origin gets, built from the one that came in.

use std::fmt::Write as _;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;

use super::hop::{self, Ending};
use super::upload::Upload;
use crate::handler::{Cause, Fault, Head, Peer};
use crate::http::hop::is_in;
use crate::http::{Fields, Method, Version};

/// The name under which we stand in Via.
pub(super) const PSEUDONYM: &[u8] = b"sluice";

/// A request that came through this many of us is going round in circles.
const PASSES_MAX: usize = 8;

/// Fields that are replaced by ours or belong to framing, which hyper does.
const REPLACED: &[&str] = &["host", "content-length", "expect"];

/// What a request is built from, beside the body.
pub(super) struct Source<'a> {
    pub(super) head: &'a Head,
    pub(super) peer: &'a Peer,
    /// The Host to send in place of the client's.
    pub(super) host: Option<&'a HeaderValue>,
    /// The Host to send when neither client nor configuration name one (HTTP/1.0).
    pub(super) fallback_host: &'a HeaderValue,
}

/// Builds the request; `headers` is an empty map whose memory is used.
///
/// Connection fields end here (`hop`). What the client says in Forwarded and X-Forwarded-* is
/// replaced by what we know, since no client is trusted yet. Field names go out in lower case.
pub(super) fn build(
    source: &Source<'_>,
    upload: Upload,
    mut headers: HeaderMap,
) -> Result<http::Request<Upload>, Fault> {
    let head = source.head;
    refuse_loops(&head.fields)?;
    let text = Text::new(source);
    headers.insert(header::HOST, host(source, &text));
    let length = upload.length();
    copy_fields(head, &text, length.is_none(), &mut headers)?;
    headers.append(header::VIA, via(head.version));
    announce_client(source.peer, &text, &mut headers);
    ask_for(head, &mut headers);
    frame(&head.method, length, &mut headers);
    let mut request = http::Request::new(upload);
    *request.method_mut() = method(&head.method)?;
    *request.uri_mut() = text.uri()?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Via with our name too often: the request has been here before (RFC 9110 7.6.3).
fn refuse_loops(fields: &Fields) -> Result<(), Fault> {
    let ours = |member: &&[u8]| {
        let mut words = member.split(|b| b.is_ascii_whitespace());
        words.nth(1) == Some(PSEUDONYM)
    };
    match fields.members("via").filter(ours).count() {
        0..PASSES_MAX => Ok(()),
        _ => Err(Cause::Loop.into()),
    }
}

/// Everything of a request that is not constant, in one buffer that the parts share.
struct Text {
    bytes: Bytes,
    fields_at: usize,
    authority_at: usize,
    client_at: usize,
    forwarded_at: usize,
}

impl Text {
    fn new(source: &Source<'_>) -> Text {
        let Head {
            target,
            authority,
            fields,
            ..
        } = source.head;
        let mut text =
            Vec::with_capacity(target.len() + fields.text().len() + 2 * authority.len() + 160);
        text.extend_from_slice(target.as_bytes());
        let fields_at = text.len();
        text.extend_from_slice(fields.text());
        let authority_at = text.len();
        text.extend_from_slice(authority.as_bytes());
        let client_at = text.len();
        let client = source.peer.address.ip().to_canonical();
        let mut word = String::new();
        // Writing to a String does not fail.
        let _ = write!(word, "{client}");
        text.extend_from_slice(word.as_bytes());
        let forwarded_at = text.len();
        write_forwarded(&mut text, source, client, &word);
        Text {
            bytes: text.into(),
            fields_at,
            authority_at,
            client_at,
            forwarded_at,
        }
    }

    /// The part of the copied field lines that `value` is of the original ones.
    fn field(&self, fields: &Fields, value: &[u8]) -> Option<HeaderValue> {
        let at = value.as_ptr() as usize - fields.text().as_ptr() as usize + self.fields_at;
        HeaderValue::from_maybe_shared(self.bytes.slice(at..at + value.len())).ok()
    }

    fn value(&self, from: usize, to: usize) -> Option<HeaderValue> {
        HeaderValue::from_maybe_shared(self.bytes.slice(from..to)).ok()
    }

    /// The target. A few bytes that no URI may hold but that clients send all the same are
    /// percent-encoded, which means the same (RFC 3986 2.1).
    fn uri(&self) -> Result<http::Uri, Fault> {
        let target = self.bytes.slice(..self.fields_at);
        let path = PathAndQuery::from_maybe_shared(target)
            .or_else(|_| PathAndQuery::try_from(encoded(&self.bytes[..self.fields_at])));
        path.map(http::Uri::from)
            .map_err(|_| Cause::SendFailed.into())
    }
}

fn encoded(target: &[u8]) -> String {
    let mut out = String::with_capacity(target.len() + 16);
    for &b in target {
        match b {
            b'<' | b'>' | b'"' | b'`' => {
                let _ = write!(out, "%{b:02X}");
            }
            _ => out.push(b as char),
        }
    }
    out
}

/// `for=…;host=…;proto=…` (RFC 7239 4). IPv6 addresses and hosts stand in quotes, since they may
/// hold a colon.
fn write_forwarded(text: &mut Vec<u8>, source: &Source<'_>, client: IpAddr, word: &str) {
    text.extend_from_slice(b"for=");
    match client {
        IpAddr::V4(_) => text.extend_from_slice(word.as_bytes()),
        IpAddr::V6(_) => {
            text.extend_from_slice(b"\"[");
            text.extend_from_slice(word.as_bytes());
            text.extend_from_slice(b"]\"");
        }
    }
    if !source.head.authority.is_empty() {
        text.extend_from_slice(b";host=\"");
        for &b in source.head.authority.as_bytes() {
            if matches!(b, b'"' | b'\\') {
                text.push(b'\\');
            }
            text.push(b);
        }
        text.push(b'"');
    }
    text.extend_from_slice(b";proto=");
    text.extend_from_slice(source.peer.scheme.as_str().as_bytes());
}

fn host(source: &Source<'_>, text: &Text) -> HeaderValue {
    let client = || {
        (!source.head.authority.is_empty())
            .then(|| text.value(text.authority_at, text.client_at))
            .flatten()
    };
    let configured = source.host.cloned();
    configured
        .or_else(client)
        .unwrap_or_else(|| source.fallback_host.clone())
}

/// Copies what goes on; Trailer only where the content will be chunked and can have some.
fn copy_fields(
    head: &Head,
    text: &Text,
    trailers: bool,
    headers: &mut HeaderMap,
) -> Result<(), Fault> {
    let ending = Ending::of(&head.fields);
    for (name, value) in head.fields.iter() {
        if ending.covers(name) || is_in(REPLACED, name) || hop::is_forwarding(name) {
            continue;
        }
        if !trailers && name.eq_ignore_ascii_case(b"trailer") {
            continue;
        }
        let (Ok(name), Some(value)) = (
            HeaderName::from_bytes(name),
            text.field(&head.fields, value),
        ) else {
            return Err(Cause::SendFailed.into());
        };
        // The map holds no more than 32,768 names; heads are bounded far below.
        headers
            .try_append(name, value)
            .map_err(|_| Fault::from(Cause::SendFailed))?;
    }
    Ok(())
}

/// Our entry in Via, with the version that the message came in (RFC 9110 7.6.3).
pub(super) fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::Http10 => "1.0 sluice",
        Version::Http11 => "1.1 sluice",
        Version::Http2 => "2.0 sluice",
    })
}

fn announce_client(peer: &Peer, text: &Text, headers: &mut HeaderMap) {
    const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
    const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
    let mut put = |name, value: Option<HeaderValue>| value.map(|v| headers.insert(name, v));
    put(
        X_FORWARDED_FOR,
        text.value(text.client_at, text.forwarded_at),
    );
    put(
        X_FORWARDED_PROTO,
        Some(HeaderValue::from_static(peer.scheme.as_str())),
    );
    if text.authority_at < text.client_at {
        put(
            X_FORWARDED_HOST,
            text.value(text.authority_at, text.client_at),
        );
    }
    put(
        header::FORWARDED,
        text.value(text.forwarded_at, text.bytes.len()),
    );
}

/// Asks on the client's behalf for what concerns this hop: another protocol, trailers.
fn ask_for(head: &Head, headers: &mut HeaderMap) {
    if head.upgrade {
        let protocols = head.fields.joined("upgrade");
        if let Some(Ok(value)) = protocols.map(|p| HeaderValue::from_bytes(&p)) {
            headers.insert(header::UPGRADE, value);
            headers.append(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
    }
    let mut codings = head.fields.members("te");
    if codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers")) {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.append(header::CONNECTION, HeaderValue::from_static("te"));
    }
}

/// Declares the content where hyper would not: a length of 0 for methods that are expected to have
/// content (RFC 9110 8.6), chunked for content of unknown length whatever the method. Everything
/// else hyper sees from the body.
fn frame(method: &Method, length: Option<u64>, headers: &mut HeaderMap) {
    match length {
        Some(0) if matches!(method, Method::Post | Method::Put | Method::Patch) => {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Some(_) => {}
        None => {
            let chunked = HeaderValue::from_static("chunked");
            headers.insert(header::TRANSFER_ENCODING, chunked);
        }
    }
}

fn method(method: &Method) -> Result<http::Method, Fault> {
    Ok(match method {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Delete => http::Method::DELETE,
        Method::Options => http::Method::OPTIONS,
        Method::Patch => http::Method::PATCH,
        Method::Trace => http::Method::TRACE,
        Method::Connect => http::Method::CONNECT,
        Method::Other(token) => http::Method::from_bytes(token.as_bytes())
            .map_err(|_| Fault::from(Cause::SendFailed))?,
    })
}
