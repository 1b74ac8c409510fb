//! Tests of the configuration: error messages, defaults and bounds.

mod acme_dns;
mod buffers;
mod compress;
mod documentation;
mod edit;
mod gate;
mod listeners;
mod logs;
mod paths;
mod rules;
mod shorthand;
mod startup;
mod syntax;
mod upstreams;
mod volumes;

use std::path::Path;
use std::time::Duration;

use super::plan::LISTEN;
use super::*;
use crate::telemetry::{AccessFormat, AccessTarget};

/// The shortest configuration that runs.
const LEAST: &str = r#"
[upstream.origin]
servers = ["http://127.0.0.1:9000"]
[[site]]
[[site.route]]
proxy = "origin"
"#;

fn plan(text: &str) -> Plan {
    match parse("test.toml", text) {
        Ok(loaded) => loaded.plan,
        Err(report) => panic!("{report}"),
    }
}

/// Returns the rendered errors of a text, or its warnings if it has no errors.
fn said(text: &str) -> String {
    match parse("sluice.toml", text) {
        Ok(loaded) => loaded.warnings.render(false),
        Err(report) => report.render(false),
    }
}

/// Returns `LEAST` with further text at its beginning.
fn with(more: &str) -> String {
    format!("{more}{LEAST}")
}

#[test]
fn the_least_configuration_has_the_documented_defaults() {
    let plan = plan(LEAST);
    assert_eq!(plan.workers, 0);
    assert_eq!(plan.listeners.len(), 1);
    assert_eq!(plan.listeners[0].address.to_string(), LISTEN);
    assert_eq!(plan.admin.map(|a| a.to_string()).as_deref(), Some(ADMIN));
    assert_eq!(plan.limits, crate::downstream::Options::default());
    assert_eq!((plan.log.level, plan.log.access), (Level::Info, None));
    assert!(plan.caches.is_empty());
    let server = crate::upstream::Server {
        h2c: false,
        scheme: crate::http::Scheme::Http,
        host: "127.0.0.1".to_owned(),
        port: 9000,
        srv: false,
        unix: None,
        weight: 1,
        backup: false,
        down: false,
        max_connections: None,
    };
    assert_eq!(
        plan.upstreams["origin"],
        crate::upstream::Options::new(vec![server])
    );
    assert_eq!(plan.sites[0].hosts, Vec::<String>::new());
    let proxied = plan.sites[0].routes[0].proxied().expect("an upstream");
    assert_eq!(proxied.upstream, "origin");
}

const FULL: &str = r#"
[server]
workers = 3
[limits]
request_line = "4KiB"
headers = 2048
body = "0B"
header_timeout = "1m30s"
keepalive_header = true
[[listener]]
address = "127.0.0.1:0"
[[listener]]
address = "[::1]:0"
[admin]
address = false
[log]
access = "/var/log/access.log"
format = "json"
buffer = "16KiB"
flush = "500ms"
level = "warn"
[cache.video]
memory = "1GiB"
evict = "lru"
fill = "slice"
slice = "512KiB"
parallel = 8
read_ahead = "4MiB"
client_budget = "32MiB"
valid = { 200 = "1h", 404 = "1m" }
max_object_size = "100MiB"
[upstream.origin]
servers = ["http://a.example", { url = "http://[::1]:81", weight = 5 }, { url = "http://c:82", backup = true }]
balance = "least-connections"
host = "WWW.example.com:8080"
[[site]]
hosts = ["CDN.example.com", "*.example.org.", "[::1]"]
[[site.route]]
path_regex = '\.(mp4|avi)$'
proxy = "origin"
cache = "video"
[[site.route]]
path = "/static/*"
proxy = "origin"
[[site]]
[[site.route]]
proxy = "origin"
"#;

