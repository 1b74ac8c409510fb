//! A minimal parser of response heads for the load generator. Heads whose framing can be read in two ways are malformed.

use super::range::ContentRange;

/// Framing of a body (RFC 9112 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// The body has this many bytes.
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// Result of parsing a response head: its length, and the headers that matter to the load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) end: usize,
    pub(super) status: u16,
    pub(super) body: Body,
    /// Whether the connection can't be used after the response.
    pub(super) close: bool,
    pub(super) range: ContentRange,
}

/// Result of parsing the received beginning of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    Partial,
    Malformed,
    Whole(Head),
}

/// Maximum length of a response head in bytes.
const HEAD_MAX: usize = 64 << 10;

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = Fields::default();
    let mut begin = 0;
    loop {
        let Some(line_length) = bytes[begin..].iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() > HEAD_MAX {
                true => Parsed::Malformed,
                false => Parsed::Partial,
            };
        };
        let line = &bytes[begin..begin + line_length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_first = begin == 0;
        begin += line_length + 1;
        if line.is_empty() {
            break;
        }
        if !is_first && fields.line(line).is_none() {
            return Parsed::Malformed;
        }
    }
    let is_current = bytes.starts_with(b"HTTP/1.1");
    let status = status(bytes);
    let body = status.and_then(|status| fields.body(status, is_current));
    let (Some(status), Some(body)) = (status, body) else {
        return Parsed::Malformed;
    };
    let persists = is_current || fields.keep_alive;
    Parsed::Whole(Head {
        end: begin,
        status,
        body,
        // After 101, the connection has another protocol.
        close: fields.close || !persists || body == Body::UntilClose || status == 101,
        range: fields.range,
    })
}

/// The headers that matter to the load generator.
#[derive(Debug, Clone, Copy, Default)]
struct Fields {
    /// The value of Content-Length; `Some(None)`: an invalid value, or several that differ.
    length: Option<Option<u64>>,
    /// Whether the head has Transfer-Encoding.
    has_codings: bool,
    /// How often Transfer-Encoding has `chunked`, and whether that is the last coding.
    chunked: u32,
    is_chunked_last: bool,
    close: bool,
    keep_alive: bool,
    range: ContentRange,
}

