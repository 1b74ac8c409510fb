//! Faults: the reason for which a request, a fetch or a body failed.

use crate::http::{Fwd, Status};
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
    /// Reason for which a cache forwarded the request before the fault, for Cache-Status.
    pub fwd: Option<Fwd>,
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Fault {
        debug_assert!(reason.status().is_some(), "{reason} is no fault");
        Fault {
            reason,
            retryable: reason.retryable(),
            retry_after_s: 0,
            fwd: None,
        }
    }
}

impl Fault {
    /// Returns the fault of a request that a cache forwarded for this reason.
    pub fn after(self, fwd: Fwd) -> Fault {
        Fault {
            fwd: Some(fwd),
            ..self
        }
    }

    /// Returns the status of the response that reports the fault.
    pub fn status(self) -> Status {
        self.reason.status().unwrap_or(500)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason.text())
    }
}

impl std::error::Error for Fault {}
