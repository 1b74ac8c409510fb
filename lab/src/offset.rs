//! The offset body: a file of any length that holds its own offset every 10 bytes, so that any piece of it proves where
//! (and from which version) it came.
//!
//! Line `i` is the nine decimal digits of `10 * i` and a newline; past a gigabyte the digits wrap. Version 0 is this plain
//! text. Each further version spells the same eleven symbols with bytes of its own, so that every single byte names its
//! version; after sixteen versions the alphabets are used again.

use std::fmt;

/// Length in bytes of one line of an offset body.
pub const LINE: usize = 10;

/// How many versions after the plain one have an alphabet of their own.
pub const VERSIONS: u32 = 16;

/// Lines after which the nine digits repeat.
const LINES_DISTINCT: u64 = 100_000_000;

/// First byte of the alphabet of version 1, and the distance to the next version's alphabet.
const ALPHABET_FIRST: u8 = 64;
const ALPHABET_STEP: u8 = 12;

/// Symbol number of the end of a line; 0 to 9 are the digits.
const END_OF_LINE: u8 = 10;

/// A byte that is not the one an offset body holds at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Where in the body.
    pub position: u64,
    /// The byte that belongs there.
    pub expected: u8,
    /// The byte that was there.
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

/// The byte at `position` of the plain offset body.
pub fn offset_byte(position: u64) -> u8 {
    version_byte(0, position)
}

/// The byte at `position` of the offset body of `version`.
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

/// Fills `buffer` with the plain offset body from `position` on.
pub fn fill_offset(position: u64, buffer: &mut [u8]) {
    fill_version(0, position, buffer);
}

/// Fills `buffer` with the offset body of `version` from `position` on.
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

/// `length` bytes of the plain offset body from `position` on.
pub fn offset_bytes(position: u64, length: usize) -> Vec<u8> {
    version_bytes(0, position, length)
}

/// `length` bytes of the offset body of `version` from `position` on.
pub fn version_bytes(version: u32, position: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill_version(version, position, &mut bytes);
    bytes
}

/// Checks that `bytes` are the plain offset body from `position` on.
pub fn verify_offset(position: u64, bytes: &[u8]) -> Result<(), Mismatch> {
    verify_version(0, position, bytes)
}

/// Checks that `bytes` are the offset body of `version` from `position` on.
pub fn verify_version(version: u32, position: u64, bytes: &[u8]) -> Result<(), Mismatch> {
    let mut expected = [0; 4096];
    let mut position = position;
    for piece in bytes.chunks(expected.len()) {
        let expected = &mut expected[..piece.len()];
        fill_version(version, position, expected);
        // All at once first: comparing byte by byte is slow, and nearly always they are the same.
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

/// The version whose alphabet holds `byte`: 0, or 1 to [`VERSIONS`]; `None` if no offset body holds it.
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

/// One line of an offset body that can be moved on to the next without formatting a number.
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

    /// Adds ten to the number: the last digit stays zero, the others count.
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
    fn is_the_file_of_the_article() {
        let text: String = (0..500).map(|line| format!("{:09}\n", line * 10)).collect();
        assert_eq!(offset_bytes(0, 5000), text.as_bytes());
        assert_eq!(offset_bytes(5_000_000, 10), b"005000000\n");
    }

    #[test]
    fn wraps_after_a_gigabyte() {
        assert_eq!(
            offset_bytes(999_999_990, 30),
            b"999999990\n000000000\n000000010\n"
        );
    }

    #[test]
    fn every_byte_names_its_version() {
        for version in 0..=VERSIONS {
            for byte in version_bytes(version, 123_456_780, 200) {
                assert_eq!(version_of(byte), Some(version));
            }
        }
        assert_eq!(version_of(b' '), None);
    }

    proptest! {
        #[test]
        fn any_piece_is_the_bytes_at_its_places(
            version in 0u32..40, position in 0u64..3_000_000_000, length in 0usize..300,
        ) {
            let piece = version_bytes(version, position, length);
            for (at, byte) in piece.iter().enumerate() {
                prop_assert_eq!(*byte, version_byte(version, position + at as u64));
            }
            prop_assert_eq!(verify_version(version, position, &piece), Ok(()));
        }

        #[test]
        fn one_wrong_byte_is_found_where_it_is(
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
