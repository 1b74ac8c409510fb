//! Malformed messages (RFC 9113 8.1.1), and the checks that requests, responses and trailers share.

use super::field;
use super::hpack::Field;
use super::violation::{ErrorCode, Violation};
use crate::http::hop::reads_as;

/// The reason for which a message is malformed: a stream error of type PROTOCOL_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A name is no token in lower case (RFC 9113 8.2.1).
    Name,
    /// A value contains CR, LF, NUL or another control character, or begins or ends with white space (RFC 9113 8.2.1).
    Value,
    /// A field that belongs to a connection of HTTP/1.1, or TE other than `trailers` (RFC 9113 8.2.2).
    ConnectionSpecific,
    /// A name that some servers read as Content-Length or Transfer-Encoding.
    MimicsFraming,
    /// A pseudo-header that is not defined for this message (RFC 9113 8.3).
    UnknownPseudo,
    /// A pseudo-header that occurs twice.
    RepeatedPseudo,
    /// A pseudo-header after another field.
    LatePseudo,
    /// A pseudo-header that the message needs is missing, or one that it must not have is there (RFC 9113 8.3.1, 8.5).
    MissingPseudo,
    /// The value of a pseudo-header is empty or impossible.
    PseudoValue,
    /// Host is repeated, differs from `:authority`, or both are missing (RFC 9113 8.3.1).
    Host,
    /// Content-Length is no number, is repeated, or differs from the content (RFC 9113 8.1.1).
    ContentLength,
    /// The status of a response is not a number from 100 to 999, or 101 (RFC 9113 8.6).
    Status,
    /// A field that must not be a trailer (RFC 9110 6.5.1).
    Trailer,
}

impl Malformed {
    /// Returns a description for the log.
    pub fn text(self) -> &'static str {
        match self {
            Malformed::Name => "malformed field name",
            Malformed::Value => "malformed field value",
            Malformed::ConnectionSpecific => "connection-specific field",
            Malformed::MimicsFraming => "field that resembles a framing header",
            Malformed::UnknownPseudo => "unknown pseudo-header",
            Malformed::RepeatedPseudo => "repeated pseudo-header",
            Malformed::LatePseudo => "pseudo-header after other fields",
            Malformed::MissingPseudo => "missing or superfluous pseudo-header",
            Malformed::PseudoValue => "malformed pseudo-header",
            Malformed::Host => "Host does not fit :authority",
            Malformed::ContentLength => "malformed Content-Length",
            Malformed::Status => "malformed status",
            Malformed::Trailer => "field not permitted as a trailer",
        }
    }

    /// Returns the stream error for this message.
    pub fn on(self, stream: u32) -> Violation {
        Violation::Stream(stream, ErrorCode::PROTOCOL_ERROR, self.text())
    }
}

/// Checks the bytes of a field, which the decoder has already done unless the field is invalid.
#[inline]
pub(super) fn check(field: &Field<'_>) -> Result<(), Malformed> {
    match field.is_valid {
        true => Ok(()),
        false if field::is_valid_name(field.name) => Err(Malformed::Value),
        false => Err(Malformed::Name),
    }
}

/// Whether a field, whose name is in lower case, belongs to a connection of HTTP/1.1 (RFC 9113 8.2.2).
#[inline]
pub fn is_connection_specific(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade"
    )
}

/// Checks that a field, which is no pseudo-header, is permitted in HTTP/2 (RFC 9113 8.2.2).
#[inline]
pub(super) fn check_regular(name: &[u8], value: &[u8]) -> Result<(), Malformed> {
    match name {
        _ if is_connection_specific(name) => Err(Malformed::ConnectionSpecific),
        b"te" if !value.eq_ignore_ascii_case(b"trailers") => Err(Malformed::ConnectionSpecific),
        b"content-length" => Ok(()),
        _ if matches!(name.len(), 14 | 17)
            && (reads_as(name, b"content-length") || reads_as(name, b"transfer-encoding")) =>
        {
            Err(Malformed::MimicsFraming)
        }
        _ => Ok(()),
    }
}

/// Sets `length` to the value of a Content-Length, which must be the only one.
pub(super) fn take_length(length: &mut Option<u64>, value: &[u8]) -> Result<(), Malformed> {
    let number = value.iter().try_fold(0u64, |n, b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    });
    match (*length, number.filter(|_| !value.is_empty())) {
        (None, Some(number)) => {
            *length = Some(number);
            Ok(())
        }
        _ => Err(Malformed::ContentLength),
    }
}

/// Compares content with its declared length as DATA frames arrive (RFC 9113 8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentCount {
    declared: Option<u64>,
    received: u64,
}

impl ContentCount {
    /// Begins to count. `declared` is `None` if the message has no Content-Length, or one that does not describe its
    /// content, as in responses to HEAD.
    pub fn new(declared: Option<u64>) -> ContentCount {
        ContentCount {
            declared,
            received: 0,
        }
    }

    /// Counts content, without padding.
    ///
    /// # Errors
    ///
    /// The content is longer than declared.
    #[inline]
    pub fn add(&mut self, bytes: u64) -> Result<(), Malformed> {
        self.received += bytes;
        match self.declared.is_some_and(|most| self.received > most) {
            true => Err(Malformed::ContentLength),
            false => Ok(()),
        }
    }

    /// Returns the number of bytes that are still to arrive, if the length is declared.
    #[inline]
    pub fn left(&self) -> Option<u64> {
        let declared = self.declared?;
        Some(declared.saturating_sub(self.received))
    }

    /// Checks that the content is complete when the stream ends.
    ///
    /// # Errors
    ///
    /// The content is shorter than declared.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.declared.is_some_and(|length| self.received != length) {
            true => Err(Malformed::ContentLength),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_has_its_declared_length() {
        let mut count = ContentCount::new(Some(5));
        assert_eq!(
            (count.add(3), count.end()),
            (Ok(()), Err(Malformed::ContentLength))
        );
        assert_eq!(count.left(), Some(2));
        assert_eq!((count.add(2), count.end()), (Ok(()), Ok(())));
        assert_eq!(count.add(1), Err(Malformed::ContentLength));
        let mut unknown = ContentCount::new(None);
        assert_eq!((unknown.add(9), unknown.end()), (Ok(()), Ok(())));
    }

    #[test]
    fn lengths_are_plain_numbers() {
        for invalid in [
            &b""[..],
            b"+1",
            b"1,1",
            b"0x1",
            b"18446744073709551616",
            b"1 ",
        ] {
            assert_eq!(
                take_length(&mut None, invalid),
                Err(Malformed::ContentLength)
            );
        }
        let mut length = None;
        assert_eq!(take_length(&mut length, b"18446744073709551615"), Ok(()));
        assert_eq!(length, Some(u64::MAX));
        assert!(take_length(&mut length, b"18446744073709551615").is_err());
    }
}
