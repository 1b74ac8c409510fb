//! Malformed requests of HTTP/2 with their expected errors: the counterparts of those of HTTP/1 (`crate::malformed`).
//!
//! Line ends, versions and chunks have no counterpart of their own. Instead, each value and each name may contain bytes
//! that would end it in HTTP/1.1.

use super::frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, block, frame};
use super::malformed_fields::Answer::{self, Page, Reset};
use super::malformed_fields::{Bytes, FIELDS, HOSTS, LENGTHS, PSEUDO};

/// A line of a header section.
type Line = (Vec<u8>, Vec<u8>);

/// A part of a request after its head.
#[derive(Clone)]
enum Part {
    Data(Bytes),
    Trailers(Vec<Line>),
}

/// A malformed request.
#[derive(Clone)]
pub struct Malformed {
    pub name: String,
    pub answer: Answer,
    head: Vec<Line>,
    rest: Vec<Part>,
    /// Whether the last frame ends the stream.
    ends: bool,
}

impl Malformed {
    fn new(name: &str, head: Vec<Line>, answer: Answer) -> Malformed {
        Malformed {
            name: name.to_owned(),
            answer,
            head,
            rest: Vec::new(),
            ends: true,
        }
    }

    fn with(mut self, part: Part) -> Malformed {
        self.rest.push(part);
        self
    }

    /// Returns the frames of the request. `pieces`: number of frames for each header block.
    pub fn frames(&self, stream: u32, pieces: usize) -> Vec<u8> {
        let end = |left: usize| {
            if left == 0 && self.ends {
                END_STREAM
            } else {
                0
            }
        };
        let mut bytes = header_frames(stream, end(self.rest.len()), &block(&self.head), pieces);
        for (at, part) in self.rest.iter().enumerate() {
            let flags = end(self.rest.len() - 1 - at);
            bytes.extend(match part {
                Part::Data(content) => frame(DATA, flags, stream, content),
                Part::Trailers(lines) => header_frames(stream, flags, &block(lines), pieces),
            });
        }
        bytes
    }
}

/// Returns the frames of a header block.
fn header_frames(stream: u32, flags: u8, block: &[u8], pieces: usize) -> Vec<u8> {
    let length = block.len().div_ceil(pieces).clamp(1, 16 << 10);
    let count = block.len().div_ceil(length).max(1);
    let mut bytes = Vec::new();
    for at in 0..count {
        let part = &block[at * length..block.len().min((at + 1) * length)];
        let (kind, flags) = if at == 0 {
            (HEADERS, flags)
        } else {
            (CONTINUATION, 0)
        };
        let last = if at + 1 == count { END_HEADERS } else { 0 };
        bytes.extend(frame(kind, flags | last, stream, part));
    }
    bytes
}

fn line(name: &[u8], value: &[u8]) -> Line {
    (name.to_vec(), value.to_vec())
}

/// Returns the head of a request with this method.
fn head(method: &str) -> Vec<Line> {
    vec![
        line(b":method", method.as_bytes()),
        line(b":scheme", b"http"),
        line(b":path", b"/x"),
        line(b":authority", b"a"),
    ]
}

/// Returns a head with more lines.
fn head_with(method: &str, more: &[(&[u8], &[u8])]) -> Vec<Line> {
    let mut lines = head(method);
    lines.extend(more.iter().map(|(name, value)| line(name, value)));
    lines
}

/// Returns a head with other lines in place of those with these names.
fn replaced(method: &str, changes: &[(&[u8], &[u8])]) -> Vec<Line> {
    let mut lines = head(method);
    for (name, value) in changes {
        for line in lines.iter_mut().filter(|line| line.0 == *name) {
            line.1 = value.to_vec();
        }
    }
    lines
}

/// Returns a head without the line with this name.
fn without(method: &str, name: &[u8]) -> Vec<Line> {
    let mut lines = head(method);
    lines.retain(|line| line.0 != name);
    lines
}

/// Returns all malformed requests.
pub fn all() -> Vec<Malformed> {
    let mut all = Vec::new();
    for &(name, field, value, answer) in PSEUDO {
        all.push(Malformed::new(
            name,
            replaced("GET", &[(field, value)]),
            answer,
        ));
    }
    for &(name, value, answer) in HOSTS {
        all.push(Malformed::new(
            name,
            replaced("GET", &[(b":authority", value)]),
            answer,
        ));
        let mut lines = without("GET", b":authority");
        lines.push(line(b"host", value));
        all.push(Malformed::new(&format!("{name} in Host"), lines, answer));
    }
    for &(name, field, value) in FIELDS {
        let lines = vec![line(b"x-sum", b"1"), line(field, value)];
        all.push(Malformed::new(
            name,
            head_with("GET", &[(field, value)]),
            Reset,
        ));
        let trailers = Malformed::new(&format!("{name} in trailers"), head("POST"), Reset);
        all.push(
            trailers
                .with(Part::Data(b"hello"))
                .with(Part::Trailers(lines)),
        );
    }
    for &(name, values) in LENGTHS {
        let lines: Vec<_> = values
            .iter()
            .map(|value| (&b"content-length"[..], *value))
            .collect();
        for method in ["POST", "GET"] {
            let name = format!("{name} with {method}");
            let whole = Malformed::new(&name, head_with(method, &lines), Reset);
            all.push(whole.clone().with(Part::Data(b"hello")));
            all.push(
                whole
                    .clone()
                    .with(Part::Data(b"hel"))
                    .with(Part::Data(b"lo")),
            );
            all.push(
                whole
                    .with(Part::Data(b"hello"))
                    .with(Part::Trailers(vec![line(b"x", b"y")])),
            );
        }
    }
    all.extend(others());
    all.extend(too_long());
    all
}

