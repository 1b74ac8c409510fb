//! Tests of the choice of a connection's protocol, by ALPN and by the first bytes.

use std::sync::Arc;

use rustls::ClientConfig;
use sluice_lab::certificates::Authority;
use sluice_lab::client::Client;
use sluice_lab::origin::{Origin, Resource};

use super::client::Http2Client;
use super::frames::{FrameClient, PREFACE, PROTOCOL_ERROR, get, hello, request};
use super::{both, edge};
use crate::harness::{Edge, Setup, eventually, fresh, serving, setup};
use crate::tls::{client_config_of, connect};

/// Returns the configuration of a client that offers these protocols (ALPN).
fn offering(protocols: &[&str]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&setup::tls().config);
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}

/// Returns the protocol that the server chooses, or the error of the handshake.
fn chosen(edge: &Edge, offered: &[&str]) -> Result<Option<String>, String> {
    let mut client = connect(edge.http, "localhost", offering(offered));
    client.handshake().map_err(|error| error.to_string())?;
    let session = client.session().expect("TLS");
    let chosen = session.alpn_protocol();
    Ok(chosen.map(|name| String::from_utf8_lossy(name).into_owned()))
}

fn encrypted(origin: &Origin, protocols: &str) -> (Setup, Edge) {
    let setup = Setup::cached(origin).encrypted().workers(1);
    let setup = match protocols {
        "" => setup,
        protocols => setup.listener(&format!("protocols = {protocols}")),
    };
    let edge = setup.start();
    (setup, edge)
}

#[test]
fn the_handshake_chooses_the_protocol() {
    let origin = serving("/x", fresh(10));
    let (_, edge) = encrypted(&origin, "");
    let h2 = Ok(Some("h2".to_owned()));
    let http1 = Ok(Some("http/1.1".to_owned()));
    assert_eq!(chosen(&edge, &["http/1.1", "h2"]), h2);
    assert_eq!(chosen(&edge, &["h2"]), h2);
    assert_eq!(chosen(&edge, &["h3", "http/1.1"]), http1);
    assert_eq!(chosen(&edge, &[]), Ok(None));
    let error = chosen(&edge, &["h3", "http/1.0"]).expect_err("a refusal");
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    eventually("the failure is counted", || {
        edge.counter("tls_failed_protocol") == 1
    });
    // Without ALPN, the client speaks HTTP/1.1.
    assert_eq!(edge.get("/x", &[]).status, 200);
    let config = ClientConfig::clone(&setup::tls().config);
    let mut client = Http2Client::connect_tls(edge.http, "localhost", config);
    assert_eq!(client.get("/x", &[]).status, 200);
}

#[test]
fn a_reload_changes_the_protocols_of_new_connections() {
    let origin = serving("/x", fresh(10));
    let (setup, edge) = encrypted(&origin, "\"http/1.1\"");
    let http1 = Ok(Some("http/1.1".to_owned()));
    assert_eq!(chosen(&edge, &["h2", "http/1.1"]), http1);
    assert!(chosen(&edge, &["h2"]).is_err());
    let reload = |protocols: &str| {
        let text = setup.text().replace("\"http/1.1\"", protocols);
        edge.rewrite(&text);
        let said = edge.command(&["reload"]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("protocols of listeners changed"), "{said}");
    };
    reload("[\"http/1.1\", \"h2\"]");
    assert_eq!(chosen(&edge, &["h2", "http/1.1"]), http1);
    let config = ClientConfig::clone(&setup::tls().config);
    let mut client = Http2Client::connect_tls(edge.http, "localhost", config);
    assert_eq!(client.get("/x", &[]).status, 200);
    reload("\"http/1.1\" ");
    // The open connection goes on.
    assert_eq!(client.get("/x", &[]).status, 200);
    assert!(chosen(&edge, &["h2"]).is_err());
}

#[test]
fn the_protocols_in_clear_text_change_with_a_reload() {
    let origin = serving("/x", fresh(10));
    let setup = both(Setup::cached(&origin)).workers(1);
    let edge = setup.start();
    assert_eq!(Http2Client::connect(edge.http).get("/x", &[]).status, 200);
    edge.rewrite(
        &setup
            .text()
            .replace("[\"h2\", \"http/1.1\"]", "\"http/1.1\""),
    );
    assert!(edge.command(&["reload"]).status.success());
    let answer = edge.send_raw(&hello());
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    assert_eq!(edge.get("/x", &[]).status, 200);
}

