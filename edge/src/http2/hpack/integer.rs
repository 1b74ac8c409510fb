//! Integers with a prefix of some bits (RFC 7541 5.1).

use super::error::DecodeError;

/// Most bytes after the first one. Four of them express more than 2^28, far more than any valid length or index.
const MORE_MAX: u32 = 4;

/// Takes an integer with a prefix of `bits` bits from the start of `rest`. The bits before the prefix are ignored.
#[inline]
pub(super) fn take(rest: &mut &[u8], bits: u32) -> Result<u32, DecodeError> {
    let (&first, after) = rest.split_first().ok_or(DecodeError::Truncated)?;
    *rest = after;
    let most = (1 << bits) - 1;
    let value = u32::from(first) & most;
    match value < most {
        true => Ok(value),
        false => take_more(rest, value),
    }
}

fn take_more(rest: &mut &[u8], mut value: u32) -> Result<u32, DecodeError> {
    for n in 0..MORE_MAX {
        let (&byte, after) = rest.split_first().ok_or(DecodeError::Truncated)?;
        *rest = after;
        // The sum is below 2^7 + 2^28.
        value += u32::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Integer)
}

/// Appends an integer with a prefix of `bits` bits after the bits of `first`.
#[inline]
pub(super) fn append(out: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let most = (1usize << bits) - 1;
    if value < most {
        out.push(first | value as u8);
        return;
    }
    out.push(first | most as u8);
    let mut left = value - most;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_rfc_7541_are_encoded() {
        let encoded = |first, bits, value| {
            let mut out = Vec::new();
            append(&mut out, first, bits, value);
            out
        };
        assert_eq!(encoded(0, 5, 10), [0b01010]);
        assert_eq!(encoded(0, 5, 1337), [0b11111, 0b1001_1010, 0b1010]);
        assert_eq!(encoded(0, 8, 42), [0b0010_1010]);
        assert_eq!(encoded(0x80, 7, 127), [0xff, 0]);
    }

    #[test]
    fn long_and_truncated_integers_are_refused() {
        let taken = |bytes: &[u8]| take(&mut &bytes[..], 5);
        assert_eq!(taken(b"\x1f\x80\x80\x80\0"), Ok(31));
        assert_eq!(taken(b"\x1f\xff\xff\xff\x7f"), Ok((1 << 28) + 30));
        assert_eq!(taken(b"\x1f\x80\x80\x80\x80\0"), Err(DecodeError::Integer));
        assert_eq!(taken(b"\x1f\x80"), Err(DecodeError::Truncated));
        assert_eq!(taken(b""), Err(DecodeError::Truncated));
    }

    proptest! {
        #[test]
        fn an_encoded_integer_is_decoded(value in 0usize..1 << 28, bits in 4u32..=7, first: u8) {
            let mut out = Vec::new();
            append(&mut out, first & !((1 << bits) - 1), bits, value);
            out.push(7);
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest, bits), Ok(value as u32));
            prop_assert_eq!(rest, [7]);
        }
    }
}
