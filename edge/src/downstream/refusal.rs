//! Refusals: requests that get an error response from downstream itself.

use crate::handler::Response;
use crate::http::Status;
use crate::reason::Reason;

/// The refusal of a request that is malformed, over a limit or too slow. The connection closes after the response,
/// since the beginning of the next request is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status sent.
    pub status: Status,
    /// The reason, for the body and the log.
    pub reason: Reason,
}

impl Refusal {
    /// A refusal with the reason's status; 400 if the reason has none.
    pub const fn of(reason: Reason) -> Refusal {
        let status = match reason.status() {
            Some(status) => status,
            None => 400,
        };
        Refusal { status, reason }
    }

    /// The complete head did not arrive in time.
    pub const HEADER_TIMEOUT: Refusal = Refusal::of(Reason::HeaderTimeout);
    /// The declared body is over the limit.
    pub const BODY_TOO_LARGE: Refusal = Refusal::of(Reason::RequestBodyTooLarge);

    /// The error response.
    pub fn response(self) -> Response {
        let text = self.reason.text();
        let mut response = Response::text(self.status, format!("{} {text}\n", self.status));
        response.fields.append("cache-control", "no-store");
        response
    }
}
