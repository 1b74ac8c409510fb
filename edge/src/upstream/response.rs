//! What the origin answered, checked and turned into our words.

use http::header::{self, HeaderMap};
use hyper::Version as HyperVersion;

use super::hop::{self, Ending};
use super::request;
use crate::handler::{Cause, Fault};
use crate::http::fields::is_field_value;
use crate::http::{Fields, Method, Status, Version};

/// How a response's content is delimited (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// There is none. The Content-Length it would have had, where HEAD or 304 tells.
    None { declared: Option<u64> },
    /// Exactly so many bytes.
    Sized(u64),
    /// Chunked, or up to the close of the connection.
    Open,
}

/// Decides how the content is delimited.
///
/// hyper would take a response with both Transfer-Encoding and Content-Length for chunked, and one
/// whose last coding is not chunked for delimited by the close. Both are ways to make two readers
/// see two different messages, so they are errors here, as are differing lengths (hyper refuses
/// those itself, but not in answers to HEAD).
pub(super) fn content(
    method: &Method,
    status: Status,
    headers: &HeaderMap,
) -> Result<Content, Fault> {
    let chunked = is_chunked(headers)?;
    let length = length(headers)?;
    if chunked && length.is_some() {
        return Err(Cause::BadHead.into());
    }
    Ok(match (method, status, length) {
        (_, 101 | 204, _) => Content::None { declared: None },
        (Method::Head, _, declared) | (_, 304, declared) => Content::None { declared },
        (_, _, Some(0)) => Content::None { declared: None },
        (_, _, Some(length)) => Content::Sized(length),
        (_, _, None) => Content::Open,
    })
}

/// The only coding we know is a single `chunked`.
fn is_chunked(headers: &HeaderMap) -> Result<bool, Fault> {
    let mut codings = headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&b| b == b','))
        .map(<[u8]>::trim_ascii);
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(Cause::BadHead.into()),
    }
}

/// The one length that all Content-Length values agree on (RFC 9110 8.6 allows to repeat it).
fn length(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let values = headers
        .get_all(header::CONTENT_LENGTH)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&b| b == b','))
        .map(<[u8]>::trim_ascii);
    let mut length = None;
    for value in values {
        let parsed = digits(value).ok_or(Fault::from(Cause::BadHead))?;
        if length.replace(parsed).is_some_and(|other| other != parsed) {
            return Err(Cause::BadHead.into());
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

/// The field lines that go on, with ours in Via. Framing is downstream's.
pub(super) fn fields(headers: &HeaderMap, version: Version) -> Result<Fields, Fault> {
    let mut fields = end_to_end(headers)?;
    fields.append("via", request::via(version));
    Ok(fields)
}

/// The field lines of a head without those that end at this hop.
pub(super) fn end_to_end(headers: &HeaderMap) -> Result<Fields, Fault> {
    let connection = headers.get_all(header::CONNECTION).iter();
    let ending = Ending::new(connection.map(|value| value.as_bytes()));
    let mut fields = Fields::new();
    for (name, value) in headers {
        let (name, value) = (name.as_str(), value.as_bytes());
        if name == "content-length" || ending.covers(name.as_bytes()) {
            continue;
        }
        if !is_field_value(value) {
            return Err(Cause::BadHead.into());
        }
        fields.append(name, value);
    }
    Ok(fields)
}

/// The trailers that may go on (RFC 9110 6.5.1).
pub(super) fn trailers(headers: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers {
        if hop::may_trail(name.as_str().as_bytes()) && is_field_value(value.as_bytes()) {
            fields.append(name.as_str(), value);
        }
    }
    fields
}

/// The version an origin speaks.
pub(super) fn version(version: HyperVersion) -> Version {
    match version {
        HyperVersion::HTTP_10 => Version::Http10,
        _ => Version::Http11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{HeaderName, HeaderValue};

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let line = |&(name, value): &(&str, &str)| {
            (
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            )
        };
        let mut map = HeaderMap::new();
        for (name, value) in lines.iter().map(line) {
            map.append(name, value);
        }
        map
    }

    #[test]
    fn content_is_delimited_in_one_way_or_not_at_all() {
        let of = |method: Method, status, lines: &[(&str, &str)]| {
            content(&method, status, &map(lines)).map_err(|fault| fault.cause)
        };
        let length = ("content-length", "5");
        let chunked = ("transfer-encoding", "Chunked");
        assert_eq!(of(Method::Get, 200, &[length]), Ok(Content::Sized(5)));
        assert_eq!(
            of(Method::Get, 200, &[length, length]),
            Ok(Content::Sized(5))
        );
        assert_eq!(of(Method::Get, 200, &[chunked]), Ok(Content::Open));
        assert_eq!(of(Method::Get, 200, &[]), Ok(Content::Open));
        let declared = Ok(Content::None { declared: Some(5) });
        assert_eq!(of(Method::Head, 200, &[length]), declared);
        assert_eq!(of(Method::Get, 304, &[length]), declared);
        let none = Ok(Content::None { declared: None });
        assert_eq!(of(Method::Get, 204, &[length]), none);
        assert_eq!(of(Method::Get, 200, &[("content-length", "0")]), none);
        for broken in [
            &[length, chunked][..],
            &[length, ("content-length", "6")],
            &[("content-length", "5, 6")],
            &[("content-length", "+5")],
            &[("content-length", "")],
            &[("content-length", "99999999999999999999")],
            &[("transfer-encoding", "gzip")],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked, chunked")],
            &[chunked, chunked],
            &[("transfer-encoding", "")],
        ] {
            for method in [Method::Get, Method::Head] {
                assert_eq!(of(method, 200, broken), Err(Cause::BadHead), "{broken:?}");
            }
        }
    }

    #[test]
    fn fields_of_the_connection_end_here() {
        let lines = [
            ("connection", "x-hop, set-cookie"),
            ("keep-alive", "timeout=5"),
            ("x-hop", "1"),
            ("set-cookie", "a=b"),
            ("content-length", "5"),
            ("upgrade", "h2c"),
            ("via", "1.0 origin"),
        ];
        let fields = fields(&map(&lines), Version::Http11).expect("correct fields");
        assert_eq!(
            fields.text(),
            b"set-cookie: a=b\r\nvia: 1.0 origin\r\nvia: 1.1 sluice\r\n"
        );
    }
}
