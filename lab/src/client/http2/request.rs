//! Requests of HTTP/2 made from what tests give for HTTP/1.1: method, target, headers, and framed content.

use std::io::{self, ErrorKind};

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version, uri};

use super::CONNECTION_HEADERS;
use crate::client::body::Decoder;

/// The framing of a request's content, as its headers announce it for HTTP/1.1.
pub(crate) enum Framing {
    /// This many bytes are missing.
    Length(u64),
    /// Chunks and trailers.
    Chunked(Decoder),
}

impl Framing {
    /// Whether nothing is missing.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Framing::Length(left) => *left == 0,
            Framing::Chunked(decoder) => decoder.done(),
        }
    }

    /// Decodes the beginning of `bytes` and appends the content to `content`. Returns the number of bytes consumed.
    pub(super) fn decode(&mut self, bytes: &[u8], content: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Framing::Chunked(decoder) => decoder.decode(bytes, content).map_err(io::Error::other),
            Framing::Length(left) => {
                let count = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                content.extend_from_slice(&bytes[..count]);
                *left -= count as u64;
                Ok(count)
            }
        }
    }

    /// Returns the trailers after chunks.
    pub(super) fn trailers(&self) -> &[(String, String)] {
        match self {
            Framing::Length(_) => &[],
            Framing::Chunked(decoder) => &decoder.trailers,
        }
    }
}

/// A request that can be sent with HTTP/2.
pub(crate) struct Message {
    pub(super) request: Request<()>,
    pub(super) framing: Framing,
    /// The beginning of the content, in the framing of HTTP/1.1.
    pub(super) body: Vec<u8>,
}

impl Message {
    /// Makes a request with the meaning that it would have in HTTP/1.1. `host`: host of requests without Host.
    pub(crate) fn new(
        secure: bool,
        host: &str,
        (method, target): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Message> {
        let value = |wanted: &str| {
            let mut all = headers.iter();
            all.find(|(name, _)| name.eq_ignore_ascii_case(wanted))
                .map(|(_, value)| *value)
        };
        let chunked = value("transfer-encoding").is_some();
        let length = match value("content-length") {
            Some(length) => Some(length.parse().map_err(invalid)?),
            None if chunked => None,
            None if body.is_empty() => Some(0),
            None => Some(body.len() as u64),
        };
        let framing = match length {
            Some(length) => Framing::Length(length),
            None => Framing::Chunked(Decoder::chunked()),
        };
        let method = Method::from_bytes(method.as_bytes()).map_err(invalid)?;
        let uri = uri(secure, value("host").unwrap_or(host), &method, target)?;
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        for (name, value) in headers.iter().filter(|(name, value)| passes(name, value)) {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(invalid)?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(invalid)?;
            request.headers_mut().append(name, value);
        }
        if value("content-length").is_none() && !chunked && !body.is_empty() {
            let length = HeaderValue::from(body.len());
            request
                .headers_mut()
                .insert(http::header::CONTENT_LENGTH, length);
        }
        Ok(Message {
            request,
            framing,
            body: body.to_vec(),
        })
    }
}

/// Whether a header of HTTP/1.1 has a meaning in HTTP/2 beyond the one that its framing has (RFC 9113 8.2.2).
fn passes(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "host" => false,
        "te" => value.eq_ignore_ascii_case("trailers"),
        name => !CONNECTION_HEADERS.contains(&name),
    }
}

/// Returns the URI from which `:scheme`, `:authority` and `:path` follow.
fn uri(secure: bool, host: &str, method: &Method, target: &str) -> io::Result<Uri> {
    if *method == Method::CONNECT {
        return Uri::builder().authority(target).build().map_err(invalid);
    }
    if target.contains("://") && !target.starts_with('/') {
        return target.parse().map_err(invalid);
    }
    let mut parts = uri::Parts::default();
    let scheme = if secure { Scheme::HTTPS } else { Scheme::HTTP };
    parts.scheme = Some(scheme);
    parts.authority = Some(host.parse::<Authority>().map_err(invalid)?);
    parts.path_and_query = Some(target.parse::<PathAndQuery>().map_err(invalid)?);
    Uri::from_parts(parts).map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, error)
}
