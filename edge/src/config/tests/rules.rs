//! Tests of caching rules: the keys of caches and routes, which of them takes precedence, and the
//! errors and warnings about them.

use std::sync::Arc;

use super::{LEAST, plan, said, with};
use crate::cache::Rules;
use crate::config::{Plan, changes, describe};
use crate::http::freshness::{Ignored, SetCookie};
use crate::http::{Method, Network};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Returns `LEAST` with a cache that has the keys `cache`, and a route that has the keys `route`.
fn cached(cache: &str, route: &str) -> String {
    format!("[cache.a]\n{cache}\n{LEAST}cache = \"a\"\n{route}\n")
}

fn rules_of(cache: &str, route: &str) -> Arc<Rules> {
    let plan = plan(&cached(cache, route));
    plan.sites[0].routes[0]
        .proxied()
        .expect("an upstream")
        .rules
        .clone()
}

/// Every caching rule once, each with a value other than the default.
const ALL: &str = r#"
valid = { 200 = "1h", 404 = "0s", any = "1s" }
heuristic = "1h"
lifetime_min = "1s"
lifetime_max = "2h"
stale_while_revalidate = "1m"
stale_if_error = "1day"
stale_while_updating = "5s"
ignore_headers = ["expires", "age", "targeted", "x-accel-expires"]
set_cookie = "remove"
target_list = false
tag_headers = ["X-Tags"]
client_cache_control = true
key = "{scheme}{host}{path}{query}{header:X-Tenant}{cookie:lang}v2"
query_sort = true
query_ignore = ["utm_*"]
query_only = ["id", "utm_id"]
languages = ["de", "pt-BR"]
bypass = { cookies = ["session*"], headers = ["X-Debug"], query = ["nocache", "a[b]"] }
methods = ["GET"]
invalidate_on = ["POST", "PURGE-ALL"]
forward_headers = ["X-Tenant", "X-Feature-*"]
hit_for_pass = "500ms"
"#;

#[test]
fn every_rule_may_stand_in_a_cache_and_in_a_route() {
    let (of_cache, of_route) = (rules_of(ALL, ""), rules_of("", ALL));
    assert_eq!(of_cache, of_route);
    let d = Rules::default();
    assert_eq!(*rules_of("", ""), d);
    assert_eq!(
        of_cache.lifetimes.valid,
        [(200..=200, 3600 * SECOND), (404..=404, Duration::ZERO)]
    );
    assert_eq!(of_cache.lifetimes.valid_any, Some(SECOND));
    assert_eq!(of_cache.lifetimes.heuristic_max, 3600 * SECOND);
    let bounds = (of_cache.lifetimes.min, of_cache.lifetimes.max);
    assert_eq!(bounds, (SECOND, 7200 * SECOND));
    assert_eq!(of_cache.stale.while_revalidate, 60 * SECOND);
    assert_eq!(of_cache.stale.if_error, 86400 * SECOND);
    assert_eq!(of_cache.stale.while_updating, 5 * SECOND);
    let ignore = Ignored {
        expires: true,
        age: true,
        targeted: true,
        x_accel_expires: true,
        ..Ignored::default()
    };
    assert_eq!(
        (of_cache.headers.ignored, of_cache.headers.set_cookie),
        (ignore, SetCookie::Remove)
    );
    assert!(of_cache.headers.target_list.is_empty());
    assert!(of_cache.requests.client_cache_control);
    assert_eq!(of_cache.headers.tags, [Box::from("x-tags")]);
    assert!(of_cache.requests.bypass.cookies[0].matches(b"session_id"));
    assert!(of_cache.requests.bypass.headers[0].matches_field(b"x-debug"));
    assert!(of_cache.requests.bypass.query[1].matches(b"a[b]"));
    assert!(of_cache.requests.get && !of_cache.requests.head);
    let invalidates = |method| {
        let method = Method::from_token(method);
        of_cache.requests.invalidates(&method)
    };
    assert!(invalidates("POST") && invalidates("PURGE-ALL"));
    assert!(!invalidates("PUT") && !invalidates("GET"));
    assert!(!of_cache.requests.post && rules_of("methods = [\"POST\"]", "").requests.post);
    let key = "{scheme}{host}{path}{query}{header:x-tenant}{cookie:lang}v2";
    assert_eq!(of_cache.key.to_string(), key);
    let query = of_cache.key.query(Some("x=1&utm_id=2&id=3"));
    assert_eq!((query.as_deref(), of_cache.key.sort), (Some("id=3"), true));
    assert_eq!(
        of_cache.key.languages,
        [Box::from("de"), Box::from("pt-BR")]
    );
    assert!(of_cache.forward_headers[1].matches_field(b"x-feature-a"));
    assert_eq!(of_cache.hit_for_pass, Duration::from_millis(500));
}

