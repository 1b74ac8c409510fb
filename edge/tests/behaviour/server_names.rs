//! Tests of servers with names: DNS with several addresses, changes, failures and services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_lab::dns::{Ipv6, NameServer, Service};
use sluice_lab::origin::{Latch, Origin, OriginOptions, Resource};

use crate::harness::{Edge, Setup, assert_reason, eventually, fresh, origin};

pub const NAME: &str = "origin.test";

pub fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// Starts origins at 127.0.0.1, 127.0.0.2 and so on, all on the same port.
pub fn origins(count: u8) -> Vec<Origin> {
    for _ in 0..20 {
        let first = origin();
        let at = |last| OriginOptions {
            address: SocketAddr::new(ip(last), first.addr().port()),
            ..OriginOptions::default()
        };
        let others: Vec<Origin> = (2..=count)
            .map_while(|last| Origin::start(at(last)).ok())
            .collect();
        if others.len() == usize::from(count) - 1 {
            let all: Vec<Origin> = std::iter::once(first).chain(others).collect();
            for origin in &all {
                origin.serve("/x", fresh(10));
                origin.serve("/pass/x", fresh(10));
                origin.serve_rest(fresh(10));
            }
            return all;
        }
    }
    panic!("no port is free on all addresses");
}

/// Returns a configuration whose server has this name, resolved by this name server.
pub fn named(dns: &NameServer, origin: &Origin) -> Setup {
    let url = format!("http://{NAME}:{}", origin.addr().port());
    with_url(dns, url)
}

fn with_url(dns: &NameServer, url: String) -> Setup {
    Setup::of_servers(vec![url]).server(&format!("resolver = \"{}\"", dns.addr()))
}

/// Sends requests until the origin has received one more.
fn reaches(edge: &Edge, origin: &Origin) -> bool {
    let before = origin.requests().len();
    (0..8).any(|_| {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
        origin.requests().len() > before
    })
}

pub fn dns() -> NameServer {
    NameServer::start().expect("a free port")
}

#[test]
fn all_addresses_of_a_name_are_servers() {
    let (dns, origins) = (dns(), origins(3));
    dns.set(NAME, &[ip(1), ip(2), ip(3)]);
    let edge = named(&dns, &origins[0]).workers(1).start();
    // A renewed answer begins the turns again, so that the shares of few requests may differ.
    eventually("all addresses are used", || {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
        origins.iter().all(|origin| origin.requests().len() >= 2)
    });
    let servers = edge.status()["upstreams"]["origin"]["servers"].clone();
    assert_eq!(servers.as_array().expect("a list").len(), 3);
    assert_eq!(servers[0]["address"], origins[0].addr().to_string());
}

#[test]
fn addresses_come_and_go_while_the_program_runs() {
    let (dns, origins) = (dns(), origins(2));
    dns.set(NAME, &[ip(1)]);
    let edge = named(&dns, &origins[0]).start();
    assert!(reaches(&edge, &origins[0]));
    dns.set(NAME, &[ip(2)]);
    eventually("the new address is used", || {
        reaches(&edge, &origins[1]) && !reaches(&edge, &origins[0])
    });
}

#[test]
fn a_name_server_that_fails_keeps_the_last_addresses_in_use() {
    let (dns, origins) = (dns(), origins(1));
    dns.set(NAME, &[ip(1)]);
    let edge = named(&dns, &origins[0]).start();
    assert!(reaches(&edge, &origins[0]));
    dns.fail(true);
    let message = "its last addresses stay in use";
    eventually(message, || edge.process.stderr().contains(message));
    assert!(reaches(&edge, &origins[0]));
    dns.fail(false);
    // Nor does a name without addresses take the servers away.
    dns.set(NAME, &[]);
    let before = dns.questions(NAME);
    eventually("further questions", || dns.questions(NAME) >= before + 4);
    assert!(reaches(&edge, &origins[0]));
}

#[test]
fn a_name_that_does_not_resolve_has_its_own_reason_until_it_does() {
    let (dns, origins) = (dns(), origins(1));
    let edge = named(&dns, &origins[0]).start();
    let reply = edge.get("/x", &[]);
    assert_eq!(reply.status, 502);
    assert_reason(&reply, "unresolved");
    dns.set(NAME, &[ip(1)]);
    eventually("the name resolves", || edge.get("/x", &[]).status == 200);
}

