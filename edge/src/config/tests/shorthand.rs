//! Tests of short forms of values and sections, of `false`, and of renamed keys.

use super::{LEAST, plan, said, with};
use crate::config::{RouteHandler, describe};

#[test]
fn a_single_string_is_a_list_of_one() {
    let short = r#"
[server]
trusted_proxies = "10.0.0.0/8"
[cache.a]
query_ignore = "utm_*"
ignore_headers = "expires"
methods = "GET"
volumes = "disk1"
[volume.disk1]
path = "/mnt/disk1/vol"
size = "5GiB"
[upstream.origin]
servers = "http://127.0.0.1:9000"
[[site]]
hosts = "a.example"
allow = "10.0.0.0/8"
compress = "gzip"
[[site.route]]
proxy = "origin"
cache = "a"
bypass = { cookies = "session" }
response_headers = { remove = "Server" }
log = { statuses = "5xx" }
"#;
    let mut long = short.to_owned();
    for value in [
        "\"10.0.0.0/8\"",
        "\"utm_*\"",
        "\"expires\"",
        "\"GET\"",
        "\"disk1\"",
        "\"http://127.0.0.1:9000\"",
        "\"a.example\"",
        "\"gzip\"",
        "\"session\"",
        "\"Server\"",
        "\"5xx\"",
    ] {
        long = long.replace(&format!("= {value}"), &format!("= [{value}]"));
    }
    assert_eq!(long.matches("= [\"").count(), 12);
    assert_eq!(plan(short), plan(&long));
    let table = LEAST.replace(
        "[\"http://127.0.0.1:9000\"]",
        "{ url = \"http://a\", weight = 2 }",
    );
    assert_eq!(plan(&table).upstreams["origin"].servers[0].weight, 2);
}

#[test]
fn a_route_may_have_a_url_in_place_of_an_upstreams_name() {
    let text = r#"
listen = ":8080"
[[route]]
path = "/a/*"
proxy = "http://127.0.0.1:9000"
[[route]]
path = "/b/*"
proxy = "http://127.0.0.1:9000/"
[[route]]
proxy = "http://[::1]"
compress = true
cache = "main"
[cache.main]
"#;
    let plan = plan(text);
    assert_eq!(plan.sites.len(), 1);
    assert!(plan.sites[0].hosts.is_empty());
    assert_eq!(plan.listeners[0].address.to_string(), "0.0.0.0:8080");
    let names: Vec<&str> = plan.upstreams.keys().map(String::as_str).collect();
    assert_eq!(names, ["http://127.0.0.1:9000", "http://[::1]:80"]);
    let upstream = |route: usize| plan.sites[0].routes[route].proxied().map(|p| &*p.upstream);
    assert_eq!(upstream(0), upstream(1));
    assert_eq!(upstream(2), Some("http://[::1]:80"));
    let options = crate::upstream::Options::new(plan.upstreams[names[0]].servers.clone());
    assert_eq!(plan.upstreams[names[0]], options);
    insta::assert_snapshot!("shorthand_described", describe(&plan));
}

#[test]
fn listen_and_listeners_are_all_listened_on() {
    let text = with(
        "listen = [\":80\", \"[::]:80\"]\n[[listener]]\naddress = \":443\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n",
    );
    let listeners = plan(&text).listeners;
    let addresses: Vec<String> = listeners.iter().map(|l| l.address.to_string()).collect();
    assert_eq!(
        addresses,
        ["0.0.0.0:80", "[::]:80", "0.0.0.0:443", "127.0.0.1:0"]
    );
}

#[test]
fn false_turns_off() {
    let text = r#"
[admin]
address = false
[log]
access = false
level = false
[[listener]]
address = ":8080"
proxy_protocol = false
[cache.a]
read_ahead = false
valid = { 200 = "1h" }
tag_headers = false
[upstream.origin]
servers = "http://127.0.0.1:9000"
retry = false
[[site]]
allow = "10.0.0.0/8"
cache_control = "no-store"
[[site.route]]
path = "/files/*"
files = { root = "/srv", symlinks = false, charset = false, index = false }
[[site.route]]
proxy = "origin"
cache = "a"
valid = false
bypass = false
allow = false
cache_control = false
log = false
"#;
    let plan = plan(text);
    assert_eq!((plan.admin, plan.log.access.as_ref()), (None, None));
    assert_eq!(plan.log.level, crate::config::Level::Off);
    assert_eq!(plan.listeners[0].setup.proxy, None);
    assert_eq!(plan.upstreams["origin"].retry.tries, 1);
    let [folder, proxied] = &plan.sites[0].routes[..] else {
        panic!("two routes");
    };
    let RouteHandler::Files(files) = &folder.handler else {
        panic!("a folder");
    };
    assert_eq!((&files.charset, files.index.len()), (&None, 0));
    assert_eq!(files.symlinks, crate::sys::root::Links::None);
    assert!(folder.gate.is_some() && proxied.gate.is_none());
    assert!(folder.edit.is_some() && proxied.edit.is_none());
    let rules = &proxied.proxied().expect("an upstream").rules;
    assert!(rules.lifetimes.valid.is_empty() && rules.headers.tags.is_empty());
}

