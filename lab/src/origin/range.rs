//! The Range field as the test origin reads it, on its own and apart from any code that it is to test.

/// One range of a Range field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    From(u64, Option<u64>),
    Suffix(u64),
}

impl Asked {
    /// First and last byte in a representation of `length` bytes, if the range has any.
    pub(super) fn resolve(self, length: u64) -> Option<(u64, u64)> {
        match self {
            Asked::From(first, last) if first < length => {
                Some((first, last.unwrap_or(u64::MAX).min(length - 1)))
            }
            Asked::Suffix(count) if count > 0 && length > 0 => {
                Some((length.saturating_sub(count), length - 1))
            }
            _ => None,
        }
    }
}

/// The ranges of a Range field; `None` if the field is to be ignored.
pub(super) fn parse_ranges(value: &str) -> Option<Vec<Asked>> {
    let list = value.trim().strip_prefix("bytes=")?;
    let parsed: Option<Vec<Asked>> = list
        .split(',')
        .map(|item| {
            let (first, last) = item.trim().split_once('-')?;
            match (first, last) {
                ("", count) => Some(Asked::Suffix(count.parse().ok()?)),
                (first, "") => Some(Asked::From(first.parse().ok()?, None)),
                (first, last) => {
                    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                    (first <= last).then_some(Asked::From(first, Some(last)))
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
    fn ranges_of_all_forms_are_read() {
        let all = parse_ranges("bytes=0-9, 5-, -3").expect("three ranges");
        let resolved: Vec<_> = all.iter().map(|range| range.resolve(20)).collect();
        assert_eq!(resolved, [Some((0, 9)), Some((5, 19)), Some((17, 19))]);
        assert_eq!(parse_ranges("bytes=9-5"), None);
        assert_eq!(parse_ranges("lines=0-5"), None);
        assert_eq!(Asked::From(20, None).resolve(20), None);
    }
}
