//! The bytes that RFC 9113 8.2.1 permits in names and values of fields.

/// Whether name and value are permitted in HTTP/2. Stricter than RFC 9113 8.2.1: a name must be a token in lower case,
/// after the colon of a pseudo-header, and a value may contain no control character except TAB (RFC 9110 5.5). So every
/// permitted field is a valid HTTP/1.1 field, too.
#[inline]
pub fn is_valid(name: &[u8], value: &[u8]) -> bool {
    is_valid_name(name) && is_valid_value(value)
}

/// Whether a name is a token in lower case, after the colon of a pseudo-header.
#[inline]
pub fn is_valid_name(name: &[u8]) -> bool {
    let token = name.strip_prefix(b":").unwrap_or(name);
    !token.is_empty() && token.iter().all(|&b| CLASS[usize::from(b)] & NAME != 0)
}

/// Whether a value contains no control character except TAB, and neither begins nor ends with a space or TAB.
#[inline]
pub fn is_valid_value(value: &[u8]) -> bool {
    let is_space = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    value.iter().all(|&b| CLASS[usize::from(b)] & VALUE != 0)
        && !is_space(value.first())
        && !is_space(value.last())
}

const NAME: u8 = 1;
const VALUE: u8 = 2;

const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut b = 0;
    while b < 256 {
        if b == b'\t' as usize || (b >= b' ' as usize && b != 0x7f) {
            class[b] |= VALUE;
        }
        let byte = b as u8;
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() {
            class[b] |= NAME;
        }
        b += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < marks.len() {
        class[marks[at] as usize] |= NAME;
        at += 1;
    }
    class
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::fields::{is_field_value, is_token};

    #[test]
    fn permitted_fields_are_fields_of_http1_in_lower_case() {
        for byte in 0..=255u8 {
            let lower = is_token(&[byte]) && !byte.is_ascii_uppercase();
            assert_eq!(is_valid_name(&[byte]), lower, "{byte}");
            assert_eq!(is_valid_name(&[b':', byte]), lower, "{byte}");
            assert_eq!(is_valid_name(&[b'a', byte]), lower, "{byte}");
            let value = [b'a', byte, b'a'];
            assert_eq!(is_valid_value(&value), is_field_value(&value), "{byte}");
        }
        assert!(!is_valid_name(b"") && !is_valid_name(b":") && !is_valid_name(b"::a"));
        assert!(is_valid_value(b"") && is_valid_value(b"a b") && is_valid_value(b"\xe4"));
        for spaced in [&b" a"[..], b"a ", b"\ta", b"a\t", b" "] {
            assert!(!is_valid_value(spaced));
        }
    }
}
