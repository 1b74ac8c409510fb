//! From what went wrong to what the client is told.

use crate::handler::{Fault, Response};
use crate::http::Status;

/// A request that is refused for what it says, or for how slowly it says it. The connection is
/// closed after it, since where the next request would begin is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status sent.
    pub status: Status,
    /// A short reason, for the body and the log.
    pub reason: &'static str,
}

impl Refusal {
    /// Malformed (RFC 9110 15.5.1).
    pub const fn bad(reason: &'static str) -> Refusal {
        Refusal {
            status: 400,
            reason,
        }
    }

    /// With a status of its own.
    pub const fn with(status: Status, reason: &'static str) -> Refusal {
        Refusal { status, reason }
    }

    /// The complete head did not come in time.
    pub const HEADER_TIMEOUT: Refusal = Refusal::with(408, "header-timeout");
    /// The declared body is over the limit.
    pub const BODY_TOO_LARGE: Refusal = Refusal::with(413, "request-body-too-large");

    /// The response that says so.
    pub fn response(self) -> Response {
        text(self.status, self.reason)
    }
}

/// The response to a request that failed with this fault. Its reason stands in Cache-Status, where
/// `detail` is allowed beside neither `hit` nor `fwd` (RFC 9211 2).
pub fn response_of(fault: Fault) -> Response {
    let mut response = text(fault.cause.status(), fault.cause.word());
    let mut value = Vec::with_capacity(48);
    value.extend_from_slice(b"sluice; detail=");
    value.extend_from_slice(fault.cause.word().as_bytes());
    response.fields.append("cache-status", value);
    if fault.retry_after_s > 0 {
        let seconds = fault.retry_after_s.to_string();
        response.fields.append("retry-after", seconds);
    }
    response
}

fn text(status: Status, reason: &str) -> Response {
    let mut response = Response::text(status, format!("{status} {reason}\n"));
    response.fields.append("cache-control", "no-store");
    response
}
