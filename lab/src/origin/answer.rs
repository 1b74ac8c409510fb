//! Computes the response of the test origin to a request: representation, preconditions, ranges, headers. Does no I/O.

use std::time::SystemTime;

use bytes::Bytes;

use super::date::{http_date, version_date};
use super::fault::{BrokenHead, Fault};
use super::range::parse_ranges;
use super::record::Seen;
use super::resource::{Content, Framing, Modified, Resource, Tag};

/// A part of a response body: bytes given, or bytes to generate.
#[derive(Debug)]
pub(super) enum Segment {
    Literal(Bytes),
    Piece {
        content: Content,
        first: u64,
        length: u64,
    },
}

impl Segment {
    fn length(&self) -> u64 {
        match self {
            Segment::Literal(bytes) => bytes.len() as u64,
            Segment::Piece { length, .. } => *length,
        }
    }
}

/// A response that is ready to be sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) framing: Framing,
    pub(super) segments: Vec<Segment>,
    /// First and last byte of the range, if the response is a 206 with one range.
    pub(super) range: Option<(u64, u64)>,
    version: u32,
}

impl Answer {
    pub(super) fn length(&self) -> u64 {
        self.segments.iter().map(Segment::length).sum()
    }

    /// Fills `buffer` with the bytes of the body from offset `position` on.
    pub(super) fn read(&self, position: u64, buffer: &mut [u8]) {
        let (mut begin, mut done) = (0, 0);
        for segment in &self.segments {
            let end = begin + segment.length();
            let at = position + done as u64;
            if at < end && done < buffer.len() {
                let inside = at - begin;
                let count = ((end - at) as usize).min(buffer.len() - done);
                let target = &mut buffer[done..done + count];
                match segment {
                    Segment::Literal(bytes) => {
                        target.copy_from_slice(&bytes[inside as usize..inside as usize + count]);
                    }
                    Segment::Piece { content, first, .. } => {
                        content.read(self.version, first + inside, target);
                    }
                }
                done += count;
            }
            begin = end;
        }
    }

    pub(super) fn render(&self) -> Vec<u8> {
        render_head(self.status, &self.headers)
    }
}

/// Renders a response head as sent on the connection.
pub(super) fn render_head(status: u16, headers: &[(String, String)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        head.push_str(name);
        head.push_str(": ");
        head.push_str(value);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// The selected representation of a resource.
struct Chosen<'a> {
    content: &'a Content,
    coding: Option<&'a str>,
    tag: Option<String>,
    modified: Option<String>,
}

/// Computes the response to a request. `close`: whether the connection is closed after the response.
pub(super) fn answer(resource: &Resource, seen: &Seen, faults: &[Fault], close: bool) -> Answer {
    let chosen = choose(resource, seen);
    let mut answer = Answer {
        status: resource.status,
        headers: vec![("Date".to_owned(), http_date(SystemTime::now()))],
        framing: framing(resource, faults),
        segments: Vec::new(),
        range: None,
        version: resource.version,
    };
    describe(&mut answer, resource, &chosen);
    let ok = resource.status == 200;
    match precondition(resource, seen, &chosen).filter(|_| ok) {
        Some(status) => answer.status = status,
        None if ok => fill(&mut answer, resource, seen, &chosen, faults),
        None => answer.segments = whole(chosen.content),
    }
    apply_range_faults(&mut answer, faults);
    frame(&mut answer, resource, faults, close);
    answer
}

fn choose<'a>(resource: &'a Resource, seen: &Seen) -> Chosen<'a> {
    let accepted = seen.header("accept-encoding").unwrap_or("");
    let found = resource
        .encodings
        .iter()
        .find(|(coding, _)| accepts(accepted, coding));
    let (content, coding) = match found {
        Some((coding, content)) => (content, Some(coding.as_str())),
        None => (&resource.content, None),
    };
    let opaque = format!(
        "\"v{}-{}{}{}\"",
        resource.version,
        content.length(),
        if coding.is_some() { "-" } else { "" },
        coding.unwrap_or("")
    );
    let tag = match &resource.tag {
        Tag::Strong => Some(opaque),
        Tag::Weak => Some(format!("W/{opaque}")),
        Tag::None => None,
        Tag::Fixed(value) => Some(value.clone()),
    };
    let modified = match &resource.modified {
        Modified::Version => Some(version_date(resource.version)),
        Modified::None => None,
        Modified::Fixed(value) => Some(value.clone()),
    };
    Chosen {
        content,
        coding,
        tag,
        modified,
    }
}

