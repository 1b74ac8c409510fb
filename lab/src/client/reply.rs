//! A reply as read by the test client, with checks of its content.

use std::time::Duration;

use super::ReadError;
use crate::offset;

/// The way in which a response body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// The body ended where its framing says.
    Complete,
    /// The connection was closed, which is the end of a body without length or chunks.
    AtClose,
    /// The connection was closed before the end that the framing gives.
    Closed,
    /// The connection was reset before the end of the body.
    Reset,
    /// No more bytes of the body arrived within the timeout.
    Stalled,
}

/// The status line and the headers of a response.
#[derive(Debug, Clone)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Reason phrase.
    pub reason: String,
    /// Headers in the order received, with names as received.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// Returns the first value of a header. Names are compared ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }

    /// Returns all values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        all(&self.headers, name)
    }

    /// Returns the parsed Content-Range, or `None` if the header is missing or invalid.
    pub fn content_range(&self) -> Option<ContentRange> {
        self.header("content-range").and_then(ContentRange::parse)
    }

    /// Parses a head strictly: CRLF everywhere, no folding, no space before a colon, no control characters.
    pub(super) fn parse(bytes: &[u8]) -> Result<Head, ReadError> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let status_line = lines.next().unwrap_or("");
        let (status, reason) = parse_status(status_line)
            .ok_or_else(|| ReadError::Malformed(format!("status line {status_line:?}")))?;
        let headers = lines
            .map(|line| {
                parse_field(line).ok_or_else(|| ReadError::Malformed(format!("field {line:?}")))
            })
            .collect::<Result<_, _>>()?;
        Ok(Head {
            status,
            reason,
            headers,
        })
    }
}

fn parse_status(line: &str) -> Option<(u16, String)> {
    let rest = line
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| line.strip_prefix("HTTP/1.0 "))?;
    let (status, reason) = rest.split_once(' ')?;
    let digits = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    let status: u16 = status.parse().ok().filter(|_| digits)?;
    let clean = (100..600).contains(&status) && !reason.contains(is_control);
    clean.then(|| (status, reason.to_owned()))
}

fn parse_field(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let token = !name.is_empty() && name.bytes().all(is_token);
    let value = value.trim_matches([' ', '\t']);
    let clean = token && !value.contains(is_control);
    clean.then(|| (name.to_owned(), value.to_owned()))
}

fn is_control(character: char) -> bool {
    character.is_ascii_control() && character != '\t'
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns the length of the head at the beginning of `bytes`, including its empty line, or `None` if the head is
/// incomplete.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(at + 4)
}

/// A complete reply: interim responses, final response, and times.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Interim (1xx) responses before the final one.
    pub interim: Vec<Head>,
    /// Status code.
    pub status: u16,
    /// Reason phrase.
    pub reason: String,
    /// Headers in the order received, with names as received.
    pub headers: Vec<(String, String)>,
    /// The body, decoded from its framing.
    pub body: Vec<u8>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// The way in which the body ended.
    pub end: BodyEnd,
    /// Time from sending the request until the final head was complete.
    pub first_byte: Duration,
    /// Time from sending the request until the body ended.
    pub total: Duration,
}

impl Reply {
    /// Whether the body ended before the end that its framing gives.
    pub fn truncated(&self) -> bool {
        !matches!(self.end, BodyEnd::Complete | BodyEnd::AtClose)
    }

    /// Returns the first value of a header. Names are compared ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }

    /// Returns all values of a header.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        all(&self.headers, name)
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the parsed Content-Range, or `None` if the header is missing or invalid.
    pub fn content_range(&self) -> Option<ContentRange> {
        self.header("content-range").and_then(ContentRange::parse)
    }

    /// Checks that the body is complete and equals version 0 of the offset body (see [`crate::offset`]) from offset
    /// `position` on.
    pub fn verify_offset(&self, position: u64) -> Result<(), String> {
        self.verify_version(0, position)
    }

    /// Checks that the body is complete and equals this version of the offset body (see [`crate::offset`]) from offset
    /// `position` on.
    pub fn verify_version(&self, version: u32, position: u64) -> Result<(), String> {
        if self.truncated() {
            return Err(format!(
                "the body ended after {} bytes: {:?}",
                self.body.len(),
                self.end
            ));
        }
        offset::verify_version(version, position, &self.body).map_err(|wrong| wrong.to_string())
    }

    /// Checks that the status is 200 and that the body is a whole offset body (see [`crate::offset`]) of `length`
    /// bytes.
    pub fn verify_whole(&self, length: u64) -> Result<(), String> {
        self.expect(200, length)?;
        self.verify_offset(0)
    }

    /// Checks that the reply is a 206 with the bytes `first` to `last` of an offset body (see [`crate::offset`]) of
    /// `complete` bytes.
    pub fn verify_range(&self, first: u64, last: u64, complete: u64) -> Result<(), String> {
        self.expect(206, last - first + 1)?;
        let expected = ContentRange {
            first,
            last,
            complete: Some(complete),
        };
        match self.content_range() {
            Some(range) if range == expected => self.verify_offset(first),
            other => Err(format!("Content-Range is {other:?}, not {expected:?}")),
        }
    }