#[test]
fn a_status_in_valid_precedes_its_class() {
    let rules = rules_of(
        "",
        "valid = { 4xx = \"1m\", 404 = \"2s\", 500-503 = \"3s\", any = \"4s\" }",
    );
    let valid = |status| rules.terms(status).valid_s;
    let statuses = [404, 410, 500, 503, 504, 200];
    assert_eq!(
        statuses.map(valid),
        [2, 60, 3, 3, 4, 4].map(Some),
        "{statuses:?}"
    );
}

#[test]
fn a_routes_rules_win_key_by_key() {
    let (cache, route) = (
        "valid = { 200 = \"1h\" }\nstale_if_error = \"1m\"\ntag_headers = [\"A\", \"B\"]\nset_cookie = \"remove\"",
        "valid = { 404 = \"1s\" }\ntag_headers = false\nlifetime_max = \"1m\"",
    );
    let rules = rules_of(cache, route);
    assert_eq!(rules.lifetimes.valid, [(404..=404, SECOND)]);
    assert!(rules.headers.tags.is_empty());
    assert_eq!(rules.lifetimes.max, 60 * SECOND);
    let kept = (rules.stale.if_error, rules.headers.set_cookie);
    assert_eq!(kept, (60 * SECOND, SetCookie::Remove));
    let cache = "key = \"{host}{path}{query}\"\nquery_ignore = [\"a\"]\nquery_sort = true";
    let keys = |route: &str| rules_of(cache, route).key.clone();
    let (all, none) = (keys(""), keys("query_sort = false\nquery_ignore = false"));
    assert_eq!(all.to_string(), none.to_string());
    assert_eq!(all.query(Some("b&a&B")).as_deref(), Some("B&b"));
    assert_eq!(none.query(Some("b&a&B")).as_deref(), Some("b&a&B"));
    let other = keys("key = \"{scheme}{host}{path}{query}\"");
    assert_eq!(other.query(Some("b&a&B")).as_deref(), Some("B&b"));
    let languages = |route: &str| {
        rules_of("languages = [\"de\"]", route)
            .key
            .languages
            .clone()
    };
    assert_eq!(languages("key = \"{host}{path}\""), [Box::from("de")]);
    assert_eq!(languages("languages = [\"en\"]"), [Box::from("en")]);
    assert!(languages("languages = false").is_empty());
}

#[test]
fn an_error_in_a_cache_is_reported_once() {
    let text = cached(
        "set_cookie = \"store\"\nlifetime_max = \"1m\"",
        "tag_headers = false",
    );
    let text = format!("{text}[[site.route]]\nproxy = \"origin\"\ncache = \"a\"\n");
    let said = said(&text);
    assert_eq!(
        said.matches("a cookie set for one client").count(),
        1,
        "{said}"
    );
}

#[test]
fn every_route_knows_the_addresses_that_may_purge() {
    let text = format!(
        "[admin]\npurge_from = [\"127.0.0.1\", \"10.0.0.0/8\"]\n{}",
        cached("", "")
    );
    let plan = plan(&text);
    let network = |text: &str, bits| Network {
        address: text.parse().expect("an address"),
        bits,
    };
    let networks = [network("127.0.0.1", 32), network("10.0.0.0", 8)];
    assert_eq!(plan.purge, networks);
    let proxied = plan.sites[0].routes[0].proxied().expect("an upstream");
    assert_eq!(proxied.rules.purge_from, networks);
    assert!(describe(&plan).contains("PURGE from 127.0.0.1, 10.0.0.0/8\n"));
}

