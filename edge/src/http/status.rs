//! Status codes.

/// A status code (RFC 9110 15), 100 to 999.
pub type Status = u16;
