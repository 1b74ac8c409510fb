//! The check of Content-Range in the response to a range request (RFC 9110 14.4).

use super::head::number;

/// First and last byte of a requested range; without a last byte, the range ends with the resource.
pub(super) type Requested = (u64, Option<u64>);

/// The header Content-Range of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ContentRange {
    #[default]
    Missing,
    /// First and last byte of the range, and the length of the whole resource if the server knows it.
    Range {
        first: u64,
        last: u64,
        whole: Option<u64>,
    },
    /// The value is no range of bytes, or the header is repeated.
    Invalid,
}

impl ContentRange {
    /// Parses a value such as `bytes 0-16/99`.
    pub(super) fn parse(value: &[u8]) -> ContentRange {
        range(value).unwrap_or(ContentRange::Invalid)
    }

    /// Adds the value of another line of the header.
    pub(super) fn add(&mut self, other: ContentRange) {
        *self = match self {
            ContentRange::Missing => other,
            _ => ContentRange::Invalid,
        };
    }

    /// Returns the length of the whole resource, if the header has it.
    pub(super) fn whole(self) -> Option<u64> {
        match self {
            ContentRange::Range { whole, .. } => whole,
            _ => None,
        }
    }

    /// Returns the length of the range in bytes.
    pub(super) fn length(self) -> Option<u64> {
        match self {
            ContentRange::Range { first, last, .. } => (last - first).checked_add(1),
            _ => None,
        }
    }

    /// Whether the range is the part of the requested one that the resource has. If the length of the resource is not
    /// known, the range may end before the requested one.
    pub(super) fn fits(self, requested: Requested) -> bool {
        let ContentRange::Range { first, last, whole } = self else {
            return false;
        };
        let most = requested.1.unwrap_or(u64::MAX);
        first == requested.0
            && match whole {
                Some(whole) => last == most.min(whole - 1),
                None => last <= most,
            }
    }
}

/// Returns the range; `None` if the value has none. The last byte is within the resource and not before the first one.
fn range(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = value.split_at_checked(6)?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let dash = rest[..slash].iter().position(|byte| *byte == b'-')?;
    let (first, last) = (number(&rest[..dash])?, number(&rest[dash + 1..slash])?);
    let whole = match &rest[slash + 1..] {
        b"*" => None,
        digits => Some(number(digits)?),
    };
    let is_valid = unit.eq_ignore_ascii_case(b"bytes ")
        && first <= last
        && whole.is_none_or(|whole| last < whole);
    is_valid.then_some(ContentRange::Range { first, last, whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_strictly() {
        let parsed = |first, last, whole| ContentRange::Range { first, last, whole };
        assert_eq!(
            ContentRange::parse(b"bytes 0-16/99"),
            parsed(0, 16, Some(99))
        );
        assert_eq!(ContentRange::parse(b"Bytes 5-5/*"), parsed(5, 5, None));
        for wrong in [
            &b""[..],
            b"bytes",
            b"bytes */99",
            b"bytes 5-4/99",
            b"bytes 0-99/99",
            b"bytes +0-9/99",
            b"bytes 0-9/99 ",
            b"bytes  0-9/99",
            b"bytes 0-9",
            b"items 0-9/99",
            b"bytes -9/99",
        ] {
            assert_eq!(
                ContentRange::parse(wrong),
                ContentRange::Invalid,
                "{wrong:?}"
            );
        }
        let mut twice = ContentRange::parse(b"bytes 0-16/99");
        assert_eq!((twice.length(), twice.whole()), (Some(17), Some(99)));
        twice.add(twice);
        assert_eq!((twice, twice.length()), (ContentRange::Invalid, None));
    }

    #[test]
    fn a_range_fits_if_it_has_all_requested_bytes_of_the_resource() {
        let fits = |value: &[u8], requested| ContentRange::parse(value).fits(requested);
        for (value, requested) in [
            (&b"bytes 5-9/99"[..], (5, Some(9))),
            (b"bytes 90-98/99", (90, Some(200))),
            (b"bytes 90-98/99", (90, None)),
            (b"bytes 5-9/*", (5, Some(9))),
            (b"bytes 5-7/*", (5, Some(9))),
        ] {
            assert!(fits(value, requested), "{value:?} {requested:?}");
        }
        for (value, requested) in [
            (&b"bytes 4-9/99"[..], (5, Some(9))),
            (b"bytes 5-8/99", (5, Some(9))),
            (b"bytes 5-10/99", (5, Some(9))),
            (b"bytes 90-97/99", (90, None)),
            (b"bytes 5-10/*", (5, Some(9))),
            (b"bytes */99", (5, Some(9))),
        ] {
            assert!(!fits(value, requested), "{value:?} {requested:?}");
        }
        assert!(!ContentRange::Missing.fits((0, None)));
    }
}