#[test]
fn rules_that_differ_are_described() {
    let described = |cache: &str, route: &str| {
        let all = describe(&plan(&cached(cache, route)));
        let lines = all.lines().filter(|line| line.starts_with("    "));
        lines.fold(String::new(), |out, line| out + line + "\n")
    };
    assert_eq!(described("", ""), "");
    let cases = [
        described(ALL, ""),
        described(
            "heuristic = \"0s\"\nmethods = [\"HEAD\", \"POST\"]\nset_cookie = \"store\"",
            "",
        ),
        described(
            "",
            "ignore_headers = [\"cache-control\", \"vary\"]\ntarget_list = [\"X\"]\ntag_headers = false",
        ),
    ];
    insta::assert_snapshot!("rules_described", cases.join("--\n"));
}

#[test]
fn a_reload_names_what_changed() {
    let changed = |old: &Plan, new: &str| changes(old, &plan(new)).to_string();
    let old = plan(&cached("", ""));
    let rules = "caching rules changed\n";
    assert_eq!(changed(&old, &cached("tag_headers = false", "")), rules);
    assert_eq!(changed(&old, &cached("", "tag_headers = false")), rules);
    let purge = format!("[admin]\npurge_from = [\"::1\"]\n{}", cached("", ""));
    assert_eq!(changed(&old, &purge), "addresses that may purge changed\n");
    let elsewhere = cached("", "path = \"/a\"");
    assert_eq!(changed(&old, &elsewhere), "sites changed\n");
}

