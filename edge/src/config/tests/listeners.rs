//! Tests of listeners and trusted proxies.

use std::time::Duration;

use crate::config::{describe, parse};
use crate::downstream::{ClientIpHeader, Protocol};
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
    send_buffer = \"1MiB\"\ntcp_keepalive = \"1m\"\nhalf_close = true\nproxy_protocol = \"v2\"\ntrusted = [\"10.0.0.0/8\"]";

#[test]
fn every_key_is_planned_and_described() {
    let server = "trusted_proxies = [\"127.0.0.1\"]\nclient_ip_header = \"forwarded\"";
    let loaded = parse("sluice.toml", &with(ALL, server)).expect("a good file");
    let listener = &loaded.plan.listeners[0];
    let expected = ListenOptions {
        backlog: Some(9),
        defer_accept: false,
        receive_buffer: Some(64 << 10),
        send_buffer: Some(1 << 20),
        tcp_keepalive: Some(Duration::from_secs(60)),
        ipv6_only: true,
    };
    assert_eq!(listener.listening, expected);
    let described = describe(&loaded.plan);
    for line in [
        "listening on http://127.0.0.1:0, backlog 9, accepted before their \
         first bytes, receive buffers of 64 KiB, send buffers of 1 MiB, probed after 1m without a \
         packet, half-closed connections served, PROXY protocol v2 from 10.0.0.0/8\n",
        "client addresses from Forwarded of 127.0.0.1\n",
    ] {
        assert!(described.contains(line), "{described}");
    }
    let trust = &loaded.plan.trust;
    assert_eq!(trust.field, ClientIpHeader::Forwarded);
}

#[test]
fn limits_that_differ_from_the_defaults_are_described() {
    let described = |limits: &str| {
        let text = with("", &format!("[limits]\n{limits}"));
        describe(&parse("sluice.toml", &text).expect("a good file").plan)
    };
    let limits = "connections_per_ip = 9\nmax_streams = 7\nrequest_memory = \"64MiB\"\ntunnel_timeout = \"1h\"";
    let text = described(limits);
    for line in [
        "up to 9 connections per IP\n",
        "up to 7 requests at a time per connection of HTTP/2\n",
        "waiting requests take up to 64 MiB of memory\n",
        "idle tunnels are closed after 1h\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(described("request_memory = 0").contains("any amount of memory\n"));
    assert!(!described("tunnel_timeout = \"10m\"").contains("tunnel"));
}

#[test]
fn protocols_are_planned_and_described() {
    let (h1, h2) = (Protocol::Http1, Protocol::Http2);
    let tls = "tls = { certificate = \"a\", key = \"b\" }";
    for (listener, protocols, described) in [
        ("", &[h1][..], "127.0.0.1:0\n"),
        ("protocols = \"h2\"", &[h2], "127.0.0.1:0, HTTP/2\n"),
        (
            "protocols = [\"h2\", \"http/1.1\"]",
            &[h2, h1],
            "127.0.0.1:0, HTTP/2 or HTTP/1.1\n",
        ),
        (tls, &[h2, h1], ", HTTP/2 or HTTP/1.1\n"),
        (
            &format!("protocols = [\"http/1.1\", \"h2\"]\n{tls}"),
            &[h1, h2],
            ", HTTP/1.1 or HTTP/2\n",
        ),
        (
            &format!("protocols = \"http/1.1\"\n{tls}"),
            &[h1],
            ", HTTP/1.1\n",
        ),
    ] {
        let plan = crate::config::tests::plan(&with(listener, ""));
        let listed: Vec<_> = plan.listeners[0].protocols.iter().collect();
        assert_eq!(listed, protocols, "{listener}");
        let text = describe(&plan);
        assert!(text.contains(described), "{text}");
    }
}

#[test]
fn wrong_protocols_are_reported_with_the_right_ones() {
    for (listener, expected) in [
        ("protocols = false", "`protocols` can't be turned off"),
        ("protocols = []", "`protocols` can't be turned off"),
        ("protocols = [\"h2\", \"h2\"]", "names this twice"),
        ("protocols = \"h4\"", "did you mean `h2`"),
        ("protocols = \"spdy\"", "`http/1.1`"),
        ("protocols = \"h2c\"", "write \"h2\": without `tls`"),
        ("protocols = [\"h1\", \"h2\"]", "write \"http/1.1\""),
        ("protocols = \"h3\"", "no HTTP/3"),
        ("http2 = true", "`protocols` in [[listener]]"),
    ] {
        let text = said(listener, "");
        assert!(
            text.contains(expected) && text.contains("sluice.toml:5"),
            "{text}"
        );
    }
    let text = with("", "").replace("\"127.0.0.1:0\"", "\"443 http2\"");
    let text = parse("sluice.toml", &text)
        .expect_err("no address")
        .render(false);
    assert!(text.contains("listeners with TLS speak HTTP/2"), "{text}");
    let text = with("", "[limits]\nhttp2_max_concurrent_streams = 9");
    let text = parse("sluice.toml", &text)
        .expect_err("no key")
        .render(false);
    assert!(text.contains("write `max_streams` in [limits]"), "{text}");
}

#[test]
fn ipv6_only_concerns_ipv6_addresses() {
    let text = said("ipv6_only = false", "");
    assert!(text.contains("`ipv6_only` does nothing here"), "{text}");
    let both = with("ipv6_only = false", "").replace("127.0.0.1:0", "[::]:0");
    let loaded = parse("sluice.toml", &both).expect("a good file");
    assert!(!loaded.plan.listeners[0].listening.ipv6_only);
    let described = describe(&loaded.plan);
    assert!(
        described.contains("http://[::]:0, IPv4 clients, too\n"),
        "{described}"
    );
}

#[test]
fn a_unix_socket_needs_a_full_path_of_its_own() {
    let at = |address: &str| {
        let address = format!("address = \"{address}\"");
        with("", "").replace("address = \"127.0.0.1:0\"", &address)
    };
    let loaded = parse("sluice.toml", &at("unix:/run/s.sock")).expect("a good file");
    assert_eq!(
        loaded.plan.listeners[0].address.to_string(),
        "unix:/run/s.sock"
    );
    assert!(describe(&loaded.plan).contains("listening on unix:/run/s.sock\n"));
    let long = format!("unix:/{}", "x".repeat(107));
    for (bad, why) in [
        ("unix:", "not the full path of a file"),
        ("unix:run/s.sock", "not the full path of a file"),
        ("unix:/run/..", "not the full path of a file"),
        (&long, "longer than 107 bytes"),
    ] {
        let text = match parse("sluice.toml", &at(bad)) {
            Ok(_) => panic!("{bad} is refused"),
            Err(report) => report.render(false),
        };
        assert!(
            text.contains(why) && text.contains("unix:/run/sluice.sock"),
            "{text}"
        );
    }
    let twice = format!("listen = \"unix:/run/s.sock\"\n{}", at("unix:/run/s.sock"));
    let text = match parse("sluice.toml", &twice) {
        Ok(_) => panic!("two listeners have one path"),
        Err(report) => report.render(false),
    };
    assert!(
        text.contains("used twice") && text.contains("its own path"),
        "{text}"
    );
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
