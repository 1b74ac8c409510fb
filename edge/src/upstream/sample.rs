//! A sample of the kernel's data about a connection (TCP_INFO).

use crate::sys::net::TcpState;

/// A sample of the kernel's data about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Smoothed round trip in microseconds.
    pub(super) rtt_us: u64,
    /// Congestion window towards the server in bytes.
    pub(super) window: u64,
    /// Bytes sent and not yet acknowledged.
    pub(super) in_flight: u64,
    /// Segments sent again since the last sample of this connection.
    pub(super) retransmits: u64,
}

impl Sample {
    /// Returns the sample with this state. `before`: the segments sent again until the last sample.
    pub(super) fn new(state: &TcpState, before: u32) -> Sample {
        Sample {
            rtt_us: u64::from(state.rtt_us),
            window: u64::from(state.window) * u64::from(state.segment),
            in_flight: u64::from(state.in_flight) * u64::from(state.segment),
            retransmits: u64::from(state.retransmits.wrapping_sub(before)),
        }
    }
}
