//! Tests of many connections: their balance over the workers, the identification of clients, and
//! limits.

use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use sluice_lab::client::{Client, ClientOptions, Closing};
use sluice_lab::origin::Resource;

use crate::harness::{Edge, SOON, Setup, eventually, fresh, origin, serving};

/// Configures an edge that serves a folder with the file `/x` of five bytes. The arguments are
/// lines for `[server]`, `[limits]` and `[[listener]]`.
fn folder(server: &str, limits: &str, listener: &str) -> (tempfile::TempDir, Setup) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("x"), "hello").expect("written");
    let text = format!(
        "[server]\n{server}\n[limits]\n{limits}\n[[listener]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[[site]]\n[[site.route]]\nfiles = {:?}\n",
        folder.path().display().to_string()
    );
    (folder, Setup::of_text(text))
}

fn client_from(edge: &Edge, source: &str) -> Client {
    let options = ClientOptions {
        source: Some(source.parse::<IpAddr>().expect("an address")),
        ..ClientOptions::default()
    };
    Client::connect_with(edge.http, &options).expect("the kernel accepts")
}

/// Whether a new connection receives a response. If not, the edge has closed the connection.
fn served(client: &mut Client) -> bool {
    match client.get("/x", &[]) {
        Ok(reply) => {
            assert_eq!(reply.text(), "hello");
            true
        }
        Err(_) => {
            let closing = client.wait_closed(SOON).expect("a socket");
            assert_ne!(closing, Closing::Open);
            false
        }
    }
}

#[test]
fn a_few_connections_are_spread_evenly_over_the_workers() {
    let (_folder, setup) = folder("workers = 4", "", "");
    let edge = setup.start();
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..8 {
        let mut client = edge.client();
        assert!(served(&mut client));
        clients.push(client);
    }
    let status = edge.status();
    let workers = status["workers"].as_array().expect("a list");
    let open: Vec<_> = workers
        .iter()
        .map(|w| w["connections_now"].as_u64())
        .collect();
    assert_eq!(open, [Some(2); 4]);
}

#[test]
fn connections_per_ip_are_limited() {
    let (_folder, setup) = folder("workers = 2", "connections_per_ip = 3", "");
    let edge = setup.start();
    let mut mine: Vec<Client> = (0..3).map(|_| client_from(&edge, "127.0.0.5")).collect();
    assert!(mine.iter_mut().all(served));
    assert!(!served(&mut client_from(&edge, "127.0.0.5")));
    assert!(served(&mut client_from(&edge, "127.0.0.6")));
    assert_eq!(edge.counter("connections_over_ip"), 1);
    assert!(mine.iter_mut().all(served), "those that it has go on");
    mine.pop();
    eventually("there is room again", || {
        served(&mut client_from(&edge, "127.0.0.5"))
    });
    drop(mine);
    eventually("nothing is left", || edge.counter("connections_now") == 0);
}

// The limit of connections is reached. A new connection, on any worker, causes an idle one to be
// closed.
#[test]
fn idle_connections_are_closed_only_when_a_new_one_needs_the_place() {
    let (_folder, setup) = folder("workers = 2", "connections = 8", "");
    let edge = setup.start();
    let mut clients: Vec<Client> = (0..8).map(|_| edge.client()).collect();
    assert!(clients.iter_mut().all(served));
    assert!(clients.iter_mut().all(served), "all are still there");
    assert_eq!(edge.counter("connections_refused"), 0);
    assert!(served(&mut edge.client()));
    assert!(edge.counter("connections_refused") > 0);
}

// The program raises its soft limit of file descriptors (RLIMIT_NOFILE) to the hard limit.
#[test]
fn the_descriptor_limit_is_raised_to_the_hard_limit() {
    let (_folder, setup) = folder("workers = 1", "", "");
    let edge = setup.descriptors_at_first(256).start();
    let path = format!("/proc/{}/limits", edge.process.pid());
    let limits = fs::read_to_string(path).expect("the process is there");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = files.expect("a line").split_ascii_whitespace().collect();
    assert_eq!(words[3], words[4], "soft and hard");
    assert_ne!(words[3], "256");
}