/// Returns requests that are malformed in other ways.
fn others() -> Vec<Malformed> {
    let case = |name: &str, head: Vec<Line>| Malformed::new(name, head, Reset);
    let late = |at: usize| {
        let mut lines = head("GET");
        let pseudo = lines.remove(at);
        lines.extend([line(b"x", b"y"), pseudo]);
        lines
    };
    let length = |value: &'static [u8]| head_with("POST", &[(b"content-length", value)]);
    let connect = |names: &[&[u8]]| {
        let extended = [line(b":protocol", b"websocket")];
        let lines = head("CONNECT").into_iter().chain(extended);
        lines
            .filter(|line| names.contains(&&*line.0))
            .collect::<Vec<_>>()
    };
    let unended = Malformed {
        ends: false,
        ..case("trailers without an end", head("POST"))
    };
    vec![
        case("no fields", Vec::new()),
        case("no method field", without("GET", b":method")),
        case("no scheme field", without("GET", b":scheme")),
        case("no path field", without("GET", b":path")),
        case("no host", without("GET", b":authority")),
        case("a late method", late(0)),
        case("a late scheme", late(1)),
        case("a late path", late(2)),
        case("a late authority", late(3)),
        case(
            "two Hosts",
            head_with("GET", &[(b"host", b"a"), (b"host", b"b")]),
        ),
        case(
            "the same Host twice",
            head_with("GET", &[(b"host", b"a"), (b"host", b"a")]),
        ),
        case("a length without content", length(b"5")),
        case(
            "two lengths without content",
            head_with(
                "POST",
                &[(b"content-length", b"0"), (b"content-length", b"0")],
            ),
        ),
        case("an empty frame for a length", length(b"5")).with(Part::Data(b"")),
        case("trailers in place of content", length(b"5"))
            .with(Part::Trailers(vec![line(b"x", b"y")])),
        case("a length in the trailers", head("POST"))
            .with(Part::Data(b"hello"))
            .with(Part::Trailers(vec![line(b"content-length", b"5")])),
        case("a Host in the trailers", head("POST"))
            .with(Part::Trailers(vec![line(b"host", b"a")])),
        unended
            .with(Part::Data(b"hello"))
            .with(Part::Trailers(vec![line(b"x", b"y")])),
        case(
            "CONNECT with scheme and path",
            connect(&[b":method", b":scheme", b":path", b":authority"]),
        ),
        case(
            "CONNECT with a path",
            connect(&[b":method", b":path", b":authority"]),
        ),
        case("CONNECT without an authority", connect(&[b":method"])),
        case(
            "CONNECT with a protocol and without a path",
            connect(&[b":method", b":scheme", b":authority", b":protocol"]),
        ),
        case(
            "CONNECT with a protocol alone",
            connect(&[b":method", b":authority", b":protocol"]),
        ),
        Malformed::new(
            "CONNECT",
            connect(&[b":method", b":authority"]),
            Page("501 connect"),
        ),
        Malformed::new(
            "an unknown expectation",
            head_with("GET", &[(b"expect", b"200-ok")]),
            Page("417 unknown-expectation"),
        ),
        Malformed::new(
            "two expectations",
            head_with("GET", &[(b"expect", b"100-continue, x")]),
            Page("417 unknown-expectation"),
        ),
        Malformed::new(
            "TRACE with a body",
            head("TRACE"),
            Page("400 trace-with-body"),
        )
        .with(Part::Data(b"hello")),
        Malformed::new(
            "a length over the limit",
            length(b"18446744073709551615"),
            Reset,
        ),
        Malformed {
            ends: false,
            ..Malformed::new(
                "a length over the limit before content",
                length(b"18446744073709551615"),
                Page("413 request-body-too-large"),
            )
        },
    ]
}

/// Returns requests that are refused because of their length.
fn too_long() -> Vec<Malformed> {
    let path = [b"/", &[b'a'; 9000][..]].concat();
    let value = vec![b'a'; 40_000];
    let many: Vec<(&[u8], &[u8])> = vec![(b"x", b"y"); 300];
    [
        (
            "a path too long",
            replaced("GET", &[(b":path", &path)]),
            "414 request-line-too-long",
        ),
        (
            "a value too long",
            head_with("GET", &[(b"x", &value)]),
            "431 headers-too-large",
        ),
        (
            "too many lines",
            head_with("GET", &many),
            "431 too-many-headers",
        ),
    ]
    .into_iter()
    .map(|(name, lines, page)| Malformed::new(name, lines, Page(page)))
    .collect()
}
