//! Cache directives for specific caches, which take precedence over Cache-Control: targeted fields
//! (RFC 9213) and nginx's X-Accel-Expires. (The older Surrogate-Control is in `surrogate`.)

use sfv::{BareItem, Dictionary, ListEntry, Parser, Version};

use super::cache_control::{Policy, SECONDS_MAX, Scope, names_in};
use super::{Fields, surrogate};

/// Returns the policy of the first of the headers `targets` (names in lower case) that the response
/// has with a valid, non-empty value (RFC 9213 2.2). If there is one, callers ignore Cache-Control
/// and Expires.
pub fn select(response: &Fields, targets: &[Box<str>]) -> Option<Policy> {
    targets.iter().find_map(|target| {
        let value = response.joined(target)?;
        match &**target {
            surrogate::FIELD => surrogate::parse(&value),
            _ => parse(&value),
        }
    })
}

/// Parses a targeted field (RFC 9213 2.1): a dictionary (RFC 8941 3.2), in which the last of
/// several equal names counts. Returns `None` if the dictionary is empty or malformed; the header
/// is then ignored.
///
/// A directive whose value has the wrong type is interpreted in the way that caches less, as in
/// Cache-Control: a max-age that is not an integer means stale (RFC 9111 4.2.1), `no-store` with an
/// argument is honoured, `public` with an argument is not.
pub fn parse(value: &[u8]) -> Option<Policy> {
    let parser = Parser::new(value).with_version(Version::Rfc8941);
    let members: Dictionary = parser.parse().ok()?;
    if members.is_empty() {
        return None;
    }
    let mut policy = Policy::default();
    for (name, member) in &members {
        let value = match member {
            ListEntry::Item(item) => Some(&item.bare_item),
            ListEntry::InnerList(_) => None,
        };
        apply(&mut policy, name.as_str(), value);
    }
    Some(policy)
}

/// Applies one member of the dictionary to the policy. `value` is `None` for a list, because no
/// directive has a list as its value.
fn apply(policy: &mut Policy, name: &str, value: Option<&BareItem>) {
    let directives = &mut policy.directives;
    let allowed = matches!(value, Some(BareItem::Boolean(true)));
    let forbidden = !matches!(value, Some(BareItem::Boolean(false)));
    match name {
        "max-age" => directives.max_age = Some(seconds(value)),
        "s-maxage" => directives.s_maxage = Some(seconds(value)),
        "stale-while-revalidate" => directives.stale_while_revalidate = Some(seconds(value)),
        "stale-if-error" => directives.stale_if_error = Some(seconds(value)),
        "no-cache" => directives.no_cache = scope(value, &mut policy.named),
        "private" => directives.private = scope(value, &mut policy.named),
        "no-store" => directives.no_store = forbidden,
        "must-revalidate" => directives.must_revalidate = forbidden,
        "proxy-revalidate" => directives.proxy_revalidate = forbidden,
        "no-transform" => directives.no_transform = forbidden,
        "must-understand" => directives.must_understand = allowed,
        "public" => directives.public = allowed,
        "immutable" => directives.immutable = allowed,
        _ => {}
    }
}

/// Returns an integer number of seconds; 0 for any other value.
fn seconds(value: Option<&BareItem>) -> u32 {
    let Some(BareItem::Integer(integer)) = value else {
        return 0;
    };
    i64::from(*integer).clamp(0, i64::from(SECONDS_MAX)) as u32
}

/// Returns the scope of `private` or `no-cache`: true, or a string of field names.
fn scope(value: Option<&BareItem>, named: &mut Vec<String>) -> Scope {
    match value {
        Some(BareItem::Boolean(false)) => Scope::Absent,
        Some(BareItem::String(list)) => match names_in(list.as_str().as_bytes()) {
            Some(names) => {
                named.extend(names);
                Scope::Fields
            }
            None => Scope::Whole,
        },
        _ => Scope::Whole,
    }
}

/// The value of X-Accel-Expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccelExpires {
    /// `0`: the response must not be stored.
    Never,
    /// A lifetime in seconds, from the response's arrival.
    Seconds(u64),
    /// `@…`: fresh until this time, Unix seconds.
    Until(u64),
}

