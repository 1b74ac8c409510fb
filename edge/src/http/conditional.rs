//! Conditional requests (RFC 9110 13): entity tags, and the evaluation of preconditions in the
//! order of the RFC.

use super::{Fields, Method, date};

/// An entity tag (RFC 9110 8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Whether the tag is weak (`W/`).
    pub weak: bool,
    /// The text between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Parses an entity tag that is the complete value, as in ETag.
    pub fn parse(value: &'a [u8]) -> Option<EntityTag<'a>> {
        match EntityTag::parse_first(value.trim_ascii())? {
            (tag, []) => Some(tag),
            _ => None,
        }
    }

    /// Parses the entity tag at the start of `value`; also returns the text after the tag.
    fn parse_first(value: &'a [u8]) -> Option<(EntityTag<'a>, &'a [u8])> {
        let weak = value.starts_with(b"W/");
        let rest = if weak { &value[2..] } else { value };
        let rest = rest.strip_prefix(b"\"")?;
        let end = memchr::memchr(b'"', rest)?;
        let opaque = &rest[..end];
        let valid = opaque.iter().all(|&b| b > b' ' && b != 0x7f);
        valid.then_some((EntityTag { weak, opaque }, &rest[end + 1..]))
    }

    /// Strong comparison (RFC 9110 8.8.3.2): both tags are strong and equal.
    pub fn strong_eq(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison (RFC 9110 8.8.3.2): the tags are equal, strong or not.
    pub fn weak_eq(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// The validators of a response, which distinguish versions of a representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// ETag.
    pub etag: Option<EntityTag<'a>>,
    /// Last-Modified, Unix seconds.
    pub last_modified_s: Option<u64>,
    /// Last-Modified as received, if its value is no date.
    pub undated: Option<&'a [u8]>,
    /// Date, Unix seconds; if the origin sent none, the time of arrival.
    pub date_s: Option<u64>,
}

impl<'a> Validators<'a> {
    /// Returns the validators of a response. An ETag or Last-Modified with several different values
    /// counts as absent.
    pub fn of(response: &'a Fields) -> Validators<'a> {
        let last_modified = only(response, "last-modified");
        let last_modified_s = last_modified.and_then(date::parse);
        Validators {
            etag: only(response, "etag").and_then(EntityTag::parse),
            last_modified_s,
            undated: last_modified.filter(|_| last_modified_s.is_none()),
            date_s: response.get("date").and_then(date::parse),
        }
    }

    /// Whether there is a strong validator, so that bytes of two responses with the same validator
    /// may be combined: a strong ETag, or without any ETag a strong Last-Modified
    /// (`strong_date_s`).
    pub fn is_strong(&self) -> bool {
        match self.etag {
            Some(etag) => !etag.weak,
            None => self.strong_date_s().is_some(),
        }
    }

    /// Last-Modified if it is a strong validator (RFC 9110 8.8.2.2): at least a second before Date,
    /// so that the representation can't have changed again within the same second.
    pub fn strong_date_s(&self) -> Option<u64> {
        let (modified_s, date_s) = (self.last_modified_s?, self.date_s?);
        (modified_s < date_s).then_some(modified_s)
    }
}

/// The condition headers of a revalidation request (RFC 9111 4.3.1): the stored validators as they
/// were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions<'a> {
    /// The value of If-None-Match.
    pub if_none_match: Option<&'a [u8]>,
    /// The value of If-Modified-Since.
    pub if_modified_since: Option<&'a [u8]>,
}

impl<'a> Conditions<'a> {
    /// Builds the conditions from a stored response's ETag and Last-Modified. Malformed values are
    /// omitted, because origins need not understand them.
    pub fn of(etag: Option<&'a [u8]>, last_modified: Option<&'a [u8]>) -> Conditions<'a> {
        let etag = etag.map(<[u8]>::trim_ascii);
        let last_modified = last_modified.map(<[u8]>::trim_ascii);
        Conditions {
            if_none_match: etag.filter(|value| EntityTag::parse(value).is_some()),
            if_modified_since: last_modified.filter(|value| date::parse(value).is_some()),
        }
    }

    /// Builds the conditions from a response's headers. A header with several different values
    /// counts as absent.
    pub fn of_response(response: &'a Fields) -> Conditions<'a> {
        Conditions::of(only(response, "etag"), only(response, "last-modified"))
    }

    /// Whether there is no condition to send.
    pub fn is_empty(&self) -> bool {
        *self == Conditions::default()
    }
}

/// Returns the value of a header, if all of its lines have the same value.
fn only<'a>(fields: &'a Fields, name: &'static str) -> Option<&'a [u8]> {
    let mut values = fields.get_all(name);
    let value = values.next()?;
    values.all(|other| other == value).then_some(value)
}

/// The result of evaluating preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Respond as usual for the method.
    Proceed {
        /// Ignore Range, because If-Range does not match, or because the method is not GET, the
        /// only one with ranges (RFC 9110 14.2).
        ignore_range: bool,
    },
    /// Respond with 304.
    NotModified,
    /// Respond with 412.
    PreconditionFailed,
}

/// Whether any header name begins with `If-`. Most requests have no conditions; for them this one
/// pass over the headers replaces five lookups.
fn is_conditional(request: &Fields) -> bool {
    let conditional = |name: &[u8]| matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]);
    request.iter().any(|(name, _)| conditional(name))
}

