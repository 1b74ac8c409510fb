//! HTTP dates as seconds since 1970 (RFC 9110 5.6.7).

use std::io::Write;
use std::ops::RangeInclusive;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

/// The last second of a year with four digits: 9999-12-31 23:59:59.
const LAST_S: u64 = 253_402_300_799;

const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Parses a date into Unix seconds.
///
/// RFC 9110 5.6.7 encourages recipients to be robust. All three forms of the RFC are accepted
/// (IMF-fixdate, RFC 850, asctime), and in addition: names in other letter case, the name of a wrong
/// weekday, a day with one digit, and the time zones `UTC`, `+0000` and `-0000`. Other texts and
/// dates before 1970 are `None`.
pub fn parse(value: &[u8]) -> Option<u64> {
    read(value, Tolerance::Origins)
}

/// Parses the date of Expires into Unix seconds.
///
/// A recipient must treat an invalid Expires as a time in the past (RFC 9111 5.3). Only letter case
/// and weekday may therefore differ from the three forms of the RFC.
pub fn parse_expires(value: &[u8]) -> Option<u64> {
    read(value, Tolerance::Names)
}

/// The deviations from the three forms that are accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tolerance {
    /// Names in other letter case, and the name of a wrong weekday.
    Names,
    /// In addition the deviations that origins are known to send: see [`parse`].
    Origins,
}

fn read(value: &[u8], tolerance: Tolerance) -> Option<u64> {
    let mut text = Reader {
        rest: value.trim_ascii(),
        tolerance,
    };
    let weekday = text.letters();
    let is = |name: &str| name.as_bytes().eq_ignore_ascii_case(weekday);
    let is_short = WEEKDAYS.iter().any(|name| is(&name[..3]));
    let is_long = WEEKDAYS.iter().any(|name| is(name));
    let (day, month, year, second);
    if is_short && text.skip(b", ").is_some() {
        // IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`
        (day, _) = (text.day()?, text.skip(b" ")?);
        (month, _) = (text.month()?, text.skip(b" ")?);
        (year, _) = (text.number(4..=4)?, text.skip(b" ")?);
        (second, _) = (text.second_of_day()?, text.skip(b" ")?);
        text.zone()?;
    } else if is_long && text.skip(b", ").is_some() {
        // RFC 850: `Sunday, 06-Nov-94 08:49:37 GMT`
        (day, _) = (text.day()?, text.skip(b"-")?);
        (month, _) = (text.month()?, text.skip(b"-")?);
        // RFC 9110 5.6.7 takes a year that is more than 50 years ahead for one in the past. The limit is
        // fixed here, as in nginx: the result differs only for the years from 2070 on.
        let of_century = text.number(2..=2)?;
        year = of_century + if of_century < 70 { 2000 } else { 1900 };
        text.skip(b" ")?;
        (second, _) = (text.second_of_day()?, text.skip(b" ")?);
        text.zone()?;
    } else if is_short && text.skip(b" ").is_some() {
        // asctime: `Sun Nov  6 08:49:37 1994`
        (month, _) = (text.month()?, text.skip(b" ")?);
        let digits = if text.skip(b" ").is_some() { 1 } else { 2 };
        (day, _) = (text.number(digits..=digits)?, text.skip(b" ")?);
        (second, _) = (text.second_of_day()?, text.skip(b" ")?);
        year = text.number(4..=4)?;
    } else {
        return None;
    }
    let is_end = text.rest.is_empty() && (1..=days_in(month, year)).contains(&day);
    let is_in_time = is_end && year >= 1970;
    is_in_time.then(|| (days_since_1970(day, month, year) * 86_400 + second).min(LAST_S))
}