#[test]
fn everything_typed_is_in_the_plan() {
    let plan = plan(FULL);
    assert_eq!(plan.workers, 3);
    assert_eq!(
        (
            plan.limits.request_line,
            plan.limits.headers,
            plan.limits.body
        ),
        (4096, 2048, 0)
    );
    assert_eq!(plan.limits.header_timeout, Duration::from_secs(90));
    assert!(plan.limits.keepalive_header);
    assert_eq!(plan.listeners[1].address.to_string(), "[::1]:0");
    assert_eq!(plan.admin, None);
    let access = plan.log.access.as_ref().expect("an access log");
    assert_eq!(
        access.target,
        AccessTarget::File("/var/log/access.log".into())
    );
    assert_eq!(
        (&access.format, access.buffer),
        (&AccessFormat::Json, 16 << 10)
    );
    let video = &plan.caches["video"];
    assert_eq!((video.memory, video.max_object_size), (1 << 30, 100 << 20));
    let fill = crate::fill::Options {
        kind: crate::fill::Kind::Slice,
        block: 512 << 10,
        parallel: 8,
        read_ahead: crate::fill::ReadAhead::Window(4 << 20),
        ..Default::default()
    };
    assert_eq!((&video.fill, video.client_budget), (&fill, 32 << 20));
    let rules = &plan.sites[0].routes[0]
        .proxied()
        .expect("an upstream")
        .rules;
    assert_eq!(
        rules.lifetimes.valid,
        [
            (200..=200, Duration::from_secs(3600)),
            (404..=404, Duration::from_secs(60))
        ]
    );
    let upstream = &plan.upstreams["origin"];
    let servers: Vec<_> = upstream
        .servers
        .iter()
        .map(|s| (s.host.as_str(), s.port, s.weight, s.backup))
        .collect();
    assert_eq!(
        servers,
        [
            ("a.example", 80, 1, false),
            ("::1", 81, 5, false),
            ("c", 82, 1, true)
        ]
    );
    assert_eq!(upstream.host.as_deref(), Some("www.example.com:8080"));
    assert_eq!(
        plan.sites[0].hosts,
        ["cdn.example.com", "*.example.org", "[::1]"]
    );
    assert_eq!(plan.sites[0].routes[0].cache(), Some("video"));
    insta::assert_snapshot!("described", describe(&plan));
}

#[test]
fn every_fill_is_described() {
    let fills = [
        "",
        "fill = \"whole\"",
        "fill = \"lock\"\nlock_timeout = \"5s\"",
        "parallel = \"auto\"\nread_ahead = \"whole\"",
        "client_budget = 0",
    ];
    let all: String = fills
        .iter()
        .map(|fill| {
            let described = describe(&plan(&with(&format!("[cache.a]\n{fill}\n"))));
            let line = described
                .lines()
                .find(|line| line.starts_with("cache"))
                .map(str::to_owned);
            line.unwrap_or_default() + "\n"
        })
        .collect();
    insta::assert_snapshot!("fills", all);
}

