//! Refusals: requests to which downstream itself responds with an error.

use crate::handler::Response;
use crate::http::Status;
use crate::reason::Reason;

/// The refusal of a request that is malformed, over a limit or too slow. The connection is closed
/// after the response, since it is unknown where the next request would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the response.
    pub status: Status,
    /// Reason, for the response's body and the log.
    pub reason: Reason,
}

impl Refusal {
    /// Creates a refusal with the status of the reason, which must have one.
    pub const fn of(reason: Reason) -> Refusal {
        debug_assert!(reason.status().is_some());
        let status = match reason.status() {
            Some(status) => status,
            None => 400,
        };
        Refusal { status, reason }
    }

    /// Refusal of a request whose complete head did not arrive in time.
    pub const HEADER_TIMEOUT: Refusal = Refusal::of(Reason::HeaderTimeout);
    /// Refusal of a request whose declared body is over the limit.
    pub const BODY_TOO_LARGE: Refusal = Refusal::of(Reason::RequestBodyTooLarge);

    /// Returns the error response.
    pub fn response(self) -> Response {
        let text = self.reason.text();
        let mut response = Response::text(self.status, format!("{} {text}\n", self.status));
        response.fields.append("cache-control", "no-store");
        response
    }
}
