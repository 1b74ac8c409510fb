//! Accept-Language (RFC 9110 12.5.4): brought into one form, and asked for what it prefers.

use smallvec::SmallVec;

use super::thousandths;
use crate::http::Fields;

/// Longer lists are left as they are; those of browsers have up to ten members.
const RANGES_MAX: usize = 32;

/// A language range, and its weight in thousandths.
type Range<'a> = (&'a [u8], u16);

/// The normal form of a request's Accept-Language, which stands for it in keys and is what shared
/// fetches send: ranges in lower case, each once, the heaviest first, those of one weight by name.
/// `None` without the field; what isn't valid stays as it is.
pub fn language_value(request: &Fields) -> Option<Vec<u8>> {
    super::normal_value(request, "accept-language")
}

/// The one language range that a request prefers to all others, as written; `None` where that is
/// `*`, where several weigh the same, and where nothing is acceptable or valid.
pub fn preferred_language(request: &Fields) -> Option<&[u8]> {
    let ranges = ranges(request)?;
    let (first, weight) = *ranges.iter().max_by_key(|(_, weight)| *weight)?;
    let heaviest = ranges.iter().filter(|(_, other)| *other == weight);
    (weight > 0 && first != b"*" && heaviest.count() == 1).then_some(first)
}

/// Appends the normal form; says whether there is one.
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
        // Of two weights for one range the larger counts.
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

/// `;q=0.8`; nothing for 1.
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

/// All ranges with their weights; `None` without any, with too many, and if one is invalid.
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

/// A basic language range (RFC 4647 2.1).
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

    use super::*;

    fn request(lines: &[&str]) -> Fields {
        let mut fields = Fields::new();
        for line in lines {
            fields.append("Accept-Language", line);
        }
        fields
    }

    fn normal(lines: &[&str]) -> Option<String> {
        let value = language_value(&request(lines))?;
        Some(String::from_utf8(value).expect("text"))
    }

    #[test]
    fn lists_that_mean_the_same_have_one_form() {
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
    fn what_is_not_valid_stays() {
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

    #[test]
    fn one_language_may_be_preferred() {
        let preferred = |line| {
            let request = request(&[line]);
            preferred_language(&request).map(|range| String::from_utf8_lossy(range).into_owned())
        };
        assert_eq!(
            preferred("en;q=0.5, De-CH, *;q=0.9").as_deref(),
            Some("De-CH")
        );
        assert_eq!(preferred("en;q=0.1").as_deref(), Some("en"));
        for none in [
            "",
            "en, de",
            "*",
            "en, *",
            "*, en;q=0.5",
            "en;q=0",
            "en, d e;q=0",
        ] {
            assert_eq!(preferred(none), None, "{none}");
        }
        assert_eq!(preferred_language(&Fields::new()), None);
    }

    proptest! {
        #[test]
        fn a_normal_form_is_normal(line in "([a-cA-C*]{1,2}(;q=[01](\\.[0-9]{0,3})?)?[, ]{0,2}){0,5}") {
            let once = normal(&[&line]).expect("the field is there");
            prop_assert_eq!(normal(&[&once]), Some(once));
        }
    }
}