#[test]
fn errors_show_the_line_and_the_fix() {
    let route = |more: &str| LEAST.replace("proxy = \"origin\"", more);
    let cases = [
        ("syntax", with("[limits\n")),
        ("unknown key, near", with("[limits]\nheader = \"1KiB\"\n")),
        ("unknown key, planned", with("[[listener]]\ntls = true\n")),
        ("unknown key of a server", LEAST.replace("[\"http://127.0.0.1:9000\"]", "[{ url = \"http://a\", wait = 2 }]")),
        ("unknown word, a policy", LEAST.replace("[[site]]", "balance = \"least-tine\"\n[[site]]")),
        ("balance, wrong type", LEAST.replace("[[site]]", "balance = 5\n[[site]]")),
        ("balance, two policies", LEAST.replace("[[site]]", "balance = { hash = \"{client}\", least-time = \"header\" }\n[[site]]")),
        ("balance, no policy", LEAST.replace("[[site]]", "balance = { load = 1.5 }\n[[site]]")),
        ("balance, no load", LEAST.replace("[[site]]", "balance = { least-time = \"header\", load = 1.5 }\n[[site]]")),
        ("balance, bounds", LEAST.replace("[[site]]", "balance = { hash = \"{client}\", load = 0.5 }\n[[site]]")),
        ("balance, no variable", LEAST.replace("[[site]]", "balance = { hash = \"client\" }\n[[site]]")),
        ("balance, a status", LEAST.replace("[[site]]", "balance = { hash = \"{status}\" }\n[[site]]")),
        ("unknown word, a fill", with("[cache.a]\nfill = \"slices\"\n")),
        ("unknown key, near a fill's", with("[cache.a]\nlock_timout = \"5s\"\n")),
        ("fill", with(
            "[cache.a]\nslice = \"1MB\"\nparallel = 65\nread_ahead = \"2PiB\"\nlock_timeout = \"2h\"\nlock_age = \"1ms\"\nclient_budget = \"64KiB\"\n",
        )),
        ("slice", with("[cache.a]\nslice = \"32KiB\"\n[cache.b]\nslice = \"32MiB\"\n")),
        ("parallel", with("[cache.a]\nparallel = \"many\"\n")),
        ("parallel, negative", with("[cache.a]\nparallel = -1\n")),
        ("parallel, wrong type", with("[cache.a]\nparallel = true\n")),
        ("parallel, a fraction", with("[cache.a]\nparallel = 1.5\n")),
        ("fill, wrong type", with("[cache.a]\nfill = 5\n")),
        ("valid, wrong type", with("[cache.a]\nvalid = \"1h\"\n")),
        ("unknown key, between two", with("[cache.a]\nlock_time = \"5s\"\n")),
        ("slice, other units", with("[cache.a]\nslice = \"1MB\"\n[cache.b]\nslice = \"128kB\"\n[cache.c]\nslice = 1000000\n[cache.d]\nslice = 70000\n")),
        ("little memory", format!(
            "{}cache = \"a\"\n",
            with("[cache.a]\nmemory = \"16MiB\"\nslice = \"8MiB\"\nread_ahead = \"whole\"\n"),
        )),
        ("little budget", format!(
            "{}cache = \"a\"\n",
            with("[cache.a]\nread_ahead = \"whole\"\nclient_budget = \"1MiB\"\n"),
        )),
        ("read ahead", with("[cache.a]\nread_ahead = \"all\"\n")),
        ("fill's keys without effect", format!(
            "{}cache = \"a\"\n",
            with("[cache.a]\nlock_timeout = \"1s\"\nlock_age = \"1m\"\nslice = \"8MiB\"\nread_ahead = \"16MiB\"\nclient_budget = \"4MiB\"\n"),
        )),
        ("keys of blocks without effect", format!(
            "{}cache = \"a\"\n",
            with("[cache.a]\nfill = \"whole\"\nread_ahead = \"1MiB\"\nparallel = 2\n"),
        )),
        ("unknown word, near", with("[log]\nformat = \"combinde\"\n")),
        ("wrong type", with("[server]\nworkers = \"four\"\n")),
        ("wrong type, a fraction", with("[admin]\nprice_per_gb = \"0.05\"\n")),
        ("a currency without a price", with("[admin]\nprice_currency = \"€\"\n")),
        ("a switch in place of a path", with("[admin]\nevents = true\n")),
        ("a section for metrics", with("[metrics]\n")),
        ("a switch in quotes", with("[admin]\nhistory = \"true\"\n")),
        ("bad size", with("[limits]\nbody = \"2 megs\"\n")),
        ("bad time", with("[limits]\nshutdown_timeout = 30\n")),
        ("out of bounds", with("[limits]\nheaders = \"1GiB\"\nheader_timeout = \"0s\"\n[cache.a]\nmemory = \"1KiB\"\n")),
        ("unknown upstream", route("proxy = \"orgin\"")),
        ("unknown cache", route("proxy = \"origin\"\ncache = \"video\"")),
        ("address taken twice", with("[[listener]]\naddress = \"127.0.0.1:80\"\n[[listener]]\naddress = \"127.0.0.1:80\"\n")),
        ("bad address", with("[[listener]]\naddress = \"8080\"\n")),
        ("no site", "[upstream.a]\nservers = [\"http://a\"]\n".to_owned()),
        ("no route, no servers", "[upstream.a]\n[[site]]\n".to_owned()),
        ("bad regex", route("path_regex = 'a(b'\nproxy = \"origin\"")),
        ("bad path", route("path = \"static\"\nproxy = \"origin\"")),
        ("path and path_regex", route("path = \"/a\"\npath_regex = 'b'\nproxy = \"origin\"")),
        ("servers", LEAST.replace(
            "[\"http://127.0.0.1:9000\"]",
            "[\n  \"ftp://a\",\n  \"http://a/b\",\n  { weight = 1 },\n  { url = \"a:9\", weight = 0 },\n  { url = \"http://b\", backup = true },\n]",
        )),
        ("itself", LEAST.replace("9000", "8080")),
        ("bad status", with("[cache.a]\nvalid = { 206 = \"1h\", ok = \"1h\" }\n")),
        ("hosts", LEAST.replace("[[site]]", "[[site]]\nhosts = [\"a\", \"http://b\", \"c:80\", \"*\", \"a.*\", \"é\"]\n[[site.route]]\nproxy = \"origin\"\n[[site]]\nhosts = [\"A\"]")),
        ("route that can never match", format!("{LEAST}[[site.route]]\npath = \"/a/*\"\nproxy = \"origin\"\n")),
        ("open admin", with("[admin]\naddress = \"0.0.0.0:9901\"\n")),
        ("unused cache", with("[cache.a]\n")),
        ("server twice", with("").replace("[\"http://127.0.0.1:9000\"]", "[\"http://a\", \"https://A:80/\"]")),
    ];
    let all: String = cases
        .iter()
        .map(|(name, text)| format!("== {name}\n{}\n", said(text)))
        .collect();
    insta::assert_snapshot!("errors", all);
}

