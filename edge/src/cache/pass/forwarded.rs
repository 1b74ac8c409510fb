//! Responses to requests that were passed to the origin.

use crate::handler::Response;
use crate::http::CacheStatus;

/// Adds Cache-Status to a response from the origin.
pub(in crate::cache) fn forwarded(mut response: Response, mut status: CacheStatus) -> Response {
    status.fwd_status = Some(response.status);
    response.cache = Some(status);
    response
}
