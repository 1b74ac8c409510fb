//! Sluice's entry in Via (RFC 9110 7.6.3).

use crate::http::{Fields, Version};

/// Returns Sluice's entry in Via, with the version in which the message was received.
pub(super) fn entry(version: Version) -> &'static str {
    match version {
        Version::Http10 => "1.0 sluice",
        Version::Http11 => "1.1 sluice",
        Version::Http2 => "2.0 sluice",
        Version::Http3 => "3.0 sluice",
    }
}

/// Adds Sluice's Via entry to a response.
pub(super) fn add(fields: &mut Fields, version: Version) {
    fields.append("via", entry(version));
}
