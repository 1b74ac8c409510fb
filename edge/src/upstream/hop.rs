//! Decides which headers are removed at this hop and which are forwarded (RFC 9110 7.6.1).

pub(super) use crate::http::hop::HopByHop;
use crate::http::hop::{HOP_BY_HOP, is_end_to_end, is_in, reads_as, reads_as_prefix};

/// Whether a header may be forwarded in trailers. Digests and validators may; headers that frame,
/// route or authenticate a message, or say how to read or cache it, may not (RFC 9110 6.5.1).
pub(super) fn may_trail(name: &[u8]) -> bool {
    const TRAILER_FIELDS: &[&str] = &["content-digest", "content-md5", "etag"];
    is_in(TRAILER_FIELDS, name) || !(is_in(HOP_BY_HOP, name) || is_end_to_end(name))
}

/// Whether this is the name of Forwarded, X-Forwarded-* or X-Real-IP, or such a name with `_` for
/// `-`. An origin that maps header names to variables, as CGI does, cannot tell `_` from `-`.
pub(super) fn is_forwarding(name: &[u8]) -> bool {
    let is = |field: &[u8]| reads_as(name, field);
    reads_as_prefix(name, b"x-forwarded-") || is(b"forwarded") || is(b"x-real-ip")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_do_not_hide_a_forwarding_field() {
        for name in [
            "X-Forwarded-For",
            "x_forwarded_proto",
            "FORWARDED",
            "X_Real-Ip",
        ] {
            assert!(is_forwarding(name.as_bytes()), "{name}");
        }
        for name in ["x-forwarded", "forwarded-by", "x-real-ip-2", "via"] {
            assert!(!is_forwarding(name.as_bytes()), "{name}");
        }
    }
}
