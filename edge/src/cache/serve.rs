//! Answers from an object: the head that conditions and ranges call for, and a body that reads it.

use std::ops::Range;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::decide::want::{Parts, Wanted};
use super::ride::Ride;
use crate::handler::{Body, BodyStream, Fault, Frame, Response};
use crate::http::fields::lines_of;
use crate::http::range::{ContentRange, Multipart};
use crate::http::{CacheStatus, Outcome};
use crate::store::{Head, Object};
use crate::sys::Random;

/// When an answer is made, and from what.
pub(super) struct Answering<'a> {
    pub(super) head: &'a Head,
    pub(super) status: CacheStatus,
    pub(super) now_ms: u64,
    pub(super) random: &'a Random,
}

/// The common hit: all of a small object, no conditions, no ranges.
#[inline]
pub(super) fn small(answering: &Answering<'_>, object: &Object) -> Option<Response> {
    let bytes = object.whole()?;
    let Answering {
        head,
        status,
        now_ms,
        ..
    } = *answering;
    let mut response = begin(head, head.status, Some(status), now_ms);
    response.body = Body::Bytes(bytes);
    Some(response)
}

/// The one byte range that is at hand in one piece: the common hit on a part.
#[inline]
pub(super) fn piece(
    answering: &Answering<'_>,
    object: &Object,
    wanted: &Wanted,
) -> Option<Response> {
    let Wanted::Parts(parts, length) = wanted else {
        return None;
    };
    let [one] = &parts[..] else {
        return None;
    };
    let bytes = object.piece(one.start, one.end)?;
    let mut response = part_head(answering, one, *length);
    response.body = Body::Bytes(bytes);
    Some(response)
}

/// The answer where no content of the object is sent; `None` where some is.
pub(super) fn bare(
    answering: &Answering<'_>,
    object: &Object,
    wanted: &Wanted,
) -> Option<Response> {
    let Answering {
        head,
        status,
        now_ms,
        ..
    } = *answering;
    Some(match wanted {
        Wanted::NotModified => begin_bare(head, 304, status, now_ms),
        Wanted::PreconditionFailed => begin_bare(head, 412, status, now_ms),
        Wanted::NotSatisfiable(length) => {
            let mut response = begin_bare(head, 416, status, now_ms);
            let mut value = Vec::new();
            ContentRange::Unsatisfied { length: *length }.render(&mut value);
            response.fields.append("content-range", value);
            response
        }
        Wanted::HeadOnly => {
            let mut response = begin(head, head.status, Some(status), now_ms);
            response.length = head.length.or_else(|| object.length());
            response
        }
        Wanted::All if head.length == Some(0) => begin(head, head.status, Some(status), now_ms),
        Wanted::All | Wanted::Parts(..) => return None,
    })
}

/// The answer with content, which `ride` reads.
pub(super) fn content(answering: &Answering<'_>, ride: Ride, wanted: Wanted) -> Response {
    match wanted {
        Wanted::Parts(parts, length) => match &parts[..] {
            [one] => part(answering, ride, one.clone(), length),
            _ => multipart(answering, ride, parts, length),
        },
        _ => whole(answering, ride),
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

/// The whole content.
fn whole(answering: &Answering<'_>, mut ride: Ride) -> Response {
    let head = answering.head;
    let length = head.length.or_else(|| ride.object().length());
    let mut response = begin(head, head.status, Some(answering.status), answering.now_ms);
    response.length = length;
    ride.limit(0..length.unwrap_or(u64::MAX));
    response.body = Body::stream(Stored { ride });
    response
}

/// One range: 206 with Content-Range (RFC 9110 15.3.7.1).
fn part(answering: &Answering<'_>, mut ride: Ride, range: Range<u64>, length: u64) -> Response {
    let mut response = part_head(answering, &range, length);
    ride.limit(range);
    response.body = Body::stream(Stored { ride });
    response
}

fn part_head(answering: &Answering<'_>, range: &Range<u64>, length: u64) -> Response {
    let head = answering.head;
    let mut response = begin(head, 206, Some(answering.status), answering.now_ms);
    if head.odd_range {
        response.stored = Bytes::new();
        let is_odd = |name: &[u8]| name.eq_ignore_ascii_case(b"content-range");
        for (name, value) in lines_of(&head.fields).filter(|(name, _)| !is_odd(name)) {
            response.fields.append_bytes(name, value);
        }
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

/// Several ranges: multipart/byteranges (RFC 9110 15.3.7.2).
fn multipart(answering: &Answering<'_>, ride: Ride, ranges: Parts, length: u64) -> Response {
    let Answering { head, random, .. } = answering;
    let mut response = begin(head, 206, Some(answering.status), answering.now_ms);
    let mut content_type = None;
    response.stored = Bytes::new();
    for (name, value) in lines_of(&head.fields) {
        match name.eq_ignore_ascii_case(b"content-type") {
            true => content_type = Some(value.to_vec()),
            false => response.fields.append_bytes(name, value),
        }
    }
    // Nobody can have put it into the content beforehand.
    let boundary = format!("{:016x}{:016x}", random.next_u64(), random.next_u64());
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
    response.body = Body::stream(Multiple {
        ride,
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

/// A range of an object, as a body.
struct Stored {
    ride: Ride,
}

impl BodyStream for Stored {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        self.ride
            .poll_next(cx)
            .map(|next| next.map(|bytes| bytes.map(Frame::Data)))
    }

    fn length(&self) -> Option<u64> {
        self.ride.remaining()
    }
}

/// Several ranges of an object with the text between them.
struct Multiple {
    ride: Ride,
    ranges: Parts,
    /// One more than ranges.
    frames: Vec<Bytes>,
    next: usize,
    remaining: u64,
    in_part: bool,
}

impl BodyStream for Multiple {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if self.in_part {
            match self.ride.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => self.in_part = false,
                Poll::Ready(Some(next)) => {
                    if let Ok(bytes) = &next {
                        self.remaining = self.remaining.saturating_sub(bytes.len() as u64);
                    }
                    return Poll::Ready(Some(next.map(Frame::Data)));
                }
            }
        }
        let Some(text) = self.frames.get(self.next).cloned() else {
            return Poll::Ready(None);
        };
        if let Some(range) = self.ranges.get(self.next) {
            self.ride.limit(range.clone());
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
