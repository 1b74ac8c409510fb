//! The protocol that a server speaks, as far as connections to it have shown.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// Number of streams that a server is expected to permit before it says so (RFC 9113 6.5.2 recommends no fewer).
const STREAMS: u32 = 100;

const UNKNOWN: u8 = 0;
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;
/// The server has demanded HTTP/1.1 with HTTP_1_1_REQUIRED (RFC 9113 7).
const HTTP1_REQUIRED: u8 = 3;

/// The protocol of a server, which all workers share.
#[derive(Debug, Default)]
pub(super) struct ServerProtocol {
    known: AtomicU8,
    /// The most streams that the server has permitted last, plus one; 0 as long as it has not said so.
    streams: AtomicU32,
}

impl ServerProtocol {
    /// Notes the protocol of a connection that was just opened.
    pub(super) fn note(&self, is_http2: bool) {
        let protocol = if is_http2 { HTTP2 } else { HTTP1 };
        if self.known.load(Relaxed) != HTTP1_REQUIRED {
            self.known.store(protocol, Relaxed);
        }
    }

    /// Notes that the server wants HTTP/1.1.
    pub(super) fn require_http1(&self) {
        self.known.store(HTTP1_REQUIRED, Relaxed);
    }

    /// Whether the server wants HTTP/1.1 although it speaks HTTP/2.
    pub(super) fn requires_http1(&self) -> bool {
        self.known.load(Relaxed) == HTTP1_REQUIRED
    }

    /// Whether the next connection may carry several exchanges at a time.
    pub(super) fn may_multiplex(&self) -> bool {
        matches!(self.known.load(Relaxed), UNKNOWN | HTTP2)
    }

    /// Notes the number of streams that the server permits on a connection.
    pub(super) fn note_streams(&self, most: u32) {
        self.streams.store(most.saturating_add(1), Relaxed);
    }

    /// Returns the number of streams that the server is expected to permit on a new connection, at least one.
    pub(super) fn expected_streams(&self) -> u32 {
        match self.streams.load(Relaxed) {
            0 => STREAMS,
            most => (most - 1).clamp(1, STREAMS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_connection_decides_until_http1_is_required() {
        let protocol = ServerProtocol::default();
        assert!(protocol.may_multiplex() && !protocol.requires_http1());
        protocol.note(false);
        assert!(!protocol.may_multiplex());
        protocol.note(true);
        assert!(protocol.may_multiplex());
        protocol.require_http1();
        protocol.note(true);
        assert!(!protocol.may_multiplex() && protocol.requires_http1());
    }

    #[test]
    fn at_least_one_stream_is_expected() {
        let protocol = ServerProtocol::default();
        assert_eq!(protocol.expected_streams(), STREAMS);
        for (permitted, expected) in [(0, 1), (7, 7), (u32::MAX, STREAMS)] {
            protocol.note_streams(permitted);
            assert_eq!(protocol.expected_streams(), expected);
        }
    }
}
