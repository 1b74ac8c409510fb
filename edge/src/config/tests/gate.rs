//! Tests of access rules, rate limits and signed URLs: their plan, their description, and the
//! errors in them.

use std::net::IpAddr;

use super::documentation::examples;
use super::{plan, said};
use crate::config::{describe, parse};
use crate::gate::{BucketRate, Options, SECOND};

/// Returns a configuration whose site has the lines `site` and whose route has the lines `route`.
fn text(site: &str, route: &str) -> String {
    format!(
        "[upstream.origin]\nservers = [\"http://127.0.0.1:9000\"]\n\
         [[site]]\n{site}\n[[site.route]]\nproxy = \"origin\"\n{route}\n"
    )
}

const KEY: &str = "keys = [\"0123456789abcdef\"]";

fn gates(text: &str) -> Vec<Option<Box<Options>>> {
    let plan = plan(text);
    let routes = plan.sites.into_iter().flat_map(|site| site.routes);
    routes.map(|route| route.gate).collect()
}

#[test]
fn without_a_word_there_is_no_gate() {
    assert_eq!(gates(&text("", "")), [None]);
    assert_eq!(
        gates(&text("", "allow = false\ndeny = false\nlimit = false")),
        [None]
    );
}

#[test]
fn a_route_wins_key_by_key_and_those_without_a_word_share_the_sites() {
    let site = format!(
        "hosts = [\"a.example\"]\ndeny = [\"10.0.0.0/8\"]\nsigned_urls = {{ {KEY} }}\nlimit = {{ requests = \"90/m\" }}"
    );
    let text = text(&site, "path = \"/a\"")
        + "[[site.route]]\npath = \"/b\"\nproxy = \"origin\"\n\
           [[site.route]]\npath = \"/c\"\nproxy = \"origin\"\ndeny = false\nsigned_urls = false\nlimit = { bandwidth = \"1MiB\", clients = 5000 }\n\
           [[site.route]]\nproxy = \"origin\"\ndeny = false\nsigned_urls = false\nlimit = false\n";
    let gates = gates(&text);
    let [Some(a), Some(b), Some(c), None] = &gates[..] else {
        panic!("{gates:?}");
    };
    assert_eq!(a, b);
    let limit = a.limit.as_ref().expect("a limit");
    assert_eq!((limit.scope.as_str(), limit.clients), ("a.example", 65_536));
    let requests = BucketRate {
        tokens: 90,
        per_ns: 60 * SECOND,
        size: 1,
    };
    assert_eq!((limit.requests, limit.bytes), (Some(requests), None));
    assert_eq!((a.deny.len(), a.signed_urls.is_some()), (1, true));
    let own = c.limit.as_ref().expect("a limit");
    assert_eq!((own.scope.as_str(), own.clients), ("a.example: /c", 5_000));
    let bytes = BucketRate {
        tokens: 1 << 20,
        per_ns: SECOND,
        size: 1 << 17,
    };
    assert_eq!((own.requests, own.bytes), (None, Some(bytes)));
    assert_eq!((c.deny.len(), c.signed_urls.is_some()), (0, false));
}

#[test]
fn only_cached_routes_know_what_purging_is() {
    let more = "[cache.main]\n[admin]\npurge_from = [\"127.0.0.1\"]\n";
    let purge = |route: &str| {
        let text = format!("{more}{}", text("deny = [\"::/0\"]", route));
        let purge = gates(&text)[0].as_ref().expect("a gate").purge_from.clone();
        purge
            .iter()
            .any(|n| n.contains(IpAddr::from([127, 0, 0, 1])))
    };
    assert!(purge("cache = \"main\""));
    assert!(!purge(
        "[[site.route]]\npath = \"/b\"\nproxy = \"origin\"\ncache = \"main\""
    ));
}

