//! Accept-Language (RFC 9110 12.5.4): normalised, or reduced to one of the configured languages.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::http::Fields;
use crate::http::coding::thousandths;

/// Largest number of language ranges; browsers send up to ten. A longer list is not normalised, and
/// only its first ranges count when it is reduced.
const RANGES_MAX: usize = 32;

/// A language range and its weight in thousandths.
type Range<'a> = (&'a [u8], u16);

/// Returns the configured language that a request prefers: the result of a lookup (RFC 4647 3.4)
/// for the range with the largest weight, and among equal weights the first configured language.
/// `de-CH` falls back to `de`; `*` matches any language that no other range matches. Returns `None`
/// without the header, or if nothing matches. Invalid ranges are ignored.
pub fn preferred<'a>(request: &Fields, languages: &'a [Box<str>]) -> Option<&'a str> {
    let members = request.members("accept-language").take(RANGES_MAX);
    let ranges: SmallVec<[Range<'_>; 8]> = members.filter_map(range).collect();
    let is_acceptable = |at: &usize| {
        let own = || {
            ranges
                .iter()
                .filter(|(range, _)| is(range, &languages[*at]))
        };
        own().count() == 0 || own().any(|(_, weight)| *weight > 0)
    };
    let candidates = ranges.iter().filter(|(_, weight)| *weight > 0);
    let candidates = candidates.filter_map(|&(range, weight)| {
        let at = match range {
            b"*" => first_other(&ranges, languages),
            range => look_up(range, languages),
        };
        Some((weight, Reverse(at.filter(is_acceptable)?)))
    });
    candidates.max().map(|(_, Reverse(at))| &*languages[at])
}

/// Finds the language for a range, removing subtags from its end until one matches.
fn look_up(range: &[u8], languages: &[Box<str>]) -> Option<usize> {
    let fits = (0..languages.len()).filter(|&at| begins_with(range, languages[at].as_bytes()));
    // Of several equal languages, the first one in the list is chosen.
    fits.max_by_key(|&at| (languages[at].len(), Reverse(at)))
}

/// Returns the first language that no range except `*` matches.
fn first_other(ranges: &[Range<'_>], languages: &[Box<str>]) -> Option<usize> {
    languages.iter().position(|language| {
        let about = |range: &[u8]| range != b"*" && begins_with(language.as_bytes(), range);
        !ranges.iter().any(|(range, _)| about(range))
    })
}

/// Whether the subtags of `other` are the first subtags of `one`.
fn begins_with(one: &[u8], other: &[u8]) -> bool {
    let at = other.len();
    one.len() >= at
        && one[..at].eq_ignore_ascii_case(other)
        && one.get(at).is_none_or(|&b| b == b'-')
}

fn is(range: &[u8], language: &str) -> bool {
    range.eq_ignore_ascii_case(language.as_bytes())
}

/// Whether a text has the form of a language tag (RFC 5646 2.1): a language, or `i` or `x` with a
/// subtag, and subtags of which the last has more than one letter.
pub fn is_language_tag(text: &str) -> bool {
    let (first, last) = (text.split('-').next(), text.rsplit('-').next());
    is_language_range(text.as_bytes())
        && first.is_some_and(|first| first.len() > 1 || matches!(first, "i" | "I" | "x" | "X"))
        && last.is_some_and(|last| last.len() > 1)
}

/// Appends Accept-Language in normal form; returns whether the header has a normal form.
pub(super) fn append_normal(request: &Fields, out: &mut Vec<u8>) -> bool {
    let Some(mut ranges) = ranges(request) else {
        return false;
    };
    ranges.sort_by(|(one, weight), (other, than)| {
        let by_name = || lower(one).cmp(lower(other));
        than.cmp(weight).then_with(by_name)
    });
    let mut written: SmallVec<[&[u8]; 8]> = SmallVec::new();
    for (range, weight) in ranges {
        // If a range is listed twice, the larger weight counts.
        if written
            .iter()
            .any(|other| other.eq_ignore_ascii_case(range))
        {
            continue;
        }
        if !written.is_empty() {
            out.push(b',');
        }
        written.push(range);
        out.extend(lower(range));
        append_weight(weight, out);
    }
    true
}

fn lower(range: &[u8]) -> impl Iterator<Item = u8> {
    range.iter().map(u8::to_ascii_lowercase)
}

/// Appends `;q=0.8`, or nothing for a weight of 1.
fn append_weight(weight: u16, out: &mut Vec<u8>) {
    if weight == 1000 {
        return;
    }
    out.extend_from_slice(b";q=0");
    let digits = [weight / 100, weight / 10 % 10, weight % 10];
    let digits = digits.map(|digit| b'0' + digit as u8);
    let kept = digits
        .iter()
        .rposition(|&b| b != b'0')
        .map_or(0, |at| at + 1);
    if kept > 0 {
        out.push(b'.');
        out.extend_from_slice(&digits[..kept]);
    }
}

/// Returns all ranges with their weights; `None` if there are none, too many, or an invalid one.
fn ranges(request: &Fields) -> Option<SmallVec<[Range<'_>; 8]>> {
    let mut ranges = SmallVec::new();
    for member in request.members("accept-language") {
        if ranges.len() == RANGES_MAX {
            return None;
        }
        ranges.push(range(member)?);
    }
    (!ranges.is_empty()).then_some(ranges)
}

fn range(member: &[u8]) -> Option<Range<'_>> {
    let Some(semicolon) = memchr::memchr(b';', member) else {
        return is_language_range(member).then_some((member, 1000));
    };
    let range = member[..semicolon].trim_ascii_end();
    let ([b'q' | b'Q', b'=', weight @ ..], true) = (
        member[semicolon + 1..].trim_ascii(),
        is_language_range(range),
    ) else {
        return None;
    };
    Some((range, thousandths(weight)?))
}

