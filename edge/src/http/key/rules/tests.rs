//! Tests of key rules: which requests get the same key.

use proptest::prelude::*;

use super::*;
use crate::http::key::{Parts, resource_with};

fn resource_of(key: &Key) -> KeyHash {
    resource_with(key.hash(), key.text())
}

fn rules(template: &str) -> KeyRules {
    KeyRules::parse(template).expect(template)
}

fn fields(lines: &[(&str, &str)]) -> Fields {
    lines.iter().copied().collect()
}

fn plain_key(rules: &KeyRules, scheme: Scheme, authority: &str, target: &str) -> Key {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let none = Fields::new();
    let key = rules.key(scheme, authority, path, query, &none);
    assert_eq!(
        key.hash(),
        rules.hash(scheme, authority, path, query, &none)
    );
    assert_eq!(
        resource_of(&key),
        rules.resource(scheme, authority, path, query)
    );
    key
}

#[test]
fn default_rules_make_keys_of_the_unchanged_url() {
    for plain in [KeyRules::default(), rules("{query}{path}{host}{scheme}")] {
        assert!(plain.is_plain() && !plain.needs_fields());
        let key = plain_key(&plain, Scheme::Https, "A:443", "/b?c");
        assert_eq!(key, Key::new(Scheme::Https, "a", "/b", Some("c")));
        assert_eq!(key.hash(), KeyHash::of(Scheme::Https, "a", "/b", Some("c")));
        assert_eq!(resource_of(&key), key.hash());
    }
    assert!(!rules("{path}").is_plain());
    let sorting = KeyRules {
        sort: true,
        ..KeyRules::default()
    };
    assert!(!sorting.is_plain());
}

#[test]
fn omitted_parts_make_no_difference() {
    let key = |rules: &KeyRules, scheme, host, target| plain_key(rules, scheme, host, target);
    let any = rules("{path}");
    let one = key(&any, Scheme::Http, "a", "/p?q");
    assert_eq!(one, key(&any, Scheme::Https, "b:8080", "/p"));
    assert_ne!(one, key(&any, Scheme::Http, "a", "/P"));
    // The key of a template without `{host}` differs from the key of a request without Host
    // under a template with `{host}`.
    assert_ne!(one, Key::new(Scheme::Http, "", "/p", None));
    assert_eq!(one.to_string(), "*://*/p");
    let hostless = rules("{scheme}{path}{query}");
    let one = key(&hostless, Scheme::Http, "a", "/p?q");
    assert_eq!(one, key(&hostless, Scheme::Http, "b", "/p?q"));
    assert_ne!(one, key(&hostless, Scheme::Https, "a", "/p?q"));
    assert_ne!(one, key(&hostless, Scheme::Http, "a", "/p"));
    assert_eq!(hostless.query(Some("q")).as_deref(), Some("q"));
    assert_eq!(any.query(Some("q")), None);
}

#[test]
fn headers_cookies_and_literals_are_added_to_the_url() {
    let rules = rules("v2 {scheme}{host}{path}{query}{header:X-Tenant}{cookie:lang}");
    assert!(rules.needs_fields() && !rules.is_plain());
    assert_eq!(rules.headers().collect::<Vec<_>>(), ["x-tenant"]);
    assert_eq!(rules.cookies().collect::<Vec<_>>(), ["lang"]);
    let key = |lines: &[(&str, &str)]| {
        let key = rules.key(Scheme::Http, "h", "/", Some("q"), &fields(lines));
        assert_eq!(
            resource_of(&key),
            KeyHash::of(Scheme::Http, "h", "/", Some("q"))
        );
        assert_eq!(Parts::of(key.text()), Some(key.parts()));
        key
    };
    let keys = [
        key(&[]),
        key(&[("x-tenant", "")]),
        key(&[("X-Tenant", "1")]),
        key(&[("Cookie", "lang=1")]),
        key(&[("X-Tenant", "1"), ("Cookie", "lang=1")]),
        key(&[("X-Tenant", "1"), ("Cookie", "lang=")]),
        Key::new(Scheme::Http, "h", "/", Some("q")),
    ];
    for (i, one) in keys.iter().enumerate() {
        for other in &keys[i + 1..] {
            assert!(one != other && one.hash() != other.hash(), "{one} {other}");
        }
    }
    assert_eq!(
        keys[4],
        key(&[("cookie", "x=y; lang=1"), ("x-tenant", "1"), ("a", "b")])
    );
    assert_eq!(keys[4].to_string(), "http://h/?q v2  x-tenant=1 lang=1");
    assert_eq!(keys[4].parts(), keys[0].parts());
}

