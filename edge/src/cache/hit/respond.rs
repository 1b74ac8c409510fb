//! Responses from an object: a ride reads the wanted bytes.

use std::ops::Range;
use std::task::{self, Poll};

use bytes::Bytes;

use crate::cache::context::Context;
use crate::cache::decide::want;
use crate::cache::miss::ride::Ride;
use crate::handler::representation::{Ranged, Representation};
use crate::handler::{Body, BodyStream, Encoded, Fault, Frame, Head as RequestHead, Response};
use crate::http::wanted::{self, Wanted, has_condition_or_range};
use crate::http::{CacheStatus, FieldBlock, Method, Outcome};
use crate::reason::Reason;
use crate::store::{Head, Object};
use crate::sys::Random;

/// The data from which a response is made.
pub(in crate::cache) struct ResponseInput<'a> {
    pub(in crate::cache) head: &'a Head,
    /// Header fields that replace the head's if the content is served in several codings.
    pub(in crate::cache) varying: Option<FieldBlock>,
    pub(in crate::cache) status: CacheStatus,
    pub(in crate::cache) now_ms: u64,
    pub(in crate::cache) random: &'a Random,
}

impl ResponseInput<'_> {
    /// The representation with all of the object's content.
    #[inline]
    fn representation(&self, length: Option<u64>) -> Representation<'_> {
        let fields = self.varying.as_ref().unwrap_or(&self.head.fields);
        self.with_fields(fields, length)
    }

    #[inline]
    fn with_fields<'f>(&self, fields: &'f FieldBlock, length: Option<u64>) -> Representation<'f> {
        let age_s = (self.head.age_ms(self.now_ms) / 1000).min(1 << 31) as u32;
        let is_hit = self.status.outcome == Outcome::Hit;
        Representation {
            status: self.head.status,
            fields,
            length,
            odd_range: self.head.odd_range,
            // Age says that the response was not generated for this request (RFC 9111 5.1).
            age_s: (is_hit || age_s > 0).then_some(age_s),
            cache: Some(self.status),
        }
    }

    fn of(&self, object: &Object) -> Representation<'_> {
        self.representation(object.content_length(self.head))
    }

    /// Ignores the conditions and ranges of a request that don't apply to content in several
    /// codings.
    pub(in crate::cache) fn judged(&self, wanted: Wanted, request: &RequestHead) -> Wanted {
        match self.varying {
            Some(_) => wanted::for_several_codings(wanted, &request.fields),
            None => wanted,
        }
    }

    /// Makes a random boundary, so that nobody can put it into the content beforehand.
    fn boundary(&self) -> String {
        let random = self.random;
        format!("{:016x}{:016x}", random.next_u64(), random.next_u64())
    }
}

/// Collects the data for a response from this head.
#[inline]
pub(in crate::cache) fn answering<'a>(
    context: &'a Context,
    head: &'a Head,
    status: CacheStatus,
    now_ms: u64,
) -> ResponseInput<'a> {
    ResponseInput {
        head,
        varying: None,
        status,
        now_ms,
        random: &context.worker.random,
    }
}

/// Makes the response for the most common hit: a small object, without conditions and ranges.
#[inline]
pub(in crate::cache) fn small(answering: &ResponseInput<'_>, object: &Object) -> Option<Response> {
    let bytes = object.whole()?;
    let mut response = answering.representation(None).begin(answering.head.status);
    response.body = Body::Bytes(bytes);
    Some(response)
}

/// Makes the response with one byte range, if it is in memory in one piece: the most common hit on
/// a range.
#[inline]
pub(in crate::cache) fn piece(
    answering: &ResponseInput<'_>,
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
    let mut response = answering.representation(None).part(one, *length);
    response.body = Body::Bytes(bytes);
    Some(response)
}

/// Makes the response if it has no content. `None` if it has some.
pub(in crate::cache) fn bare(
    answering: &ResponseInput<'_>,
    object: &Object,
    wanted: &Wanted,
) -> Option<Response> {
    answering.of(object).bare(wanted)
}

/// Makes the response with content, which `ride` reads.
pub(in crate::cache) fn content(
    answering: &ResponseInput<'_>,
    ride: Ride,
    wanted: Wanted,
) -> Response {
    let object = ride.object().clone();
    let receipt = ride.receipt();
    let representation = answering.of(&object);
    let mut response = representation.respond(wanted, StoredBody { ride }, || answering.boundary());
    response.receipt = receipt;
    response
}

/// Makes the response from encoded content.
pub(in crate::cache) fn coded(
    answering: &ResponseInput<'_>,
    request: &RequestHead,
    encoded: &Encoded,
) -> Response {
    let length = Some(encoded.content.len() as u64);
    let representation = answering.with_fields(&encoded.fields, length);
    if request.method == Method::Get && !has_condition_or_range(&request.fields) {
        let mut response = representation.begin(answering.head.status);
        response.body = Body::Bytes(encoded.content.clone());
        return response;
    }
    let etag = encoded.etag.as_deref();
    let wanted = want::judge_as(request, answering.head, etag, length);
    let wanted = wanted::for_several_codings(wanted, &request.fields);
    representation.in_memory(wanted, &encoded.content, || answering.boundary())
}

/// A range of an object as a response body.
struct StoredBody {
    ride: Ride,
}

impl BodyStream for StoredBody {
    fn poll_frame(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        self.ride
            .poll_next(cx)
            .map(|next| next.map(|bytes| bytes.map(Frame::Data)))
    }

    fn length(&self) -> Option<u64> {
        self.ride.remaining()
    }
}

impl Ranged for StoredBody {
    fn limit(&mut self, range: Range<u64>) {
        self.ride.limit(range);
    }
}

/// Makes the response with content, for a preview that never reads it.
pub(in crate::cache) fn unread(
    answering: &ResponseInput<'_>,
    object: &Object,
    wanted: Wanted,
) -> Response {
    let representation = answering.of(object);
    representation.respond(wanted, Unread, || answering.boundary())
}

/// The body of a response that is only previewed.
struct Unread;

impl BodyStream for Unread {
    fn poll_frame(&mut self, _: &mut task::Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        Poll::Ready(None)
    }

    fn length(&self) -> Option<u64> {
        None
    }
}

impl Ranged for Unread {
    fn limit(&mut self, _: Range<u64>) {}
}

/// The response to `only-if-cached` requests where nothing usable is stored (RFC 9111 5.2.1.7).
pub(in crate::cache) fn not_cached() -> Response {
    let mut response = Response::new(504);
    response.cache = Some(CacheStatus::own(Reason::OnlyIfCached));
    response.fields.append("content-type", "text/plain");
    response.body = Body::Bytes(Bytes::from_static(b"504 nothing usable is stored\n"));
    response
}
