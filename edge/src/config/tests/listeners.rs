//! Tests of listeners and trusted proxies.

use std::time::Duration;

use crate::config::{describe, parse};
use crate::downstream::ClientIpHeader;
use crate::sys::listen_options::ListenOptions;

fn with(listener: &str, server: &str) -> String {
    format!(
        "[server]\n{server}\n[[listener]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [upstream.o]\nservers = [\"http://127.0.0.1:9\"]\n[[site]]\n[[site.route]]\nproxy = \"o\"\n"
    )
}

fn said(listener: &str, server: &str) -> String {
    match parse("sluice.toml", &with(listener, server)) {
        Ok(loaded) => loaded.warnings.render(false),
        Err(report) => report.render(false),
    }
}

const ALL: &str = "backlog = 9\ndefer_accept = false\nreceive_buffer = \"64KiB\"\n\
    send_buffer = \"1MiB\"\ntcp_keepalive = \"1m\"\nproxy_protocol = \"v2\"\ntrusted = [\"10.0.0.0/8\"]";

#[test]
fn every_key_is_planned_and_described() {
    let server = "trusted_proxies = [\"127.0.0.1\"]\nclient_ip_header = \"forwarded\"";
    let loaded = parse("sluice.toml", &with(ALL, server)).expect("a good file");
    let listener = &loaded.plan.listeners[0];
    let expected = ListenOptions {
        backlog: Some(9),
        defer: false,
        receive_buffer: Some(64 << 10),
        send_buffer: Some(1 << 20),
        keepalive: Some(Duration::from_secs(60)),
    };
    assert_eq!(listener.listening, expected);
    let described = describe(&loaded.plan);
    for line in [
        "listening on http://127.0.0.1:0, backlog 9, accepted before their \
         first bytes, receive buffers of 64 KiB, send buffers of 1 MiB, probed after 1m without a \
         packet, PROXY protocol v2 from 10.0.0.0/8\n",
        "client addresses from Forwarded of 127.0.0.1\n",
    ] {
        assert!(described.contains(line), "{described}");
    }
    let trust = &loaded.plan.trust;
    assert_eq!(trust.field, ClientIpHeader::Forwarded);
}

#[test]
fn no_proxy_is_trusted_unless_its_address_is_configured() {
    let text = said("proxy_protocol = \"any\"", "");
    assert!(
        text.contains("`proxy_protocol` without `trusted`"),
        "{text}"
    );
    let text = said("trusted = [\"10.0.0.0/8\"]", "");
    assert!(text.contains("`trusted` does nothing here"), "{text}");
    let text = said("", "client_ip_header = \"forwarded\"");
    assert!(text.contains("no proxy is trusted to set it"), "{text}");
    let text = said("", "trusted_proxies = [\"0.0.0.0/0\"]");
    assert!(
        text.contains("every client may claim any address"),
        "{text}"
    );
    let text = said("send_buffer = \"1KiB\"\ntcp_keepalive = \"48h\"", "");
    assert_eq!(text.matches("out of bounds").count(), 2, "{text}");
}
