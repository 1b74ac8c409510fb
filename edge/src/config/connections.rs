//! Where connections come in, and whose word counts for who the client is.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;

use super::checks::Checks;
use super::file::{ClientHeader, ListenerFile, ProxyVersion, ServerSection};
use super::names;
use super::plan::{LISTEN, address};
use super::report::Problem;
use super::value::{Key, Names, Size, Word, show_size, show_time};
use super::words;
use crate::downstream::{ClientField, ConnectionSetup, Protocol, ProxyProtocol, Trust, Versions};
use crate::http::Scheme;
use crate::sys::listen_options::ListenOptions;

/// `[[listener]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPlan {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// What its sockets are set to.
    pub listening: ListenOptions,
    /// How its connections are taken.
    pub setup: ConnectionSetup,
}

impl ListenerPlan {
    /// With all defaults.
    pub fn at(address: SocketAddr) -> ListenerPlan {
        ListenerPlan {
            address,
            listening: ListenOptions::default(),
            setup: ConnectionSetup {
                scheme: Scheme::Http,
                proxy: None,
                protocol: Protocol::default(),
            },
        }
    }
}

/// Bounds of a socket's buffers, bytes.
const BUFFER: std::ops::RangeInclusive<u64> = 4 << 10..=256 << 20;

/// The addresses of `listen` and all `[[listener]]`s; at least one.
pub fn listeners(
    files: &[Spanned<ListenerFile>],
    listen: Option<&Names>,
    admin: Option<SocketAddr>,
    checks: &mut Checks,
) -> Vec<ListenerPlan> {
    let mut plans: Vec<ListenerPlan> = Vec::new();
    let short = listen.into_iter().flat_map(|typed| typed.get_ref());
    let short = short.map(|address| {
        let file = ListenerFile {
            address: Some(address.clone()),
            ..ListenerFile::default()
        };
        Spanned::new(address.span(), file)
    });
    if let Some(off) = listen.filter(|typed| typed.is_false()) {
        checks.push(
            Problem::error("`listen` without an address")
                .at(off.span())
                .help(format!(
                    "write one as in \":8080\", or leave it out for {LISTEN}"
                )),
        );
    }
    for file in short.chain(files.iter().cloned()) {
        let Some(text) = &file.get_ref().address else {
            checks.push(
                Problem::error("a listener without an address")
                    .at(file.span())
                    .help(format!("add `address = \"{LISTEN}\"`")),
            );
            continue;
        };
        let Some(address) = address("address", text, checks) else {
            continue;
        };
        let taken = address.port() != 0 && plans.iter().any(|p| p.address == address);
        if taken || (address.port() != 0 && admin == Some(address)) {
            let owner = if taken {
                "another listener"
            } else {
                "the admin address"
            };
            checks.push(
                Problem::error(format!("`{address}` is taken twice"))
                    .at(text.span())
                    .label(format!("{owner} has it already"))
                    .help("give each its own port"),
            );
        }
        plans.push(ListenerPlan {
            address,
            listening: listening(file.get_ref(), checks),
            setup: ConnectionSetup {
                scheme: Scheme::Http,
                proxy: proxy(file.get_ref(), checks),
                protocol: Protocol::default(),
            },
        });
    }
    if files.is_empty() && listen.is_none() {
        plans.extend(LISTEN.parse().ok().map(ListenerPlan::at));
    }
    plans
}

fn listening(file: &ListenerFile, checks: &mut Checks) -> ListenOptions {
    let d = ListenOptions::default();
    let backlog = checks.within("backlog", &file.backlog, 0, 0..=1 << 30);
    let keepalive = checks.within(
        "tcp_keepalive",
        &file.tcp_keepalive,
        Duration::ZERO,
        Duration::ZERO..=Duration::from_secs(24 * 3600),
    );
    let mut buffer = |name: &str, key: &Key<Size>| {
        let bytes = checks.within(name, key, 0, BUFFER);
        u32::try_from(bytes).ok().filter(|&bytes| bytes > 0)
    };
    ListenOptions {
        backlog: u32::try_from(backlog).ok().filter(|&n| n > 0),
        defer: file.defer_accept.unwrap_or(d.defer),
        receive_buffer: buffer("receive_buffer", &file.receive_buffer),
        send_buffer: buffer("send_buffer", &file.send_buffer),
        keepalive: Some(keepalive).filter(|time| !time.is_zero()),
    }
}