fn accepts(accepted: &str, coding: &str) -> bool {
    accepted.split(',').any(|item| {
        let mut parts = item.split(';');
        let name = parts.next().unwrap_or("").trim();
        let refused = parts.any(|part| matches!(part.trim(), "q=0" | "q=0.0" | "q=0.00"));
        name.eq_ignore_ascii_case(coding) && !refused
    })
}

fn describe(answer: &mut Answer, resource: &Resource, chosen: &Chosen<'_>) {
    let mut add = |name: &str, value: &str| answer.headers.push((name.into(), value.into()));
    for (name, value) in &resource.headers {
        add(name, value);
    }
    if let Some(tag) = &chosen.tag {
        add("ETag", tag);
    }
    if let Some(modified) = &chosen.modified {
        add("Last-Modified", modified);
    }
    if !resource.encodings.is_empty() {
        add("Vary", "Accept-Encoding");
    }
    if let Some(coding) = chosen.coding {
        add("Content-Encoding", coding);
    }
    if resource.ranges {
        add("Accept-Ranges", "bytes");
    }
    if resource.headers.iter().any(|(name, _)| name == "Date") {
        answer.headers.remove(0);
    }
}

/// Evaluates the preconditions of a request (RFC 9110 section 13.2.2), except If-Unmodified-Since. Returns the status
/// if one fails.
fn precondition(resource: &Resource, seen: &Seen, chosen: &Chosen<'_>) -> Option<u16> {
    if !resource.conditional {
        return None;
    }
    let matches = |list: &str| {
        list.trim() == "*"
            || chosen.tag.as_deref().is_some_and(|tag| {
                list.split(',')
                    .any(|item| weak_part(item.trim()) == weak_part(tag))
            })
    };
    if seen.header("if-match").is_some_and(|list| !matches(list)) {
        return Some(412);
    }
    match seen.header("if-none-match") {
        Some(list) => matches(list).then_some(304),
        None => seen
            .header("if-modified-since")
            .filter(|date| chosen.modified.as_deref() == Some(date.trim()))
            .map(|_| 304),
    }
}