#[test]
fn a_displayed_template_is_equivalent() {
    for template in [
        "{scheme}{host}{path}{query}",
        "v2{header:X-A}{path}{cookie:B} {query}",
        "{path}",
    ] {
        let one = rules(template);
        assert_eq!(rules(&one.to_string()), one, "{one}");
    }
    assert_eq!(
        KeyRules::default().to_string(),
        "{scheme}{host}{path}{query}"
    );
}

#[test]
fn malformed_templates_are_rejected() {
    for (template, part, what) in [
        ("", "", "a key needs the path"),
        ("{host}", "{host}", "a key needs the path"),
        ("{path}{url}", "{url}", "there is no variable {url}"),
        ("{path}{}", "{}", "there is no variable {}"),
        ("{path}{host", "{host", "this brace is never closed"),
        ("{path}}", "}", "a `}` without `{`"),
        ("{path}é}x{host}", "é}x", "a `}` without `{`"),
        ("{path}{host}{path}", "{path}", "this occurs twice"),
        (
            "{path}{header:}",
            "{header:}",
            "`` is not a valid header name",
        ),
        (
            "{path}{header}",
            "{header}",
            "`` is not a valid header name",
        ),
        (
            "{path}{cookie:a b}",
            "{cookie:a b}",
            "`a b` is not a valid cookie name",
        ),
        (
            "{path}{header:TE}",
            "{header:TE}",
            "`te` can't be part of a key",
        ),
        (
            "{path}{header:If-Match}",
            "{header:If-Match}",
            "`if-match` can't be part of a key",
        ),
        (
            "{path}{header:X_Forwarded_Host}",
            "{header:X_Forwarded_Host}",
            "`x_forwarded_host` can't be part of a key",
        ),
        (
            "{path}{header:X-Real-IP}",
            "{header:X-Real-IP}",
            "`x-real-ip` can't be part of a key",
        ),
        (
            "{path}{header:Content-Length}",
            "{header:Content-Length}",
            "`content-length` can't be part of a key",
        ),
        (
            "{path}{header:Cookie}",
            "{header:Cookie}",
            "the complete Cookie header differs for every client",
        ),
    ] {
        let error = KeyRules::parse(template).expect_err(template);
        assert_eq!(
            (&template[error.at.clone()], error.to_string()),
            (part, what.into())
        );
        assert!(!error.help.is_empty());
    }
    let many: String = (0..=EXTRAS_MAX)
        .map(|i| format!("{{cookie:c{i}}}"))
        .collect();
    assert!(KeyRules::parse(&format!("{{path}}{many}")).is_err());
}

