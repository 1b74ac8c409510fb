//! The Huffman code of RFC 7541 5.2 and Appendix B.
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and shorter codes
//! come first. So the lengths of Appendix B determine all codes.

use super::error::DecodeError;

/// The symbol that ends a string only as padding (RFC 7541 5.2).
const EOS: usize = 256;

/// Length of each symbol's code, in bits.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const LENGTH_MIN: usize = 5;
const LENGTH_MAX: usize = 30;

/// Code of each symbol, in its lowest bits.
const CODES: [u32; 257] = {
    let mut codes = [0; 257];
    let (mut code, mut length) = (0, LENGTH_MIN);
    while length <= LENGTH_MAX {
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
};

/// For each first byte of some coded text: symbol, and length of the code in the high byte. 0 if the code is longer than
/// 8 bits.
const SHORT: [u16; 256] = {
    let mut short = [0; 256];
    let mut symbol = 0;
    while symbol < EOS {
        let length = LENGTHS[symbol] as u32;
        if length <= 8 {
            let first = CODES[symbol] << (8 - length);
            let mut n = 0;
            while n < 1 << (8 - length) {
                short[(first + n) as usize] = (length << 8) as u16 | symbol as u16;
                n += 1;
            }
        }
        symbol += 1;
    }
    short
};

/// The codes of one length above 8.
#[derive(Clone, Copy)]
struct Long {
    length: u32,
    /// The first code, and the number of symbols with shorter codes.
    first: u32,
    before: usize,
    /// The first 32-bit number, as the start of some coded text, that does not begin with one of these codes or a
    /// shorter one.
    limit: u64,
}

/// Number of different lengths above 8.
const LONGS: usize = 17;

/// All symbols in the order of their codes, and the codes above 8 bits by length.
const RANKED: ([u16; 257], [Long; LONGS]) = {
    let mut symbols = [0; 257];
    let mut long = [Long {
        length: 0,
        first: 0,
        before: 0,
        limit: 0,
    }; LONGS];
    let (mut rank, mut row, mut length) = (0, 0, LENGTH_MIN);
    while length <= LENGTH_MAX {
        let (before, mut first, mut symbol) = (rank, 0, 0);
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                if rank == before {
                    first = CODES[symbol];
                }
                symbols[rank] = symbol as u16;
                rank += 1;
            }
            symbol += 1;
        }
        if length > 8 && rank > before {
            let end = first as u64 + (rank - before) as u64;
            long[row] = Long {
                length: length as u32,
                first,
                before,
                limit: end << (32 - length),
            };
            row += 1;
        }
        length += 1;
    }
    (symbols, long)
};

static SYMBOLS: [u16; 257] = RANKED.0;
static LONG: [Long; LONGS] = RANKED.1;

/// Returns the symbol, and the length of its code, with which 64 bits begin.
#[inline]
fn symbol(bits: u64) -> (usize, u32) {
    let short = SHORT[(bits >> 56) as usize];
    match short {
        0 => long_symbol(bits),
        _ => (usize::from(short & 0xff), u32::from(short >> 8)),
    }
}

fn long_symbol(bits: u64) -> (usize, u32) {
    let window = bits >> 32;
    for row in &LONG {
        if window < row.limit {
            let code = (window >> (32 - row.length)) as u32;
            let rank = row.before + (code - row.first) as usize;
            return (usize::from(SYMBOLS[rank]), row.length);
        }
    }
    // The longest codes are those that begin with 30 bits of any kind, so the limit of the last row is 2^32.
    (EOS, LENGTH_MAX as u32)
}

/// Decodes a string and appends it to `out`: at most 8/5 of its bytes, since the shortest code has 5 bits.
///
/// # Errors
///
/// The string contains EOS, or its padding is not the beginning of EOS or longer than 7 bits (RFC 7541 5.2). The content
/// of `out` after its former end is unspecified then.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    out.resize(start + coded.len() * 8 / LENGTH_MIN, 0);
    let mut reader = Reader {
        bits: 0,
        count: 0,
        room: &mut out[start..],
        end: 0,
    };
    let mut rest = coded;
    while let Some(next) = rest.first_chunk::<8>() {
        // At least 56 bits are there afterwards. The bits of a byte that is not counted yet are read again.
        reader.bits |= u64::from_be_bytes(*next) >> reader.count;
        let taken = (63 - reader.count) / 8;
        rest = &rest[taken as usize..];
        reader.count += taken * 8;
        reader.take_symbols()?;
    }
    for &byte in rest {
        if reader.count > 56 {
            reader.take_symbols()?;
        }
        reader.bits |= u64::from(byte) << (56 - reader.count);
        reader.count += 8;
    }
    reader.take_last()?;
    let length = reader.end;
    out.truncate(start + length);
    Ok(())
}