/// The text of a date that is still to be read.
struct Reader<'a> {
    rest: &'a [u8],
    tolerance: Tolerance,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    fn letters(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|b| !b.is_ascii_alphabetic());
        let (letters, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        letters
    }

    /// Reads a number with so many digits.
    fn number(&mut self, digits: RangeInclusive<usize>) -> Option<u64> {
        let end = self.rest.iter().position(|b| !b.is_ascii_digit());
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let digit = |sum, b: &u8| sum * 10 + u64::from(b - b'0');
        let fits = digits.contains(&number.len());
        fits.then(|| number.iter().fold(0, digit))
    }

    fn day(&mut self) -> Option<u64> {
        let least = if self.tolerance == Tolerance::Names {
            2
        } else {
            1
        };
        self.number(least..=2)
    }

    /// Reads the name of a month. January is 1.
    fn month(&mut self) -> Option<u64> {
        let name = self.letters();
        let at = MONTHS
            .iter()
            .position(|month| month.as_bytes().eq_ignore_ascii_case(name))?;
        Some(at as u64 + 1)
    }

    /// Reads `08:49:37` as seconds since midnight. Second 60 is a leap second.
    fn second_of_day(&mut self) -> Option<u64> {
        let (hour, _) = (self.number(2..=2)?, self.skip(b":")?);
        let (minute, _) = (self.number(2..=2)?, self.skip(b":")?);
        let second = self.number(2..=2)?;
        let is_time = hour < 24 && minute < 60 && second <= 60;
        is_time.then_some(hour * 3600 + minute * 60 + second)
    }

    fn zone(&mut self) -> Option<()> {
        let zone = std::mem::take(&mut self.rest);
        let is = |name: &&str| zone.eq_ignore_ascii_case(name.as_bytes());
        let others = self.tolerance == Tolerance::Origins;
        let known = is(&"GMT") || others && ["UTC", "+0000", "-0000"].iter().any(is);
        known.then_some(())
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(month: u64, year: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the number of days from 1970-01-01 to this day of the Gregorian calendar, which must not
/// be earlier.
fn days_since_1970(day: u64, month: u64, year: u64) -> u64 {
    let before = year - 1;
    let leap_days = |years: u64| years / 4 - years / 100 + years / 400;
    let of_years = (year - 1970) * 365 + leap_days(before) - leap_days(1969);
    let of_months: u64 = (1..month).map(|month| days_in(month, year)).sum();
    of_years + of_months + day - 1
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

    /// Texts that differ from the three forms in names only, for 1994-11-06 08:49:37.
    const OTHER_NAMES: [&str; 6] = [
        "SUN, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 gMT",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "MONDAY, 06-NOV-94 08:49:37 gmt",
        "tue nov  6 08:49:37 1994",
    ];

    /// Texts with other deviations that origins send, for the same time.
    const OTHER_FORMS: [&str; 6] = [
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 utc",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37 -0000",
        "Sunday, 6-Nov-94 08:49:37 UTC",
    ];

    #[test]
    fn dates_with_known_deviations_are_parsed() {
        for text in OTHER_NAMES.into_iter().chain(OTHER_FORMS) {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(
            parse(b"Sat, 31 Dec 2016 23:59:60 GMT"),
            parse(b"Sun, 01 Jan 2017 00:00:00 GMT")
        );
    }

    // RFC 9111 5.3: an invalid Expires is in the past.
    #[test]
    fn only_names_may_deviate_in_expires() {
        for text in OTHER_NAMES {
            assert_eq!(parse_expires(text.as_bytes()), Some(784_111_777), "{text}");
        }
        for text in OTHER_FORMS {
            assert_eq!(parse_expires(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn malformed_dates_are_rejected() {
        for text in [
            &b""[..],
            b"0",
            b"-1",
            b"Sun",
            b"Sun, ",
            b"Sun, 06 Nov 1994 08:49:37",
            b"Sun, 06 Nov 1994 08:49:37 ",
            b"Sun, 06 Nov 1994 08:49:37 CET",
            b"Sun, 06 Nov 1994 08:49:37 +0100",
            b"Sun, 06 Nov 1994 08:49:37 GMT+0000",
            b"Day, 06 Nov 1994 08:49:37 GMT",
            b"Sun 06 Nov 1994 08:49:37 GMT",
            b"Sun, 06 Nov  1994 08:49:37 GMT",
            b"Sun, 06-Nov-1994 08:49:37 GMT",
            b"Sun, 06 Nov 94 08:49:37 GMT",
            b"Sun, 06 Nov 1994 8:49:37 GMT",
            b"Sun, 06 Nov 1994 08.49.37 GMT",
            b"Sun, 06 Nov 1994 08:49 GMT",
            b"Sun, 006 Nov 1994 08:49:37 GMT",
            b"Sun, 06 November 1994 08:49:37 GMT",
            b"Sun, 31 Feb 1994 08:49:37 GMT",
            b"Sun, 29 Feb 1900 08:49:37 GMT",
            b"Sun, 00 Nov 1994 08:49:37 GMT",
            b"Sun, 06 Nov 1994 24:00:00 GMT",
            b"Sun, 06 Nov 1994 00:60:00 GMT",
            b"Sun, 06 Nov 1994 00:00:61 GMT",
            b"Wed, 31 Dec 1969 23:59:59 GMT",
            b"Sun, 06 Nov 0000 08:49:37 GMT",
            b"Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
            b"Sun Nov 6 08:49:37 1994",
            b"Sun Nov  6 08:49:37 1994 GMT",
            b"Sun Nov  06 08:49:37 1994",
            b"\xff\xfe",
        ] {
            let shown = String::from_utf8_lossy(text);
            assert_eq!((parse(text), parse_expires(text)), (None, None), "{shown}");
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
            prop_assert_eq!(parse_expires(&format(unix_s)), Some(unix_s));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&bytes);
        }
    }
}
