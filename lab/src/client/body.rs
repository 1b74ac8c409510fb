//! Strict decoding of a response body according to its framing (RFC 9112 sections 6 and 7).

use super::ReadError;
use super::reply::{BodyEnd, Head};

/// Longest line of chunk framing or trailers, in bytes.
const LINE_MAX: usize = 64 << 10;

#[derive(Debug)]
enum State {
    Length(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    UntilClose,
    Done,
}

/// Decoder of one response body, in any framing.
pub(super) struct Decoder {
    state: State,
    pub(super) trailers: Vec<(String, String)>,
}

impl Decoder {
    pub(super) fn new(method: &str, head: &Head) -> Result<Decoder, ReadError> {
        let coding = head.all("transfer-encoding");
        let lengths = head.all("content-length");
        let bodiless = method == "HEAD" || matches!(head.status, 100..=199 | 204 | 304);
        if !coding.is_empty() && !lengths.is_empty() {
            return Err(malformed("Transfer-Encoding and Content-Length"));
        }
        let state = match (&coding[..], &lengths[..]) {
            _ if bodiless => State::Done,
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => State::ChunkSize,
            ([], [length]) => match decimal(length) {
                Some(0) => State::Done,
                Some(length) => State::Length(length),
                None => return Err(malformed("Content-Length")),
            },
            ([], []) => State::UntilClose,
            _ => return Err(malformed("framing fields")),
        };
        Ok(Decoder {
            state,
            trailers: Vec::new(),
        })
    }

    /// Creates a decoder of a chunked body.
    pub(super) fn chunked() -> Decoder {
        Decoder {
            state: State::ChunkSize,
            trailers: Vec::new(),
        }
    }

    pub(super) fn done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(super) fn at_close(&self) -> BodyEnd {
        match self.state {
            State::UntilClose => BodyEnd::AtClose,
            State::Done => BodyEnd::Complete,
            _ => BodyEnd::Closed,
        }
    }

    /// Decodes the beginning of `input` and appends the content to `body`. Returns the number of bytes of `input`
    /// consumed.
    pub(super) fn decode(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<usize, ReadError> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let step = match &mut self.state {
                State::Done => return Ok(used),
                State::UntilClose => {
                    body.extend_from_slice(rest);
                    return Ok(input.len());
                }
                State::Length(left) => {
                    let count = take(left, rest, body);
                    if *left == 0 {
                        self.state = State::Done;
                    }
                    count
                }
                State::ChunkData(left) => {
                    let count = take(left, rest, body);
                    if *left == 0 {
                        self.state = State::ChunkEnd;
                    }
                    count
                }
                State::ChunkEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        self.state = State::ChunkSize;
                        2
                    }
                    [] | [b'\r'] => 0,
                    _ => return Err(malformed("chunk data without CRLF")),
                },
                State::ChunkSize | State::Trailers => self.line(rest)?,
            };
            used += step;
            if step == 0 {
                return Ok(used);
            }
        }
    }

    /// Decodes a chunk-size line or a trailer line at the beginning of `rest`, if the line is complete.
    fn line(&mut self, rest: &[u8]) -> Result<usize, ReadError> {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return match rest.len() > LINE_MAX {
                true => Err(malformed("a line is too long")),
                false => Ok(0),
            };
        };
        let line = rest[..end]
            .strip_suffix(b"\r")
            .filter(|line| !line.contains(&b'\r'))
            .ok_or_else(|| malformed("a bare LF or CR in chunk framing"))?;
        let line = String::from_utf8_lossy(line);
        match self.state {
            State::ChunkSize => {
                self.state = match hexadecimal(line.split(';').next().unwrap_or("")) {
                    Some(0) => State::Trailers,
                    Some(size) => State::ChunkData(size),
                    None => return Err(malformed(&format!("chunk size {line:?}"))),
                }
            }
            _ if line.is_empty() => self.state = State::Done,
            _ => match line.split_once(':') {
                Some((name, value)) => {
                    let trailer = (name.to_owned(), value.trim().to_owned());
                    self.trailers.push(trailer);
                }
                None => return Err(malformed("a trailer without colon")),
            },
        }
        Ok(end + 1)
    }
}

fn take(left: &mut u64, rest: &[u8], body: &mut Vec<u8>) -> usize {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
    body.extend_from_slice(&rest[..count]);
    *left -= count as u64;
    count
}

fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

fn malformed(what: &str) -> ReadError {
    ReadError::Malformed(what.to_owned())
}
