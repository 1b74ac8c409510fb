//! HTTP dates as seconds since 1970 (RFC 9110 5.6.7).

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

/// The last second of a year with four digits: 9999-12-31 23:59:59.
const LAST_S: u64 = 253_402_300_799;

/// Parses any of the three forms (IMF-fixdate, RFC 850, asctime) into Unix seconds.
///
/// Returns `None` for a malformed date, for a wrong day of the week, and for a date before 1970. An
/// Expires with such a value means "already expired" (RFC 9111 5.3); a condition with such a value
/// is ignored (RFC 9110 13.1.3).
pub fn parse(value: &[u8]) -> Option<u64> {
    let date: HttpDate = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    let since = std::time::SystemTime::from(date)
        .duration_since(UNIX_EPOCH)
        .ok()?;
    Some(since.as_secs())
}

/// Formats Unix seconds as IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT`. Later times become the end
/// of the year 9999.
pub fn format(unix_s: u64) -> [u8; 29] {
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_S)));
    let mut text = [b' '; 29];
    // An IMF-fixdate always has 29 bytes, so writing can't fail.
    let _ = write!(&mut text[..], "{date}");
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_three_forms_are_parsed() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(parse(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
    }

    #[test]
    fn malformed_dates_are_rejected() {
        for text in [
            &b""[..],
            b"0",
            b"-1",
            b"Sun, 06 Nov 1994 08:49:37",
            b"Sun, 06 Nov 1994 08:49:37 CET",
            b"Mon, 06 Nov 1994 08:49:37 GMT",
            b"Sun, 31 Feb 1994 08:49:37 GMT",
            b"Sun, 06 Nov 1994 24:00:00 GMT",
            b"Wed, 31 Dec 1969 23:59:59 GMT",
            b"Sun, 06 Nov 0000 08:49:37 GMT",
            b"Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
            b"\xff\xfe",
        ] {
            assert_eq!(parse(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn the_first_and_last_dates_are_formatted() {
        assert_eq!(&format(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format(u64::MAX), format(LAST_S));
        assert_eq!(parse(&format(LAST_S)), Some(LAST_S));
    }

    proptest! {
        #[test]
        fn formatted_dates_are_parsed_back(unix_s in 0..=LAST_S) {
            prop_assert_eq!(parse(&format(unix_s)), Some(unix_s));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&bytes);
        }
    }
}