struct Reader<'a> {
    /// The next bits of the text, the first one highest, and the number of them that are there.
    bits: u64,
    count: u32,
    /// The room for the decoded text, of which the first `end` bytes are used.
    room: &'a mut [u8],
    end: usize,
}

impl Reader<'_> {
    /// Takes symbols until less than 30 bits are left, the length of the longest code.
    #[inline]
    fn take_symbols(&mut self) -> Result<(), DecodeError> {
        while self.count >= LENGTH_MAX as u32 {
            self.take(symbol(self.bits))?;
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, (symbol, length): (usize, u32)) -> Result<(), DecodeError> {
        if symbol == EOS {
            return Err(DecodeError::Huffman);
        }
        self.room[self.end] = symbol as u8;
        self.end += 1;
        self.bits <<= length;
        self.count -= length;
        Ok(())
    }

    /// Takes the last symbols and checks the padding.
    fn take_last(&mut self) -> Result<(), DecodeError> {
        loop {
            // The bits after the text are set, as those of a padding.
            self.bits |= u64::MAX.checked_shr(self.count).unwrap_or(0);
            let next = symbol(self.bits);
            if next.1 > self.count {
                break;
            }
            self.take(next)?;
        }
        match self.count < 8 && self.bits == u64::MAX {
            true => Ok(()),
            false => Err(DecodeError::Huffman),
        }
    }
}

/// Returns the length of a text in Huffman code, in bytes.
#[inline]
pub(super) fn coded_length(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|&b| usize::from(LENGTHS[usize::from(b)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends a text in Huffman code.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODES[usize::from(byte)]);
        count += length;
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    while count >= 8 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
    if count > 0 {
        // The padding consists of the first bits of EOS, which are all set.
        out.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = b"x".to_vec();
        decode(coded, &mut out).map(|()| out.split_off(1))
    }

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        out
    }

    /// Decodes bit by bit, as RFC 7541 5.2 describes the code.
    fn slowly(coded: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let (mut out, mut code, mut length) = (Vec::new(), 0u32, 0u8);
        for bit in coded
            .iter()
            .flat_map(|b| (0..8).rev().map(move |n| b >> n & 1))
        {
            (code, length) = (code << 1 | u32::from(bit), length + 1);
            match (0..257).find(|&s| LENGTHS[s] == length && CODES[s] == code) {
                Some(EOS) => return Err(DecodeError::Huffman),
                Some(symbol) => {
                    out.push(symbol as u8);
                    (code, length) = (0, 0);
                }
                None => {}
            }
        }
        match length < 8 && code + 1 == 1 << length {
            true => Ok(out),
            false => Err(DecodeError::Huffman),
        }
    }

    #[test]
    fn the_code_is_complete() {
        let space: u64 = LENGTHS.iter().map(|&length| 1 << (32 - length)).sum();
        assert_eq!(space, 1 << 32);
        assert_eq!(LONG[LONGS - 1].limit, 1 << 32);
        // Some codes of Appendix B.
        for (symbol, code) in [
            (0, 0x1ff8),
            (b'0', 0),
            (b'z', 0x7b),
            (249, 0xffffffe),
            (255, 0x3ffffee),
        ] {
            assert_eq!(CODES[usize::from(symbol)], code);
        }
        assert_eq!(CODES[EOS], 0x3fffffff);
    }

    #[test]
    fn padding_is_checked() {
        assert_eq!(decoded(b""), Ok(vec![]));
        assert_eq!(decoded(b"\x07"), Ok(b"0".to_vec()));
        for invalid in [
            &b"\x00"[..],
            b"\x06",
            b"\xff",
            b"\x07\xff",
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\xfc",
        ] {
            assert_eq!(decoded(invalid), Err(DecodeError::Huffman), "{invalid:x?}");
        }
    }

    proptest! {
        #[test]
        fn an_encoded_text_is_decoded(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let coded = encoded(&text);
            prop_assert_eq!(coded.len(), coded_length(&text));
            prop_assert_eq!(decoded(&coded), Ok(text));
        }

        /// Eight characters whose codes have 7 bits, the longest ones here, become one byte shorter.
        #[test]
        fn common_texts_become_shorter(text in "[a-z0-9/.-]{8,200}") {
            let coded = encoded(text.as_bytes());
            prop_assert!(coded.len() < text.len());
            prop_assert_eq!(decoded(&coded), Ok(text.into_bytes()));
        }

        #[test]
        fn any_bytes_are_decoded_as_bit_by_bit(
            coded in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff)], 0..40)
        ) {
            prop_assert_eq!(decoded(&coded), slowly(&coded));
        }
    }
}