/// Evaluates a request's preconditions against an existing representation, in the order of RFC 9110
/// 13.2.2. Callers do so only if the response without conditions would be a 2xx (13.2.1).
pub fn evaluate(method: &Method, request: &Fields, validators: &Validators<'_>) -> Decision {
    let reads = matches!(method, Method::Get | Method::Head);
    if !is_conditional(request) {
        let ignore_range = *method != Method::Get;
        return Decision::Proceed { ignore_range };
    }
    // RFC 9110 13.2.2, steps 1 and 2: If-Match, otherwise If-Unmodified-Since.
    let unchanged = match matches_any(request, "if-match", validators, |a, b| a.strong_eq(b)) {
        Some(matches) => matches,
        None => !changed_since(request, "if-unmodified-since", validators.last_modified_s),
    };
    if !unchanged {
        return Decision::PreconditionFailed;
    }
    // RFC 9110 13.2.2, steps 3 and 4: If-None-Match, otherwise If-Modified-Since.
    match matches_any(request, "if-none-match", validators, |a, b| a.weak_eq(b)) {
        Some(true) if reads => return Decision::NotModified,
        Some(true) => return Decision::PreconditionFailed,
        Some(false) => {}
        // A stored response without Last-Modified is compared by its Date (RFC 9111 4.3.2).
        None if reads && unmodified_since(request, validators) => return Decision::NotModified,
        None => {}
    }
    // RFC 9110 13.2.2, step 5: If-Range.
    Decision::Proceed {
        ignore_range: *method != Method::Get || !if_range_holds(request, validators),
    }
}

/// Whether If-Match or If-None-Match (all lines) lists this representation; `None` if the header is
/// absent. `*` matches any. A malformed entity tag matches nothing.
fn matches_any(
    request: &Fields,
    name: &'static str,
    validators: &Validators<'_>,
    same: impl Fn(&EntityTag<'_>, &EntityTag<'_>) -> bool,
) -> Option<bool> {
    let mut values = request.get_all(name).peekable();
    values.peek()?;
    let matches = |tag: &EntityTag<'_>| validators.etag.is_some_and(|own| same(tag, &own));
    Some(values.any(|value| value.trim_ascii() == b"*" || tags(value).any(|tag| matches(&tag))))
}

/// Whether If-None-Match, If-Match or If-Range of the request contains this entity tag, by weak
/// comparison.
pub fn is_named(request: &Fields, tag: &EntityTag<'_>) -> bool {
    const CONDITIONS: [&str; 3] = ["if-none-match", "if-match", "if-range"];
    CONDITIONS
        .into_iter()
        .flat_map(|name| request.get_all(name))
        .any(|value| tags(value).any(|named| named.weak_eq(tag)))
}