/// Whoever may introduce clients is named: any other could say what it likes of who it is.
fn proxy(file: &ListenerFile, checks: &mut Checks) -> Option<ProxyProtocol> {
    let typed = file.proxy_protocol.as_ref();
    let versions =
        typed
            .and_then(|typed| typed.get_ref().on())
            .map(|Word(version)| match version {
                ProxyVersion::V1 => Versions::V1,
                ProxyVersion::V2 => Versions::V2,
                ProxyVersion::Any => Versions::Any,
            });
    let every = "every address may say who its client is";
    let trusted = names::networks("trusted", file.trusted.as_ref(), every, checks);
    match (versions, typed, &file.trusted) {
        (Some(_), Some(typed), None) => checks.push(
            Problem::error("`proxy_protocol` without `trusted`")
                .at(typed.span())
                .label("nobody is trusted to say who the clients are")
                .help("add the addresses of your load balancers, as in `trusted = [\"10.0.0.0/8\"]`"),
        ),
        (None, _, Some(trusted)) => checks.push(
            Problem::warning("`trusted` does nothing here")
                .at(trusted.span())
                .help("add `proxy_protocol`; for X-Forwarded-For there is `trusted_proxies` in [server]"),
        ),
        _ => {}
    }
    versions.map(|versions| ProxyProtocol { versions, trusted })
}

/// `[server] trusted_proxies` and `client_ip_header`.
pub fn trust(file: &ServerSection, checks: &mut Checks) -> Trust {
    let every = "every client may say who it is";
    let proxies = names::networks(
        "trusted_proxies",
        file.trusted_proxies.as_ref(),
        every,
        checks,
    );
    let word = |key: &Spanned<Word<ClientHeader>>| key.get_ref().0;
    if let Some(typed) = file
        .client_ip_header
        .as_ref()
        .filter(|_| proxies.is_empty())
    {
        checks.push(
            Problem::warning("`client_ip_header` does nothing here")
                .at(typed.span())
                .label("nobody is trusted to set it")
                .help("add `trusted_proxies`, or leave it out"),
        );
    }
    let field = match file.client_ip_header.as_ref().map(word).unwrap_or_default() {
        ClientHeader::XForwardedFor => ClientField::XForwardedFor,
        ClientHeader::Forwarded => ClientField::Forwarded,
    };
    Trust { proxies, field }
}

/// A listener in plain words.
pub fn describe(plan: &ListenerPlan) -> String {
    let listening = &plan.listening;
    let mut text = format!("listening on http://{}", plan.address);
    if let Some(backlog) = listening.backlog {
        text += &format!(", up to {backlog} waiting to be accepted");
    }
    if !listening.defer {
        text += ", accepted before they say anything";
    }
    for (name, bytes) in [
        ("receive", listening.receive_buffer),
        ("send", listening.send_buffer),
    ] {
        if let Some(bytes) = bytes {
            text += &format!(", {name} buffers of {}", show_size(u64::from(bytes)));
        }
    }
    if let Some(time) = listening.keepalive {
        text += &format!(", probed after {} without a word", show_time(time));
    }
    if let Some(proxy) = &plan.setup.proxy {
        let versions = match proxy.versions {
            Versions::V1 => "PROXY protocol v1",
            Versions::V2 => "PROXY protocol v2",
            Versions::Any => "PROXY protocol v1 or v2",
        };
        text += &format!(", {versions} from {}", words::networks(&proxy.trusted));
    }
    text
}

/// Whose word counts, if anybody's.
pub fn describe_trust(trust: &Trust) -> Option<String> {
    let field = match trust.field {
        ClientField::XForwardedFor => "X-Forwarded-For",
        ClientField::Forwarded => "Forwarded",
    };
    let proxies = words::networks(&trust.proxies);
    (!trust.proxies.is_empty()).then(|| format!("clients as {field} says from {proxies}"))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

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
    fn all_that_was_typed_is_planned_and_described() {
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
        assert_eq!(
            describe(listener),
            "listening on http://127.0.0.1:0, up to 9 waiting to be accepted, accepted before they \
             say anything, receive buffers of 64 KiB, send buffers of 1 MiB, probed after 1m without a \
             word, PROXY protocol v2 from 10.0.0.0/8"
        );
        let trust = &loaded.plan.trust;
        assert_eq!(trust.field, ClientField::Forwarded);
        assert_eq!(
            describe_trust(trust).as_deref(),
            Some("clients as Forwarded says from 127.0.0.1")
        );
    }

    #[test]
    fn nobody_is_trusted_by_omission() {
        let text = said("proxy_protocol = \"any\"", "");
        assert!(
            text.contains("`proxy_protocol` without `trusted`"),
            "{text}"
        );
        let text = said("trusted = [\"10.0.0.0/8\"]", "");
        assert!(text.contains("`trusted` does nothing here"), "{text}");
        let text = said("", "client_ip_header = \"forwarded\"");
        assert!(text.contains("nobody is trusted to set it"), "{text}");
        let text = said("", "trusted_proxies = [\"0.0.0.0/0\"]");
        assert!(text.contains("every client may say who it is"), "{text}");
        let text = said("send_buffer = \"1KiB\"\ntcp_keepalive = \"48h\"", "");
        assert_eq!(text.matches("out of bounds").count(), 2, "{text}");
    }
}
