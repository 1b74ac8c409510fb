//! Answers from a stored object: conditions, ranges, then bytes as they are there or arrive.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use smallvec::SmallVec;

use super::fault_of;
use crate::handler::{Body, BodyStream, Fault, Frame, Head as RequestHead, Response};
use crate::http::conditional::{self, Decision, EntityTag, Validators};
use crate::http::fields::lines_of;
use crate::http::range::{self, ContentRange, Multipart, PART_OVERHEAD, Resolved};
use crate::http::{CacheStatus, Fields, Fwd, Method, Outcome};
use crate::store::{Abandoned, Head, Next, Object, Reader};
use crate::sys::Random;

/// What is asked for, and when.
pub(super) struct Asked<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) now_ms: u64,
    pub(super) random: &'a Random,
}

/// The common hit: all of a small object, no conditions, no ranges.
#[inline]
pub(super) fn small(asked: &Asked<'_>, object: &Object, head: &Head) -> Option<Response> {
    let request = asked.head;
    if request.method != Method::Get || asks_for_less(&request.fields) {
        return None;
    }
    let bytes = object.whole()?;
    let status = fresh(head, asked.now_ms);
    let mut response = begin(head, head.status, Some(status), asked.now_ms);
    response.body = Body::Bytes(bytes);
    Some(response)
}

/// Answers from an object that was fresh when it was looked up.
pub(super) fn hit(asked: &Asked<'_>, reader: Reader, head: &Head) -> Response {
    respond(asked, reader, head, fresh(head, asked.now_ms))
}

fn fresh(head: &Head, now_ms: u64) -> CacheStatus {
    CacheStatus::hit((head.fresh_until_ms as i64 - now_ms as i64) / 1000)
}

/// Whether a condition or a range is among the fields.
#[inline]
pub(super) fn asks_for_less(fields: &Fields) -> bool {
    fields.iter().any(|(name, _)| {
        matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]) || name.eq_ignore_ascii_case(b"range")
    })
}

/// Answers from what `reader` reads: conditions first (RFC 9110 13.2.2), then Range (14.2).
pub(super) fn respond(
    asked: &Asked<'_>,
    reader: Reader,
    head: &Head,
    status: CacheStatus,
) -> Response {
    let (request, now_ms) = (asked.head, asked.now_ms);
    let mut ignore_range = request.method != Method::Get || head.status != 200;
    if head.status == 200 && asks_for_less(&request.fields) {
        let validators = Validators {
            etag: head.etag.as_deref().and_then(EntityTag::parse),
            last_modified_s: head.last_modified_s,
            date_s: Some(head.date_s),
        };
        match conditional::evaluate(&request.method, &request.fields, &validators) {
            Decision::NotModified => return not_modified(head, status, now_ms),
            Decision::PreconditionFailed => return begin_bare(head, 412, status, now_ms),
            Decision::Proceed {
                ignore_range: ignore,
            } => ignore_range |= ignore,
        }
    }
    let length = head.length.or_else(|| reader.object().length());
    match wanted(request, length.filter(|_| !ignore_range)) {
        Wanted::All => whole(request, reader, head, length, status, now_ms),
        Wanted::Nothing(length) => {
            let mut response = begin_bare(head, 416, status, now_ms);
            let mut value = Vec::new();
            ContentRange::Unsatisfied { length }.render(&mut value);
            response.fields.append("content-range", value);
            response
        }
        Wanted::Ranges(ranges, length) => match &ranges[..] {
            [one] => part(reader, head, one.clone(), length, status, now_ms),
            _ => parts(asked, reader, head, ranges, length, status),
        },
    }
}

enum Wanted {
    All,
    Nothing(u64),
    Ranges(SmallVec<[Range<u64>; 1]>, u64),
}

/// Which bytes are asked for. Without a known length Range is ignored, as it may be (RFC 9110 14.2).
fn wanted(request: &RequestHead, length: Option<u64>) -> Wanted {
    let mut lines = request.fields.get_all("range");
    let (Some(value), None, Some(length)) = (lines.next(), lines.next(), length) else {
        return Wanted::All;
    };
    match range::parse(value).map(|specs| specs.resolve(length, PART_OVERHEAD)) {
        Some(Resolved::Satisfiable(ranges)) => Wanted::Ranges(ranges, length),
        Some(Resolved::NotSatisfiable) => Wanted::Nothing(length),
        Some(Resolved::Ignore) | None => Wanted::All,
    }
}

/// A response with the stored field lines.
fn begin(head: &Head, status: u16, cache: Option<CacheStatus>, now_ms: u64) -> Response {
    let mut response = Response::new(status);
    response.stored = head.fields.clone();
    response.cache = cache;
    let age_s = (head.age_ms(now_ms) / 1000).min(1 << 31) as u32;
    let is_hit = cache.is_some_and(|c| c.outcome == Outcome::Hit);
    // Age says that the response was not made for this request (RFC 9111 5.1).
    response.age_s = (is_hit || age_s > 0).then_some(age_s);
    response
}

/// A response with those stored lines that tell about the whole resource and not about content:
/// for 304 (RFC 9110 15.4.5), 412 and 416. Only a 304 says how long the content is fresh.
fn begin_bare(head: &Head, status: u16, cache: CacheStatus, now_ms: u64) -> Response {
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
    let is_in = |list: &[&str], name: &[u8]| {
        list.iter()
            .any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()))
    };
    let mut response = begin(head, status, Some(cache), now_ms);
    response.stored = Bytes::new();
    for (name, value) in lines_of(&head.fields) {
        if is_in(&KEPT, name) || (status == 304 && is_in(&FRESHNESS, name)) {
            response.fields.append_bytes(name, value);
        }
    }
    response
}