/// Reads the end of a connection whose client broke the rules.
fn assert_refused(client: FrameClient) {
    client.assert_closed_with(PROTOCOL_ERROR, "no preface");
}

#[test]
fn a_client_that_negotiated_http2_must_send_its_preface() {
    let origin = serving("/x", fresh(10));
    let (_, edge) = encrypted(&origin, "");
    let client = connect(edge.http, "localhost", offering(&["h2"]));
    let mut client = FrameClient(client);
    client.send(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_refused(client);
    assert_eq!(edge.counter("http2_failed_protocol"), 1);
    assert!(origin.requests().is_empty());
}

#[test]
fn http2_alone_in_clear_text_needs_prior_knowledge() {
    let origin = serving("/x", fresh(10));
    let setup = Setup::cached(&origin).listener("protocols = \"h2\"");
    let edge = setup.in_clear_text().start();
    assert_eq!(Http2Client::connect(edge.http).get("/x", &[]).status, 200);
    assert_http1_is_refused(&edge);
    let mut client = edge.client();
    client.send_raw(b"NO PREFACE\r\n\r\n").expect("sent");
    assert_eq!(client.read_to_end().expect("an end"), b"");
    assert_eq!(edge.counter("http2_failed_protocol"), 1);
    assert_eq!(origin.read_record(|record| record.count("/x")), 1);
}

/// Asserts that a request with HTTP/1.1 gets a response that names the reason, and that the log has it.
fn assert_http1_is_refused(edge: &Edge) {
    let mut client = edge.client();
    let request = b"GET /y HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.send_raw(&request.repeat(2)).expect("sent");
    let reply = client.read_response().expect("a response");
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (505, "505 http-version\n")
    );
    assert_eq!(client.read_to_end().expect("an end"), b"");
    assert_eq!(edge.counter("requests_refused"), 1);
}

#[test]
fn http2_alone_over_tls_needs_no_alpn() {
    let origin = serving("/x", fresh(10));
    let (_, edge) = encrypted(&origin, "\"h2\"");
    assert!(chosen(&edge, &["http/1.1"]).is_err());
    assert_http1_is_refused(&edge);
}

#[test]
fn the_first_bytes_choose_in_clear_text() {
    let origin = serving("/x", fresh(10));
    let edge = edge(&origin);
    assert_eq!(Http2Client::connect(edge.http).get("/x", &[]).status, 200);
    assert_eq!(edge.get("/x", &[]).status, 200);
    // Byte by byte, with methods that begin like the preface.
    for method in ["POST", "PRI", "PRIX"] {
        let mut client = edge.client();
        client.stream().set_nodelay(true).expect("an option");
        let text = format!("{method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        for byte in text.bytes() {
            client.send_raw(&[byte]).expect("sent");
        }
        let head = client.read_head().expect("a response");
        assert!(head.status >= 200, "{method}");
    }
    let mut client = FrameClient(edge.client());
    client.0.stream().set_nodelay(true).expect("an option");
    for byte in [hello(), request(1, &get("/x"))].concat() {
        client.send(&[byte]);
    }
    let head = client.read_until(super::frames::HEADERS);
    assert_eq!(head.stream, 1);
    assert_eq!(edge.counter("http2_connections"), 2);
}

#[test]
fn a_part_of_the_preface_is_waited_for_only_so_long() {
    let origin = serving("/x", fresh(10));
    let setup = both(Setup::cached(&origin)).limits("header_timeout = \"100ms\"");
    let edge = setup.start();
    for (first, timeouts) in [(&b""[..], 0), (&PREFACE[..10], 1), (PREFACE, 1)] {
        let mut client = edge.client();
        client.send_raw(first).expect("sent");
        let answer = client.read_to_end();
        // Frames are answered, and the connection of the last client is reset.
        assert!(first == PREFACE || answer.is_ok_and(|answer| answer.is_empty()));
        assert_eq!(edge.counter("client_timeouts"), timeouts);
    }
    let mut client = edge.client();
    client.send_raw(&PREFACE[..10]).expect("sent");
    client.finish_sending().expect("a socket");
    assert_eq!(client.read_to_end().expect("an end"), b"");
}

