//! Tests of the choice of a server: policies, weights, sticky clients, and servers that are full,
//! draining or starting.

use std::time::Duration;

use serde_json::Value;
use sluice_lab::client::{self, Reply};
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, Setup, eventually, origin};

/// Starts this many origins that respond to every request with their number in a header.
fn origins(count: usize) -> Vec<Origin> {
    let numbered = |number: usize| {
        let origin = origin();
        origin.serve_rest(named(number));
        origin
    };
    (0..count).map(numbered).collect()
}

/// Returns the resource of the origin with this number.
fn named(number: usize) -> Resource {
    Resource::bytes("ok")
        .cache_control("no-store")
        .header("x-origin", &number.to_string())
}

/// Configures one worker that proxies to these origins, so that all requests meet one balancer.
fn in_front_of(origins: &[Origin]) -> Setup {
    let servers = origins.iter().map(|origin| origin.url("")).collect();
    Setup::of_servers(servers).workers(1)
}

fn server_of(edge: &Edge, target: &str, headers: &[(&str, &str)]) -> String {
    let reply = edge.get(target, headers);
    assert_eq!(reply.status, 200, "{target}");
    let number = reply.header("x-origin");
    number.expect("the origin's number").to_owned()
}

#[test]
fn a_hash_sends_each_url_to_one_server_and_uses_all() {
    let origins = origins(3);
    let edge = in_front_of(&origins).upstream("balance = \"hash\"").start();
    let targets: Vec<String> = (0..30).map(|n| format!("/pass/{n}")).collect();
    let choices = || -> Vec<String> {
        let choice = |target: &String| server_of(&edge, target, &[]);
        targets.iter().map(choice).collect()
    };
    let first = choices();
    assert_eq!(choices(), first);
    for number in ["0", "1", "2"] {
        assert!(first.iter().any(|n| n == number), "{first:?}");
    }
}

#[test]
fn a_hash_of_a_cookie_ignores_the_url_and_a_dead_server_moves_only_its_own_keys() {
    let origins = origins(3);
    let edge = in_front_of(&origins)
        .upstream("balance = { hash = \"{cookie:user}\", load = false }")
        .start();
    let users: Vec<String> = (0..20).map(|n| format!("a=b; user={n}")).collect();
    let choices = |target: &str| -> Vec<String> {
        let choice = |user: &String| server_of(&edge, target, &[("Cookie", user)]);
        users.iter().map(choice).collect()
    };
    let first = choices("/pass/a");
    assert_eq!(choices("/pass/b"), first);
    origins[0].refuse().expect("it stops listening");
    origins[0].drop_connections();
    for (before, now) in first.iter().zip(choices("/pass/a")) {
        assert!(now != "0" && (before == "0" || *before == now));
    }
}

#[test]
fn the_slower_of_two_servers_gets_few_requests_by_least_time() {
    let origins = origins(2);
    origins[0].serve_rest(named(0).delay_head(Duration::from_millis(300)));
    let edge = in_front_of(&origins)
        .upstream("balance = \"least-time\"")
        .start();
    // Each server gets one of the first two requests. Then the fast one is preferred; a pause of the
    // machine may make either seem slow for a while.
    let choices: Vec<String> = (0..40).map(|_| server_of(&edge, "/pass/x", &[])).collect();
    assert!(choices.iter().any(|n| n == "0"));
    assert!(choices.iter().any(|n| n == "1"));
}

#[test]
fn random_choices_reach_all_servers() {
    let origins = origins(2);
    let edge = in_front_of(&origins)
        .upstream("balance = \"random-two\"")
        .start();
    let choices: Vec<String> = (0..60).map(|_| server_of(&edge, "/pass/x", &[])).collect();
    assert!(
        ["0", "1"]
            .iter()
            .all(|number| choices.iter().any(|n| n == number))
    );
}

/// Returns the numbers of the origins that this many requests reach.
fn choices(edge: &Edge, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| server_of(edge, "/pass/x", &[]))
        .collect()
}

