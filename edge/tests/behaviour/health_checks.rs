//! Tests of health checks over each transport, and of addresses that a name has.

use rustix::process::{Pid, Resource as Limited, Rlimit, getrlimit, prlimit};
use sluice_lab::front::UnixFront;
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, Setup, assert_reason, eventually, fresh, origin};
use crate::server_names::{self, NAME as HOST, ip};
use crate::server_tls::{NAME, Rig, valid};

/// Each check decides.
const HEALTH: &str =
    "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"1h\", up = 1, down = 1 }";

/// Returns the state of the server with this address.
fn state(edge: &Edge, address: &str) -> String {
    let status = edge.status();
    let servers = status["upstreams"]["origin"]["servers"].as_array();
    let mut servers = servers.expect("servers").iter();
    let server = servers.find(|one| one["address"] == address);
    let state = server.map(|server| server["state"].as_str().expect("a state"));
    state.unwrap_or("absent").to_owned()
}

/// Asserts that the checks of the server with this address follow the answers of its origin.
fn follows(edge: &Edge, address: &str, origin: &Origin) {
    for (status, expected) in [(503, "unhealthy"), (200, "up"), (500, "unhealthy")] {
        origin.serve("/healthz", Resource::status(status));
        eventually(expected, || state(edge, address) == expected);
    }
    // The other server gets the requests meanwhile.
    let before = origin.read_record(|record| record.count("/pass/x"));
    for _ in 0..4 {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
    }
    assert_eq!(origin.read_record(|record| record.count("/pass/x")), before);
    origin.serve("/healthz", Resource::status(204));
    eventually("up", || state(edge, address) == "up");
    eventually("it gets requests", || {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
        origin.read_record(|record| record.count("/pass/x")) > before
    });
}

fn well() -> Origin {
    let origin = origin();
    origin.serve_rest(fresh(10));
    origin
}

/// Starts an edge that checks a server with TLS and another one.
fn checking(rig: &Rig, other: &Origin) -> Edge {
    rig.origin.serve_rest(fresh(10));
    rig.setup("server_name = \"origin.test\"")
        .upstream(HEALTH)
        .also(other)
        .start()
}

#[test]
fn the_log_says_that_all_servers_are_unhealthy_and_when_that_ends() {
    let origins = [well(), well()];
    let edge = Setup::of_servers(vec![origins[0].url(""), origins[1].url("")])
        .upstream(HEALTH)
        .start();
    let logged = |text: &str| {
        eventually(text, || edge.process.stderr().contains(text));
    };
    let serve = |origin: &Origin, status, expected: &str| {
        origin.serve("/healthz", Resource::status(status));
        let address = origin.addr().to_string();
        eventually(expected, || state(&edge, &address) == expected);
    };
    serve(&origins[0], 503, "unhealthy");
    serve(&origins[1], 503, "unhealthy");
    logged("all servers of an upstream are unhealthy, so all of them get requests upstream=origin");
    assert_eq!(edge.get("/pass/x", &[]).status, 200);
    serve(&origins[1], 200, "up");
    logged("not all servers of an upstream are unhealthy any more upstream=origin");
}

#[test]
fn servers_with_tls_are_checked() {
    let (rig, other) = (Rig::new(valid), well());
    let edge = checking(&rig, &other);
    let url = rig.front.url();
    follows(&edge, url.trim_start_matches("https://"), &rig.origin);
    let handshakes = rig.front.handshakes();
    let name = |name: &Option<String>| name.as_deref() == Some(NAME);
    assert!(handshakes.iter().all(|one| name(&one.name)));
}

#[test]
fn a_server_whose_certificate_is_refused_is_unhealthy() {
    let (rig, other) = (Rig::new(|ca| ca.server(&["other.test"])), well());
    let edge = checking(&rig, &other);
    let url = rig.front.url();
    let address = url.trim_start_matches("https://");
    eventually("it is unhealthy", || state(&edge, address) == "unhealthy");
    for _ in 0..4 {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
    }
    assert!(rig.origin.requests().is_empty());
}

#[test]
fn servers_on_unix_sockets_are_checked() {
    let (behind, other) = (well(), well());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.sock");
    let front = UnixFront::start(behind.addr(), &path).expect("a socket");
    let edge = Setup::of_servers(vec![front.url(), other.url("")])
        .upstream(HEALTH)
        .start();
    follows(&edge, &front.url(), &behind);
    // A socket without a listener is unhealthy, too.
    drop(front);
    std::fs::remove_file(&path).expect("a socket");
    let address = format!("unix:{}", path.display());
    eventually("it is unhealthy", || state(&edge, &address) == "unhealthy");
}