#[test]
fn an_upgrade_to_h2c_is_not_followed() {
    let origin = serving("/pass/x", Resource::offset(10));
    let edge = edge(&origin);
    let headers = [
        ("Host", "a"),
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
    ];
    let mut client = edge.client();
    let reply = client.get("/pass/x", &headers).expect("a reply");
    assert_eq!(reply.status, 200);
    let seen = origin.requests().pop().expect("a request");
    assert_eq!(
        (seen.header("upgrade"), seen.header("http2-settings")),
        (None, None)
    );
}

#[test]
fn the_proxy_protocol_comes_before_the_preface() {
    let origin = serving("/pass/x", Resource::offset(10));
    let listener = "proxy_protocol = \"v1\"\ntrusted = \"127.0.0.1\"";
    let edge = both(Setup::cached(&origin)).listener(listener).start();
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\n";
    let mut client = Http2Client::connect_after(edge.http, line);
    assert_eq!(client.get("/pass/x", &[]).status, 200);
    let seen = origin.requests().pop().expect("a request");
    assert_eq!(seen.header("x-forwarded-for"), Some("192.0.2.1"));
    let mut client = edge.client();
    let ask = b"GET /pass/x HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send_raw(&[&line[..], ask].concat()).expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
}

#[test]
fn unix_sockets_speak_http2() {
    let origin = serving("/x", fresh(100_000));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sluice.sock");
    let listener = format!(
        "[[listener]]\naddress = \"unix:{}\"\nprotocols = [\"h2\", \"http/1.1\"]\n",
        path.display()
    );
    let _edge = Setup::cached(&origin).tables(&listener).start();
    let mut client = Http2Client::connect_unix(&path);
    let answer = client.get("/x", &[]);
    assert_eq!((answer.status, answer.body.len()), (200, 100_000));
}

#[test]
fn sites_of_other_demands_are_misdirected() {
    let (servers, clients) = (Authority::new("Servers"), Authority::new("Clients"));
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = ["a.example.com", "b.example.com", "c.example.com"];
    let keys = servers.server(&hosts).write(folder.path(), "server");
    let keys = keys.expect("written").keys();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, clients.pem()).expect("written");
    let origin = serving("/x", fresh(10));
    let site = |host: &str, more: &str| {
        format!(
            "[[site]]\nhosts = {host:?}\ntls = {{ {keys}{more} }}\n[[site.route]]\nproxy = {:?}\n",
            origin.url("")
        )
    };
    let text = format!(
        "[server]\nworkers = 1\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n{}{}{}",
        site(hosts[0], ""),
        site(hosts[1], ""),
        site(hosts[2], &format!(", client_ca = {ca:?}")),
    );
    let edge = Setup::of_text(text).start();
    let config = client_config_of(&servers, &clients, "tester");
    let config = || ClientConfig::clone(&config);
    let mut client = Http2Client::connect_tls(edge.http, hosts[0], config());
    let mut status = |host: &str| client.get("/x", &[("host", host)]).status;
    assert_eq!(hosts.map(&mut status), [200, 200, 421]);
    assert_eq!(status(hosts[0]), 200, "the connection goes on");
    let mut client = Http2Client::connect_tls(edge.http, hosts[2], config());
    assert_eq!(client.get("/x", &[("host", hosts[2])]).status, 200);
}

/// Keeps a client of HTTP/1 alive over two requests, the first of which decides.
#[test]
fn connections_of_http1_stay_open_on_a_listener_for_both() {
    let origin = serving("/x", fresh(10));
    let edge = edge(&origin);
    let mut client: Client = edge.client();
    for _ in 0..3 {
        let reply = client.get("/x", &[("Host", "a")]).expect("a reply");
        assert_eq!(reply.status, 200);
    }
    assert_eq!(edge.counter("http1_connections_now"), 1);
}
