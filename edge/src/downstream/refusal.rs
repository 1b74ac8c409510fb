//! From what went wrong to what the client is told: the only place where faults become statuses.

use crate::handler::{Cause, Fault, Response};
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

/// The status of a fault (RFC 9110 15.5, 15.6).
pub fn status_of(fault: Fault) -> Status {
    match fault.cause {
        Cause::ClientGone | Cause::BadRequestBody => 400,
        Cause::FileDenied => 403,
        Cause::NoRoute | Cause::NotFound => 404,
        Cause::RequestBodyTimeout => 408,
        Cause::RequestBodyTooLarge => 413,
        Cause::Panic | Cause::FileFailed | Cause::FileChanged => 500,
        Cause::Unresolved
        | Cause::ConnectFailed
        | Cause::StaleConnection
        | Cause::SendFailed
        | Cause::ClosedBeforeHead
        | Cause::BadHead
        | Cause::UnexpectedStatus
        | Cause::VersionChanged
        | Cause::BodyCut
        | Cause::BadBody => 502,
        Cause::NoServer | Cause::ServersBusy | Cause::NoRoom | Cause::FetchAbandoned => 503,
        Cause::ConnectTimeout | Cause::HeadTimeout | Cause::BodyTimeout => 504,
        Cause::Loop => 508,
    }
}

/// The response to a request that failed with this fault. Its reason stands in Cache-Status, where
/// `detail` is allowed beside neither `hit` nor `fwd` (RFC 9211 2).
pub fn response_of(fault: Fault) -> Response {
    let mut response = text(status_of(fault), fault.cause.word());
    let mut value = Vec::with_capacity(48);
    value.extend_from_slice(b"sluice; detail=");
    value.extend_from_slice(fault.cause.word().as_bytes());
    response.fields.append("cache-status", value);
    response
}

fn text(status: Status, reason: &str) -> Response {
    let mut response = Response::text(status, format!("{status} {reason}\n"));
    response.fields.append("cache-control", "no-store");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_status_that_names_whose_fault_it_was() {
        use crate::handler::Whose;
        for &cause in Cause::ALL {
            let fault = Fault::from(cause);
            let status = status_of(fault);
            match fault.whose {
                Whose::Client => assert!(matches!(status, 400..=499 | 508), "{cause:?}"),
                Whose::Edge | Whose::Origin => assert!((500..600).contains(&status), "{cause:?}"),
            }
        }
    }
}
