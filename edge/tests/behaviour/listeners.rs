//! Tests of listeners on IP addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use sluice_lab::client;
use sluice_lab::origin::Resource;

use crate::harness::{Setup, serving};

/// Returns a port that is free on all IPv4 and IPv6 addresses. Returns `None` on a machine without IPv6.
fn free_port() -> Option<u16> {
    let six = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
    Some(six.local_addr().expect("an address").port())
}

fn status(address: impl Into<SocketAddr>) -> std::io::Result<u16> {
    let reply = client::get(address.into(), "/x", &[]).map_err(std::io::Error::other)?;
    Ok(reply.status)
}

#[test]
fn all_ipv4_and_all_ipv6_addresses_can_have_the_same_port() {
    let origin = serving("/x", Resource::status(200));
    let Some(port) = free_port() else { return };
    let address = "address = \"127.0.0.1:0\"\n[admin]";
    let both =
        format!("address = \"0.0.0.0:{port}\"\n[[listener]]\naddress = \"[::]:{port}\"\n[admin]");
    let text = Setup::uncached(&origin)
        .in_clear_text()
        .with_http1()
        .text()
        .replace(address, &both);
    let _edge = Setup::of_text(text).start();
    assert_eq!(status((Ipv4Addr::LOCALHOST, port)).ok(), Some(200));
    assert_eq!(status((Ipv6Addr::LOCALHOST, port)).ok(), Some(200));
}

#[test]
fn an_ipv6_address_serves_ipv4_clients_only_if_configured() {
    let origin = serving("/x", Resource::status(200));
    for ipv6_only in [true, false] {
        let Some(port) = free_port() else { return };
        let address = "address = \"127.0.0.1:0\"\n[admin]";
        let six = format!("address = \"[::]:{port}\"\nipv6_only = {ipv6_only}\n[admin]");
        let text = Setup::uncached(&origin)
            .in_clear_text()
            .with_http1()
            .text()
            .replace(address, &six);
        let _edge = Setup::of_text(text).start();
        assert_eq!(status((Ipv6Addr::LOCALHOST, port)).ok(), Some(200));
        assert_eq!(status((Ipv4Addr::LOCALHOST, port)).is_err(), ipv6_only);
    }
}
