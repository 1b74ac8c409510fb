//! Responses to requests that were sent on alone.

use crate::handler::Response;
use crate::http::CacheStatus;

/// Adds to a response from the origin how it came about.
pub(in crate::cache) fn forwarded(mut response: Response, mut status: CacheStatus) -> Response {
    status.fwd_status = Some(response.status);
    response.cache = Some(status);
    response
}