#[test]
fn each_address_of_a_name_is_checked() {
    let (dns, origins) = (server_names::dns(), server_names::origins(2));
    dns.set(HOST, &[ip(1), ip(2)]);
    let edge = server_names::named(&dns, &origins[0])
        .upstream(HEALTH)
        .start();
    let address = origins[1].addr().to_string();
    follows(&edge, &address, &origins[1]);
    // An address that the name no longer has is not checked.
    dns.set(HOST, &[ip(1)]);
    eventually("it is gone", || state(&edge, &address) == "absent");
    let checks = |origin: &Origin| origin.read_record(|record| record.count("/healthz"));
    let further = || {
        let before = checks(&origins[0]);
        eventually("further checks of the other address", || {
            checks(&origins[0]) >= before + 4
        });
    };
    // Some checks may have been in progress.
    further();
    let before = checks(&origins[1]);
    further();
    assert!(checks(&origins[1]) <= before + 1);
}

// A reload without health checks that fails for another reason changes nothing.
#[test]
fn a_reload_that_fails_leaves_an_unhealthy_server_unhealthy() {
    let (sick, other) = (well(), well());
    sick.serve("/healthz", Resource::status(503));
    let setup = Setup::cached(&sick).also(&other);
    let edge = setup.clone().upstream(HEALTH).start();
    let address = sick.addr().to_string();
    let is_unhealthy = || state(&edge, &address) == "unhealthy";
    eventually("it is unhealthy", is_unhealthy);
    let broken =
        "[upstream.unused]\nservers = [\"https://192.0.2.1\"]\ntls = { ca = \"/missing.pem\" }";
    edge.rewrite(&format!("{}\n{broken}\n", setup.text()));
    let output = edge.command(&["reload"]);
    assert!(!output.status.success(), "{output:?}");
    eventually("it is unhealthy again", is_unhealthy);
}

/// Limits the number of the edge's descriptors, and returns the limit before.
fn limit_descriptors(edge: &Edge, most: u64) -> u64 {
    let pid = Pid::from_raw(edge.process.pid().try_into().expect("a pid"));
    let new = Rlimit {
        current: Some(most),
        maximum: getrlimit(Limited::Nofile).maximum,
    };
    let old = prlimit(pid, Limited::Nofile, new);
    old.expect("it is ours").current.unwrap_or(1024)
}

// No descriptor is left for a connection to a server. No server gets the blame, neither for requests
// nor for health checks, and another one would not do either.
#[test]
fn servers_do_not_get_the_blame_for_missing_descriptors() {
    let (one, other) = (well(), well());
    let edge = Setup::cached(&one)
        .also(&other)
        .workers(1)
        .upstream(HEALTH)
        .upstream("keepalive = false")
        .start();
    let addresses = [&one, &other].map(|origin| origin.addr().to_string());
    let mut client = edge.client();
    let mut get = || {
        let sent = client.send("GET", "/pass/x", &[("Host", "a")], b"");
        sent.expect("sent");
        client.read_response().expect("an answer")
    };
    assert_eq!(get().status, 200);
    let retries = edge.counter("upstream_retries");
    let before = limit_descriptors(&edge, 3);
    for _ in 0..20 {
        let reply = get();
        assert_eq!(reply.status, 503);
        assert_reason(&reply, "no-socket");
    }
    limit_descriptors(&edge, before);
    for address in &addresses {
        assert_eq!(state(&edge, address), "up");
    }
    assert_eq!(get().status, 200);
    assert_eq!(edge.counter("upstream_retries"), retries);
    let said = edge.process.stderr();
    assert!(
        said.contains("cause=\"no-socket\"") || said.contains("cause=no-socket"),
        "{said}"
    );
    assert!(!said.contains("health checks of a server fail"), "{said}");
}

// No request is needed to find out that a server accepts connections again: a check shows that.
#[test]
fn a_check_that_succeeds_shows_that_a_server_is_reachable_again() {
    let (server, other) = (well(), well());
    let edge = Setup::uncached(&server)
        .also(&other)
        .upstream(&HEALTH.replace("down = 1", "down = 1000"))
        .start();
    let address = server.addr().to_string();
    server.refuse().expect("it stops listening");
    server.drop_connections();
    eventually("it is unreachable", || {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
        state(&edge, &address) == "unreachable"
    });
    server.reopen().expect("it listens again");
    eventually("it is up", || state(&edge, &address) == "up");
}

#[test]
fn checks_may_use_another_port_which_says_nothing_about_connections() {
    let (server, checked, other) = (well(), well(), well());
    let port = checked.addr().port();
    let edge = Setup::uncached(&server)
        .also(&other)
        .upstream(&HEALTH.replace("{ path", &format!("{{ port = {port}, path")))
        .start();
    let address = server.addr().to_string();
    let checks = |origin: &Origin| origin.read_record(|record| record.count("/healthz"));
    for (status, expected) in [(503, "unhealthy"), (200, "up")] {
        checked.serve("/healthz", Resource::status(status));
        eventually(expected, || state(&edge, &address) == expected);
    }
    assert_eq!((checks(&server), checks(&other)), (0, 0));
    server.refuse().expect("it stops listening");
    server.drop_connections();
    eventually("it is unreachable", || {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
        state(&edge, &address) == "unreachable"
    });
    let before = checks(&checked);
    eventually("further checks", || checks(&checked) >= before + 6);
    assert_eq!(state(&edge, &address), "unreachable");
}
