//! Tests of the numbers of routes, sites, caches and reasons: they equal the access log, and go on over reloads.

use std::collections::BTreeMap;
use std::thread;

use serde_json::Value;
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, Setup, assert_hit, eventually, fresh, serving};

/// Number of clients, and of requests that each one sends in a round.
const CLIENTS: u64 = 4;
const REQUESTS: u64 = 150;
/// Number of rounds, with a reload between each two of them.
const ROUNDS: u64 = 3;

/// Names of the routes of `Setup::cached`.
const ROUTES: [&str; 2] = ["* /pass/*", "* *"];

/// Numbers by name.
type Counted = BTreeMap<String, u64>;

fn add(numbers: &mut Counted, name: &str, n: u64) {
    *numbers.entry(name.to_owned()).or_default() += n;
}

/// Adds up the lines of the access log, by the names of the numbers of a route.
fn of_log<'a>(lines: impl Iterator<Item = &'a Value>) -> Counted {
    let mut numbers = Counted::new();
    for line in lines {
        let status = line["status"].as_u64().expect("a status");
        let bytes = line["bytes"].as_u64().expect("a number");
        add(&mut numbers, "requests", 1);
        add(&mut numbers, &format!("responses_{}xx", status / 100), 1);
        add(&mut numbers, "body_bytes", bytes);
        match line["cache"].as_str() {
            Some("hit") => {
                add(&mut numbers, "hits", 1);
                add(&mut numbers, "hit_bytes", bytes);
            }
            // The cache makes the response to `only-if-cached` itself.
            Some("own") | None => {}
            Some(_) => add(&mut numbers, "fetched", 1),
        }
    }
    numbers
}

/// Returns the numbers of a route, site or cache by the same names.
fn of_status(value: impl Fn(&str) -> u64) -> Counted {
    let names = [
        "requests",
        "responses_2xx",
        "responses_3xx",
        "responses_4xx",
        "responses_5xx",
        "body_bytes",
        "hits",
        "hit_bytes",
    ];
    let mut numbers: Counted = names
        .iter()
        .map(|name| ((*name).to_owned(), value(name)))
        .collect();
    let fetched = ["misses", "collapsed", "validated", "passes"];
    let fetched = fetched.iter().map(|name| value(name)).sum();
    numbers.insert("fetched".to_owned(), fetched);
    numbers.retain(|_, n| *n > 0);
    numbers
}

/// Returns the numbers of a route as `/metrics` shows them.
fn of_route(metrics: &str, route: &str) -> Counted {
    of_status(|name| {
        let sample = format!("sluice_route_{name}_total{{route=\"{route}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&sample));
        line.map_or(0, |n| n.parse().expect("a number"))
    })
}

/// Sends one client's requests of a round: hits, misses, ranges, uncached ones, and errors of the origin and of Sluice.
fn send(edge: &Edge, client: u64, round: u64) {
    let mut connection = edge.client();
    for n in 0..REQUESTS {
        let (target, headers): (String, &[(&str, &str)]) = match n % 10 {
            0 => (format!("/new/{client}-{round}-{n}"), &[]),
            1 => ("/pass/x".to_owned(), &[]),
            2 => ("/missing".to_owned(), &[]),
            3 => (format!("/none-{n}"), &[("Cache-Control", "only-if-cached")]),
            4 => ("/x".to_owned(), &[("Range", "bytes=100-1999")]),
            _ => ("/x".to_owned(), &[]),
        };
        connection.get(&target, headers).expect("a reply");
    }
}

fn loaded_origin() -> Origin {
    let origin = serving("/x", fresh(20_000));
    origin.serve("/pass/x", Resource::offset(5000));
    for client in 0..CLIENTS {
        for round in 0..ROUNDS {
            for n in (0..REQUESTS).step_by(10) {
                origin.serve(&format!("/new/{client}-{round}-{n}"), fresh(300 + n));
            }
        }
    }
    origin
}

/// Returns the value with this rank among all values, the first one having rank 1.
fn ranked(values: &mut [u64], share: f64) -> u64 {
    values.sort_unstable();
    let rank = (share * values.len() as f64).ceil() as usize;
    values[rank.max(1) - 1]
}

/// Checks the percentiles of a histogram against those of all values in the log.
fn assert_percentiles(shown: &Value, unit: &str, mut values: Vec<u64>) {
    for (name, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)] {
        let expected = ranked(&mut values, share);
        let shown = shown[format!("{name}_{unit}")].as_u64().expect("a number");
        let off = shown.abs_diff(expected);
        assert!(off * 100 <= expected, "{name}: {shown} for {expected}");
    }
}