fn not_modified(head: &Head, status: CacheStatus, now_ms: u64) -> Response {
    begin_bare(head, 304, status, now_ms)
}

/// The whole content, or only its head.
fn whole(
    request: &RequestHead,
    reader: Reader,
    head: &Head,
    length: Option<u64>,
    status: CacheStatus,
    now_ms: u64,
) -> Response {
    let end = length.unwrap_or(u64::MAX);
    // A head alone needs no byte of the content.
    let status = match request.method {
        Method::Get => settle(status, &reader, 0..end),
        _ => status,
    };
    let mut response = begin(head, head.status, Some(status), now_ms);
    response.length = length;
    if request.method == Method::Get && length != Some(0) {
        response.body = Body::stream(Stored::new(reader, 0..end));
    }
    response
}

/// One range: 206 with Content-Range (RFC 9110 15.3.7.1).
fn part(
    reader: Reader,
    head: &Head,
    range: Range<u64>,
    length: u64,
    status: CacheStatus,
    now_ms: u64,
) -> Response {
    let status = settle(status, &reader, range.clone());
    let mut response = begin(head, 206, Some(status), now_ms);
    let mut value = Vec::with_capacity(48);
    ContentRange::Part {
        range: range.clone(),
        length: Some(length),
    }
    .render(&mut value);
    response.fields.append("content-range", value);
    response.body = match reader.object().piece(range.start, range.end) {
        Some(bytes) => Body::Bytes(bytes),
        None => Body::stream(Stored::new(reader, range)),
    };
    response
}

/// Several ranges: multipart/byteranges (RFC 9110 15.3.7.2).
fn parts(
    asked: &Asked<'_>,
    reader: Reader,
    head: &Head,
    ranges: SmallVec<[Range<u64>; 1]>,
    length: u64,
    status: CacheStatus,
) -> Response {
    let hull = ranges.iter().map(|r| r.start).min().unwrap_or(0)
        ..ranges.iter().map(|r| r.end).max().unwrap_or(0);
    let mut response = begin(head, 206, Some(settle(status, &reader, hull)), asked.now_ms);
    let mut content_type = None;
    response.stored = Bytes::new();
    for (name, value) in lines_of(&head.fields) {
        match name.eq_ignore_ascii_case(b"content-type") {
            true => content_type = Some(value.to_vec()),
            false => response.fields.append_bytes(name, value),
        }
    }
    // Nobody can have put it into the content beforehand.
    let boundary = format!(
        "{:016x}{:016x}",
        asked.random.next_u64(),
        asked.random.next_u64()
    );
    let multipart = Multipart {
        boundary: &boundary,
        content_type: content_type.as_deref(),
        length,
    };
    response
        .fields
        .append("content-type", multipart.content_type());
    let total = multipart.total(&ranges);
    let frames = framing(&multipart, &ranges);
    response.body = Body::stream(Parts {
        reader,
        ranges,
        frames,
        next: 0,
        remaining: total,
        in_part: false,
    });
    response
}

/// The text before each part, and after the last.
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

/// A hit whose bytes are not all there yet is a part of somebody's fetch.
fn settle(mut status: CacheStatus, reader: &Reader, range: Range<u64>) -> CacheStatus {
    if status.outcome == Outcome::Hit && !reader.object().covers(range) {
        status.outcome = Outcome::Fwd(Fwd::Partial);
        status.collapsed = true;
    }
    status
}

/// A range of a stored object, as a body.
struct Stored {
    reader: Reader,
}

impl Stored {
    fn new(mut reader: Reader, range: Range<u64>) -> Stored {
        reader.limit(range.start, range.end);
        Stored { reader }
    }
}

impl BodyStream for Stored {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        self.reader
            .poll_next(cx)
            .map(|next| frame(&self.reader, next))
    }

    fn length(&self) -> Option<u64> {
        self.reader.remaining()
    }
}

fn frame(reader: &Reader, next: Next) -> Option<Result<Frame, Fault>> {
    match next {
        Next::Bytes(bytes) => Some(Ok(Frame::Data(bytes))),
        Next::End => None,
        Next::Missing => {
            let failure = reader.object().failure();
            Some(Err(fault_of(
                &failure.unwrap_or_else(|| Arc::new(Abandoned)),
            )))
        }
    }
}

/// Several ranges of a stored object with the text between them.
struct Parts {
    reader: Reader,
    ranges: SmallVec<[Range<u64>; 1]>,
    /// One more than ranges.
    frames: Vec<Bytes>,
    next: usize,
    remaining: u64,
    in_part: bool,
}

impl BodyStream for Parts {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if self.in_part {
            match self.reader.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Next::End) => self.in_part = false,
                Poll::Ready(next) => {
                    if let Next::Bytes(bytes) = &next {
                        self.remaining = self.remaining.saturating_sub(bytes.len() as u64);
                    }
                    return Poll::Ready(frame(&self.reader, next));
                }
            }
        }
        let Some(text) = self.frames.get(self.next).cloned() else {
            return Poll::Ready(None);
        };
        if let Some(range) = self.ranges.get(self.next) {
            self.reader.limit(range.start, range.end);
            self.in_part = true;
        }
        self.next += 1;
        self.remaining = self.remaining.saturating_sub(text.len() as u64);
        Poll::Ready(Some(Ok(Frame::Data(text))))
    }

    fn length(&self) -> Option<u64> {
        Some(self.remaining)
    }
}
