//! Refused requests, and the responses that report them.

use crate::handler::Response;
use crate::http::Status;
use crate::reason::Reason;

/// A request that is refused for what it says, or for how slowly it says it. The connection is
/// closed after it, since where the next request would begin is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status sent.
    pub status: Status,
    /// The reason, for the body and the log.
    pub reason: Reason,
}

impl Refusal {
    /// For a reason that has a status of its own; 400 for others.
    pub const fn of(reason: Reason) -> Refusal {
        let status = match reason.status() {
            Some(status) => status,
            None => 400,
        };
        Refusal { status, reason }
    }

    /// The complete head did not come in time.
    pub const HEADER_TIMEOUT: Refusal = Refusal::of(Reason::HeaderTimeout);
    /// The declared body is over the limit.
    pub const BODY_TOO_LARGE: Refusal = Refusal::of(Reason::RequestBodyTooLarge);

    /// The response that reports the refusal.
    pub fn response(self) -> Response {
        let text = self.reason.text();
        let mut response = Response::text(self.status, format!("{} {text}\n", self.status));
        response.fields.append("cache-control", "no-store");
        response
    }
}