/// Returns the entity tags of a list; malformed members are skipped.
fn tags(mut rest: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return None;
            }
            let parsed = EntityTag::parse_first(rest);
            let after = parsed.map_or(rest, |(_, after)| after).trim_ascii_start();
            let comma = memchr::memchr(b',', after);
            rest = comma.map_or(&[][..], |comma| &after[comma + 1..]);
            // An entity tag followed by anything but a comma is malformed.
            if let Some((tag, _)) = parsed.filter(|_| after.is_empty() || comma == Some(0)) {
                return Some(tag);
            }
        }
    })
}

/// Whether If-Unmodified-Since fails: the representation was modified after that date. The header
/// is ignored if it is invalid or repeated, or if there is no Last-Modified (RFC 9110 13.1.4).
fn changed_since(request: &Fields, name: &'static str, modified_s: Option<u64>) -> bool {
    let since_s = single_date(request, name);
    matches!((modified_s, since_s), (Some(modified), Some(since)) if modified > since)
}

/// Whether If-Modified-Since fails: the representation was not modified after that date (RFC 9110
/// 13.1.3). A Last-Modified that is no date can't be compared by time. If a client sends it back
/// byte for byte, the representation is the one that the client has.
fn unmodified_since(request: &Fields, validators: &Validators<'_>) -> bool {
    if let Some(undated) = validators.undated
        && single(request, "if-modified-since").is_some_and(|value| value == undated)
    {
        return true;
    }
    let modified_s = validators.last_modified_s.or(validators.date_s);
    let since_s = single_date(request, "if-modified-since");
    matches!((modified_s, since_s), (Some(modified), Some(since)) if modified <= since)
}

/// Returns the date of a header that has exactly one line with a valid date.
fn single_date(request: &Fields, name: &'static str) -> Option<u64> {
    single(request, name).and_then(date::parse)
}

