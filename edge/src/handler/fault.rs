//! Faults: the reason for which a request, a fetch or a body failed, and the response that reports
//! it.

use super::Response;
use crate::http::Status;
use crate::reason::Reason;

/// Reason for which a request, a fetch or a body failed, and whether the request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The named reason.
    pub reason: Reason,
    /// Whether the origin cannot have acted on any part of the request, so that the request may be
    /// sent again.
    pub retryable: bool,
    /// Seconds after which the client may try again, for Retry-After (RFC 9110 10.2.3). 0: no
    /// Retry-After.
    pub retry_after_s: u32,
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Fault {
        Fault {
            reason,
            retryable: reason.retryable(),
            retry_after_s: 0,
        }
    }
}

impl Fault {
    /// Returns the status of the response that reports the fault.
    pub fn status(self) -> Status {
        self.reason.status().unwrap_or(500)
    }

    /// Returns the response that reports the fault, with its status and its reason. The reason also
    /// appears in Cache-Status; there, `detail` is sent neither with `hit` nor with `fwd` (RFC 9211
    /// 2). The response concerns one request and must not be stored.
    pub fn response(self) -> Response {
        let (status, text) = (self.status(), self.reason.text());
        let mut response = Response::text(status, format!("{status} {text}\n"));
        response.fields.append("cache-control", "no-store");
        let mut value = Vec::with_capacity(48);
        value.extend_from_slice(b"sluice; detail=");
        value.extend_from_slice(text.as_bytes());
        response.fields.append("cache-status", value);
        if self.retry_after_s > 0 {
            let seconds = self.retry_after_s.to_string();
            response.fields.append("retry-after", seconds);
        }
        response.fault = Some(self.reason);
        response
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason.text())
    }
}

impl std::error::Error for Fault {}
