//! Tests of the Cache-Control header.

use proptest::prelude::*;

use super::*;

fn response(value: &str) -> ResponseDirectives {
    ResponseDirectives::parse(value.as_bytes())
}

fn request(value: &str) -> RequestDirectives {
    RequestDirectives::parse(value.as_bytes())
}

/// Returns the directives of a response that has all of them. Those with seconds have 1 to 4: `max-age`, `s-maxage`,
/// `stale-while-revalidate` and `stale-if-error`.
pub(in crate::http) fn every_directive() -> ResponseDirectives {
    ResponseDirectives {
        max_age: Some(1),
        s_maxage: Some(2),
        stale_while_revalidate: Some(3),
        stale_if_error: Some(4),
        no_cache: Scope::Whole,
        private: Scope::Whole,
        no_store: true,
        public: true,
        must_revalidate: true,
        proxy_revalidate: true,
        must_understand: true,
        no_transform: true,
        immutable: true,
    }
}

#[test]
fn every_response_directive_is_parsed_in_any_case() {
    let all = response(
        "Max-Age=1, S-MAXAGE=2,no-cache , No-Store,PRIVATE,public,must-revalidate,\
         proxy-revalidate,must-understand,no-transform,immutable,\
         stale-while-revalidate=3, stale-if-error=4, unknown, other=\"a, b\", x=y",
    );
    assert_eq!(all, every_directive());
}

#[test]
fn every_request_directive_is_parsed() {
    let all = request(
        "max-age=1, max-stale=2, min-fresh=3, stale-if-error=4, no-cache, no-store, \
         no-transform, only-if-cached",
    );
    let expected = RequestDirectives {
        max_age: Some(1),
        max_stale: Some(2),
        min_fresh: Some(3),
        stale_if_error: Some(4),
        no_cache: true,
        no_store: true,
        no_transform: true,
        only_if_cached: true,
    };
    assert_eq!(all, expected);
    assert_eq!(request("max-stale").max_stale, Some(SECONDS_MAX));
    assert_eq!(request("max-stale=x").max_stale, Some(0));
    assert_eq!(request("max-stale, max-stale=5").max_stale, Some(5));
    assert_eq!(request("min-fresh=x").min_fresh, Some(SECONDS_MAX));
    assert_eq!(request("min-fresh=1,min-fresh=9").min_fresh, Some(9));
}

#[test]
fn invalid_seconds_count_as_zero() {
    for (value, seconds) in [
        ("max-age=10", 10),
        ("max-age=\"10\"", 10),
        ("max-age=\"10\" ", 10),
        ("max-age=0010", 10),
        ("max-age=2147483647", 2_147_483_647),
        ("max-age=2147483648", SECONDS_MAX),
        ("max-age=99999999999999999999999999", SECONDS_MAX),
        ("max-age", 0),
        ("max-age=", 0),
        ("max-age=\"\"", 0),
        ("max-age=-1", 0),
        ("max-age=+1", 0),
        ("max-age=1.5", 0),
        ("max-age=10s", 0),
        ("max-age=10 20", 0),
        ("max-age=\"10\"20", 0),
        ("max-age=\"10", 0),
        ("max-age=1\\0", 0),
        ("max-age='10'", 0),
        ("max-age =10", 0),
        ("max-age= 10", 0),
        ("max-age=10, max-age=20", 10),
        ("max-age=20, max-age=10", 10),
        ("max-age=20, max-age=x", 0),
        ("\"max-age=1\"", 0),
        ("public; max-age=60", 0),
        ("max-age=60, s-maxage 60", 0),
    ] {
        assert_eq!(response(value).max_age, Some(seconds), "{value}");
    }
    assert_eq!(response("x-max-age=1, max-agee=1").max_age, None);
}

#[test]
fn lines_are_merged_and_the_stricter_directive_wins() {
    let mut fields = Fields::new();
    fields.append("Cache-Control", "public, max-age=60");
    fields.append("cache-control", "no-store, s-maxage=5");
    let all = ResponseDirectives::of(&fields);
    assert!(all.public && all.no_store);
    assert_eq!((all.max_age, all.s_maxage), (Some(60), Some(5)));
    assert!(response("no-store=0").no_store);
    assert!(!response("public=1").public && !response("immutable=x").immutable);
    assert!(response(",, ,no-store").no_store);
    assert!(RequestDirectives::of(&fields).no_store);
}