/// Returns the value of a header that has exactly one line.
fn single<'a>(request: &'a Fields, name: &'static str) -> Option<&'a [u8]> {
    let mut values = request.get_all(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Whether If-Range matches (RFC 9110 13.1.5): it is absent, equals the strong ETag, or equals
/// Last-Modified and that is strong. An invalid or repeated If-Range does not match.
fn if_range_holds(request: &Fields, validators: &Validators<'_>) -> bool {
    if !request.contains("if-range") {
        return true;
    }
    let Some(value) = single(request, "if-range") else {
        return false;
    };
    if let Some(tag) = EntityTag::parse(value) {
        return validators.etag.is_some_and(|own| tag.strong_eq(&own));
    }
    let date_s = date::parse(value);
    date_s.is_some() && date_s == validators.strong_date_s()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T0: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const T1: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const T2: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const GO: Decision = Decision::Proceed {
        ignore_range: false,
    };
    const WHOLE: Decision = Decision::Proceed { ignore_range: true };

    fn fields(lines: &[(&str, &str)]) -> Fields {
        lines.iter().copied().collect()
    }

    /// Evaluates a request for a representation with the ETag `"a"`, last modified at T1, in a
    /// response with Date T2.
    fn judge(method: Method, request: &[(&str, &str)]) -> Decision {
        let response = fields(&[("etag", "\"a\""), ("last-modified", T1), ("date", T2)]);
        evaluate(&method, &fields(request), &Validators::of(&response))
    }

    fn get(request: &[(&str, &str)]) -> Decision {
        judge(Method::Get, request)
    }

    #[test]
    fn entity_tags_are_parsed_and_compared() {
        let tag = |value: &'static str| EntityTag::parse(value.as_bytes());
        let strong = tag("\"1\"").expect("valid");
        let weak = tag("W/\"1\"").expect("valid");
        assert!(strong.strong_eq(&strong) && strong.weak_eq(&weak) && weak.weak_eq(&weak));
        assert!(!strong.strong_eq(&weak) && !weak.strong_eq(&weak));
        assert!(!strong.weak_eq(&tag("\"2\"").expect("valid")));
        assert_eq!(tag("\"\"").map(|t| t.opaque), Some(&b""[..]));
        assert!(tag("\"\u{fc}!~\"").is_some());
        for value in [
            "",
            "a",
            "\"a",
            "a\"",
            "w/\"a\"",
            "\"a\"b",
            "\"a b\"",
            "W/",
            "\"a\",\"b\"",
        ] {
            assert_eq!(tag(value), None, "{value}");
        }
    }

    #[test]
    fn if_none_match_accepts_lists_and_several_lines() {
        for value in [
            "\"a\"",
            "W/\"a\"",
            "*",
            "\"x\", \"a\"",
            "\"x,\" , W/\"a\",",
            "junk, \"a\"",
            "\"x\" junk, \"a\"",
        ] {
            assert_eq!(
                get(&[("if-none-match", value)]),
                Decision::NotModified,
                "{value}"
            );
            let head = judge(Method::Head, &[("if-none-match", value)]);
            assert_eq!(head, Decision::NotModified, "{value}");
            let put = judge(Method::Put, &[("if-none-match", value)]);
            assert_eq!(put, Decision::PreconditionFailed, "{value}");
        }
        for value in ["\"b\"", "a", "", "\"a\" junk", "\"b\", *"] {
            assert_eq!(get(&[("if-none-match", value)]), GO, "{value}");
        }
        let lines = [("if-none-match", "\"x\""), ("if-none-match", "\"a\"")];
        assert_eq!(get(&lines), Decision::NotModified);
    }

    #[test]
    fn if_match_uses_strong_comparison() {
        for value in ["\"a\"", "*", "\"x\", \"a\""] {
            assert_eq!(get(&[("if-match", value)]), GO, "{value}");
        }
        for value in ["W/\"a\"", "\"b\"", "", "a"] {
            let failed = Decision::PreconditionFailed;
            assert_eq!(get(&[("if-match", value)]), failed, "{value}");
        }
    }

    #[test]
    fn dates_count_only_without_entity_tag_conditions() {
        assert_eq!(get(&[("if-modified-since", T0)]), GO);
        assert_eq!(get(&[("if-modified-since", T1)]), Decision::NotModified);
        assert_eq!(get(&[("if-modified-since", T2)]), Decision::NotModified);
        assert_eq!(get(&[("if-modified-since", "yesterday")]), GO);
        let twice = [("if-modified-since", T1), ("if-modified-since", T2)];
        assert_eq!(get(&twice), GO);
        assert_eq!(judge(Method::Put, &[("if-modified-since", T1)]), WHOLE);
        let both = [("if-none-match", "\"b\""), ("if-modified-since", T2)];
        assert_eq!(get(&both), GO);
        assert_eq!(
            get(&[("if-unmodified-since", T0)]),
            Decision::PreconditionFailed
        );
        assert_eq!(get(&[("if-unmodified-since", T1)]), GO);
        assert_eq!(get(&[("if-unmodified-since", "x")]), GO);
        let both = [("if-match", "\"a\""), ("if-unmodified-since", T0)];
        assert_eq!(get(&both), GO);
        let both = [("if-match", "\"b\""), ("if-none-match", "\"a\"")];
        assert_eq!(get(&both), Decision::PreconditionFailed);
    }

    #[test]
    fn without_validators_only_asterisks_match() {
        let none = Validators::default();
        let judge = |lines: &[(&str, &str)]| evaluate(&Method::Get, &fields(lines), &none);
        assert_eq!(judge(&[("if-none-match", "\"a\"")]), GO);
        assert_eq!(judge(&[("if-none-match", "*")]), Decision::NotModified);
        assert_eq!(
            judge(&[("if-match", "\"a\"")]),
            Decision::PreconditionFailed
        );
        assert_eq!(judge(&[("if-match", "*")]), GO);
        assert_eq!(judge(&[("if-modified-since", T1)]), GO);
        assert_eq!(judge(&[("if-unmodified-since", T1)]), GO);
        assert_eq!(judge(&[("if-range", "\"a\"")]), WHOLE);
        let dated = Validators {
            date_s: date::parse(T1.as_bytes()),
            ..none
        };
        let request = fields(&[("if-modified-since", T1)]);
        assert_eq!(
            evaluate(&Method::Get, &request, &dated),
            Decision::NotModified
        );
    }

    #[test]
    fn if_range_matches_only_the_identical_validator() {
        for (value, decision) in [
            ("\"a\"", GO),
            ("W/\"a\"", WHOLE),
            ("\"b\"", WHOLE),
            ("\"a\", \"b\"", WHOLE),
            ("*", WHOLE),
            ("", WHOLE),
            (T1, GO),
            (T0, WHOLE),
            (T2, WHOLE),
        ] {
            assert_eq!(get(&[("if-range", value)]), decision, "{value}");
        }
        assert_eq!(get(&[("if-range", "\"a\""), ("if-range", "\"a\"")]), WHOLE);
        assert_eq!(judge(Method::Head, &[("if-range", "\"a\"")]), WHOLE);
        assert_eq!(get(&[]), GO);
    }

    #[test]
    fn a_last_modified_that_is_no_date_matches_byte_for_byte() {
        let response = fields(&[("last-modified", "version 7"), ("date", T1)]);
        for (value, decision) in [
            ("version 7", Decision::NotModified),
            ("version 70", GO),
            ("Version 7", GO),
            // RFC 9111 4.3.2: without a usable Last-Modified, Date is compared.
            (T0, GO),
            (T2, Decision::NotModified),
        ] {
            let request = fields(&[("if-modified-since", value)]);
            let decided = evaluate(&Method::Get, &request, &Validators::of(&response));
            assert_eq!(decided, decision, "{value}");
        }
        let post = fields(&[("if-modified-since", "version 7")]);
        let decided = evaluate(&Method::Post, &post, &Validators::of(&response));
        assert_eq!(decided, WHOLE);
        let later = fields(&[("if-unmodified-since", "version 7")]);
        let decided = evaluate(&Method::Get, &later, &Validators::of(&response));
        assert_eq!(decided, GO);
    }

    #[test]
    fn a_date_is_strong_if_it_is_a_second_before_date() {
        let strong = |lines: &[(&str, &str)]| Validators::of(&fields(lines)).is_strong();
        assert!(strong(&[("last-modified", T1), ("date", T2)]));
        assert!(!strong(&[("last-modified", T1), ("date", T1)]));
        assert!(!strong(&[("last-modified", T1)]));
        assert!(!strong(&[
            ("etag", "W/\"a\""),
            ("last-modified", T1),
            ("date", T2)
        ]));
        assert!(strong(&[("etag", "\"a\"")]));
        assert!(strong(&[("etag", "\"a\""), ("etag", "\"a\"")]));
        assert!(!strong(&[("etag", "\"a\""), ("etag", "\"b\"")]));
        assert!(!strong(&[("etag", "a")]) && !strong(&[]));
    }

    #[test]
    fn revalidations_send_the_received_validators() {
        let etag = Some(&b"W/\"a b\xe9\""[..]);
        assert_eq!(Conditions::of(etag, None), Conditions::default());
        let etag = Some(&b"W/\"a\xe9\""[..]);
        let date = Some(&b"Sunday, 06-Nov-94 08:49:37 GMT"[..]);
        let both = Conditions::of(etag, date);
        assert_eq!((both.if_none_match, both.if_modified_since), (etag, date));
        for none in [&b""[..], b"a", b"w/\"a\"", b"\"a", b"\"a\", \"b\"", b"0"] {
            assert!(
                Conditions::of(Some(none), Some(none)).is_empty(),
                "{none:?}"
            );
        }
        let mut response = Fields::new();
        response.append("ETag", "\"a\"");
        let asked = Conditions::of_response(&response);
        assert_eq!(asked.if_none_match, Some(&b"\"a\""[..]));
        response.append("etag", "\"b\"");
        assert!(Conditions::of_response(&response).is_empty());
    }

    proptest! {
        #[test]
        fn any_value_is_evaluated(value in "[aW/\", *x-]{0,24}") {
            for name in ["if-match", "if-none-match", "if-range", "if-modified-since"] {
                get(&[(name, &value)]);
            }
        }

        #[test]
        fn a_tag_is_found_in_a_list(
            others in prop::collection::vec("(W/)?\"[b-z,]{0,3}\"", 0..5), at in 0..6usize,
        ) {
            let mut list = others;
            list.insert(at.min(list.len()), "\"a\"".to_owned());
            prop_assert_eq!(get(&[("if-none-match", &list.join(", "))]), Decision::NotModified);
            list.retain(|tag| tag != "\"a\"");
            prop_assert_eq!(get(&[("if-none-match", &list.join(","))]), GO);
        }
    }
}