    fn expect(&self, status: u16, length: u64) -> Result<(), String> {
        if (self.status, self.body.len() as u64) != (status, length) {
            return Err(format!(
                "status {} with {} bytes ({:?}), not {status} with {length}",
                self.status,
                self.body.len(),
                self.end
            ));
        }
        Ok(())
    }

    /// Returns the parts of a multipart/byteranges body (RFC 9110 section 14.6).
    pub fn parts(&self) -> Result<Vec<Part>, String> {
        let kind = self.header("content-type").unwrap_or("");
        let boundary = kind
            .strip_prefix("multipart/byteranges; boundary=")
            .ok_or_else(|| format!("Content-Type is {kind:?}"))?
            .trim_matches('"');
        parse_parts(&self.body, boundary)
    }

    /// Checks that the body consists of these ranges (first and last byte) of an offset body (see [`crate::offset`]) of
    /// `complete` bytes.
    pub fn verify_parts(&self, ranges: &[(u64, u64)], complete: u64) -> Result<(), String> {
        let parts = self.parts()?;
        if self.status != 206 || self.truncated() || parts.len() != ranges.len() {
            return Err(format!("status {}, {} parts", self.status, parts.len()));
        }
        for (part, (first, last)) in parts.iter().zip(ranges) {
            let expected = ContentRange {
                first: *first,
                last: *last,
                complete: Some(complete),
            };
            if part.range != expected || part.body.len() as u64 != last - first + 1 {
                return Err(format!("part {:?}, not {expected:?}", part.range));
            }
            offset::verify_offset(*first, &part.body).map_err(|wrong| wrong.to_string())?;
        }
        Ok(())
    }
}

/// A Content-Range that contains a range (RFC 9110 section 14.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// Position of the range's first byte.
    pub first: u64,
    /// Position of the range's last byte.
    pub last: u64,
    /// Complete length of the representation in bytes; `None` if the server sent `*`.
    pub complete: Option<u64>,
}

impl ContentRange {
    fn parse(value: &str) -> Option<ContentRange> {
        let (range, complete) = value.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let complete = match complete {
            "*" => None,
            complete => Some(complete.parse().ok()?),
        };
        Some(ContentRange {
            first: first.parse().ok()?,
            last: last.parse().ok()?,
            complete,
        })
    }
}

/// One part of a multipart/byteranges body.
#[derive(Debug, Clone)]
pub struct Part {
    /// Content-Range of the part.
    pub range: ContentRange,
    /// Headers of the part.
    pub headers: Vec<(String, String)>,
    /// Content of the part.
    pub body: Vec<u8>,
}

fn parse_parts(body: &[u8], boundary: &str) -> Result<Vec<Part>, String> {
    let delimiter = format!("--{boundary}");
    let mut rest = body.strip_prefix(b"\r\n").unwrap_or(body);
    let mut parts = Vec::new();
    loop {
        rest = rest
            .strip_prefix(delimiter.as_bytes())
            .ok_or("a boundary is missing")?;
        if let Some(end) = rest.strip_prefix(b"--") {
            return match end {
                b"" | b"\r\n" => Ok(parts),
                _ => Err("bytes after the last boundary".to_owned()),
            };
        }
        rest = rest
            .strip_prefix(b"\r\n")
            .ok_or("no CRLF after a boundary")?;
        let (part, after) = parse_part(rest)?;
        parts.push(part);
        rest = after
            .strip_prefix(b"\r\n")
            .ok_or("a part is longer than its Content-Range")?;
    }
}

fn parse_part(rest: &[u8]) -> Result<(Part, &[u8]), String> {
    let length = head_length(rest).ok_or("a part's head does not end")?;
    let head = String::from_utf8_lossy(&rest[..length]);
    let headers: Vec<_> = head
        .trim_end_matches("\r\n")
        .split("\r\n")
        .map(|line| parse_field(line).ok_or_else(|| format!("field {line:?} of a part")))
        .collect::<Result<_, _>>()?;
    let range = first(&headers, "content-range")
        .and_then(ContentRange::parse)
        .filter(|range| range.first <= range.last)
        .ok_or("a part without Content-Range")?;
    let body = &rest[length..];
    let bytes = usize::try_from(range.last - range.first)
        .ok()
        .and_then(|bytes| bytes.checked_add(1))
        .filter(|bytes| *bytes <= body.len())
        .ok_or("a part is cut")?;
    let (body, after) = body.split_at(bytes);
    let part = Part {
        range,
        headers,
        body: body.to_vec(),
    };
    Ok((part, after))
}

fn first<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

fn all<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    headers
        .iter()
        .filter(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
        .collect()
}