impl Fields {
    /// Adds a header. Returns `None` if the line is malformed.
    fn line(&mut self, line: &[u8]) -> Option<()> {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        // A line that continues the one before, and space before the colon, could be read in two ways.
        let is_blank = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_whitespace);
        if is_blank(name.first()) || is_blank(name.last()) {
            return None;
        }
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match name.len() {
            10 if is(b"connection") => {
                for option in list(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            13 if is(b"content-range") => self.range.add(ContentRange::parse(value.trim_ascii())),
            14 if is(b"content-length") => self.add_lengths(value),
            17 if is(b"transfer-encoding") => {
                self.has_codings = true;
                for coding in list(value) {
                    self.is_chunked_last = coding.eq_ignore_ascii_case(b"chunked");
                    self.chunked += u32::from(self.is_chunked_last);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Adds the value of Content-Length, which may be a list of equal numbers (RFC 9110 8.6).
    fn add_lengths(&mut self, value: &[u8]) {
        for one in value.split(|byte| *byte == b',') {
            let length = number(one.trim_ascii());
            self.length = match self.length {
                Some(known) if known != length => Some(None),
                _ => Some(length),
            };
        }
    }

    /// Returns the framing of the body; `None` if the headers are invalid.
    fn body(&self, status: u16, is_current: bool) -> Option<Body> {
        match (status, self.has_codings, self.length) {
            (100..200 | 204 | 304, ..) => Some(Body::Length(0)),
            // HTTP/1.0 has no transfer codings (RFC 9112 6.1), and `chunked` is applied at most once.
            (_, true, _) if !is_current || self.chunked > 1 => None,
            (_, true, _) if self.is_chunked_last => Some(Body::Chunked),
            (_, true, _) | (_, false, None) => Some(Body::UntilClose),
            (_, false, Some(length)) => length.map(Body::Length),
        }
    }
}

/// Returns the elements of a list, without empty ones (RFC 9110 5.6.1).
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let elements = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    elements.filter(|element| !element.is_empty())
}

/// Parses a number that consists of digits only.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// Returns the status of a status line such as `HTTP/1.1 200 OK`.
fn status(bytes: &[u8]) -> Option<u16> {
    let rest = bytes.strip_prefix(b"HTTP/1.")?;
    let (&[minor, space, ref digits @ ..], rest) = rest.split_first_chunk::<5>()?;
    let is_ended = matches!(rest.first(), Some(b' ' | b'\r' | b'\n'));
    if !minor.is_ascii_digit() || space != b' ' || !is_ended {
        return None;
    }
    let status = u16::try_from(number(digits)?).ok()?;
    (100..600).contains(&status).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_length_and_connection_close_are_parsed() {
        let head = b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-16/99\r\nServer: x\r\nConnection: Close\r\ncontent-LENGTH:  17 \r\n\r\nbody";
        let expected = Head {
            end: head.len() - 4,
            status: 206,
            body: Body::Length(17),
            close: true,
            range: ContentRange::parse(b"bytes 0-16/99"),
        };
        assert_eq!(parse(head), Parsed::Whole(expected));
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n";
        let Parsed::Whole(head) = parse(chunked) else {
            panic!("a head");
        };
        assert_eq!(head.body, Body::Chunked);
    }

    #[test]
    fn an_incomplete_head_is_partial() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(parse(&head[..cut]), Parsed::Partial, "cut at {cut}");
        }
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let parsed = |head: &[u8]| match parse(head) {
            Parsed::Whole(head) => (head.body, head.close),
            other => panic!("{other:?}"),
        };
        let until_close = (Body::UntilClose, true);
        assert_eq!(parsed(b"HTTP/1.1 200 OK\r\n\r\n"), until_close);
        assert_eq!(parsed(b"HTTP/1.0 200 OK\r\n\r\n"), until_close);
        assert_eq!(
            parsed(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n"),
            (Body::Length(5), true)
        );
        let kept = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(parsed(kept), (Body::Length(5), false));
        assert_eq!(
            parsed(b"HTTP/1.1 103 Early Hints\r\n\r\n"),
            (Body::Length(0), false)
        );
    }

    #[test]
    fn heads_without_status_or_with_unknown_framing_are_malformed() {
        assert_eq!(
            parse(b"hello\r\nContent-Length: 5\r\n\r\n"),
            Parsed::Malformed
        );
        let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n";
        assert_eq!(parse(huge), Parsed::Malformed);
        for wrong in [
            "HTTP/1.1 +20 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1  200 OK",
            "HTTP/1.x 200 OK",
            "HTTP/1.1 099 OK",
            "HTTP/1.1 200 OK\r\nno colon",
            "HTTP/1.1 200 OK\r\n: no name",
            "HTTP/1.1 200 OK\r\nServer: x\r\n continued: y",
            "HTTP/1.1 200 OK\r\nContent-Length : 5",
            "HTTP/1.1 200 OK\r\nContent-Length: +5",
            "HTTP/1.1 200 OK\r\nContent-Length: -5",
            "HTTP/1.1 200 OK\r\nContent-Length: 5 5",
            "HTTP/1.1 200 OK\r\nContent-Length: ",
            "HTTP/1.1 200 OK\r\nContent-Length: 5,",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 6",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: x",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\nContent-Length: 5",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
        ] {
            let head = format!("{wrong}\r\n\r\n");
            assert_eq!(parse(head.as_bytes()), Parsed::Malformed, "{wrong}");
        }
    }

    #[test]
    fn headers_with_lists_may_have_several_lines() {
        let parsed =
            |lines: &str| match parse(format!("HTTP/1.1 200\r\n{lines}\r\n\r\n").as_bytes()) {
                Parsed::Whole(head) => (head.body, head.close),
                other => panic!("{lines}: {other:?}"),
            };
        for (lines, body, close) in [
            ("Content-Length: 5, 5", Body::Length(5), false),
            (
                "Content-Length: 5\r\nContent-Length:5",
                Body::Length(5),
                false,
            ),
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                Body::Chunked,
                false,
            ),
            ("Transfer-Encoding: gzip, , Chunked", Body::Chunked, false),
            (
                "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
                Body::Chunked,
                false,
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
                Body::UntilClose,
                true,
            ),
            (
                "Transfer-Encoding: gzip\r\nContent-Length: 5",
                Body::UntilClose,
                true,
            ),
            (
                "Content-Length: 5\r\nConnection: x, Close",
                Body::Length(5),
                true,
            ),
            (
                "Content-Length: 5\r\nConnection: keep-alive\r\nConnection: x,close ",
                Body::Length(5),
                true,
            ),
            (
                "Content-Length: 5\r\nConnection: closed, x-close",
                Body::Length(5),
                false,
            ),
        ] {
            assert_eq!(parsed(lines), (body, close), "{lines}");
        }
        let switched = parse(b"HTTP/1.1 101 x\r\nUpgrade: y\r\n\r\n");
        assert!(matches!(switched, Parsed::Whole(Head { close: true, .. })));
    }
}
