//! One request as the collecting thread gets it.

use std::net::IpAddr;

use super::measure::Sums;
use crate::reason::Reason;
use crate::sys::Address;

/// Most bytes of a URL that a sample has.
pub(super) const RAW_MAX: usize = 1024;

/// A request, or one of several like it. Its memory is reused.
#[derive(Debug, Default)]
pub struct Sample {
    /// The URL as received; empty if it is not known.
    pub(super) url: Vec<u8>,
    /// Whether the URL is longer than that.
    pub(super) is_cut: bool,
    /// Number of requests for which the sample stands. 0: it counts for no URL.
    pub(super) weight: u64,
    /// The client, if it is known.
    pub(super) client: Option<IpAddr>,
    /// The result of the request.
    pub result: SampleResult,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleResult {
    /// Status of the response, 0 if there was none.
    pub status: u16,
    /// Reason for which the request was refused, failed or was cut.
    pub reason: Option<Reason>,
    /// Whether the response was cut.
    pub is_cut: bool,
    /// Whether a cache served the request by a fetch for it.
    pub is_miss: bool,
    /// Body bytes sent.
    pub body_bytes: u64,
    /// Duration in microseconds.
    pub request_us: u64,
    /// The origin server.
    pub server: Option<Address>,
}

impl Sample {
    /// Sets the URL from its parts, as far as there is room.
    pub(super) fn set_url<const N: usize>(&mut self, parts: [&[u8]; N]) {
        self.url.clear();
        self.is_cut = false;
        for part in parts {
            let room = RAW_MAX - self.url.len();
            self.is_cut |= part.len() > room;
            self.url.extend_from_slice(&part[..part.len().min(room)]);
        }
    }

    /// Returns the sums over the requests for which the sample stands.
    pub(super) fn sums(&self) -> Sums {
        let SampleResult {
            is_miss,
            body_bytes,
            request_us,
            ..
        } = self.result;
        Sums {
            requests: self.weight,
            bytes: body_bytes.saturating_mul(self.weight),
            misses: self.weight * u64::from(is_miss),
            latency_us: request_us.saturating_mul(self.weight),
        }
    }
}