#[test]
fn gates_are_described() {
    let site = "allow = [\"10.0.0.0/8\", \"::1\"]\ndeny = [\"10.1.0.0/16\"]\nallow_methods = [\"GET\", \"POST\"]";
    let route = format!(
        "limit = {{ requests = \"10/s\", burst = 20, bandwidth = \"2MiB\", bandwidth_after = \"10MiB\" }}\n\
         [site.route.signed_urls]\n{KEY}\nkey_files = [\"/etc/sluice/url.key\"]\nprefix = true\nclient = true\n\
         [[site.route]]\nproxy = \"origin\"\npath = \"/b\"\nlimit = {{ bandwidth = \"64KiB\" }}\n\
         [[site.route]]\nproxy = \"origin\"\npath = \"/c\"\nlimit = {{ requests = \"100/h\" }}\nsigned_urls = {{ {KEY} }}"
    );
    let described = describe(&plan(&text(site, &format!("path = \"/a\"\n{route}"))));
    assert!(!described.contains("0123456789abcdef"), "{described}");
    insta::assert_snapshot!("gates_described", described);
}

#[test]
fn errors_in_gates_are_shown() {
    let signed = |more: &str| text("", &format!("[site.route.signed_urls]\n{more}"));
    let limit = |more: &str| text("", &format!("[site.route.limit]\n{more}"));
    let many = format!("keys = [{}]", "\"0123456789abcdef\", ".repeat(9));
    let cases = [
        (
            "networks",
            text(
                "deny = [\"10.1.0.0/8\"]",
                "allow = [\"localhost\", \"10.0.0.0/33\"]",
            ),
        ),
        ("networks with a doubt", text("deny = [\"10.1.0.0/8\"]", "")),
        ("a limit of nothing", limit("burst = 5")),
        (
            "rates",
            text(
                "limit = { requests = \"10r/s\" }",
                "limit = { requests = \"0/s\" }",
            ),
        ),
        (
            "more rates",
            text(
                "limit = { requests = \"+1/s\" }",
                "limit = { requests = \"5/d\" }",
            ),
        ),
        (
            "bounds",
            limit("requests = \"5/s\"\nburst = 0\nbandwidth = \"1B\"\nclients = 5"),
        ),
        (
            "without effect",
            limit("requests = \"5/s\"\nbandwidth_after = \"1MiB\""),
        ),
        ("limit, wrong type", text("", "limit = 5")),
        ("limit, the old word", text("", "limit = \"none\"")),
        ("limit, unknown key", limit("request = \"5/s\"")),
        ("no key", signed("prefix = true")),
        ("a short key", signed("keys = [\"secret\"]")),
        ("many keys", signed(&many)),
        (
            "names",
            signed(&format!(
                "{KEY}\nexpires_parameter = \"a&b\"\nprefix_parameter = \"signature\""
            )),
        ),
        ("signed, on", text("", "signed_urls = true")),
    ];
    let all: String = cases
        .iter()
        .map(|(name, text)| format!("== {name}\n{}\n", said(text)))
        .collect();
    insta::assert_snapshot!("gates_errors", all);
}

#[test]
fn every_example_of_access_is_good() {
    let examples = examples(include_str!("../../../../docs/access.md"));
    assert!(examples.len() >= 3);
    for example in examples {
        let text = format!("[upstream.origin]\nservers = [\"http://a\"]\n{example}");
        let loaded = parse("docs/access.md", &text).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.warnings.problems.is_empty(), "{}", loaded.warnings);
        assert!(describe(&loaded.plan).contains("for "), "{example}");
    }
}

#[test]
fn templates_that_would_tell_signatures_are_warned_of() {
    let fields = "request_headers = { set = { X-Asked = \"{path}{query}\" } }\n";
    let signed = format!("signed_urls = {{ {KEY} }}\n");
    let warned = |route: &str| {
        let said = said(&text("", route));
        said.contains("signatures are sent to the origin")
    };
    assert!(warned(&(signed.clone() + fields)));
    assert!(!warned(&signed));
    assert!(!warned(fields));
}
