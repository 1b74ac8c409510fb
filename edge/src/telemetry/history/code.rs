//! Two-byte codes of the values in a history: small floating-point numbers without a sign.
//!
//! A code has 7 bits of exponent and 9 bits of fraction, so a decoded value differs from the encoded one by less than
//! 0.1 %, and integers up to 1024 are exact.

/// Code of a value that is not known.
pub const ABSENT: u16 = 0;
/// Code of zero.
const ZERO: u16 = 1;
/// Code of the smallest value above zero.
const FIRST: u16 = 2;
/// Number of bits of the fraction.
const FRACTION_BITS: u32 = 9;
/// Number of bits of the fraction of `f64` that a code leaves out.
const DROPPED_BITS: u32 = f64::MANTISSA_DIGITS - 1 - FRACTION_BITS;
/// Exponent of the smallest value above zero: 2⁻⁴⁰, less than a millionth of a millionth.
const EXPONENT_MIN: i32 = -40;
/// The upper bits of the smallest value above zero.
const LEAST: u64 = ((1023 + EXPONENT_MIN) as u64) << FRACTION_BITS;

/// Returns the code of a value. Values below zero count as zero; values out of range as the nearest one in range, which
/// is 2⁻⁴⁰ or almost 2⁸⁸.
pub fn encode(value: Option<f64>) -> u16 {
    let Some(value) = value.filter(|value| !value.is_nan()) else {
        return ABSENT;
    };
    if value <= 0.0 {
        return ZERO;
    }
    let half = 1 << (DROPPED_BITS - 1);
    let upper = (value.to_bits() + half) >> DROPPED_BITS;
    let above = upper.saturating_sub(LEAST).min(u64::from(u16::MAX - FIRST));
    FIRST + above as u16
}

/// Returns the value of a code.
#[inline]
pub fn decode(code: u16) -> Option<f64> {
    match code {
        ABSENT => None,
        ZERO => Some(0.0),
        _ => Some(f64::from_bits(
            (u64::from(code - FIRST) + LEAST) << DROPPED_BITS,
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(value: f64) -> f64 {
        decode(encode(Some(value))).expect("a value")
    }

    #[test]
    fn absent_zero_and_small_integers_are_exact() {
        assert_eq!(decode(encode(None)), None);
        assert_eq!(decode(encode(Some(f64::NAN))), None);
        assert_eq!(round_trip(-1.0), 0.0);
        for n in 0..=1024 {
            assert_eq!(round_trip(f64::from(n)), f64::from(n));
        }
    }

    #[test]
    fn values_out_of_range_have_the_nearest_code() {
        let (least, most) = (2f64.powi(-40), decode(u16::MAX).expect("a value"));
        assert_eq!(round_trip(f64::MIN_POSITIVE), least);
        assert_eq!(round_trip(least), least);
        assert_eq!(round_trip(f64::INFINITY), most);
        assert!(most > 2f64.powi(87) && most < 2f64.powi(88), "{most}");
    }

    #[test]
    fn every_code_stands_for_one_value_in_ascending_order() {
        for code in 0..=u16::MAX {
            assert_eq!(encode(decode(code)), code);
        }
        let values: Vec<_> = (1..=u16::MAX).filter_map(decode).collect();
        assert!(values.is_sorted() && values.len() == usize::from(u16::MAX));
    }

    proptest! {
        #[test]
        fn the_relative_error_is_below_a_thousandth(exponent in -40.0..87.0) {
            let value = f64::exp2(exponent);
            prop_assert!((round_trip(value) - value).abs() < value / 1000.0);
        }

        #[test]
        fn a_larger_value_has_no_smaller_code(a in 0.0..1e18, b in 0.0..1e18) {
            prop_assert_eq!(encode(Some(a)) < encode(Some(b)), encode(Some(a)) != encode(Some(b)) && a < b);
        }
    }
}