// No file descriptor is left. The program accepts new connections with a reserved descriptor and
// closes them, without spinning or losing a listener.
#[test]
fn new_connections_are_closed_when_descriptors_run_out() {
    without_descriptors("workers = 1");
}

// The sandbox forbids opening most files. The reserved descriptor must be reopened nevertheless.
#[test]
fn a_sandboxed_edge_closes_new_connections_when_descriptors_run_out() {
    without_descriptors("workers = 1\nsandbox = true");
}

fn without_descriptors(server: &str) {
    let limits = "connections = 100000\nheader_timeout = \"1h\"";
    let (_folder, setup) = folder(server, limits, "");
    let edge = setup.descriptors(128).start();
    let begun = |edge: &Edge| {
        let mut client = edge.client();
        // A connection with an incomplete request is not idle, so it is not closed in favour of a
        // new one.
        client
            .send_raw(b"GET /x HTTP/1.1\r\n")
            .expect("the kernel takes it");
        client
    };
    let open = |client: &mut Client| {
        let soon = std::time::Duration::from_millis(1);
        matches!(client.wait_closed(soon), Ok(Closing::Open))
    };
    let mut held: Vec<Client> = (0..160).map(|_| begun(&edge)).collect();
    eventually("those without room are turned away", || {
        held.retain_mut(&open);
        held.len() < 128
    });
    let (before, cpu) = (Instant::now(), edge.process.cpu().expect("a process"));
    for _ in 0..20 {
        let closing = begun(&edge).wait_closed(SOON).expect("a socket");
        assert_ne!(closing, Closing::Open);
    }
    let cpu = edge.process.cpu().expect("a process") - cpu;
    let elapsed = before.elapsed();
    assert!(cpu < elapsed / 2, "{cpu:?} of CPU in {elapsed:?}");
    assert!(held.len() > 64, "only {} are served", held.len());
    for client in &mut held {
        client
            .send_raw(b"Host: a\r\n\r\n")
            .expect("it is still there");
        let reply = client.read_response().expect("an answer");
        // Opening the file may fail with 503, because no descriptor may be left for the file
        // either.
        assert!(matches!(reply.status, 200 | 503), "{}", reply.status);
    }
    drop(held);
    eventually("there is room again", || served(&mut edge.client()));
    eventually("the admin address answers", || {
        let answered = sluice_lab::client::get(edge.admin, "/status", &[]);
        answered.is_ok_and(|reply| reply.status == 200)
    });
    assert!(edge.counter("connections_shed") >= 160 - 128 + 20);
    let told = edge.process.stderr();
    let times = told.matches("out of file descriptors").count();
    assert!((1..=3).contains(&times), "{told}");
}

/// Returns the headers with the client's address that the origin receives. The client connects from
/// `from` and sends the headers `claims`.
fn announced(setup: &Setup, from: &str, claims: &[(&str, &str)]) -> Vec<String> {
    let origin = serving("/x", Resource::status(200));
    let text = setup.text().replace("ORIGIN", &origin.url(""));
    let edge = Setup::of_text(text).start();
    let mut client = client_from(&edge, from);
    assert_eq!(client.get("/x", claims).expect("a reply").status, 200);
    let asked = origin.requests();
    ["x-forwarded-for", "x-forwarded-proto", "forwarded"]
        .map(|name| asked[0].header(name).unwrap_or_default().to_owned())
        .to_vec()
}

fn trusting(server: &str) -> Setup {
    Setup::of_text(format!(
        "[server]\nworkers = 1\n{server}\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[upstream.o]\nservers = [\"ORIGIN\"]\n\
         [[site]]\n[[site.route]]\nproxy = \"o\"\n"
    ))
}