#[test]
fn an_empty_allow_list_allows_no_client() {
    let text = format!("{LEAST}allow = []\n");
    let plan = plan(&text);
    let gate = plan.sites[0].routes[0].gate.as_deref();
    assert_eq!(gate.expect("a gate").allow, Some(Vec::new()));
    assert!(describe(&plan).contains("    no client is allowed: `allow` is empty\n"));
}

#[test]
fn tries_and_uses_count_the_first_one() {
    let tries = |line: &str| {
        let text = LEAST.replace("[[site]]", &format!("{line}\n[[site]]"));
        plan(&text).upstreams["origin"].retry.tries
    };
    assert_eq!(tries(""), 2);
    assert_eq!(tries("retry = { tries = 1 }"), 1);
    assert_eq!(tries("retry = { tries = 4 }"), 4);
}

#[test]
fn retries_have_causes_a_budget_and_a_total_time() {
    let retry = |line: &str| {
        let text = LEAST.replace("[[site]]", &format!("retry = {{ {line} }}\n[[site]]"));
        plan(&text).upstreams["origin"].retry.clone()
    };
    let all = retry("tries = 2").on;
    assert!(all.connect && all.tls && all.reset && all.timeout && all.statuses.is_empty());
    let some = retry("on = [\"connect\", 503, \"500\", \"5xx\"]").on;
    assert!(some.connect && !some.tls && !some.reset && !some.timeout);
    assert_eq!(some.statuses[..], [503..=503, 500..=500, 500..=599]);
    assert_eq!(retry("on = 503").on.statuses[..], [503..=503]);
    assert_eq!(retry("on = \"500-503\"").on.statuses[..], [500..=503]);
    assert_eq!(
        retry("on = false").on,
        crate::upstream::RetryCauses::default()
    );
    let limits = retry("budget = 1, budget_min = 0, total = \"3s\"");
    assert_eq!((limits.budget, limits.budget_min), (1.0, 0));
    assert_eq!(limits.total, std::time::Duration::from_secs(3));
}

#[test]
fn paths_may_be_globs_and_queries_have_conditions_of_their_own() {
    let route = |keys: &str| {
        let text = LEAST.replace("[[site.route]]", &format!("[[site.route]]\n{keys}"));
        plan(&text).sites[0].routes[0].matcher.clone()
    };
    let images = route("path = \"*.png\"\nquery = '(^|&)v=2(&|$)'");
    assert!(images.matches("/a/b.png?v=2"));
    assert!(!images.matches("/a/b.png") && !images.matches("/a/b.jpg?v=2"));
    assert_eq!(
        images.to_string(),
        "*.png with a query that matches (^|&)v=2(&|$)"
    );
    let path = route("path_regex = '^/a$'");
    assert!(path.matches("/a?b") && !path.matches("/b?/a"));
}

/// Each renamed key under its old name, in its section.
const OLD_KEYS: &[(&str, &str)] = &[
    ("[server]", "confine = true"),
    ("[server]", "client_field = \"forwarded\""),
    ("[limits]", "connections_per_address = 1"),
    ("[limits]", "drain = \"1s\""),
    ("[[listener]]", "keepalive = \"1s\""),
    ("[admin]", "purge = [\"::1\"]"),
    ("[cache.a]", "object = \"1MiB\""),
    ("[cache.a]", "admit = \"second\""),
    ("[cache.a]", "ignore = [\"vary\"]"),
    ("[cache.a]", "targets = []"),
    ("[cache.a]", "tags = []"),
    ("[cache.a]", "client_directives = true"),
    ("[cache.a]", "forward = []"),
    ("[cache.a]", "pass_for = \"1s\""),
    ("[upstream.a]", "connections = 1"),
    ("[upstream.a]", "head = \"64KiB\""),
    ("[upstream.a]", "retries = 2"),
    ("[[site]]", "request_fields = {}"),
    ("[[site]]", "response_fields = {}"),
    ("[[site]]", "security = true"),
    ("[[site]]", "signed = \"off\""),
    ("[[site]]", "errors = {}"),
    ("[[site]]", "intercept = true"),
    ("[[route]]", "match = '/a'"),
    ("[[route]]", "pass_for = \"1s\""),
    ("[[route]]\n[route.files]", "strip = \"/a\""),
    ("[[route]]\n[route.files]", "fallback = [\"/a\"]"),
    ("[[route]]\n[route.files]", "valid = \"1s\""),
    ("[[route]]\n[route.files]", "small = \"1KiB\""),
    ("[[route]]\n[route.files]", "open = 10"),
    ("[[route]]\n[route.compress]", "codings = [\"br\"]"),
    ("[[route]]\n[route.compress]", "ask_plain = true"),
];

#[test]
fn a_renamed_key_is_answered_with_its_new_name() {
    for (section, line) in OLD_KEYS {
        let said = said(&format!("{section}\n{line}\n"));
        assert!(said.contains("this key was renamed"), "{line}: {said}");
    }
    let some = [1, 7, 16, 23, 27, 31].map(|at| OLD_KEYS[at]);
    let said = some.map(|(section, line)| said(&format!("{section}\n{line}\n")));
    insta::assert_snapshot!("renamed_keys", said.join("\n"));
}

