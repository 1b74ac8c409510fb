//! The bodies of stored responses, which have to arrive at the minimum rate.

use crate::handler::{Body, Response};

/// Media type of server-sent events.
const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Takes the body of a response that is stored. The body has to arrive at the minimum rate, since
/// many clients may wait for it, except a stream of events, which pauses by design.
pub(super) fn body_of(response: &mut Response) -> Body {
    let mut body = std::mem::take(&mut response.body);
    let media_type = response.fields.get("content-type").unwrap_or_default();
    let is_events = media_type
        .get(..EVENT_STREAM.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(EVENT_STREAM));
    if let Body::Stream(stream) = &mut body
        && !is_events
    {
        stream.require_rate();
    }
    body
}
