//! A sample of the kernel's data about a connection (TCP_INFO).

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