#[test]
fn rules_that_are_wrong_or_unwise_are_explained() {
    let cache = |text: &str| cached(text, "");
    let many = |text: &str| format!("[{}]", vec![format!("{text:?}"); 65].join(", "));
    let cases = [
        ("wrong types", cache("ignore_headers = 1")),
        ("a table of names", cache("bypass = [\"session\"]")),
        ("a word", cache("set_cookie = true")),
        (
            "unknown words",
            cache("ignore_headers = [\"cache-contol\"]"),
        ),
        ("unknown method", cache("methods = [\"GET\", \"PUT\"]")),
        (
            "unknown key of a table",
            cache("bypass = { cookie = [\"a\"] }"),
        ),
        (
            "unknown key of a route",
            cached("", "stale_if_err = \"1m\""),
        ),
        (
            "times",
            cache(
                "heuristic = \"20years\"\nlifetime_min = \"1500ms\"\nhit_for_pass = \"2days\"\nvalid = { any = \"1us\" }",
            ),
        ),
        (
            "statuses",
            cache("valid = { 200 = \"1m\", 401 = \"1m\", 199 = \"1m\", anything = \"1m\" }"),
        ),
        (
            "names",
            cache(
                "tag_headers = [\"\", \"a b\", \"x*\"]\nbypass = { cookies = [\"a*b\", \"a;b\"], headers = [\"X:\"], query = [\"a=1\"] }",
            ),
        ),
        (
            "languages",
            cache("languages = [\"de\", \"en_US\", \"*\", \"DE\", \"\", \"de;q=0.5\"]"),
        ),
        (
            "a language twice",
            cache("languages = [\"de\", \"en\", \"DE\"]"),
        ),
        (
            "many languages",
            cache(&format!("languages = {}", many("de"))),
        ),
        (
            "long lists and names",
            cache(&format!(
                "targets = {}\nquery_ignore = [\"{}\"]",
                many("x"),
                "y".repeat(129)
            )),
        ),
        (
            "a long key",
            cache(&format!("key = \"{{host}}{{path}}{}\"", "x".repeat(1024))),
        ),
        (
            "fields that can't be forwarded",
            cache(
                "forward_headers = [\"Connection\", \"X-Forwarded-Host\", \"Authorization\", \"Accept\", \"If-None-Match\"]",
            ),
        ),
        (
            "fields that are replaced",
            cache(
                "forward_headers = [\"X-Forwarded-*\", \"X_Original_URL\", \"Content-Type\", \"Via\", \"Range\"]",
            ),
        ),
        (
            "keys of fields that are replaced",
            cached(
                "key = \"{path}{header:X-Forwarded-Proto}\"",
                "key = \"{path}{header:X-Real-IP}\"",
            ),
        ),
        (
            "fields that mean something else",
            cache(
                "target_list = [\"CDN-Cache-Control\", \"Cache-Control\"]\ntag_headers = [\"Set-Cookie\", \"Content-Type\"]",
            ),
        ),
        (
            "bounds that cross",
            cached("lifetime_max = \"1m\"", "lifetime_min = \"1h\""),
        ),
        (
            "times out of reach",
            cache(
                "lifetime_min = \"10s\"\nlifetime_max = \"1m\"\nvalid = { 200 = \"1h\", 404 = \"1s\", 410 = \"0s\" }\nheuristic = \"1h\"",
            ),
        ),
        (
            "dangers",
            cache(
                "ignore_headers = [\"cache-control\", \"vary\", \"set-cookie\"]\nset_cookie = \"pass\"\nforward_headers = [\"Cookie\"]",
            ),
        ),
        ("cookies for all", cached("set_cookie = \"store\"", "")),
        ("keys", cache("key = \"{path}\"\nquery_sort = true")),
        (
            "the query of a cache's key",
            cached("key = \"{host}{path}\"", "query_ignore = [\"a\"]"),
        ),
        (
            "templates",
            cached("key = \"{scheme}{host}{paht}\"", "key = '{path}{host'"),
        ),
        (
            "a template with escapes",
            cache("key = \"\\u0041{path}{header:Cookie}\""),
        ),
        (
            "a template with a control character",
            cache("key = \"{path}\\t\""),
        ),
        ("a template without a path", cache("key = \"\"")),
        (
            "no effect",
            cache(
                "ignore_headers = [\"targeted\"]\ntarget_list = [\"A\"]\nquery_only = [\"id\"]\nquery_ignore = [\"i*\", \"utm_*\"]",
            ),
        ),
        (
            "never cached",
            cache("methods = false\nbypass = { headers = [\"*\"] }\nhit_for_pass = \"0s\""),
        ),
        (
            "POST under keys with fields",
            cached(
                "methods = [\"GET\", \"POST\"]",
                "key = \"{path}{host}{header:X}\"",
            ),
        ),
        (
            "a route without a cache",
            with("").replace(
                "proxy = \"origin\"",
                "proxy = \"origin\"\ntag_headers = false\nset_cookie = \"store\"",
            ),
        ),
        (
            "an error in a route without a cache",
            format!("{LEAST}tag_headers = [\"a b\"]\n"),
        ),
        (
            "purge",
            format!("[admin]\npurge_from = [\"localhost\", \"10.0.0.1/33\"]\n{LEAST}"),
        ),
        (
            "purge, doubtful",
            format!(
                "[admin]\npurge_from = [\"0.0.0.0/0\", \"10.0.0.1/8\"]\n{}",
                cached("", "")
            ),
        ),
        (
            "purge, from what stands in front",
            format!(
                "[[listener]]\naddress = \"127.0.0.1:8080\"\n[admin]\npurge_from = [\"10.0.0.0/8\", \"127.0.0.1\"]\n{}",
                cached("", "")
            ),
        ),
        (
            "purge, of nothing",
            format!("[admin]\npurge_from = [\"::1\"]\n{LEAST}"),
        ),
    ];
    let all: String = cases
        .iter()
        .map(|(name, text)| format!("== {name}\n{}\n", said(text)))
        .collect();
    insta::assert_snapshot!("rules_errors", all);
}
