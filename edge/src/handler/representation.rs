//! Responses with one representation: builds the head for conditional and range requests, and a
//! body that reads the requested ranges of the content.

use std::ops::Range;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::{Body, BodyStream, Fault, Frame, Response};
use crate::http::field_block::FieldLine;
use crate::http::range::{ContentRange, Multipart};
use crate::http::wanted::{Parts, Wanted};
use crate::http::{CacheStatus, FieldBlock, Status};

/// The head of a response with the complete content.
pub struct Representation<'a> {
    /// Status of the response.
    pub status: Status,
    /// Header lines of the response.
    pub fields: &'a FieldBlock,
    /// Length of the content, if it is known.
    pub length: Option<u64>,
    /// Whether the header lines contain a Content-Range, which a range response must not repeat.
    pub odd_range: bool,
    /// Age in seconds, if the response has an Age header.
    pub age_s: Option<u32>,
    /// The cache's handling of the request, for Cache-Status.
    pub cache: Option<CacheStatus>,
}

/// Content of which ranges can be read, one after another.
pub trait Ranged: BodyStream + 'static {
    /// Limits the content to these bytes from now on. At their end the content returns `None`; then
    /// it may be limited to other bytes.
    fn limit(&mut self, range: Range<u64>);
}

impl Representation<'_> {
    /// Begins the response, without a body.
    #[inline]
    pub fn begin(&self, status: Status) -> Response {
        Response {
            stored: self.fields.clone(),
            cache: self.cache,
            age_s: self.age_s,
            ..Response::new(status)
        }
    }

    /// Returns the response if it has no content, else `None`.
    pub fn bare(&self, wanted: &Wanted) -> Option<Response> {
        Some(match wanted {
            Wanted::NotModified => self.begin_bare(304),
            Wanted::PreconditionFailed => self.begin_bare(412),
            Wanted::NotSatisfiable(length) => {
                let mut response = self.begin_bare(416);
                let mut value = Vec::new();
                ContentRange::Unsatisfied { length: *length }.render(&mut value);
                response.fields.append("content-range", value);
                response
            }
            Wanted::HeadOnly => {
                let mut response = self.begin(self.status);
                response.length = self.length;
                response
            }
            Wanted::All if self.length == Some(0) => self.begin(self.status),
            Wanted::All | Wanted::Parts(..) => return None,
        })
    }

    /// Begins a response with only those header lines that describe the resource rather than the
    /// content: for 304 (RFC 9110 15.4.5), 412 and 416. Only a 304 keeps the freshness headers.
    fn begin_bare(&self, status: Status) -> Response {
        const KEPT: [&str; 7] = [
            "content-location",
            "date",
            "etag",
            "last-modified",
            "vary",
            "accept-ranges",
            "via",
        ];
        const FRESHNESS: [&str; 2] = ["cache-control", "expires"];
        let is_in = |list: &[&str], name: &[u8]| list.iter().any(|kept| name == kept.as_bytes());
        let mut response = self.begin(status);
        response.stored = FieldBlock::new();
        for line in self.fields.lines() {
            let name = line.lower_name;
            if is_in(&KEPT, name) || (status == 304 && is_in(&FRESHNESS, name)) {
                response.fields.append_bytes(line.name, line.value);
            }
        }
        response
    }

    /// Returns the head of a response with one range: 206 with Content-Range (RFC 9110 15.3.7.1).
    pub fn part(&self, range: &Range<u64>, length: u64) -> Response {
        let mut response = self.begin(206);
        if self.odd_range {
            let kept = |line: &FieldLine<'_>| line.lower_name != b"content-range";
            response.stored = self.fields.filtered(kept);
        }
        let mut value = Vec::with_capacity(48);
        ContentRange::Part {
            range: range.clone(),
            length: Some(length),
        }
        .render(&mut value);
        response.fields.append("content-range", value);
        response
    }

    /// Returns the response with content, which `content` reads. `boundary` is called if there are
    /// several ranges. It must return letters and digits that nobody can have put into the content
    /// beforehand.
    pub fn respond(
        &self,
        wanted: Wanted,
        mut content: impl Ranged,
        boundary: impl FnOnce() -> String,
    ) -> Response {
        match wanted {
            Wanted::Parts(parts, length) => match &parts[..] {
                [one] => {
                    let mut response = self.part(one, length);
                    content.limit(one.clone());
                    response.body = Body::stream(content);
                    response
                }
                _ => self.multipart(content, parts, length, &boundary()),
            },
            _ => {
                let mut response = self.begin(self.status);
                response.length = self.length;
                content.limit(0..self.length.unwrap_or(u64::MAX));
                response.body = Body::stream(content);
                response
            }
        }
    }

    /// Returns the response with the requested ranges of content that is entirely in memory.
    pub fn in_memory(
        &self,
        wanted: Wanted,
        content: &Bytes,
        boundary: impl FnOnce() -> String,
    ) -> Response {
        if let Some(response) = self.bare(&wanted) {
            return response;
        }
        if let Wanted::Parts(parts, length) = &wanted
            && let [one] = &parts[..]
        {
            let mut response = self.part(one, *length);
            response.body = Body::Bytes(content.slice(one.start as usize..one.end as usize));
            return response;
        }
        self.respond(wanted, InMemory::new(content.clone()), boundary)
    }

    /// Returns a response with several ranges, as multipart/byteranges (RFC 9110 15.3.7.2).
    fn multipart(
        &self,
        content: impl Ranged,
        ranges: Parts,
        length: u64,
        boundary: &str,
    ) -> Response {
        let mut response = self.begin(206);
        let is_type = |line: &FieldLine<'_>| line.lower_name == b"content-type";
        let content_type = self.fields.lines().filter(is_type).last();
        let content_type = content_type.map(|line| line.value);
        response.stored = self.fields.filtered(|line| !is_type(line));
        let multipart = Multipart {
            boundary,
            content_type,
            length,
        };
        response
            .fields
            .append("content-type", multipart.content_type());
        let remaining = multipart.total(&ranges);
        let frames = framing(&multipart, &ranges);
        response.body = Body::stream(Multiple {
            content,
            ranges,
            frames,
            next: 0,
            remaining,
            in_part: false,
        });
        response
    }
}

