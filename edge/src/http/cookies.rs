//! Cookies of a request (RFC 6265 5.4), parsed as leniently as origins do.

use super::Fields;

/// Returns the name and value of each cookie in all Cookie lines, in order. A cookie without `=` is
/// a name without a value. Quotes have no special meaning (RFC 6265 5.2).
pub fn all(request: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    request
        .get_all("cookie")
        .flat_map(|line| line.split(|&b| b == b';'))
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty())
        .map(|pair| match memchr::memchr(b'=', pair) {
            Some(equals) => (
                pair[..equals].trim_ascii_end(),
                pair[equals + 1..].trim_ascii_start(),
            ),
            None => (pair, &[][..]),
        })
}

/// Returns the value of the first cookie of this name, which is case-sensitive.
pub fn value<'a>(request: &'a Fields, name: &str) -> Option<&'a [u8]> {
    all(request).find_map(|(own, value)| (own == name.as_bytes()).then_some(value))
}

/// Returns a Cookie header with only these cookies, each once, in the order of `names`; `None` if
/// the request has none of them. Of several cookies with one name, the first is taken.
pub fn only(request: &Fields, names: &[&str]) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    for name in names {
        if let Some(value) = value(request, name) {
            if !kept.is_empty() {
                kept.extend_from_slice(b"; ");
            }
            kept.extend_from_slice(name.as_bytes());
            kept.push(b'=');
            kept.extend_from_slice(value);
        }
    }
    (!kept.is_empty()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(lines: &[&str]) -> Fields {
        let mut fields = Fields::new();
        for line in lines {
            fields.append("Cookie", line);
        }
        fields
    }

    #[test]
    fn cookies_are_parsed_from_all_lines() {
        let fields = request(&["a=1; b = \"x\" ;;c", " =v; A=2;a=3", "d=e=f"]);
        let text = |bytes| std::str::from_utf8(bytes).expect("text");
        let read: Vec<_> = all(&fields).map(|(n, v)| (text(n), text(v))).collect();
        let expected = [
            ("a", "1"),
            ("b", "\"x\""),
            ("c", ""),
            ("", "v"),
            ("A", "2"),
            ("a", "3"),
            ("d", "e=f"),
        ];
        assert_eq!(read, expected);
        assert_eq!(value(&fields, "a"), Some(&b"1"[..]));
        assert_eq!(value(&fields, "c"), Some(&b""[..]));
        assert_eq!(value(&fields, "x"), None);
        assert_eq!(all(&Fields::new()).count(), 0);
    }

    #[test]
    fn only_the_named_cookies_are_forwarded() {
        let fields = request(&["a=1; b=2", "c=3; a=4"]);
        assert_eq!(
            only(&fields, &["c", "x", "a"]).as_deref(),
            Some(&b"c=3; a=1"[..])
        );
        assert_eq!(only(&fields, &["x"]), None);
        assert_eq!(only(&fields, &[]), None);
    }

    proptest! {
        #[test]
        fn forwarded_cookies_have_the_same_values(line in "[ab=; \"]{0,30}") {
            let fields = request(&[&line]);
            let sent = only(&fields, &["a", "b"]).unwrap_or_default();
            let again = request(&[std::str::from_utf8(&sent).expect("text")]);
            for name in ["a", "b"] {
                prop_assert_eq!(value(&fields, name), value(&again, name));
            }
        }
    }
}