/// Whether the text is a basic language range (RFC 4647 2.1).
fn is_language_range(range: &[u8]) -> bool {
    let subtag = |subtag: &[u8]| {
        (1..=8).contains(&subtag.len()) && subtag.iter().all(u8::is_ascii_alphanumeric)
    };
    let first = range.split(|&b| b == b'-').next().unwrap_or_default();
    range == b"*"
        || first.iter().all(u8::is_ascii_alphabetic) && range.split(|&b| b == b'-').all(subtag)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Reductions, normal_value};
    use super::*;

    fn request(lines: &[&str]) -> Fields {
        let mut fields = Fields::new();
        for line in lines {
            fields.append("Accept-Language", line);
        }
        fields
    }

    fn normal(lines: &[&str]) -> Option<String> {
        let value = normal_value(&request(lines), "accept-language", Reductions::default())?;
        Some(String::from_utf8(value).expect("text"))
    }

    #[test]
    fn equivalent_lists_have_one_normal_form() {
        for same in [
            &["en, de"][..],
            &["de,en"],
            &["eN , De"],
            &["en", "de"],
            &["en;q=1.0, de;q=1"],
            &["de, en, de;q=0.5"],
            &[",en,,de,"],
        ] {
            assert_eq!(normal(same).as_deref(), Some("de,en"), "{same:?}");
        }
        for (line, expected) in [
            ("en-US,en;q=0.5", "en-us,en;q=0.5"),
            ("en;q=0.5,en-US", "en-us,en;q=0.5"),
            (
                "a;q=0.050, b;Q=0.1, *;q=0.125, c;q=0, d ; q=0.80",
                "d;q=0.8,*;q=0.125,b;q=0.1,a;q=0.05,c;q=0",
            ),
            ("zh-Hant-TW", "zh-hant-tw"),
        ] {
            assert_eq!(normal(&[line]).as_deref(), Some(expected), "{line}");
        }
        assert_eq!(normal(&[]), None);
    }

    #[test]
    fn invalid_lists_are_unchanged() {
        for (line, kept) in [
            ("", ""),
            ("en, d e", "en,d e"),
            ("EN;x=1, De", "EN;x=1,De"),
            ("en;q=2, De", "en;q=2,De"),
            ("en_US", "en_US"),
            ("toolonglanguage, B", "toolonglanguage,B"),
            ("1a, B", "1a,B"),
        ] {
            assert_eq!(normal(&[line]).as_deref(), Some(kept), "{line}");
        }
        let many = vec!["b,a"; RANGES_MAX].join(",");
        assert_eq!(normal(&[&many]), Some(many));
    }

    fn reduced(line: &str, languages: &[&str]) -> Option<String> {
        let languages: Vec<Box<str>> = languages.iter().map(|&tag| tag.into()).collect();
        preferred(&request(&[line]), &languages).map(str::to_owned)
    }

    #[test]
    fn the_preferred_language_is_looked_up() {
        let languages = ["en", "de", "pt-BR", "zh-Hant"];
        for (line, expected) in [
            ("de", Some("de")),
            ("DE", Some("de")),
            ("de-CH-1996", Some("de")),
            ("den", None),
            ("d", None),
            ("pt", None),
            ("pt-br-x-any", Some("pt-BR")),
            ("zh-Hant-TW, en;q=0.9", Some("zh-Hant")),
            ("zh-TW, en;q=0.9", Some("en")),
            // The largest weight decides, and among equal weights the order of the configured
            // languages.
            ("en;q=0.5, de-CH;q=0.501", Some("de")),
            ("de, en", Some("en")),
            ("fr, de;q=0.1, en;q=0.01", Some("de")),
            ("en;q=0.1, de;q=0.5, en", Some("en")),
            // `*` matches any other language.
            ("*", Some("en")),
            ("en;q=0.5, *", Some("de")),
            ("en, de, zh-Hant, *;q=0.3", Some("en")),
            ("en;q=0, *;q=0.3", Some("de")),
            ("fr, *;q=0.1", Some("en")),
            ("*;q=0, de", Some("de")),
            // A language with weight 0 is refused.
            ("de;q=0", None),
            ("de-CH, de;q=0", None),
            ("de-CH, de;q=0, en;q=0.1", Some("en")),
            ("*;q=0", None),
            // Invalid ranges are ignored.
            ("", None),
            ("en_US, d e, de;q=0.2", Some("de")),
            ("de;q=2, de;x=1", None),
        ] {
            assert_eq!(reduced(line, &languages).as_deref(), expected, "{line}");
        }
        assert_eq!(
            reduced("en-US, en", &["en-US", "EN", "en"]).as_deref(),
            Some("en-US")
        );
        assert_eq!(reduced("en", &["EN", "en"]).as_deref(), Some("EN"));
        assert_eq!(reduced("de", &[]), None);
        assert_eq!(preferred(&Fields::new(), &["de".into()]), None);
        let late = format!("{}, de", ["fr"; RANGES_MAX].join(", "));
        assert_eq!(reduced(&late, &languages), None);
    }

    #[test]
    fn language_tags_are_distinguished_from_other_text() {
        for tag in [
            "de",
            "de-CH",
            "zh-Hant-TW",
            "sl-rozaj-biske-1994",
            "i-klingon",
            "x-ours",
            "de-1996",
        ] {
            assert!(is_language_tag(tag), "{tag}");
        }
        for other in [
            "",
            "*",
            "d",
            "de-",
            "-de",
            "de_CH",
            "de-*",
            "de-x",
            "x",
            "1a",
            "deutsches",
            "de, en",
            "de;q=1",
            "dé",
        ] {
            assert!(!is_language_tag(other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn the_preferred_language_is_configured_and_prefers_itself(
            line in "([a-cA-C]{2}(-[a-bA-B]{2})?(;q=[01](\\.[0-9]{0,3})?)?[, ]{0,2}|\\*(;q=0\\.[0-9])?,|[ -~]){0,6}",
            languages in prop::collection::vec("[a-c]{2}(-[a-b]{2})?", 0..4),
        ) {
            let languages: Vec<_> = languages.iter().map(String::as_str).collect();
            let once = reduced(&line, &languages);
            if let Some(once) = &once {
                prop_assert!(languages.contains(&once.as_str()));
                prop_assert_eq!(reduced(once, &languages), Some(once.clone()));
            }
            // Equivalent requests prefer the same language.
            if let Some(normal) = normal(&[&line]) {
                prop_assert_eq!(reduced(&normal, &languages), once);
            }
        }

        #[test]
        fn normalising_twice_changes_nothing(line in "([a-cA-C*]{1,2}(;q=[01](\\.[0-9]{0,3})?)?[, ]{0,2}){0,5}") {
            let once = normal(&[&line]).expect("the field is there");
            prop_assert_eq!(normal(&[&once]), Some(once));
        }
    }
}
