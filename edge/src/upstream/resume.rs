//! Continues a body that broke off: requests its missing bytes from another server.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::forward::Forward;
use super::inbound::{Content, Received};
use super::lease::Lease;
use super::retry::Tries;
use crate::handler::{Fault, Head, Response};
use crate::http::conditional::EntityTag;
use crate::http::range::ContentRange;
use crate::http::{Fields, Method, Status};

/// Number of bytes after which a body that breaks off again gets all its tries again.
const PROGRESS_BYTES: u64 = 64 << 10;
/// Headers of the first request that the request for the missing bytes does not have, since its
/// If-Range decides about the version.
const REPLACED: [&str; 6] = [
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
];

/// The ability to continue a body on another server.
pub(super) struct Resume {
    version: Version,
    /// End of the body's range within the representation.
    end: u64,
    tries: Tries,
    /// Position at which the body broke off when `tries` began.
    tried_at: Option<u64>,
    running: Option<Running>,
}

/// The representation from which the missing bytes must come: two responses with the same strong
/// entity tag, coding and length have the same bytes (RFC 9110 8.8.3).
#[derive(Clone)]
struct Version {
    tag: Vec<u8>,
    coding: Vec<u8>,
    length: u64,
}

/// The exchange that sends the missing bytes.
pub(super) struct Resumed {
    pub(super) lease: Lease,
    /// Time at which the request for them was sent, in microseconds of the upstream's clock.
    pub(super) sent_us: u64,
}

/// A request for missing bytes, in progress.
struct Running {
    /// The fault that the body ends with if there is no usable response.
    fault: Fault,
    rest: Pin<Box<dyn Future<Output = (Option<Resumed>, Tries)>>>,
}

impl Resume {
    /// Returns the ability to continue the body of this response, of `length` bytes; `None` if the
    /// response does not identify its version, or another response might be about something else.
    pub(super) fn of(request: &Head, response: &Response, length: u64) -> Option<Box<Resume>> {
        let is_get = request.method == Method::Get;
        let fields = &response.fields;
        let range = range_of(response.status, fields, length).filter(|_| is_get)?;
        let tag = only(fields, "etag")?;
        let is_strong = EntityTag::parse(tag).is_some_and(|tag| !tag.weak);
        is_strong.then(|| {
            Box::new(Resume {
                version: Version {
                    tag: tag.to_vec(),
                    coding: fields.get("content-encoding").unwrap_or_default().to_vec(),
                    length: range.1,
                },
                end: range.0.end,
                tries: Tries::default(),
                tried_at: None,
                running: None,
            })
        })
    }

    /// Begins to request the last `left` bytes of the body, after `server` has failed to send them.
    /// Returns whether that is permitted. `fault` is the fault of the server.
    pub(super) fn begin(
        &mut self,
        forward: &Forward,
        server: usize,
        fault: Fault,
        left: u64,
    ) -> bool {
        let at = self.end.saturating_sub(left);
        let is_new = |tried: u64| at >= tried.saturating_add(PROGRESS_BYTES);
        if self.tried_at.is_none_or(is_new) {
            self.tries = Tries::default();
            self.tries.begin(forward.upstream.clock.monotonic_us());
            self.tried_at = Some(at);
        }
        let mut tries = std::mem::take(&mut self.tries);
        if forward.move_on(fault, server, true, &mut tries).is_err() {
            return false;
        }
        let (version, missing) = (self.version.clone(), at..self.end);
        let forward = forward.again(version.request(&forward.head, &missing));
        let rest = async move {
            let Ok((mut lease, received, sent_us)) = forward.exchange(&mut tries).await else {
                return (None, tries);
            };
            forward.note_outcome(&mut lease, received.status, sent_us);
            let fits = version.fits(&received, &missing);
            if fits {
                forward.upstream.counters.upstream_resumed.add(1);
            }
            (fits.then_some(Resumed { lease, sent_us }), tries)
        };
        self.running = Some(Running {
            fault,
            rest: Box::pin(rest),
        });
        true
    }

    /// Waits for the response with the missing bytes, if they have been requested. Returns the exchange
    /// from which the body goes on, or the fault with which it ends; `None` if nothing was requested.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Resumed, Fault>>> {
        let Some(running) = &mut self.running else {
            return Poll::Ready(None);
        };
        let (resumed, tries) = ready!(running.rest.as_mut().poll(cx));
        let fault = running.fault;
        (self.running, self.tries) = (None, tries);
        Poll::Ready(Some(resumed.ok_or(fault)))
    }
}

impl Version {
    /// Returns the head of the request for these bytes.
    fn request(&self, first: &Head, missing: &Range<u64>) -> Head {
        let mut head = first.clone();
        for name in REPLACED {
            head.fields.remove(name);
        }
        let last = missing.end.saturating_sub(1);
        let range = format!("bytes={}-{last}", missing.start);
        head.fields.append("range", range);
        head.fields.append("if-range", &self.tag);
        head
    }

    /// Whether the response has these bytes of this version.
    fn fits(&self, received: &Received, missing: &Range<u64>) -> bool {
        let Content::Sized(length) = received.content else {
            return false;
        };
        let fields = &received.fields;
        received.status == 206
            && range_of(206, fields, length) == Some((missing.clone(), self.length))
            && only(fields, "etag") == Some(&self.tag[..])
            && fields.get("content-encoding").unwrap_or_default() == self.coding
    }
}

/// Returns the range of the representation that a response of `length` bytes has, and the complete
/// length of the representation.
fn range_of(status: Status, fields: &Fields, length: u64) -> Option<(Range<u64>, u64)> {
    match status {
        200 => Some((0..length, length)),
        // The content is a list of parts, although no Content-Range should be there (RFC 9110 15.3.7.2).
        206 if is_multipart(fields) => None,
        206 => match only(fields, "content-range").and_then(ContentRange::parse)? {
            ContentRange::Part {
                range,
                length: Some(complete),
            } if range.end - range.start == length => Some((range, complete)),
            _ => None,
        },
        _ => None,
    }
}

fn is_multipart(fields: &Fields) -> bool {
    let mut types = fields.get_all("content-type");
    types.any(|value| {
        let end = memchr::memchr(b';', value).unwrap_or(value.len());
        let media_type = value[..end].trim_ascii();
        media_type.eq_ignore_ascii_case(b"multipart/byteranges")
    })
}

/// Returns the value of a header that occurs once.
fn only<'a>(fields: &'a Fields, name: &'static str) -> Option<&'a [u8]> {
    let mut values = fields.get_all(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}
