//! Surrogate-Control, an older header for caches in front of an origin (W3C note Edge Architecture
//! Specification, 2001). A route honours it if it is among the route's targets.

use super::cache_control::{Policy, ResponseDirectives, delta_seconds};

/// The header's name.
pub const FIELD: &str = "surrogate-control";

/// The value of Surrogate-Capability, which tells an origin that Surrogate-Control is honoured.
pub const CAPABILITY: &str = "sluice=\"Surrogate/1.0\"";

/// The device name in `CAPABILITY`, which directives can be targeted at.
const DEVICE: &[u8] = b"sluice";

/// Parses `no-store` and `max-age`; `None` if the header contains neither.
///
/// `max-age=600+60` permits serving the response for 60 more seconds while it is revalidated.
/// Directives targeted at other devices are ignored; directives targeted at Sluice take precedence
/// over the same directive without a target. `no-store-remote` counts as `no-store`, because
/// nothing indicates whether the origin regards Sluice as remote. Malformed seconds mean stale.
pub fn parse(value: &[u8]) -> Option<Policy> {
    let (mut all, mut own) = (Directives::default(), Directives::default());
    for member in split(value, b',') {
        let mut parts = split(member, b';').map(<[u8]>::trim_ascii);
        let Some(directive) = parts.next() else {
            continue;
        };
        let mut targets = parts.filter(|part| !part.is_empty()).peekable();
        if targets.peek().is_none() {
            all.add(directive);
        } else if targets.any(|target| target == DEVICE) {
            own.add(directive);
        }
    }
    if all == Directives::default() && own == Directives::default() {
        return None;
    }
    let max_age = own.max_age.or(all.max_age);
    Some(Policy {
        directives: ResponseDirectives {
            max_age: max_age.map(|(seconds, _)| seconds),
            stale_while_revalidate: max_age.and_then(|(_, more)| more),
            no_store: own.no_store || all.no_store,
            ..ResponseDirectives::default()
        },
        named: Vec::new(),
    })
}

/// The directives of Surrogate-Control that Sluice honours, either untargeted or targeted at
/// Sluice.
#[derive(Debug, Default, PartialEq, Eq)]
struct Directives {
    /// `max-age`: the lifetime in seconds, and the seconds after a `+`. If the directive occurs
    /// several times, the one with the smallest lifetime counts.
    max_age: Option<(u32, Option<u32>)>,
    no_store: bool,
}

impl Directives {
    fn add(&mut self, directive: &[u8]) {
        let equals = memchr::memchr(b'=', directive);
        let (name, value) = directive.split_at(equals.unwrap_or(directive.len()));
        let name = name.trim_ascii_end();
        if name.eq_ignore_ascii_case(b"no-store") || name.eq_ignore_ascii_case(b"no-store-remote") {
            self.no_store = true;
        }
        if name.eq_ignore_ascii_case(b"max-age") {
            // No white space is permitted around `=`.
            let valid = name.len() == equals.unwrap_or(directive.len());
            let said = match valid {
                true => max_age(value.get(1..).unwrap_or_default()),
                false => (0, None),
            };
            self.max_age = Some(self.max_age.map_or(said, |kept| kept.min(said)));
        }
    }
}

/// Parses the value of `max-age`, such as `600` or `600+60`.
fn max_age(value: &[u8]) -> (u32, Option<u32>) {
    match memchr::memchr(b'+', value) {
        None => (delta_seconds(value).unwrap_or(0), None),
        Some(plus) => match (
            delta_seconds(&value[..plus]),
            delta_seconds(&value[plus + 1..]),
        ) {
            (Some(fresh), more @ Some(_)) => (fresh, more),
            _ => (0, None),
        },
    }
}

/// Splits at separators outside quotes.
fn split(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    value.split(move |&b| {
        quoted ^= b == b'"';
        !quoted && b == separator
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(value: &str) -> Option<(Option<u32>, Option<u32>, bool)> {
        let d = parse(value.as_bytes())?.directives;
        Some((d.max_age, d.stale_while_revalidate, d.no_store))
    }

    #[test]
    fn surrogate_directives_are_parsed() {
        for (value, expected) in [
            ("max-age=600", Some((Some(600), None, false))),
            ("MaX-aGe=600", Some((Some(600), None, false))),
            ("max-age=600+60", Some((Some(600), Some(60), false))),
            (
                "max-age=99999999999",
                Some((Some(super::super::cache_control::SECONDS_MAX), None, false)),
            ),
            ("foobar, max-age=6", Some((Some(6), None, false))),
            ("max-age=9, max-age=6", Some((Some(6), None, false))),
            ("no-store", Some((None, None, true))),
            (
                "no-store, max-age=6, content=\"ESI/1.0\"",
                Some((Some(6), None, true)),
            ),
            ("no-store-remote", Some((None, None, true))),
            ("content=\"ESI/1.0, no-store\"", None),
            ("foo", None),
            ("", None),
            (",;,", None),
            ("max-age= 100", Some((Some(0), None, false))),
            ("max-age =100", Some((Some(0), None, false))),
            ("max-age=-1", Some((Some(0), None, false))),
            ("max-age", Some((Some(0), None, false))),
            ("max-age=6+", Some((Some(0), None, false))),
        ] {
            assert_eq!(said(value), expected, "{value}");
        }
    }

    #[test]
    fn directives_for_this_device_take_precedence() {
        assert_eq!(said("max-age=6;other"), None);
        assert_eq!(said("no-store;other"), None);
        assert_eq!(said("max-age=6;sluice"), Some((Some(6), None, false)));
        let both = "max-age=9;sluice, max-age=6+1, max-age=1;other";
        assert_eq!(said(both), Some((Some(9), None, false)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&value);
        }
    }
}