#[test]
fn a_file_that_is_not_there_is_said_so() {
    let report = load(Path::new("/nowhere/sluice.toml"), Purpose::Reload)
        .expect_err("there is no such file");
    assert!(
        report
            .to_string()
            .contains("can't read the configuration: No such file")
    );
}

#[test]
fn options_alone_go_the_way_of_a_file() {
    let options = Options {
        origins: vec!["http://a:1".to_owned(), "http://b:2".to_owned()],
        files: None,
        listen: vec!["127.0.0.1:0".to_owned()],
        admin: Some("127.0.0.1:0".to_owned()),
        memory: Some("64MiB".to_owned()),
        volumes: Vec::new(),
        placement: None,
        fill: Some("lock".to_owned()),
        slice: Some("256KiB".to_owned()),
        workers: Some(2),
        access_log: Some("-".to_owned()),
        ..Options::default()
    };
    let plan = options.load().expect("good options").plan;
    assert_eq!(plan.upstreams["origin"].servers.len(), 2);
    let cache = &plan.caches["memory"];
    assert_eq!((cache.memory, cache.fill.block), (64 << 20, 256 << 10));
    assert_eq!(cache.fill.kind, crate::fill::Kind::Lock);
    assert_eq!((plan.workers, plan.listeners.len()), (2, 1));
    assert_eq!(
        plan.log.access.map(|a| a.target),
        Some(AccessTarget::Stdout)
    );
    let hostile = Options {
        origins: vec!["http://a\"]\n[admin]\naddress = \"0.0.0.0:1".to_owned()],
        ..Options::default()
    };
    let report = hostile.load().expect_err("no such origin");
    assert_eq!(report.problems.len(), 1, "{report}");
    let temporary = tempfile::tempdir().expect("a folder");
    let root = temporary.path().join("\"www");
    std::fs::create_dir(&root).expect("a folder");
    let folder = Options {
        files: Some(root.display().to_string()),
        memory: Some("32MiB".to_owned()),
        ..Options::default()
    };
    let plan = folder.load().expect("good options").plan;
    let RouteHandler::Files(files) = &plan.sites[0].routes[0].handler else {
        panic!("a folder");
    };
    assert_eq!((&*files.root, files.memory), (&*root, 32 << 20));
}

#[test]
fn changes_are_named() {
    let old = plan(FULL);
    assert_eq!(changes(&old, &old).to_string(), "nothing changed\n");
    let new = FULL
        .replace("1GiB", "2GiB")
        .replace("workers = 3", "workers = 4")
        .replace("http://c:82", "http://d:82")
        .replace("[upstream.origin]", "[cache.more]\n[upstream.origin]");
    assert_eq!(
        changes(&old, &plan(&new)).to_string(),
        "cache more added\ncache video changed\nupstream origin changed\n\
         workers: differs, and needs a restart\n"
    );
}