#[test]
fn parameters_are_removed_and_sorted() {
    let list = |names: &[&str]| names.iter().map(|name| Pattern::new(name)).collect();
    let rules = |sort, ignore: &[&str], only: &[&str]| KeyRules {
        sort,
        ignore: list(ignore),
        only: list(only),
        ..KeyRules::default()
    };
    for (rules, query, expected) in [
        (
            rules(true, &[], &[]),
            "b=2&a=1&b=1&a",
            Some("a=1&a&b=2&b=1"),
        ),
        (
            rules(true, &[], &[]),
            "a=1&b=%2f&c=+",
            Some("a=1&b=%2f&c=+"),
        ),
        (rules(true, &[], &[]), "b&&a&", Some("a&b")),
        (rules(true, &[], &[]), "", None),
        (
            rules(false, &["utm_*", "id"], &[]),
            "utm_x=1&b&id=2&a",
            Some("b&a"),
        ),
        (rules(false, &["utm_*"], &[]), "utm_x=1&utm_", None),
        (
            rules(false, &["utm_*"], &[]),
            "UTM_x&a?b=c/d",
            Some("UTM_x&a?b=c/d"),
        ),
        (rules(false, &[], &["a", "b*"]), "c&b2=1&a", Some("b2=1&a")),
        (
            rules(true, &["b2"], &["a", "b*"]),
            "c&b2=1&b1&a",
            Some("a&b1"),
        ),
        (rules(false, &[], &[]), "b&&a&", Some("b&&a&")),
        (rules(false, &[], &[]), "", Some("")),
    ] {
        assert_eq!(rules.query(Some(query)).as_deref(), expected, "{query}");
        assert_eq!(rules.query(None), None);
    }
    let borrowed = rules(true, &["x"], &[]).query(Some("a&b"));
    assert!(matches!(borrowed, Some(Cow::Borrowed("a&b"))));
}

fn parts() -> impl Strategy<Value = (bool, String, Option<String>, Option<String>, Option<String>)>
{
    let value = || prop::option::of("[a\\x01:=&?]{0,3}");
    (any::<bool>(), "[a:/]{0,3}", value(), value(), value())
}

proptest! {
    #[test]
    fn different_parts_never_collide(one in parts(), other in parts()) {
        let rules = rules("{scheme}{host}{path}{query}{header:x}{header:y}");
        let key = |(secure, path, query, x, y): &(bool, String, Option<String>, Option<String>, Option<String>)| {
            let mut fields = Fields::new();
            for (name, value) in [("x", x), ("y", y)] {
                if let Some(value) = value {
                    // Values have no control bytes, and lists with empty members have equivalent ones.
                    fields.append(name, value.replace('\u{1}', ";"));
                }
            }
            let scheme = if *secure { Scheme::Https } else { Scheme::Http };
            rules.key(scheme, "h", path, query.as_deref(), &fields)
        };
        let (a, b) = (key(&one), key(&other));
        prop_assert_eq!(one == other, a.text() == b.text());
        prop_assert_eq!(one == other, a.hash() == b.hash());
        let resource = |p: &(bool, String, Option<String>, Option<String>, Option<String>)| (p.0, p.1.clone(), p.2.clone());
        prop_assert_eq!(resource(&one) == resource(&other), resource_of(&a) == resource_of(&b));
        prop_assert_eq!(Parts::of(a.text()), Some(a.parts()));
    }

    #[test]
    fn a_normalised_query_is_stable_and_independent_of_order(
        mut parameters in prop::collection::vec("[ab]{0,2}=[a=%]{0,2}", 0..6),
    ) {
        let rules = KeyRules { sort: true, ignore: vec![Pattern::new("ab*")], ..KeyRules::default() };
        let query = parameters.join("&");
        let normal = rules.query(Some(&query)).map(Cow::into_owned);
        let again = rules.query(normal.as_deref()).map(Cow::into_owned);
        prop_assert_eq!(&again, &normal);
        // The order of parameters with the same name matters; the order of names does not.
        parameters.sort_by_key(|parameter| std::cmp::Reverse(name_of(parameter).to_owned()));
        let other = parameters.join("&");
        prop_assert_eq!(rules.query(Some(&other)).map(Cow::into_owned), normal);
    }

    #[test]
    fn every_template_is_parsed_or_rejected_with_a_valid_position(template in "[{}a-c:é ]{0,12}|\\{path\\}\\{(header|cookie):[a-z:]{0,4}\\}") {
        if let Err(error) = KeyRules::parse(&template) {
            prop_assert!(template.get(error.at).is_some());
        }
    }
}
