//! The properties that a response must have to be counted as good, and the reasons why requests fail.

use rustix::io::Errno;

use super::range::ContentRange;
use super::targets::Chosen;

/// Reason why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection could be made.
    Connect(Errno),
    /// The handshake of TLS failed.
    Tls,
    Closed,
    /// The server closed a reused connection before any byte of the response arrived. The request is sent again.
    Stale,
    Timeout,
    /// The status was not the expected one. The value is the received status.
    Status(u16),
    /// The response does not have the requested range.
    Range,
    Length,
    Malformed,
    Content,
}

/// Properties that a response must have to be counted as good.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    /// `None`: 200, and 206 for ranges.
    pub(super) status: Option<u16>,
    pub(super) length: Option<u64>,
    pub(super) verify: bool,
}

impl Expected {
    /// Returns the expected status of the response to a request.
    pub(super) fn status(&self, chosen: Chosen) -> u16 {
        let usual = if chosen.range.is_some() { 206 } else { 200 };
        self.status.unwrap_or(usual)
    }

    /// Checks the status of a response, and its range if one was requested.
    pub(super) fn check_head(
        &self,
        chosen: Chosen,
        status: u16,
        range: ContentRange,
    ) -> Result<(), Failure> {
        if status != self.status(chosen) {
            return Err(Failure::Status(status));
        }
        match chosen.range {
            Some(requested) if status == 206 && !range.fits(requested) => Err(Failure::Range),
            _ => Ok(()),
        }
    }

    /// Checks the length of a response's body.
    pub(super) fn check_length(
        &self,
        chosen: Chosen,
        range: ContentRange,
        length: u64,
    ) -> Result<(), Failure> {
        let of_range = chosen.range.and(range.length());
        let is_right = |wanted: Option<u64>| wanted.is_none_or(|wanted| wanted == length);
        match is_right(self.length) && is_right(of_range) {
            true => Ok(()),
            false => Err(Failure::Length),
        }
    }
}
