//! Statuses of responses, as single numbers or as ranges in quotes.

use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::Deserializer;

use super::scalar::{self, Misfit, Scalar};
use super::shape::{STATUS_RANGE, STATUS_RANGE_ADVICE};

/// Statuses of final responses.
const FINAL: RangeInclusive<u16> = 200..=599;

/// A status, as in `200`, or a range, as in `"200-299"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRange(pub RangeInclusive<u16>);

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StatusRange, D::Error> {
        scalar::read(deserializer, STATUS_RANGE, |written| {
            match written {
            Scalar::Number(number) => single(number).ok_or_else(|| {
                let (first, last) = (FINAL.start(), FINAL.end());
                Misfit::Value(format!(
                    "{number} is not the status of a response\nwrite a status from {first} to {last}"
                ))
            }),
            Scalar::Text(text) => range(text).ok_or_else(|| {
                Misfit::Value(format!(
                    "{text:?} is not a range of statuses\n{STATUS_RANGE_ADVICE}"
                ))
            }),
            Scalar::Switch(_) => Err(Misfit::Type),
        }
        })
    }
}

fn single(number: i64) -> Option<StatusRange> {
    let status = u16::try_from(number).ok()?;
    FINAL
        .contains(&status)
        .then_some(StatusRange(status..=status))
}

fn range(text: &str) -> Option<StatusRange> {
    let (first, last) = text.split_once('-')?;
    let status = |digits: &str| {
        let is_number = digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit());
        let status = is_number.then(|| digits.parse().ok())?;
        status.filter(|status| FINAL.contains(status))
    };
    let (first, last) = (status(first)?, status(last)?);
    (first <= last).then_some(StatusRange(first..=last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_two_final_statuses_in_order() {
        assert_eq!(range("200-299"), Some(StatusRange(200..=299)));
        assert_eq!(range("404-404"), Some(StatusRange(404..=404)));
        for bad in [
            "200", "299-200", "100-200", "200-600", "2xx", "200-", "+20-300",
        ] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }
}
