//! Which field lines end at this hop and which go on (RFC 9110 7.6.1).

pub(super) use crate::http::hop::HopByHop;
use crate::http::hop::{HOP_BY_HOP, is_end_to_end, is_in, reads_as, reads_as_prefix};

/// Whether a field may stand in trailers: nothing that frames or routes a message, says how to read
/// it, who sent it or how to cache it (RFC 9110 6.5.1); digests and validators may.
pub(super) fn may_trail(name: &[u8]) -> bool {
    const MADE_FOR_IT: &[&str] = &["content-digest", "content-md5", "etag"];
    is_in(MADE_FOR_IT, name) || !(is_in(HOP_BY_HOP, name) || is_end_to_end(name))
}

/// Forwarded, X-Forwarded-* and X-Real-IP, also with `_` for `-`: an origin that maps names to
/// variables, as CGI does, cannot tell those apart.
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
