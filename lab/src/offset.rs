//! The offset body: a file of any length that holds its own offset every 10 bytes, so that any range of it shows its
//! position and version.
//!
//! Line `i` is the nine decimal digits of `10 * i` and a newline; after a gigabyte the digits wrap around. Version 0
//! is this text. Each further version encodes the same eleven symbols with other bytes, so that every single byte
//! identifies its version. After sixteen versions the alphabets repeat.

use std::fmt;

/// Length in bytes of one line of an offset body.
pub const LINE: usize = 10;

/// Number of versions after version 0 that have an alphabet of their own.
pub const VERSIONS: u32 = 16;

/// Number of lines after which the nine digits repeat.
const LINES_DISTINCT: u64 = 100_000_000;

/// First byte of the alphabet of version 1, and the distance to the next version's alphabet.
const ALPHABET_FIRST: u8 = 64;
const ALPHABET_STEP: u8 = 12;

/// Number of the symbol for the end of a line; symbols 0 to 9 are the digits.
const END_OF_LINE: u8 = 10;

/// A byte that differs from the expected byte of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Offset in the body.
    pub position: u64,
    /// The expected byte.
    pub expected: u8,
    /// The byte that was found.
    pub found: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "byte {} is {:#04x} (version {:?}) and should be {:#04x} (version {:?})",
            self.position,
            self.found,
            version_of(self.found),
            self.expected,
            version_of(self.expected),
        )
    }
}

impl std::error::Error for Mismatch {}

/// Returns the byte at offset `position` of version 0.
pub fn offset_byte(position: u64) -> u8 {
    version_byte(0, position)
}

/// Returns the byte at offset `position` of this version.
pub fn version_byte(version: u32, position: u64) -> u8 {
    let line = (position / LINE as u64) % LINES_DISTINCT;
    let column = (position % LINE as u64) as u32;
    let symbol = match column {
        9 => END_OF_LINE,
        8 => 0,
        column => ((line / 10u64.pow(7 - column)) % 10) as u8,
    };
    spell(version, symbol)
}

/// Fills `buffer` with version 0, from offset `position` on.
pub fn fill_offset(position: u64, buffer: &mut [u8]) {
    fill_version(0, position, buffer);
}

/// Fills `buffer` with this version, from offset `position` on.
pub fn fill_version(version: u32, position: u64, buffer: &mut [u8]) {
    let skip = (position % LINE as u64) as usize;
    let mut counter = LineCounter::new(version, position / LINE as u64);
    let mut rest = buffer;
    if skip > 0 {
        let piece = rest.len().min(LINE - skip);
        let (head, tail) = rest.split_at_mut(piece);
        head.copy_from_slice(&counter.line[skip..skip + piece]);
        counter.advance();
        rest = tail;
    }
    let mut lines = rest.chunks_exact_mut(LINE);
    for line in &mut lines {
        line.copy_from_slice(&counter.line);
        counter.advance();
    }
    let last = lines.into_remainder();
    last.copy_from_slice(&counter.line[..last.len()]);
}

/// Returns `length` bytes of version 0, from offset `position` on.
pub fn offset_bytes(position: u64, length: usize) -> Vec<u8> {
    version_bytes(0, position, length)
}

/// Returns `length` bytes of this version, from offset `position` on.
pub fn version_bytes(version: u32, position: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill_version(version, position, &mut bytes);
    bytes
}

/// Checks that `bytes` are those of version 0, from offset `position` on.
pub fn verify_offset(position: u64, bytes: &[u8]) -> Result<(), Mismatch> {
    verify_version(0, position, bytes)
}