#[test]
fn the_first_request_waits_for_the_first_answer() {
    let (dns, origins) = (dns(), origins(1));
    dns.set(NAME, &[ip(1)]);
    dns.silence(true);
    let edge = named(&dns, &origins[0])
        .upstream("connect_timeout = \"60s\"")
        .start();
    let reply = std::thread::scope(|scope| {
        let asked = scope.spawn(|| edge.get("/x", &[]));
        eventually("a question", || dns.questions(NAME) > 0);
        dns.silence(false);
        asked.join().expect("a reply")
    });
    // If the questions were lost for too long, the name counts as one that does not resolve.
    assert!([200, 502].contains(&reply.status), "{}", reply.status);
    eventually("the name resolves", || edge.get("/x", &[]).status == 200);
}

#[test]
fn a_dead_address_is_not_noticed_by_clients() {
    let (dns, origins) = (dns(), origins(3));
    dns.set(NAME, &[ip(1), ip(2), ip(3), ip(4)]);
    let edge = named(&dns, &origins[0]).start();
    for _ in 0..40 {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
    }
}

// The addresses change as often as the answers expire, and one of the four refuses connections.
#[test]
fn no_client_notices_that_addresses_come_and_go_under_load() {
    const CHANGES: usize = 5;
    let (dns, origins) = (dns(), origins(5));
    let dead = ip(9);
    let addresses = |change: usize| {
        let running = (0..3).map(|n| ip(1 + ((change + n) % 5) as u8));
        running.chain([dead]).collect::<Vec<IpAddr>>()
    };
    dns.set(NAME, &addresses(0));
    let edge = named(&dns, &origins[0])
        .upstream("connect_timeout = \"60s\"\nretry = { tries = 4, total = \"1h\", budget = 1 }")
        .start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (edge, is_over) = (&edge, &is_over);
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    number += 1;
                    let cached = format!("/changing/{client}/{number}");
                    for path in ["/pass/x", &cached] {
                        let reply = edge.get(path, &[]);
                        reply.verify_whole(10).expect("the response");
                    }
                }
            });
        }
        for change in 1..=CHANGES {
            dns.set(NAME, &addresses(change));
            let added = &origins[(change + 2) % 5];
            let before = added.requests().len();
            eventually("requests at the added address", || {
                added.requests().len() > before
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(edge.counter("upstream_retries_refused"), 0);
}

/// Returns the state of an origin in the status, if its address is there.
pub fn state(edge: &Edge, origin: &Origin) -> Option<String> {
    let status = edge.status();
    let servers = status["upstreams"]["origin"]["servers"].as_array()?.clone();
    let address = origin.addr().to_string();
    let server = servers.iter().find(|one| one["address"] == address)?;
    server["state"].as_str().map(str::to_owned)
}

// The first check of the added address does not end before the test permits it. Other addresses get
// the requests until then.
#[test]
fn an_added_address_gets_no_requests_before_its_first_health_check() {
    let (dns, origins) = (dns(), origins(2));
    let latch = Latch::closed();
    origins[0].serve("/healthz", Resource::bytes("well"));
    origins[1].serve("/healthz", Resource::bytes("well").hold_head(&latch));
    dns.set(NAME, &[ip(1)]);
    let edge = named(&dns, &origins[0])
        .workers(1)
        .upstream(
            "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"1h\", up = 1000 }",
        )
        .start();
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    dns.set(NAME, &[ip(1), ip(2)]);
    eventually("it is checked", || origins[1].requests().len() == 1);
    assert_eq!(state(&edge, &origins[1]).as_deref(), Some("checking"));
    for _ in 0..6 {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
    }
    assert_eq!(origins[1].read_record(|record| record.count("/pass/x")), 0);
    latch.release();
    eventually("it is in use", || {
        state(&edge, &origins[1]).as_deref() == Some("up")
    });
    eventually("it gets requests", || reaches(&edge, &origins[1]));
}

#[test]
fn an_order_about_an_address_holds_when_it_comes_again() {
    let (dns, origins) = (dns(), origins(2));
    dns.set(NAME, &[ip(1), ip(2)]);
    let edge = named(&dns, &origins[0]).start();
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    let address = origins[1].addr().to_string();
    let down = edge.command(&["servers", "origin", &address, "--set", "down"]);
    assert!(down.status.success(), "{down:?}");
    let is_listed = || state(&edge, &origins[1]).is_some();
    dns.set(NAME, &[ip(1)]);
    eventually("the address goes", || !is_listed());
    dns.set(NAME, &[ip(1), ip(2)]);
    eventually("the address comes again", is_listed);
    assert_eq!(state(&edge, &origins[1]).as_deref(), Some("down"));
    let before = origins[1].requests().len();
    for _ in 0..8 {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
    }
    assert_eq!(origins[1].requests().len(), before);
}

// A reload that changes the upstream while no name server answers keeps the last addresses in use,
// until there is another answer.
#[test]
fn a_reload_keeps_the_addresses_of_a_name_while_dns_fails() {
    let (dns, origins) = (dns(), origins(2));
    dns.set(NAME, &[ip(1)]);
    let setup = named(&dns, &origins[0]);
    let edge = setup.start();
    assert!(reaches(&edge, &origins[0]));
    dns.fail(true);
    for keepalive in [7, 8] {
        let changed = setup.clone().upstream(&format!("keepalive = {keepalive}"));
        edge.rewrite(&changed.text());
        let output = edge.command(&["reload"]);
        assert!(output.status.success(), "{output:?}");
        assert!(reaches(&edge, &origins[0]));
    }
    let message = "its last addresses stay in use";
    eventually(message, || edge.process.stderr().contains(message));
    assert!(reaches(&edge, &origins[0]));
    dns.fail(false);
    dns.set(NAME, &[ip(2)]);
    eventually("the new address is used", || {
        reaches(&edge, &origins[1]) && !reaches(&edge, &origins[0])
    });
}

// The name of a server stands for all of its addresses, also before DNS has any.
#[test]
fn the_command_takes_a_name_for_all_of_its_addresses() {
    let (dns, origins) = (dns(), origins(2));
    let edge = named(&dns, &origins[0]).start();
    let name = format!("{NAME}:{}", origins[0].addr().port());
    let shown = |arguments: &[&str]| {
        let output = edge.command(&[&["servers", "origin"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    eventually("it is shown", || {
        let row = format!("{name}  unresolved");
        shown(&[]).contains(&row) && shown(&[&name]).contains(&row)
    });
    let log = edge.process.stderr();
    assert!(log.contains("does not resolve"), "{log}");
    assert!(
        !log.contains("DNS error") && !log.contains("Query {"),
        "{log}"
    );
    let ordered = edge.command(&["servers", "origin", &name, "--set", "drain"]);
    assert!(ordered.status.success(), "{ordered:?}");
    let said = String::from_utf8_lossy(&ordered.stdout).into_owned();
    assert!(said.contains("no address"), "{said}");
    dns.set(NAME, &[ip(1), ip(2)]);
    eventually("it has both addresses", || {
        origins.iter().all(|origin| state(&edge, origin).is_some())
    });
    for orders in [&[][..], &["--set", "down"]] {
        let arguments = [&["servers", "origin", name.as_str()], orders].concat();
        let output = edge.command(&arguments);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected = if orders.is_empty() { "drain" } else { "down" };
        assert_eq!(said.matches(expected).count(), 2, "{said}");
    }
    // The port may be left out, and a URL be copied from the configuration.
    for given in [NAME.to_owned(), format!("http://{name}")] {
        let said = shown(&[&given, "--set", "up"]);
        assert_eq!(said.matches(&format!("({name})  up")).count(), 2, "{said}");
    }
    let unknown = edge.command(&["servers", "origin", "other.test"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(said.contains(&format!("only: {name}, ")), "{said}");
}

#[test]
fn the_address_of_the_other_family_is_used_if_one_fails() {
    let (dns, origins) = (dns(), origins(1));
    // The origin listens only at its IPv4 address.
    dns.set(NAME, &[Ipv6Addr::LOCALHOST.into(), ip(1)]);
    let edge = named(&dns, &origins[0]).upstream("retry = false").start();
    for _ in 0..10 {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
    }
}

/// Starts an edge whose server's name has an IPv6 address, where nothing listens, and the origin's IPv4 address. Returns
/// the edge and the IPv6 address.
fn both_families(dns: &NameServer, origin: &Origin, settings: &str) -> (Edge, String) {
    let v6 = Ipv6Addr::LOCALHOST;
    dns.set(NAME, &[v6.into(), ip(1)]);
    let edge = named(dns, origin).workers(1).upstream(settings).start();
    let v6 = SocketAddr::from((v6, origin.addr().port()));
    (edge, v6.to_string())
}

#[test]
fn the_address_of_the_other_family_is_not_used_against_an_order() {
    let (dns, origins) = (dns(), origins(1));
    let (edge, _) = both_families(&dns, &origins[0], "retry = false");
    // Both servers get idle connections.
    for path in ["/pass/1", "/pass/2", "/pass/3", "/pass/4"] {
        assert_eq!(edge.get(path, &[]).status, 200);
    }
    let before = origins[0].requests().len();
    let address = origins[0].addr().to_string();
    let down = edge.command(&["servers", "origin", &address, "--set", "down"]);
    assert!(down.status.success(), "{down:?}");
    for path in ["/pass/1", "/pass/2", "/pass/3"] {
        assert_eq!(edge.get(path, &[]).status, 502);
    }
    assert_eq!(origins[0].requests().len(), before);
}

#[test]
fn health_checks_connect_to_no_address_of_the_other_family() {
    let (dns, origins) = (dns(), origins(1));
    let health = "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"1h\", up = 1, down = 1 }";
    let (edge, v6) = both_families(&dns, &origins[0], health);
    let is_unhealthy = || {
        let status = edge.status();
        let servers = status["upstreams"]["origin"]["servers"].as_array().cloned();
        let mut servers = servers.into_iter().flatten();
        servers.any(|one| one["address"] == v6.as_str() && one["state"] == "unhealthy")
    };
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    eventually("the IPv6 address is unhealthy", is_unhealthy);
    assert_eq!(state(&edge, &origins[0]).as_deref(), Some("up"));
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
}

#[test]
fn services_have_ports_weights_and_priorities() {
    let (dns, main, spare) = (dns(), [origin(), origin()], origin());
    dns.set(NAME, &[ip(1)]);
    let service = |origin: &Origin, priority, weight| {
        origin.serve("/pass/x", fresh(10));
        Service {
            priority,
            weight,
            port: origin.addr().port(),
            host: NAME.to_owned(),
        }
    };
    let servers = [
        service(&main[0], 10, 1),
        service(&main[1], 10, 3),
        service(&spare, 20, 1),
    ];
    dns.set_service("_http._tcp.test", &servers);
    let url = "srv+http://_http._tcp.test".to_owned();
    let edge = with_url(&dns, url).workers(1).start();
    for _ in 0..8 {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
    }
    let counts = main.each_ref().map(|origin| origin.requests().len());
    assert_eq!((counts, spare.requests().len()), ([2, 6], 0));
    for origin in &main {
        origin.refuse().expect("it stops listening");
        origin.drop_connections();
    }
    eventually("the backup is used", || {
        edge.get("/pass/x", &[]).status == 200 && !spare.requests().is_empty()
    });
}

#[test]
fn a_name_that_name_servers_do_not_answer_is_reported_before_its_resolution_has_failed() {
    let (dns, origins) = (dns(), origins(1));
    dns.silence(true);
    let edge = named(&dns, &origins[0]).start();
    // The resolution begins with the first request for the upstream, or earlier.
    let reply = edge.get("/x", &[]);
    assert_reason(&reply, "unresolved");
    let port = origins[0].addr().port();
    let line = format!(
        "the name of a server is still being resolved upstream=origin server={NAME}:{port} name_servers={}",
        dns.addr()
    );
    eventually(&line, || edge.process.stderr().contains(&line));
    eventually("the resolution fails", || {
        let server = edge.status()["upstreams"]["origin"]["servers"][0].clone();
        server["state"] == "unresolved" && server["why"] == "no name server answers"
    });
    let log = edge.process.stderr();
    let failed = log.find("the name of a server does not resolve");
    assert!(log.find(&line) < failed, "{log}");
    dns.silence(false);
    dns.set(NAME, &[ip(1)]);
    eventually("the name resolves", || edge.get("/x", &[]).status == 200);
}

const SERVICE: &str = "_http._tcp.test";
const HOSTS: [&str; 2] = ["a.test", "b.test"];

/// Sets the service's servers: each origin at a host of its own. Returns the server's URL.
fn serve_hosts(dns: &NameServer, origins: &[Origin]) -> String {
    let servers = HOSTS.iter().zip(origins).map(|(host, origin)| Service {
        priority: 10,
        weight: 1,
        port: origin.addr().port(),
        host: (*host).to_owned(),
    });
    dns.set_service(SERVICE, &servers.collect::<Vec<_>>());
    format!("srv+http://{SERVICE}")
}

/// Whether exactly these of the addresses are listed as servers.
fn are_listed(edge: &Edge, origins: &[Origin], expected: &[bool]) -> bool {
    let listed = origins.iter().map(|origin| state(edge, origin).is_some());
    listed.eq(expected.iter().copied())
}

// The first host's address changes meanwhile, which shows that answers still have an effect.
#[test]
fn a_host_of_a_service_that_can_not_be_resolved_keeps_its_addresses() {
    let (dns, origins) = (dns(), origins(3));
    let url = serve_hosts(&dns, &origins);
    dns.set(HOSTS[0], &[ip(1)]);
    dns.set(HOSTS[1], &[ip(2)]);
    let setup = with_url(&dns, url);
    let edge = setup.start();
    let listed = |expected| eventually("the servers", || are_listed(&edge, &origins, expected));
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    listed(&[true, true, false]);
    dns.fail_host(HOSTS[1], true);
    dns.set(HOSTS[0], &[ip(3)]);
    listed(&[false, true, true]);
    let message = "the name of a server resolves only in part";
    eventually(message, || edge.process.stderr().contains(message));
    // A reload that changes the upstream begins the look-ups again.
    edge.rewrite(&setup.clone().upstream("keepalive = 7").text());
    let output = edge.command(&["reload"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    dns.set(HOSTS[0], &[ip(1)]);
    listed(&[true, true, false]);
    // A host that does not exist is none that can't be resolved.
    dns.set(HOSTS[1], &[]);
    dns.fail_host(HOSTS[1], false);
    listed(&[true, false, false]);
}

// Complete answers would be used for an hour.
#[test]
fn a_partial_answer_is_soon_followed_by_another_one() {
    let (dns, origins) = (dns(), origins(2));
    dns.set_ttl(3600);
    let url = serve_hosts(&dns, &origins);
    dns.set(HOSTS[0], &[ip(1)]);
    dns.set(HOSTS[1], &[ip(2)]);
    dns.fail_host(HOSTS[1], true);
    let edge = with_url(&dns, url).start();
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    dns.fail_host(HOSTS[1], false);
    eventually("both are servers", || {
        are_listed(&edge, &origins, &[true, true])
    });
}

// The name's IPv4 address changes meanwhile, which shows that answers still have an effect.
#[test]
fn addresses_of_a_family_that_can_not_be_resolved_stay_in_use() {
    let (dns, origins) = (dns(), origins(2));
    let v6 = Ipv6Addr::LOCALHOST;
    dns.set(NAME, &[v6.into(), ip(1)]);
    let edge = named(&dns, &origins[0]).start();
    let address = SocketAddr::from((v6, origins[0].addr().port())).to_string();
    let has_v6 = || edge.status().to_string().contains(&address);
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    eventually("the IPv6 address", has_v6);
    dns.set_ipv6(Ipv6::Failing);
    dns.set(NAME, &[ip(2)]);
    eventually("the other IPv4 address", || {
        are_listed(&edge, &origins, &[false, true])
    });
    assert!(has_v6());
    dns.set_ipv6(Ipv6::Answered);
    eventually("the IPv6 address is gone", || !has_v6());
}

// Some name servers answer only questions about IPv4 addresses (RFC 4074).
#[test]
fn a_name_server_without_answers_about_ipv6_is_enough_for_ipv4() {
    for ipv6 in [Ipv6::Failing, Ipv6::Ignored] {
        let (dns, origins) = (dns(), origins(2));
        dns.set_ipv6(ipv6);
        dns.set(NAME, &[ip(1)]);
        // With the default `connect_timeout`.
        let edge = named(&dns, &origins[0]).start();
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
        dns.set(NAME, &[ip(2)]);
        eventually("the other address", || {
            are_listed(&edge, &origins, &[false, true])
        });
        let log = edge.process.stderr();
        assert!(
            !log.contains("not resolve") && !log.contains("in part"),
            "{log}"
        );
    }
}