#[test]
fn a_malformed_directive_counts_as_every_restriction_in_it() {
    for value in [
        "private; max-age=600",
        "max-age=600; private",
        "max-age=600, private;x=1",
        "public; Private, max-age=60",
        "\"private\"",
        "private=\"a\" private",
        "max-age=60, x=\"a\"; private",
        "=private",
        "max-age=60, (private)",
    ] {
        assert_eq!(response(value).private, Scope::Whole, "{value}");
    }
    for value in [
        "no-store; no-cache",
        "private no-store",
        "no-cache; no-store; must-revalidate",
        "max-age=60, no-store;",
        "max-age=60 no-store",
        "max-age=60, \"no-store\"",
        "\"max-age=60, no-store\"",
    ] {
        assert!(response(value).no_store, "{value}");
    }
    assert_eq!(response("no-cache; a").no_cache, Scope::Whole);
    assert!(response("no-transform; a").no_transform);
    let fields = |value| named_fields(&[("cache-control", value)].into_iter().collect());
    assert!(fields("private; no-cache=\"x\"").is_empty());
    // Unknown directives are ignored, and so are the words within other words.
    for value in [
        "x=private",
        "x=\"private; no-store\"",
        "x-private; no-stored",
        "a b",
    ] {
        assert_eq!(response(value), ResponseDirectives::default(), "{value}");
    }
    // A malformed directive permits nothing.
    let lax = response("public; immutable; must-revalidate; s-maxage=60; must-understand");
    assert!(!lax.is_for_all() && !lax.immutable && !lax.must_understand);
    assert!(lax.is_strict() && lax.max_age == Some(0));
    assert!(!request("no-store; no-cache").no_store);
}

#[test]
fn commas_in_closed_quotes_do_not_separate_directives() {
    assert!(!response("x=\"a, no-store\", max-age=1").no_store);
    assert!(!response("x=\"a\\\", no-store\"").no_store);
    assert!(response("x=\"a, no-store").no_store);
    assert!(response("private=\"a, no-store").no_store);
}

#[test]
fn scopes_list_field_names() {
    assert_eq!(response("private").private, Scope::Whole);
    assert_eq!(response("private=\"set-cookie\"").private, Scope::Fields);
    assert_eq!(response("private=Set-Cookie").private, Scope::Fields);
    assert_eq!(response("private=\"\"").private, Scope::Whole);
    assert_eq!(response("private=\"a\", private").private, Scope::Whole);
    assert_eq!(response("no-cache=\"a").no_cache, Scope::Whole);
    let mut fields = Fields::new();
    fields.append(
        "cache-control",
        "no-cache=\"Set-Cookie, X-A\", private=\"b\"",
    );
    fields.append("cache-control", "no-cache=c");
    assert_eq!(named_fields(&fields), ["set-cookie", "x-a", "b", "c"]);
    for bad in ["\"a b\"", "\"a, (b)\"", "\"a\\\"\"", "\",\"", "\"a\"b"] {
        let value = format!("private={bad}");
        assert_eq!(response(&value).private, Scope::Whole, "{bad}");
        fields.set("cache-control", &value);
        assert!(named_fields(&fields).is_empty(), "{bad}");
    }
}

proptest! {
    #[test]
    fn parsing_ends_on_any_line_and_more_directives_never_permit_more(
        value in "[a-z0-9=\", \\\\-]{0,60}",
    ) {
        let before = response(&value);
        let after = {
            let mut fields = Fields::new();
            fields.append("cache-control", &value);
            fields.append("cache-control", "no-store, max-age=0");
            ResponseDirectives::of(&fields)
        };
        prop_assert!(after.no_store && after.max_age == Some(0));
        prop_assert_eq!(after.private, before.private);
        let _ = request(&value);
    }

    #[test]
    fn a_restriction_counts_with_any_separator_on_both_sides(
        before in "[a-z]{0,9}(=[0-9]{1,2})?",
        separators in "[;:/()<>@ \t]{1,3}",
        after in "[a-z]{0,9}(=[0-9]{1,2})?",
    ) {
        let with = |word: &str| response(&format!("{before}{separators}{word}{separators}{after}"));
        prop_assert!(with("no-store").no_store);
        prop_assert_eq!(with("private").private, Scope::Whole);
        prop_assert_eq!(with("no-cache").no_cache, Scope::Whole);
    }
}
