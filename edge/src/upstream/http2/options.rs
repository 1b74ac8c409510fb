//! The limits of a connection to a server.

use std::time::Duration;

use crate::http2::client;
use crate::upstream::options::Limits;

/// Smallest read in bytes.
pub(super) const READ_MIN: usize = 16 << 10;
/// Longest time for the answer to a PING.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Most exchanges before the connection is closed.
    pub(super) uses: u64,
    /// Time without a received byte, while exchanges wait, after which the connection is tested with a PING.
    pub(super) ping_after: Duration,
    /// Longest time for the answer to a PING.
    pub(super) answer: Duration,
    /// Most bytes of all heads of a response together, interim ones included.
    pub(super) head: usize,
    pub(super) client: client::Options,
}

impl Options {
    pub(super) fn new(limits: &Limits) -> Options {
        let half = limits.read / 2;
        Options {
            uses: match limits.keepalive_requests {
                _ if limits.is_last(1) => 1,
                0 => u64::MAX,
                most => most,
            },
            ping_after: half,
            answer: half.min(ANSWER_MAX),
            head: limits.head,
            client: client::Options::with_header_list(limits.head as u32),
        }
    }
}