fn weak_part(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Sets status and body of the response: the whole body, one range, several ranges, or 416.
fn fill(
    answer: &mut Answer,
    resource: &Resource,
    seen: &Seen,
    chosen: &Chosen<'_>,
    faults: &[Fault],
) {
    let length = chosen.content.length();
    let requested = seen
        .header("range")
        .filter(|_| resource.ranges && if_range_holds(resource, seen, chosen))
        .and_then(parse_ranges);
    let Some(requested) = requested.filter(|list| list.len() == 1 || resource.multiple_ranges)
    else {
        answer.segments = whole(chosen.content);
        return;
    };
    let ranges: Vec<(u64, u64)> = requested
        .iter()
        .filter_map(|range| range.resolve(length))
        .map(|range| bend(range, length, faults))
        .collect();
    match ranges[..] {
        [] => {
            answer.status = 416;
            answer
                .headers
                .push(("Content-Range".into(), format!("bytes */{length}")));
        }
        [(first, last)] if faults.contains(&Fault::AlwaysMultipart) => {
            multipart(answer, chosen.content, &[(first, last)]);
        }
        [(first, last)] => {
            answer.status = 206;
            let value = format!("bytes {first}-{last}/{length}");
            answer.headers.push(("Content-Range".into(), value));
            answer.segments = vec![piece(chosen.content, first, last)];
            answer.range = Some((first, last));
        }
        _ => multipart(answer, chosen.content, &ranges),
    }
}

/// Whether If-Range permits a range (RFC 9110 section 13.1.5): its strong ETag or its date must match exactly.
fn if_range_holds(resource: &Resource, seen: &Seen, chosen: &Chosen<'_>) -> bool {
    match seen.header("if-range").map(str::trim) {
        None => true,
        Some(_) if !resource.conditional => true,
        Some(tag) if tag.contains('"') => {
            !tag.starts_with("W/") && chosen.tag.as_deref() == Some(tag)
        }
        Some(date) => chosen.modified.as_deref() == Some(date),
    }
}

fn bend((first, last): (u64, u64), length: u64, faults: &[Fault]) -> (u64, u64) {
    let (mut first, mut last) = (first, last);
    for fault in faults {
        match fault {
            Fault::ShiftRange(by) => {
                first = first.saturating_add_signed(*by).min(length - 1);
                last = last.saturating_add_signed(*by).clamp(first, length - 1);
            }
            Fault::ShortRange(bytes) => last = last.min(first + bytes.saturating_sub(1)),
            Fault::LongRange(bytes) => last = last.saturating_add(*bytes).min(length - 1),
            _ => {}
        }
    }
    (first, last)
}

fn whole(content: &Content) -> Vec<Segment> {
    match content.length() {
        0 => Vec::new(),
        length => vec![piece(content, 0, length - 1)],
    }
}

fn piece(content: &Content, first: u64, last: u64) -> Segment {
    Segment::Piece {
        content: content.clone(),
        first,
        length: last - first + 1,
    }
}

const BOUNDARY: &str = "lab-boundary-3d6b6a416f9b5";

fn multipart(answer: &mut Answer, content: &Content, ranges: &[(u64, u64)]) {
    let length = content.length();
    answer.status = 206;
    answer.headers.push((
        "Content-Type".into(),
        format!("multipart/byteranges; boundary={BOUNDARY}"),
    ));
    for (first, last) in ranges {
        let head =
            format!("\r\n--{BOUNDARY}\r\nContent-Range: bytes {first}-{last}/{length}\r\n\r\n");
        answer.segments.push(Segment::Literal(head.into()));
        answer.segments.push(piece(content, *first, *last));
    }
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    answer.segments.push(Segment::Literal(end.into()));
}

fn apply_range_faults(answer: &mut Answer, faults: &[Fault]) {
    for fault in faults {
        match fault {
            Fault::Unsatisfiable if answer.status == 206 => {
                answer.status = 416;
                answer.segments.clear();
                drop_field(answer, "Content-Range");
            }
            Fault::NoContentRange => drop_field(answer, "Content-Range"),
            Fault::ContentRange(value) => {
                drop_field(answer, "Content-Range");
                answer.headers.push(("Content-Range".into(), value.clone()));
            }
            _ => {}
        }
    }
}

fn drop_field(answer: &mut Answer, name: &str) {
    answer.headers.retain(|(field, _)| field != name);
}

fn framing(resource: &Resource, faults: &[Fault]) -> Framing {
    let chunked = faults.iter().any(|fault| {
        matches!(
            fault,
            Fault::Chunk(_) | Fault::Head(BrokenHead::LengthAndChunked)
        )
    });
    match resource.framing {
        Framing::Length if chunked => Framing::Chunked(64 << 10),
        Framing::Length if !resource.trailers.is_empty() => Framing::Chunked(64 << 10),
        framing => framing,
    }
}

fn frame(answer: &mut Answer, resource: &Resource, faults: &[Fault], close: bool) {
    let mut length = answer.length();
    for fault in faults {
        if let Fault::LengthTooLong(more) = fault {
            length += more;
        }
    }
    match answer.framing {
        _ if answer.status == 304 => {}
        Framing::Length => answer
            .headers
            .push(("Content-Length".into(), length.to_string())),
        Framing::Chunked(_) => {
            for (name, _) in &resource.trailers {
                answer.headers.push(("Trailer".into(), name.clone()));
            }
            answer
                .headers
                .push(("Transfer-Encoding".into(), "chunked".into()));
        }
        Framing::Close => {}
    }
    if close {
        answer.headers.push(("Connection".into(), "close".into()));
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        426 => "Upgrade Required",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
