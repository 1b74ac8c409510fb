//! Bearer tokens in Authorization (RFC 6750).

/// Longest token in bytes.
pub const TOKEN_BYTES_MAX: usize = 512;

/// The scheme of bearer tokens, which is case-insensitive (RFC 9110 11.1).
const SCHEME: &[u8] = b"bearer";

/// Returns the token in a value of Authorization. `None`: another scheme, or no valid token.
pub fn token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let spaces = rest.iter().take_while(|&&byte| byte == b' ').count();
    let token = rest.get(spaces..).filter(|_| spaces > 0)?;
    is_token(token).then_some(token)
}

/// Whether this can be a bearer token: `b64token` of RFC 6750 2.1, of at most `TOKEN_BYTES_MAX` bytes.
pub fn is_token(bytes: &[u8]) -> bool {
    let padding = bytes.iter().rev().take_while(|&&byte| byte == b'=').count();
    let text = &bytes[..bytes.len() - padding];
    let is_text = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    !text.is_empty() && bytes.len() <= TOKEN_BYTES_MAX && text.iter().all(is_text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_are_found_in_values_of_authorization() {
        for (value, found) in [
            ("Bearer abc", Some("abc")),
            ("bEARER   a-._~+/0==", Some("a-._~+/0==")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer =", None),
            ("Bearer a=b", None),
            ("Bearer a b", None),
            ("Bearer a,Bearer b", None),
            ("Bearer a\t", None),
            ("Bearer\ta", None),
            ("Bearerabc", None),
            ("Basic YTpi", None),
            ("", None),
        ] {
            assert_eq!(token(value.as_bytes()), found.map(str::as_bytes), "{value}");
        }
        let long = "a".repeat(TOKEN_BYTES_MAX);
        assert!(is_token(long.as_bytes()) && !is_token(format!("{long}a").as_bytes()));
    }

    proptest! {
        #[test]
        fn every_token_is_found_again(text in "[A-Za-z0-9._~+/-]{1,64}={0,3}") {
            prop_assert!(is_token(text.as_bytes()));
            let value = format!("Bearer {text}");
            prop_assert_eq!(token(value.as_bytes()), Some(text.as_bytes()));
        }

        #[test]
        fn whatever_is_found_is_a_token_at_the_end(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(found) = token(&value) {
                prop_assert!(is_token(found) && value.ends_with(found));
            }
        }
    }
}