#[test]
fn numbers_equal_the_access_log_under_load_and_over_reloads() {
    let origin = loaded_origin();
    let setup = Setup::cached(&origin).logged("json");
    let edge = setup.start();
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let edge = &edge;
                scope.spawn(move || send(edge, client, round));
            }
            // The configuration changes while requests are under way.
            let changed = setup
                .clone()
                .upstream(&format!("keepalive = {}", 7 + round));
            let log = format!("{:?}", edge.file("access.log"));
            edge.rewrite(&changed.text().replace("\"access.log\"", &log));
            assert!(edge.command(&["reload"]).status.success());
        });
    }
    let all = CLIENTS * REQUESTS * ROUNDS;
    let lines = edge.json_log(all as usize);
    assert_eq!(lines.len() as u64, all);
    let is_passed = |line: &&Value| {
        let target = line["target"].as_str();
        target.is_some_and(|target| target.starts_with("/pass/"))
    };
    let passed = of_log(lines.iter().filter(is_passed));
    let cached = of_log(lines.iter().filter(|line| !is_passed(line)));
    let counted = || {
        let metrics = edge.get_admin("/metrics").text();
        ROUTES.map(|route| of_route(&metrics, route))
    };
    // A request is counted and logged at the same time, but the last one of a worker perhaps after the client has its reply.
    eventually("all requests are counted", || {
        counted()
            .iter()
            .filter_map(|route| route.get("requests"))
            .sum::<u64>()
            == all
    });
    assert_eq!(counted(), [passed, cached.clone()]);
    let status = edge.status();
    let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
    let site = of_status(|name| number(&status["sites"]["*"], name));
    assert_eq!(site, of_log(lines.iter()));
    let cache = of_status(|name| number(&status["cache_traffic"]["main"], name));
    assert_eq!(cache, cached);
    assert_eq!(number(&status["counters"], "requests"), all);
    assert_reasons(&status["requests_by_reason"], &lines);
    let values = |name: &str| -> Vec<u64> {
        let values = lines.iter().map(|line| line[name].as_u64());
        values.map(|value| value.expect("a number")).collect()
    };
    assert_percentiles(&status["request_duration"], "us", values("request_us"));
    assert_percentiles(&status["body_size"], "bytes", values("bytes"));
}

/// Checks the requests by reason against the log.
fn assert_reasons(shown: &Value, lines: &[Value]) {
    let mut expected = Counted::new();
    for line in lines {
        if let Some(reason) = line["reason"].as_str() {
            add(&mut expected, reason, 1);
        }
        match line["cache"].as_str() {
            None | Some("hit" | "own") => {}
            Some(fwd) => add(&mut expected, &format!("fwd={fwd}"), 1),
        }
    }
    let shown: Counted = serde_json::from_value(shown.clone()).expect("numbers by reason");
    assert_eq!(shown, expected);
    assert!(expected.len() >= 2, "{expected:?}");
}

// The sums of the site and of the caches include the removed route, and the route that moves to another cache goes on.
#[test]
fn sums_go_on_when_a_reload_removes_a_route_or_moves_it_to_another_cache() {
    let origin = serving("/a/x", fresh(1000));
    origin.serve("/b/x", fresh(1000));
    let text = |routes: &str| {
        let start = Setup::uncached(&origin).workers(1).text();
        let (start, _) = start.split_once("[[site]]").expect("a site");
        format!("{start}[cache.one]\n[cache.two]\n[[site]]\n{routes}")
    };
    let route = |path: &str, cache: &str| {
        format!("[[site.route]]\npath = \"{path}\"\nproxy = \"origin\"\ncache = \"{cache}\"\n")
    };
    let before = route("/a/*", "one") + &route("/b/*", "one");
    let edge = Setup::of_text(text(&before)).start();
    let mut client = edge.client();
    for target in ["/a/x", "/b/x", "/b/x"] {
        client.get(target, &[]).expect("a reply");
    }
    assert_hit(&client.get("/b/x", &[]).expect("a reply"));
    edge.rewrite(&text(&(route("/a/*", "two") + &route("/c/*", "one"))));
    assert!(edge.command(&["reload"]).status.success());
    client.get("/a/x", &[]).expect("a reply");
    let is = |part: &str, name: &str, requests: u64| {
        edge.status()[part][name]["requests"].as_u64() == Some(requests)
    };
    eventually("the site has all requests", || is("sites", "*", 5));
    assert!(is("cache_traffic", "one", 4) && is("cache_traffic", "two", 1));
    let metrics = edge.get_admin("/metrics").text();
    assert!(
        metrics.contains("sluice_route_requests_total{route=\"* /a/*\"} 2\n"),
        "{metrics}"
    );
    assert!(!metrics.contains("route=\"* /b/*\""), "{metrics}");
}

// Requests that no route matches belong to the workers' numbers only.
#[test]
fn requests_without_a_route_have_a_reason_and_no_site() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).workers(1).start();
    let text = edge.send_raw(b"GET / HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    let reasons = || edge.status()["requests_by_reason"].clone();
    eventually("the request is counted", || {
        reasons()
            .as_object()
            .is_some_and(|reasons| reasons.len() == 1)
    });
    let status = edge.status();
    assert_eq!(status["counters"]["requests_refused"], 1);
    assert_eq!(status["sites"]["*"]["requests"], 0);
}