const CLAIMS: &[(&str, &str)] = &[
    ("X-Forwarded-For", "203.0.113.9, 192.0.2.1, 127.0.0.7"),
    ("X-Forwarded-Proto", "https"),
    ("Forwarded", "for=198.51.100.1;proto=https"),
];

// The client's address is the rightmost address in X-Forwarded-For that does not belong to a
// trusted proxy.
#[test]
fn trusted_proxies_report_the_client_address() {
    let setup = trusting("trusted_proxies = [\"127.0.0.0/29\"]");
    let told = announced(&setup, "127.0.0.5", CLAIMS);
    assert_eq!(told[..2], ["192.0.2.1, 127.0.0.5", "https"]);
    assert!(told[2].starts_with("for=192.0.2.1;host="), "{told:?}");
    assert!(told[2].ends_with(";proto=https, for=127.0.0.5"), "{told:?}");
    let told = announced(&setup, "127.0.0.9", CLAIMS);
    assert_eq!(told[..2], ["127.0.0.9", "http"]);
    let told = announced(&trusting(""), "127.0.0.5", CLAIMS);
    assert_eq!(told[..2], ["127.0.0.5", "http"]);
}

// The Forwarded header (RFC 7239) is used only if the configuration names it as the header with the
// client's address.
#[test]
fn the_forwarded_header_counts_only_if_configured() {
    let field = "trusted_proxies = [\"127.0.0.5\"]\nclient_ip_header = \"forwarded\"";
    let told = announced(&trusting(field), "127.0.0.5", CLAIMS);
    assert_eq!(told[..2], ["198.51.100.1, 127.0.0.5", "https"]);
}

// A trusted proxy reports the scheme of the request. The scheme is part of the key, so responses
// for http and https are stored separately.
#[test]
fn responses_for_http_and_https_are_stored_separately() {
    let origin = origin();
    origin.serve("/x", fresh(10));
    let text = Setup::cached(&origin).text();
    let text = text.replace(
        "[server]\n",
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n",
    );
    let edge = Setup::of_text(text).start();
    for proto in ["http", "https", "http", "https"] {
        let reply = edge.get("/x", &[("X-Forwarded-Proto", proto)]);
        reply.verify_whole(10).expect("the body");
    }
    assert_eq!(origin.requests().len(), 2);
}

// The scheme of a target in absolute form must be that of the request, which a trusted proxy reports.
#[test]
fn a_target_in_absolute_form_has_the_scheme_that_the_proxy_reports() {
    let origin = origin();
    origin.serve("/x", fresh(10));
    let text = Setup::cached(&origin).in_clear_text().text();
    let trusting = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let edge = Setup::of_text(text.replace("[server]\n", trusting)).start();
    let status = |scheme: &str, proto: &str| {
        let request = format!(
            "GET {scheme}://a.example/x HTTP/1.1\r\nHost: a.example\r\n{proto}Connection: close\r\n\r\n"
        );
        edge.send_raw(request.as_bytes())[9..12].to_owned()
    };
    let https = "X-Forwarded-Proto: https\r\n";
    assert_eq!(status("https", https), "200");
    assert_eq!(status("http", https), "400");
    assert_eq!(status("http", ""), "200");
    assert_eq!(status("https", ""), "400");
}

#[test]
fn the_log_contains_the_client_address_from_the_proxy() {
    let origin = serving("/x", fresh(10));
    let text = Setup::cached(&origin).workers(1).logged("json").text();
    let text = text.replace(
        "[server]\n",
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n",
    );
    let edge = Setup::of_text(text).start();
    edge.get("/x", &[("X-Forwarded-For", "192.0.2.1")]);
    edge.get("/x", &[]);
    let log = edge.json_log(2);
    assert_eq!(
        (&log[0]["client"], &log[1]["client"]),
        (&"192.0.2.1".into(), &"127.0.0.1".into())
    );
}
