//! Decides which headers are removed at this hop and which are forwarded (RFC 9110 7.6.1).

pub(super) use crate::http::hop::HopByHop;
use crate::http::hop::{is_in, is_unkeyed, reads_as_listed};

/// Whether a header may be forwarded in trailers. Digests and validators may; headers that frame,
/// route or authenticate a message, or say how to read or cache it, may not (RFC 9110 6.5.1), and
/// neither may names that an origin could read as one of these.
pub(super) fn may_trail(name: &[u8]) -> bool {
    const TRAILER_FIELDS: &[&str] = &["content-digest", "content-md5", "etag"];
    is_in(TRAILER_FIELDS, name) || !(reads_as_listed(name) || is_unkeyed(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_have_no_headers_that_route_or_frame_a_message() {
        for name in ["X-Sum", "ETag", "content-digest", "Server-Timing", "x_sum"] {
            assert!(may_trail(name.as_bytes()), "{name}");
        }
        for name in [
            "Content-Length",
            "content_length",
            "Transfer_Encoding",
            "Authorization",
            "X_Forwarded_For",
            "X-Original-URL",
            "x_rewrite_url",
        ] {
            assert!(!may_trail(name.as_bytes()), "{name}");
        }
    }
}
