//! Refusals: requests that get an error response from downstream itself.

use crate::handler::Response;
use crate::http::Status;

/// The refusal of a request that is malformed, over a limit or too slow. The connection closes after the response,
/// since the beginning of the next request is in doubt.
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

    /// A refusal with this status.
    pub const fn with(status: Status, reason: &'static str) -> Refusal {
        Refusal { status, reason }
    }

    /// The complete head did not arrive in time.
    pub const HEADER_TIMEOUT: Refusal = Refusal::with(408, "header-timeout");
    /// The declared body is over the limit.
    pub const BODY_TOO_LARGE: Refusal = Refusal::with(413, "request-body-too-large");

    /// The error response.
    pub fn response(self) -> Response {
        text(self.status, self.reason)
    }
}

fn text(status: Status, reason: &str) -> Response {
    let mut response = Response::text(status, format!("{status} {reason}\n"));
    response.fields.append("cache-control", "no-store");
    response
}
