//! A parser of the Range header for the test origin, independent of the parser under test.

/// One range of a Range header, as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedRange {
    From(u64, Option<u64>),
    Suffix(u64),
}

impl RequestedRange {
    /// Returns the first and last byte of the range in a representation of `length` bytes, or `None` if the range is
    /// unsatisfiable.
    pub(super) fn resolve(self, length: u64) -> Option<(u64, u64)> {
        match self {
            RequestedRange::From(first, last) if first < length => {
                Some((first, last.unwrap_or(u64::MAX).min(length - 1)))
            }
            RequestedRange::Suffix(count) if count > 0 && length > 0 => {
                Some((length.saturating_sub(count), length - 1))
            }
            _ => None,
        }
    }
}

/// Parses the value of a Range header. Returns `None` if the header must be ignored.
pub(super) fn parse_ranges(value: &str) -> Option<Vec<RequestedRange>> {
    let list = value.trim().strip_prefix("bytes=")?;
    let parsed: Option<Vec<RequestedRange>> = list
        .split(',')
        .map(|item| {
            let (first, last) = item.trim().split_once('-')?;
            match (first, last) {
                ("", count) => Some(RequestedRange::Suffix(count.parse().ok()?)),
                (first, "") => Some(RequestedRange::From(first.parse().ok()?, None)),
                (first, last) => {
                    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                    (first <= last).then_some(RequestedRange::From(first, Some(last)))
                }
            }
        })
        .collect();
    parsed.filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_all_forms_are_parsed() {
        let all = parse_ranges("bytes=0-9, 5-, -3").expect("three ranges");
        let resolved: Vec<_> = all.iter().map(|range| range.resolve(20)).collect();
        assert_eq!(resolved, [Some((0, 9)), Some((5, 19)), Some((17, 19))]);
        assert_eq!(parse_ranges("bytes=9-5"), None);
        assert_eq!(parse_ranges("lines=0-5"), None);
        assert_eq!(RequestedRange::From(20, None).resolve(20), None);
    }
}