#[test]
fn errors_in_short_forms_are_explained() {
    let cases = [
        ("off", with("[admin]\naddress = \"off\"\n")),
        ("none", with("[cache.a]\nread_ahead = \"none\"\n")),
        ("on", format!("{LEAST}log = \"on\"\n")),
        ("an empty list", format!("{LEAST}deny = []\n")),
        ("no servers", "[upstream.a]\nservers = []\n".to_owned()),
        ("an empty table", format!("{LEAST}request_headers = {{}}\n")),
        ("no list", with("[cache.a]\nquery_ignore = 1\n")),
        ("true is no list", with("[cache.a]\nquery_ignore = true\n")),
        ("uses", with("[cache.a]\nmin_uses = 3\n")),
        ("tries", LEAST.replace("[[site]]", "retry = { tries = 0 }\n[[site]]")),
        ("retry", LEAST.replace("[[site]]", "retry = 3\n[[site]]")),
        ("a cause", LEAST.replace("[[site]]", "retry = { on = [\"error\"] }\n[[site]]")),
        ("no cause", LEAST.replace("[[site]]", "retry = { on = [0.5] }\n[[site]]")),
        ("a status", LEAST.replace("[[site]]", "retry = { on = [200, 503] }\n[[site]]")),
        ("a budget", LEAST.replace("[[site]]", "retry = { budget = 2 }\n[[site]]")),
        ("a route beside a site", format!("{LEAST}[[route]]\nproxy = \"origin\"\n")),
        ("a URL with a query", "[[route]]\nproxy = \"http://a/base?b\"\n".to_owned()),
        ("a socket without a full path", "[[route]]\nproxy = \"unix:app.sock\"\n".to_owned()),
        ("a URL of another scheme", "[[route]]\nproxy = \"ftp://a\"\n".to_owned()),
        ("no URL", "[[route]]\nproxy = \"127.0.0.1:9000\"\n".to_owned()),
        ("its own URL", "[[route]]\nproxy = \"http://127.0.0.1:8080\"\n".to_owned()),
        ("its own URL twice", "[[route]]\npath = \"/a\"\nproxy = \"http://127.0.0.1:8080\"\n[[route]]\nproxy = \"http://127.0.0.1:8080/\"\n".to_owned()),
        ("no address", with("listen = \"8080\"\n")),
        ("no address at all", with("listen = false\n")),
        ("a port out of bounds", with("listen = \":80800\"\n")),
        ("taken twice", with("listen = \":80\"\n[[listener]]\naddress = \"0.0.0.0:80\"\n")),
        ("no host", LEAST.replace("[[site]]", "[[site]]\nhosts = false")),
        ("a bad query", LEAST.replace("[[site.route]]", "[[site.route]]\nquery = '('")),
        ("a bad glob", LEAST.replace("[[site.route]]", "[[site.route]]\npath = \"/a/*/b?c\"")),
        ("globs that cover", LEAST.replace(
            "[[site.route]]",
            "[[site.route]]\npath = \"*.png\"\nproxy = \"origin\"\n[[site.route]]\npath = \"/a/b.png\"",
        )),
    ];
    let all: String = cases
        .iter()
        .map(|(name, text)| format!("== {name}\n{}\n", said(text)))
        .collect();
    insta::assert_snapshot!("shorthand_errors", all);
}

#[test]
fn a_url_can_not_name_an_upstream() {
    let text = format!(
        "{LEAST}\n[upstream.\"http://127.0.0.1:9000\"]\nservers = \"http://127.0.0.1:1\"\n"
    );
    let report = said(&text);
    assert!(report.contains("can't be a URL"), "{report}");
}

#[test]
fn the_log_of_messages_is_switched_off_by_its_level() {
    let report = said(&format!("{LEAST}\n[log]\nerror = \"off\"\n"));
    assert!(report.contains("write `level = false`"), "{report}");
}

#[test]
fn the_description_of_files_has_the_settings_that_change_which_files_are_served() {
    let text = "[[route]]\nfiles = { root = \"/srv\", strip_prefix = \"/a/\", try_files = [\"{path}.html\", \"/app.html\"], precompressed = true }\n";
    let expected = "everything -> files in /srv, 64 MiB of memory, without the prefix /a, else {path}.html, /app.html, precompressed if there is such a file\n";
    let described = describe(&plan(text));
    assert!(described.contains(expected), "{described}");
}

#[test]
fn a_loopback_address_that_may_purge_is_no_problem_if_the_reported_address_counts() {
    let text = "listen = \"127.0.0.1:8080\"\n[admin]\npurge_from = \"127.0.0.1\"\n[cache.main]\n[[route]]\nproxy = \"http://127.0.0.1:9\"\ncache = \"main\"\n";
    assert!(said(text).contains("each of its clients may purge"));
    let trusted = format!("{text}[server]\ntrusted_proxies = \"127.0.0.1\"\n");
    assert_eq!(said(&trusted).trim(), "");
}
