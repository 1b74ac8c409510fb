//! A decoder of the Huffman code of RFC 7541 5.2 and Appendix B.
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and shorter codes
//! come first. So the lengths of Appendix B determine all codes.

/// The symbol that ends a string only as padding (RFC 7541 5.2).
const EOS: u16 = 256;

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

/// The codes of one length.
#[derive(Clone, Copy)]
struct Row {
    /// The first code, and the number of codes.
    first: u32,
    count: u32,
    /// Number of symbols with shorter codes.
    before: usize,
}

/// The codes by length, and all symbols in the order of their codes.
const TABLE: ([Row; LENGTH_MAX + 1], [u16; 257]) = {
    let mut rows = [Row {
        first: 0,
        count: 0,
        before: 0,
    }; LENGTH_MAX + 1];
    let mut symbols = [0; 257];
    let (mut code, mut rank, mut length) = (0, 0, LENGTH_MIN);
    while length <= LENGTH_MAX {
        rows[length].first = code;
        rows[length].before = rank;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                symbols[rank] = symbol as u16;
                rank += 1;
                code += 1;
            }
            symbol += 1;
        }
        rows[length].count = code - rows[length].first;
        code <<= 1;
        length += 1;
    }
    (rows, symbols)
};

static ROWS: [Row; LENGTH_MAX + 1] = TABLE.0;
static SYMBOLS: [u16; 257] = TABLE.1;

/// Decodes a string and appends it to `out`: at most 8/5 of its bytes, since the shortest code has 5 bits. Returns
/// `None` if the string is invalid.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // The lowest `count` bits of `bits` have not been decoded.
    let (mut bits, mut count) = (0u64, 0);
    for byte in coded {
        bits = bits << 8 | u64::from(*byte);
        count += 8;
        while let Some((symbol, length)) = first_symbol(bits, count) {
            if symbol == EOS {
                return None;
            }
            out.push(symbol as u8);
            count -= length;
        }
    }
    let padding = (1 << count) - 1;
    (count < 8 && bits & padding == padding).then_some(())
}

/// Returns the symbol with whose code these bits begin, and the length of the code.
fn first_symbol(bits: u64, count: usize) -> Option<(u16, usize)> {
    for length in LENGTH_MIN..=count.min(LENGTH_MAX) {
        let code = (bits >> (count - length)) as u32 & ((1 << length) - 1);
        let row = ROWS.get(length)?;
        if let Some(place) = code.checked_sub(row.first)
            && place < row.count
        {
            return Some((SYMBOLS[row.before + place as usize], length));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        decode(coded, &mut out)?;
        String::from_utf8(out).ok()
    }

    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        let host = [
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        assert_eq!(decoded(&host).as_deref(), Some("www.example.com"));
        assert_eq!(decoded(&[0x64, 0x02]).as_deref(), Some("302"));
        assert_eq!(decoded(b"").as_deref(), Some(""));
    }

    #[test]
    fn wrong_padding_and_the_end_symbol_are_refused() {
        assert_eq!(decoded(&[0x64, 0x02, 0x00]), None);
        assert_eq!(decoded(&[0xff]), None);
        assert_eq!(decoded(&[0xff; 4]), None);
    }
}