impl AccelExpires {
    /// Parses the header of a response; `None` if it is absent, invalid or contradictory.
    pub fn of(response: &Fields) -> Option<AccelExpires> {
        let mut values = response.get_all("x-accel-expires").map(<[u8]>::trim_ascii);
        let value = values.next()?;
        if values.any(|other| other != value) {
            return None;
        }
        let number = |digits: &[u8]| {
            let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            valid.then(|| {
                digits.iter().fold(0, |number: u64, digit| {
                    let digit = u64::from(digit - b'0');
                    number.saturating_mul(10).saturating_add(digit)
                })
            })
        };
        match value {
            [b'@', digits @ ..] => Some(AccelExpires::Until(number(digits)?)),
            digits => Some(match number(digits)? {
                0 => AccelExpires::Never,
                seconds => AccelExpires::Seconds(seconds),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::cache_control::ResponseDirectives;
    use crate::http::cache_control::tests::every_directive;

    fn directives(value: &str) -> Option<ResponseDirectives> {
        parse(value.as_bytes()).map(|policy| policy.directives)
    }

    #[test]
    fn every_directive_is_parsed() {
        let value = "max-age=1, s-maxage=2, stale-while-revalidate=3, stale-if-error=4, no-cache, \
            private, no-store, must-revalidate, proxy-revalidate, no-transform, must-understand, \
            public, immutable, other=(a b), max-ages=9;x=y";
        assert_eq!(directives(value), Some(every_directive()));
        assert_eq!(
            ResponseDirectives::parse(value.as_bytes()),
            every_directive()
        );
    }

    #[test]
    fn a_malformed_dictionary_is_ignored() {
        for value in [
            "",
            " ",
            "max-age=10, &&&&&",
            "max-age=10,",
            "max-age = 10",
            "MaX-aGe=10",
            "max-age=",
            "no-cache=\"a",
            "max-age=9999999999999999",
            "max-age=@5",
            "\"max-age\"=1",
            "max-age=10 no-store",
        ] {
            assert_eq!(directives(value), None, "{value}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_type_caches_less() {
        for (value, seconds) in [
            ("max-age=10", 10),
            ("max-age=10;q=1", 10),
            ("max-age=0010", 10),
            ("max-age=99999999999", SECONDS_MAX),
            ("max-age=5, max-age=7", 7),
            ("max-age=\"10\"", 0),
            ("max-age=10.0", 0),
            ("max-age=-10", 0),
            ("max-age", 0),
            ("max-age=ten", 0),
            ("max-age=(10)", 0),
        ] {
            let read = directives(value).expect("a dictionary");
            assert_eq!(read.max_age, Some(seconds), "{value}");
        }
        let all = directives("no-store=1, public=1, private=a, must-revalidate=(a), immutable=?0");
        let all = all.expect("a dictionary");
        assert!(all.no_store && all.must_revalidate && !all.public && !all.immutable);
        assert_eq!(all.private, Scope::Whole);
        let none = directives("no-store=?0, private=?0").expect("a dictionary");
        assert!(!none.no_store && none.private == Scope::Absent);
    }

    #[test]
    fn strings_contain_field_names() {
        let policy = parse(b"no-cache=\"A, b\", private=\"c\"").expect("a dictionary");
        assert_eq!(policy.named, ["a", "b", "c"]);
        assert_eq!(policy.directives.no_cache, Scope::Fields);
        let policy = parse(b"no-cache=\"a b\"").expect("a dictionary");
        assert_eq!(policy.directives.no_cache, Scope::Whole);
        assert!(policy.named.is_empty());
    }

    #[test]
    fn the_first_valid_target_counts() {
        let targets = ["sluice-cache-control".into(), "cdn-cache-control".into()];
        let mut fields = Fields::new();
        let max_age = |fields: &Fields| select(fields, &targets).map(|p| p.directives.max_age);
        fields.append("CDN-Cache-Control", "max-age=5");
        assert_eq!(max_age(&fields), Some(Some(5)));
        fields.append("Sluice-Cache-Control", "max-age =7");
        assert_eq!(max_age(&fields), Some(Some(5)));
        fields.set("Sluice-Cache-Control", "");
        assert_eq!(max_age(&fields), Some(Some(5)));
        fields.set("Sluice-Cache-Control", "max-age=7");
        assert_eq!(max_age(&fields), Some(Some(7)));
        fields.append("sluice-cache-control", "no-store");
        let both = select(&fields, &targets).expect("a policy").directives;
        assert!(both.no_store && both.max_age == Some(7));
        fields.set("Sluice-Cache-Control", "foo");
        assert_eq!(max_age(&fields), Some(None));
        assert_eq!(select(&fields, &[]), None);
    }

    #[test]
    fn accel_expires_is_parsed_as_in_nginx() {
        use AccelExpires::{Never, Seconds, Until};
        for (value, expected) in [
            ("0", Some(Never)),
            ("60", Some(Seconds(60))),
            (" 60 ", Some(Seconds(60))),
            ("@1000", Some(Until(1000))),
            ("@0", Some(Until(0))),
            ("99999999999999999999999", Some(Seconds(u64::MAX))),
            ("-1", None),
            ("", None),
            ("@", None),
            ("off", None),
            ("1.5", None),
        ] {
            let mut fields = Fields::new();
            fields.append("X-Accel-Expires", value);
            assert_eq!(AccelExpires::of(&fields), expected, "{value}");
            fields.append("x-accel-expires", "7");
            assert_eq!(AccelExpires::of(&fields), None, "{value} and 7");
        }
        assert_eq!(AccelExpires::of(&Fields::new()), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&value);
        }

        #[test]
        fn no_store_at_the_end_is_honoured(value in "[a-z0-9=\", ();?.-]{0,40}") {
            if parse(value.as_bytes()).is_some() {
                let after = parse(format!("{value}, no-store").as_bytes()).expect("still valid");
                prop_assert!(after.directives.no_store);
            }
        }
    }
}
