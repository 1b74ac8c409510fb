//! Tests of the PROXY protocol. A load balancer sends a preamble with the client's address before
//! the first byte of each connection.

use sluice_lab::client::{Client, ClientOptions, Closing};
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, serving};

const ASK: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const LINE: &str = "PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\n";

/// Starts an edge that accepts these versions of the PROXY protocol from 127.0.0.1.
fn introduced(versions: &str, limits: &str) -> (Origin, Edge) {
    let origin = serving("/x", Resource::status(200));
    // The preamble comes before the TLS handshake: see `tls`.
    let setup = Setup::uncached(&origin)
        .limits(limits)
        .logged("json")
        .in_clear_text();
    let listener =
        format!("[[listener]]\nproxy_protocol = \"{versions}\"\ntrusted = [\"127.0.0.1\"]\n");
    let text = setup.text().replace("[[listener]]\n", &listener);
    let edge = Setup::of_text(text).start();
    (origin, edge)
}

fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
    [
        b"\r\n\r\n\0\r\nQUIT\n",
        &[command, family][..],
        &length,
        rest,
    ]
    .concat()
}

fn closed(client: &mut Client) -> Closing {
    client.wait_closed(SOON).expect("a socket")
}

// Preambles of both versions are sent at once or byte by byte. The origin and the log receive the
// client's address from the preamble.
#[test]
fn the_client_address_comes_from_the_proxy_protocol() {
    let (origin, edge) = introduced("any", "");
    let four = [
        192, 0, 2, 2, 198, 51, 100, 2, 0x9c, 0x40, 1, 0xbb, 4, 0, 1, 9,
    ];
    let headers = [LINE.as_bytes().to_vec(), binary(0x21, 0x11, &four)];
    for header in &headers {
        let mut client = edge.client();
        client
            .send_raw(&[&header[..], ASK.as_bytes()].concat())
            .expect("sent");
        assert_eq!(client.read_response().expect("a reply").status, 200);
        client.send_raw(ASK.as_bytes()).expect("sent");
        assert_eq!(client.read_response().expect("a reply").status, 200);
    }
    for header in &headers {
        let mut client = edge.client();
        client.stream().set_nodelay(true).expect("an option");
        for byte in header.iter().chain(ASK.as_bytes()) {
            client.send_raw(&[*byte]).expect("sent");
        }
        assert_eq!(client.read_response().expect("a reply").status, 200);
    }
    let told =
        |request: &sluice_lab::origin::Seen| request.header("x-forwarded-for").map(str::to_owned);
    let told: Vec<_> = origin.requests().iter().map(told).collect();
    let is = |address: &str| Some(address.to_owned());
    let (one, two) = (is("192.0.2.1"), is("192.0.2.2"));
    assert_eq!(told, [&one, &one, &two, &two, &one, &two].map(Clone::clone));
    // Each worker writes its log lines independently, so lines are found by their address.
    let log = edge.json_log(6);
    let named = |address: &str| log.iter().filter(|line| line["client"] == address).count();
    assert_eq!((named("192.0.2.1"), named("192.0.2.2")), (3, 3));
}

// The balancer's own connections, such as health checks, have a preamble without a client's
// address. The client is then the balancer.
#[test]
fn a_balancer_may_send_requests_of_its_own() {
    let (origin, edge) = introduced("any", "");
    for header in [&b"PROXY UNKNOWN\r\n"[..], &binary(0x20, 0, b"")] {
        let mut client = edge.client();
        client
            .send_raw(&[header, ASK.as_bytes()].concat())
            .expect("sent");
        assert_eq!(client.read_response().expect("a reply").status, 200);
    }
    for seen in origin.requests() {
        assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    }
}

#[test]
fn a_connection_without_a_preamble_is_closed() {
    let (origin, edge) = introduced("v2", "");
    let cut = binary(0x21, 0x11, &[1; 11]);
    for header in [ASK.as_bytes(), LINE.as_bytes(), &cut] {
        let mut client = edge.client();
        client
            .send_raw(&[header, ASK.as_bytes()].concat())
            .expect("sent");
        assert_ne!(closed(&mut client), Closing::Open);
    }
    let stranger = ClientOptions {
        source: "127.0.0.2".parse().ok(),
        ..ClientOptions::default()
    };
    let mut stranger = Client::connect_with(edge.http, &stranger).expect("the kernel accepts");
    // The edge may have closed the connection before this request is sent, so an error is ignored.
    let _ = stranger.send_raw(&[&binary(0x20, 0, b"")[..], ASK.as_bytes()].concat());
    assert_ne!(closed(&mut stranger), Closing::Open);
    assert_eq!(edge.counter("connections_not_introduced"), 4);
    assert!(origin.requests().is_empty());
    eventually("all are gone", || edge.counter("connections_now") == 0);
}

// A client must send the complete preamble within the time limit for request heads.
#[test]
fn a_preamble_has_a_time_limit() {
    let (_origin, edge) = introduced("any", "header_timeout = \"8s\"");
    let parts = [
        &b""[..],
        b"PROXY TCP4 192.0",
        &binary(0x21, 0x11, &[1; 12])[..20],
    ];
    let clients = parts.map(|part| {
        let mut client = edge.client();
        client.send_raw(part).expect("sent");
        (part, client)
    });
    for (part, mut client) in clients {
        assert_eq!(closed(&mut client), Closing::Fin, "{part:?}");
    }
    eventually("all are gone", || edge.counter("connections_now") == 0);
}

// The limit of connections per client address applies to the address in the preamble, not to that
// of the balancer.
#[test]
fn connections_are_counted_by_the_address_in_the_preamble() {
    let (_origin, edge) = introduced("any", "connections_per_ip = 1");
    let ask = |client: &mut Client, address: &str| {
        let line = LINE.replace("192.0.2.1", address);
        client
            .send_raw(format!("{line}{ASK}").as_bytes())
            .expect("sent");
        client.read_response().is_ok()
    };
    let (mut first, mut second, mut third) = (edge.client(), edge.client(), edge.client());
    assert!(ask(&mut first, "192.0.2.1"));
    assert!(ask(&mut second, "192.0.2.2"));
    assert!(!ask(&mut third, "192.0.2.1"));
    assert_eq!(edge.counter("connections_over_ip"), 1);
}
