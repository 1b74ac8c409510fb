//! Assembles a header block of HEADERS and CONTINUATION frames (RFC 9113 4.3, 6.10), within limits.

use super::violation::{ErrorCode, Violation};

/// Limits of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest block in bytes.
    pub bytes: usize,
    /// Most CONTINUATION frames, of which each may be empty.
    pub continuations: u32,
}

impl Limits {
    /// Returns these limits for the payload of HEADERS, which may have padding and a priority in addition to the block.
    #[must_use]
    pub fn with_framing(self) -> Limits {
        Limits {
            bytes: self.bytes + 1 + 255 + 5,
            ..self
        }
    }
}

/// A block of which some parts are missing. Until it is complete, only CONTINUATION frames of its stream may follow.
#[derive(Debug)]
pub struct Assembly {
    /// The stream.
    pub stream: u32,
    /// Whether the message ends with this block.
    pub end_stream: bool,
    /// Whether HEADERS declared that the stream depends on itself.
    pub depends_on_itself: bool,
    bytes: Vec<u8>,
    continuations: u32,
}

impl Assembly {
    /// Begins a block with the part in HEADERS.
    ///
    /// # Errors
    ///
    /// The part is over the limit.
    pub fn begin(
        stream: u32,
        end_stream: bool,
        depends_on_itself: bool,
        first: &[u8],
        limits: Limits,
    ) -> Result<Assembly, Violation> {
        check(first.len(), limits)?;
        Ok(Assembly {
            stream,
            end_stream,
            depends_on_itself,
            bytes: first.to_vec(),
            continuations: 0,
        })
    }

    /// Adds the part in a CONTINUATION frame.
    ///
    /// # Errors
    ///
    /// The frame belongs to another stream, or the block is over a limit. Both end the connection, since the rest of the
    /// block is not decoded.
    pub fn add(&mut self, stream: u32, part: &[u8], limits: Limits) -> Result<(), Violation> {
        if stream != self.stream {
            return Err(Violation::protocol("CONTINUATION of another stream"));
        }
        self.continuations += 1;
        if self.continuations > limits.continuations {
            return Err(Violation::Connection(
                ErrorCode::ENHANCE_YOUR_CALM,
                "too many CONTINUATION frames",
            ));
        }
        check(self.bytes.len() + part.len(), limits)?;
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Returns the block.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Checks the length of a block.
///
/// # Errors
///
/// The block is over the limit.
pub fn check(length: usize, limits: Limits) -> Result<(), Violation> {
    match length <= limits.bytes {
        true => Ok(()),
        false => Err(Violation::Connection(
            ErrorCode::ENHANCE_YOUR_CALM,
            "header block too long",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 10,
        continuations: 3,
    };

    #[test]
    fn parts_are_joined_within_limits() {
        let mut block = Assembly::begin(1, true, false, b"ab", LIMITS).expect("a short part");
        assert_eq!(block.add(1, b"", LIMITS), Ok(()));
        assert_eq!(block.add(1, b"cd", LIMITS), Ok(()));
        assert_eq!(block.bytes(), b"abcd");
        let other = block.add(3, b"", LIMITS);
        assert_eq!(other.map_err(|v| v.code()), Err(ErrorCode::PROTOCOL_ERROR));
        let calm = Err(ErrorCode::ENHANCE_YOUR_CALM);
        assert_eq!(block.add(1, b"1234567", LIMITS).map_err(|v| v.code()), calm);
        assert_eq!(block.add(1, b"", LIMITS).map_err(|v| v.code()), calm);
        assert!(Assembly::begin(1, true, false, &[0; 11], LIMITS).is_err());
    }
}
