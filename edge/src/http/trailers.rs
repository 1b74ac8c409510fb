//! Trailers (RFC 9110 6.5).

use super::hop::reads_as;

/// Headers that may not be trailers, because they frame or route the message (RFC 9110 6.5.1).
const BARRED: [&str; 12] = [
    "content-length",
    "transfer-encoding",
    "host",
    "connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "content-encoding",
    "content-type",
    "content-range",
    "authorization",
];

/// Whether this header may not be a trailer, also for a recipient that treats `_` as `-`.
pub fn is_barred(name: &[u8]) -> bool {
    BARRED
        .iter()
        .any(|barred| reads_as(name, barred.as_bytes()))
}
