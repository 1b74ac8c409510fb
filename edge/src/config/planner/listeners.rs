//! Plans `listen`, `[[listener]]` and trusted proxies.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;

use super::address::address;
use super::names;
use crate::config::checks::Checks;
use crate::config::file::{ClientHeader, ListenerFile, ProxyVersion, ServerSection};
use crate::config::plan::{LISTEN, ListenerPlan};
use crate::config::report::Problem;
use crate::config::value::{Key, Names, Size, Word};
use crate::downstream::{
    ClientIpHeader, ConnectionSetup, Protocol, ProxyProtocol, Trust, Versions,
};
use crate::http::Scheme;
use crate::sys::listen_options::ListenOptions;

/// Bounds of the size of a socket's buffers, in bytes.
const BUFFER: std::ops::RangeInclusive<u64> = 4 << 10..=256 << 20;

/// Returns the listeners in `listen` and all `[[listener]]`s, at least one.
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
                Problem::error(format!("`{address}` is used twice"))
                    .at(text.span())
                    .label(format!("{owner} uses it already"))
                    .help("give each one its own port"),
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

/// Parses `proxy_protocol`, which needs a list of trusted load balancers: otherwise any client
/// could claim any address.
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
    let every = "every peer may claim any client address";
    let trusted = names::networks("trusted", file.trusted.as_ref(), every, checks);
    match (versions, typed, &file.trusted) {
        (Some(_), Some(typed), None) => checks.push(
            Problem::error("`proxy_protocol` without `trusted`")
                .at(typed.span())
                .label("no peer is trusted to report clients")
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

/// Parses `trusted_proxies` and `client_ip_header` of `[server]`.
pub fn trust(file: &ServerSection, checks: &mut Checks) -> Trust {
    let every = "every client may claim any address";
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
                .label("no proxy is trusted to set it")
                .help("add `trusted_proxies`, or leave it out"),
        );
    }
    let field = match file.client_ip_header.as_ref().map(word).unwrap_or_default() {
        ClientHeader::XForwardedFor => ClientIpHeader::XForwardedFor,
        ClientHeader::Forwarded => ClientIpHeader::Forwarded,
    };
    Trust { proxies, field }
}