// A server that responds with errors alone is ejected, and no client gets an error after that. When
// it works again, a single request finds that out.
#[test]
fn a_failing_server_is_ejected_reported_and_tested_again() {
    let origins = origins(2);
    origins[0].serve_rest(Resource::status(500));
    let edge = in_front_of(&origins)
        .upstream("eject = { failures = 3, for = \"1h\" }")
        .start();
    eventually("it is ejected", || {
        edge.get("/pass/x", &[]);
        edge.process.stderr().contains("a server is ejected")
    });
    assert!(choices(&edge, 10).iter().all(|number| number == "1"));
    let failed = entry(&edge, &origins[0]);
    assert_eq!(failed["state"], "ejected");
    assert!(failed["failures"].as_u64() >= Some(3), "{failed}");
    assert_eq!(
        failed["failures_by_reason"]["error-status"],
        failed["failures"]
    );
    assert_eq!(entry(&edge, &origins[1])["failures"], 0);
    let cause = "3 failures in a row, the last one: status 500";
    let logged = format!("cause=\"{cause}\"");
    assert!(edge.process.stderr().contains(&logged));
    assert_eq!(failed["why"], cause);
    assert!(failed["trial_in_s"].as_f64() > Some(0.0), "{failed}");
    let shown = edge.command(&["servers", "origin"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains(&format!("{cause}; ")), "{shown}");
    let edge = in_front_of(&origins)
        .upstream("eject = { failures = 3, for = \"1s\" }")
        .start();
    eventually("it is ejected", || {
        edge.get("/pass/x", &[]);
        edge.process.stderr().contains("a server is ejected")
    });
    origins[0].serve_rest(named(0));
    eventually("it is back", || server_of(&edge, "/pass/x", &[]) == "0");
    // The client may receive its response before the edge has counted it.
    eventually("that is reported", || {
        let log = edge.process.stderr();
        log.contains("an ejected server works again")
    });
    eventually("it counts as up", || state(&edge, &origins[0]) == "up");
}

// The order replaces the configuration also after a reload.
#[test]
fn a_server_that_the_configuration_takes_down_gets_requests_after_an_order() {
    let origins = origins(2);
    let (up, down) = (origins[0].url(""), origins[1].url(""));
    let text = |more: &str| {
        format!(
            "[server]\nworkers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
             [upstream.origin]\nservers = [{up:?}, {{ url = {down:?}, down = true }}]\n{more}[[route]]\nproxy = \"origin\"\n"
        )
    };
    let edge = Setup::of_text(text("")).in_clear_text().start();
    assert!(choices(&edge, 10).iter().all(|number| number == "0"));
    let taken_down = entry(&edge, &origins[1]);
    assert_eq!(
        (&taken_down["state"], &taken_down["why"]),
        (&"down".into(), &"by the configuration".into())
    );
    assert_eq!(order(&edge, &origins[1], "set=up").status, 200);
    eventually("it gets requests", || {
        server_of(&edge, "/pass/x", &[]) == "1"
    });
    edge.rewrite(&text("keepalive = 3\n"));
    assert!(edge.command(&["reload"]).status.success());
    assert_eq!(state(&edge, &origins[1]), "up");
}

// A server that accepts no connections is passed over, and operators see that and its end.
#[test]
fn a_server_that_accepts_no_connections_is_unreachable_until_it_does() {
    let origins = origins(2);
    let edge = in_front_of(&origins).upstream("eject = false").start();
    let said = |arguments: &[&str]| {
        let output = edge.command(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let count = |text: &str| edge.process.stderr().matches(text).count();
    assert_eq!(state(&edge, &origins[0]), "up");
    origins[0].refuse().expect("it stops listening");
    origins[0].drop_connections();
    eventually("it is unreachable", || {
        edge.get("/pass/x", &[]);
        state(&edge, &origins[0]) == "unreachable"
    });
    for arguments in [&["servers"][..], &["status"]] {
        let text = said(arguments);
        assert_eq!(text.matches("unreachable").count(), 1, "{text}");
    }
    let why = entry(&edge, &origins[0])["why"].clone();
    assert_eq!(why, "connect-failed (Connection refused)");
    let metrics = edge.get_admin("/metrics").text();
    for (state, value) in [("unreachable", 1), ("up", 0), ("down", 0)] {
        let labels = format!("server=\"{}\",state=\"{state}\"", origins[0].addr());
        let sample = format!("sluice_server_state{{upstream=\"origin\",{labels}}} {value}\n");
        assert!(metrics.contains(&sample), "{metrics}");
    }
    assert_eq!(order(&edge, &origins[0], "set=down").status, 200);
    assert_eq!(state(&edge, &origins[0]), "down");
    assert_eq!(entry(&edge, &origins[0])["why"], "by order");
    assert_eq!(order(&edge, &origins[0], "set=up").status, 200);
    assert_eq!(state(&edge, &origins[0]), "unreachable");
    assert_eq!(state(&edge, &origins[1]), "up");
    origins[0].reopen().expect("it listens again");
    eventually("it is up", || {
        edge.get("/pass/x", &[]);
        state(&edge, &origins[0]) == "up"
    });
    eventually("both are logged", || {
        count("a server accepts connections again") == 1
    });
    assert_eq!(count("a server accepts no connections"), 1);
}

/// Returns the entry of an origin in the list of servers.
fn entry(edge: &Edge, origin: &Origin) -> Value {
    let listed: Value = serde_json::from_str(&edge.get_admin("/servers").text()).expect("JSON");
    let servers = listed["origin"]["servers"].as_array().expect("a list");
    let is_it = |server: &&Value| server["address"] == origin.addr().to_string();
    servers.iter().find(is_it).expect("the server").clone()
}

fn state(edge: &Edge, origin: &Origin) -> String {
    entry(edge, origin)["state"]
        .as_str()
        .expect("a state")
        .to_owned()
}

/// Gives an order about an origin.
fn order(edge: &Edge, origin: &Origin, what: &str) -> Reply {
    let target = format!("/servers?upstream=origin&server={}&{what}", origin.addr());
    let reply = client::once(edge.admin, "POST", &target, &[("x-sluice", "1")], b"");
    reply.expect("a reply")
}

#[test]
fn orders_about_servers_take_effect_at_once_and_outlast_reloads() {
    let origins = origins(2);
    let setup = in_front_of(&origins);
    let edge = setup.start();
    assert_eq!(order(&edge, &origins[0], "set=down").status, 200);
    assert_eq!(state(&edge, &origins[0]), "down");
    assert!(choices(&edge, 6).iter().all(|number| number == "1"));
    eventually("its connections are closed", || {
        entry(&edge, &origins[0])["idle"] == 0
    });
    // The upstream changes, so its pools are new.
    edge.rewrite(&setup.clone().upstream("keepalive = 7").text());
    let output = edge.command(&["reload"]);
    assert!(output.status.success(), "{output:?}");
    assert!(choices(&edge, 6).iter().all(|number| number == "1"));
    assert_eq!(order(&edge, &origins[0], "set=up&weight=3").status, 200);
    let chosen = choices(&edge, 8);
    let count = chosen.iter().filter(|number| *number == "0").count();
    assert!((5..=7).contains(&count), "{chosen:?}");
    assert_eq!(order(&edge, &origins[0], "set=drain").status, 200);
    assert!(choices(&edge, 6).iter().all(|number| number == "1"));
    let nowhere = origin();
    assert_eq!(order(&edge, &nowhere, "set=up").status, 404);
}

#[test]
fn the_command_lists_servers_and_gives_orders() {
    let origins = origins(1);
    let edge = in_front_of(&origins).start();
    let address = origins[0].addr().to_string();
    let output = edge.command(&["servers", "origin", &address, "--set", "down"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&address) && said.contains("down"), "{said}");
    assert_eq!(edge.get("/pass/x", &[]).status, 503);
    assert!(
        edge.command(&["servers", "origin", &address, "--set", "up"])
            .status
            .success()
    );
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    let listed = edge.command(&["servers", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed["origin"]["servers"][0]["state"], "up");
}

// An order about an unknown server, and a list of none, are errors that name the known ones.
#[test]
fn the_command_finds_nothing_for_unknown_upstreams_and_servers() {
    let origins = origins(1);
    let edge = in_front_of(&origins).start();
    let address = origins[0].addr().to_string();
    let upstream = ("no upstream \"nowhere\"", "origin");
    let server = ("no server \"192.0.2.1:80\"", address.as_str());
    let cases: [(&[&str], _); 5] = [
        (&["servers", "nowhere"], upstream),
        (&["servers", "nowhere", &address, "--set", "up"], upstream),
        (&["servers", "origin", "192.0.2.1:80"], server),
        (&["servers", "origin", "192.0.2.1:80", "--json"], server),
        (
            &["servers", "origin", "192.0.2.1:80", "--set", "up"],
            server,
        ),
    ];
    for (arguments, (unknown, known)) in cases {
        let output = edge.command(arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(unknown) && said.contains(known), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

// The checks of one server fail, so it gets no requests, although it would answer them.
#[test]
fn a_server_whose_health_checks_fail_gets_no_requests_until_they_succeed() {
    let origins = origins(2);
    origins[0].serve("/healthz", Resource::bytes("starting"));
    origins[1].serve("/healthz", Resource::bytes("all is well"));
    let edge = in_front_of(&origins)
        .upstream(
            "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"20s\", body = \"well\", \
             headers = { X-Check = \"1\" }, up = 1, down = 1 }",
        )
        .start();
    eventually("it is unhealthy", || {
        state(&edge, &origins[0]) == "unhealthy"
    });
    assert!(choices(&edge, 6).iter().all(|number| number == "1"));
    let check = origins[0]
        .requests()
        .into_iter()
        .find(|seen| seen.path() == "/healthz");
    let check = check.expect("a check");
    assert_eq!(check.header("x-check"), Some("1"));
    let log = edge.process.stderr();
    assert!(log.contains("health checks of a server fail"), "{log}");
    origins[0].serve("/healthz", Resource::bytes("well again"));
    eventually("it is healthy", || state(&edge, &origins[0]) == "up");
    eventually("it gets requests", || {
        server_of(&edge, "/pass/x", &[]) == "0"
    });
}

#[test]
fn servers_are_used_if_the_checks_of_all_fail() {
    let origins = origins(2);
    let edge = in_front_of(&origins)
        .upstream(
            "health = { path = \"/\", interval = \"100ms\", timeout = \"20s\", status = [204], down = 1 }",
        )
        .start();
    for origin in &origins {
        eventually("it is unhealthy", || state(&edge, origin) == "unhealthy");
    }
    let chosen = choices(&edge, 6);
    assert!(
        ["0", "1"]
            .iter()
            .all(|number| chosen.iter().any(|n| n == number)),
        "{chosen:?}"
    );
}

// A reload that leaves the checks out brings the server back.
#[test]
fn a_reload_starts_and_ends_health_checks() {
    let origins = origins(2);
    origins[0].serve("/healthz", Resource::status(503));
    let without = in_front_of(&origins);
    let with = without.clone().upstream(
        "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"20s\", down = 1 }",
    );
    let edge = without.start();
    let reload = |setup: &Setup| {
        edge.rewrite(&setup.text());
        let output = edge.command(&["reload"]);
        assert!(output.status.success(), "{output:?}");
    };
    reload(&with);
    eventually("it is unhealthy", || {
        state(&edge, &origins[0]) == "unhealthy"
    });
    reload(&without);
    assert_eq!(state(&edge, &origins[0]), "up");
}

// The cookie of a response keeps the client at its server, also while the server is drained. A
// server that is down loses its clients.
#[test]
fn clients_stick_to_a_server_by_its_cookie() {
    let origins = origins(3);
    let servers: Vec<String> = origins.iter().map(|origin| origin.url("")).collect();
    let edge = Setup::of_text(format!(
        "[server]\nworkers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[cache.main]\n[upstream.origin]\nservers = {servers:?}\n\
         sticky = {{ cookie = \"server\", max_age = \"1h\" }}\n\
         [[route]]\npath = \"/pass/*\"\nproxy = \"origin\"\n\
         [[route]]\nproxy = \"origin\"\ncache = \"main\"\n"
    ))
    .in_clear_text()
    .start();
    let first = edge.get("/pass/x", &[]);
    let number = first.header("x-origin").expect("a number").to_owned();
    let cookie = first.header("set-cookie").expect("a cookie");
    let (cookie, attributes) = cookie.split_once("; ").expect("attributes");
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Max-Age=3600");
    let again = |expected: bool| {
        for _ in 0..6 {
            let reply = edge.get("/pass/x", &[("Cookie", cookie)]);
            let is_same = reply.header("x-origin") == Some(&number);
            assert_eq!(is_same, expected);
            // The cookie is set again only if it names another server.
            assert_eq!(reply.header("set-cookie").is_none(), expected);
        }
    };
    again(true);
    let server = &origins[number.parse::<usize>().expect("a number")];
    assert_eq!(order(&edge, server, "set=drain").status, 200);
    again(true);
    assert!(choices(&edge, 6).iter().all(|other| *other != number));
    assert_eq!(order(&edge, server, "set=down").status, 200);
    again(false);
    assert_eq!(order(&edge, server, "set=up").status, 200);
    again(true);
    // A response that may be stored has no client's cookie.
    assert!(edge.get("/x", &[]).header("set-cookie").is_none());
}