/// Checks that `bytes` are those of this version, from offset `position` on.
pub fn verify_version(version: u32, position: u64, bytes: &[u8]) -> Result<(), Mismatch> {
    let mut expected = [0; 4096];
    let mut position = position;
    for piece in bytes.chunks(expected.len()) {
        let expected = &mut expected[..piece.len()];
        fill_version(version, position, expected);
        // Compares whole slices first, because comparing byte by byte is slow and they nearly always match.
        let differs = |at: &usize| piece[*at] != expected[*at];
        if piece != expected
            && let Some(at) = (0..piece.len()).find(differs)
        {
            return Err(Mismatch {
                position: position + at as u64,
                expected: expected[at],
                found: piece[at],
            });
        }
        position += piece.len() as u64;
    }
    Ok(())
}

/// Returns the version whose alphabet contains `byte`: 0, or 1 to [`VERSIONS`]; `None` if no version contains it.
pub fn version_of(byte: u8) -> Option<u32> {
    match byte {
        b'0'..=b'9' | b'\n' => Some(0),
        ALPHABET_FIRST.. if (byte - ALPHABET_FIRST) % ALPHABET_STEP <= END_OF_LINE => {
            Some(u32::from((byte - ALPHABET_FIRST) / ALPHABET_STEP) + 1)
        }
        _ => None,
    }
}

fn spell(version: u32, symbol: u8) -> u8 {
    match (version, symbol) {
        (0, END_OF_LINE) => b'\n',
        (0, digit) => b'0' + digit,
        (version, symbol) => {
            ALPHABET_FIRST + ((version - 1) % VERSIONS) as u8 * ALPHABET_STEP + symbol
        }
    }
}

/// The digits of one line, which can be incremented without formatting a number.
struct LineCounter {
    line: [u8; LINE],
    zero: u8,
    nine: u8,
}

impl LineCounter {
    fn new(version: u32, index: u64) -> Self {
        let mut line = [0; LINE];
        for (column, byte) in line.iter_mut().enumerate() {
            let position = (index % LINES_DISTINCT) * LINE as u64 + column as u64;
            *byte = version_byte(version, position);
        }
        LineCounter {
            line,
            zero: spell(version, 0),
            nine: spell(version, 9),
        }
    }

    /// Adds ten to the number: the last digit stays zero.
    fn advance(&mut self) {
        for digit in self.line[..8].iter_mut().rev() {
            if *digit != self.nine {
                *digit += 1;
                return;
            }
            *digit = self.zero;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_line_is_its_own_offset() {
        let text: String = (0..500).map(|line| format!("{:09}\n", line * 10)).collect();
        assert_eq!(offset_bytes(0, 5000), text.as_bytes());
        assert_eq!(offset_bytes(5_000_000, 10), b"005000000\n");
    }

    #[test]
    fn digits_wrap_after_a_gigabyte() {
        assert_eq!(
            offset_bytes(999_999_990, 30),
            b"999999990\n000000000\n000000010\n"
        );
    }

    #[test]
    fn every_byte_identifies_its_version() {
        for version in 0..=VERSIONS {
            for byte in version_bytes(version, 123_456_780, 200) {
                assert_eq!(version_of(byte), Some(version));
            }
        }
        assert_eq!(version_of(b' '), None);
    }

    proptest! {
        #[test]
        fn any_range_equals_the_same_range_of_the_whole(
            version in 0u32..40, position in 0u64..3_000_000_000, length in 0usize..300,
        ) {
            let piece = version_bytes(version, position, length);
            for (at, byte) in piece.iter().enumerate() {
                prop_assert_eq!(*byte, version_byte(version, position + at as u64));
            }
            prop_assert_eq!(verify_version(version, position, &piece), Ok(()));
        }

        #[test]
        fn one_wrong_byte_is_found_at_its_position(
            position in 0u64..3_000_000_000, length in 1usize..9000, at in any::<prop::sample::Index>(),
        ) {
            let mut piece = offset_bytes(position, length);
            let at = at.index(length);
            piece[at] ^= 0x80;
            let mismatch = verify_offset(position, &piece).expect_err("a byte was changed");
            prop_assert_eq!(mismatch.position, position + at as u64);
            prop_assert_eq!(mismatch.found, piece[at]);
        }
    }
}