/// Returns the text before each part, and after the last one.
fn framing(multipart: &Multipart<'_>, ranges: &[Range<u64>]) -> Vec<Bytes> {
    let mut frames = Vec::with_capacity(ranges.len() + 1);
    for (i, range) in ranges.iter().enumerate() {
        let mut text = Vec::new();
        multipart.render_head(&mut text, i == 0, range);
        frames.push(text.into());
    }
    let mut text = Vec::new();
    multipart.render_end(&mut text);
    frames.push(text.into());
    frames
}

/// A multipart/byteranges body: several ranges of the content, with text before, between and after
/// them.
struct Multiple<C> {
    content: C,
    ranges: Parts,
    /// Text before each range, and after the last: one more than there are ranges.
    frames: Vec<Bytes>,
    next: usize,
    remaining: u64,
    in_part: bool,
}

impl<C: Ranged> BodyStream for Multiple<C> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if self.in_part {
            match self.content.poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => self.in_part = false,
                Poll::Ready(Some(next)) => {
                    if let Ok(frame) = &next {
                        self.remaining = self.remaining.saturating_sub(frame.length());
                    }
                    return Poll::Ready(Some(next));
                }
            }
        }
        let Some(text) = self.frames.get(self.next).cloned() else {
            return Poll::Ready(None);
        };
        if let Some(range) = self.ranges.get(self.next) {
            self.content.limit(range.clone());
            self.in_part = true;
        }
        self.next += 1;
        self.remaining = self.remaining.saturating_sub(text.len() as u64);
        Poll::Ready(Some(Ok(Frame::Data(text))))
    }

    fn prefer_short(&mut self, bytes: u64) {
        self.content.prefer_short(bytes);
    }

    fn length(&self) -> Option<u64> {
        Some(self.remaining)
    }
}

/// Content that is entirely in memory.
pub struct InMemory {
    content: Bytes,
    range: Range<usize>,
}

impl InMemory {
    /// Creates a body with all of the content.
    pub fn new(content: Bytes) -> InMemory {
        let range = 0..content.len();
        InMemory { content, range }
    }
}

impl BodyStream for InMemory {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let range = std::mem::take(&mut self.range);
        let bytes = (!range.is_empty()).then(|| self.content.slice(range));
        Poll::Ready(bytes.map(|bytes| Ok(Frame::Data(bytes))))
    }

    fn length(&self) -> Option<u64> {
        Some(self.range.len() as u64)
    }
}

impl Ranged for InMemory {
    fn limit(&mut self, range: Range<u64>) {
        let at = |place: u64| {
            usize::try_from(place).map_or(self.content.len(), |at| at.min(self.content.len()))
        };
        self.range = at(range.start)..at(range.end);
    }
}
