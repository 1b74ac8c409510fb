//! Statuses of responses: a single one, a class or a range.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::Deserializer;

use super::scalar::{self, Misfit, Scalar};
use super::shape::{STATUS_RANGE, STATUS_RANGE_ADVICE};

/// Numbers that can be a status (RFC 9110 15 asks clients to read three digits).
const ALL: RangeInclusive<u16> = 100..=999;

/// A status, as in `200` or `"200"`, a class, as in `"2xx"`, or a range, as in `"200-299"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRange(pub RangeInclusive<u16>);

impl StatusRange {
    /// Parses a status, a class or a range.
    pub fn parse(text: &str) -> Option<StatusRange> {
        if let Some(class) = text.strip_suffix("xx") {
            let first = status(&format!("{class}00"))?;
            return Some(StatusRange(first..=first + 99));
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (status(first)?, status(last)?);
        (first <= last).then_some(StatusRange(first..=last))
    }

    /// Whether all statuses of the range lie within `bounds`.
    pub fn is_within(&self, bounds: &RangeInclusive<u16>) -> bool {
        bounds.contains(self.0.start()) && bounds.contains(self.0.end())
    }
}

/// Shows a range as a file has it.
impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (*self.0.start(), *self.0.end());
        match (first % 100, last - first) {
            (_, 0) => write!(f, "{first}"),
            (0, 99) => write!(f, "{}xx", first / 100),
            _ => write!(f, "{first}-{last}"),
        }
    }
}

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StatusRange, D::Error> {
        scalar::read(deserializer, STATUS_RANGE, |written| {
            let range = match written {
                Scalar::Number(number) => StatusRange::parse(&number.to_string()),
                Scalar::Text(text) => StatusRange::parse(text),
                Scalar::Switch(_) => return Err(Misfit::Type),
            };
            range.ok_or_else(|| {
                Misfit::Value(format!("this is not a status\n{STATUS_RANGE_ADVICE}"))
            })
        })
    }
}

fn status(digits: &str) -> Option<u16> {
    let is_number = digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit());
    let status = is_number.then(|| digits.parse().ok())?;
    status.filter(|status| ALL.contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_single_or_a_class_or_a_range() {
        for (text, range, shown) in [
            ("200", 200..=200, "200"),
            ("5xx", 500..=599, "5xx"),
            ("500-599", 500..=599, "5xx"),
            ("500-503", 500..=503, "500-503"),
            ("404-404", 404..=404, "404"),
            ("200-399", 200..=399, "200-399"),
        ] {
            let parsed = StatusRange::parse(text).expect(text);
            assert_eq!((&parsed.0, parsed.to_string().as_str()), (&range, shown));
        }
        for bad in [
            "", "20", "299-200", "99-200", "200-1000", "0xx", "xx", "52xx", "2xx-3xx", "200-",
            "+20-300", "-200", "ok",
        ] {
            assert_eq!(StatusRange::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn bounds_hold_for_the_whole_range() {
        let range = |text| StatusRange::parse(text).expect("a range");
        assert!(range("4xx").is_within(&(400..=599)));
        assert!(!range("399-400").is_within(&(400..=599)));
        assert!(!range("500-600").is_within(&(400..=599)));
    }
}
