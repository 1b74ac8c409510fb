//! Plans `listen`, `[[listener]]` and trusted proxies.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use toml::Spanned;

use super::address::listen_address;
use super::{names, tls};
use crate::config::checks::Checks;
use crate::config::file::{ClientHeader, ListenerFile, ProtocolName, ProxyVersion, ServerSection};
use crate::config::plan::{LISTEN, ListenerPlan};
use crate::config::report::Problem;
use crate::config::value::{Key, Names, Size, Word};
use crate::downstream::{ClientIpHeader, Protocol, Protocols, ProxyProtocol, Trust, Versions};
use crate::sys::ListenAddress;
use crate::sys::listen_options::ListenOptions;
use crate::tls::ListenerTls;

/// Bounds of the size of a socket's buffers, in bytes.
const BUFFER: std::ops::RangeInclusive<u64> = 4 << 10..=256 << 20;

/// Returns the listeners in `listen` and all `[[listener]]`s, at least one. Without any, `sites_have_tls` decides
/// between those for http and https and one for http alone.
pub fn listeners(
    files: &[Spanned<ListenerFile>],
    listen: Option<&Names>,
    sites_have_tls: bool,
    admin: Option<&ListenAddress>,
    checks: &mut Checks,
) -> Vec<ListenerPlan> {
    let mut plans: Vec<ListenerPlan> = Vec::new();
    let short = listen.into_iter().flat_map(|typed| typed.get_ref());
    let short = short.map(|address| {
        let file = ListenerFile {
            address: Some(address.clone()),
            ..ListenerFile::default()
        };
        ("listen", Spanned::new(address.span(), file))
    });
    let long = files.iter().cloned().map(|file| ("address", file));
    if let Some(off) = listen.filter(|typed| typed.is_false()) {
        checks.push(
            Problem::error("`listen` without an address")
                .at(off.span())
                .help(format!(
                    "write one as in \":8080\", or leave it out for {LISTEN}"
                )),
        );
    }
    for (name, file) in short.chain(long) {
        let Some(text) = &file.get_ref().address else {
            checks.push(
                Problem::error("a listener without an address")
                    .at(file.span())
                    .help(format!("add `address = \"{LISTEN}\"`")),
            );
            continue;
        };
        let Some(address) = listen_address(name, text, checks) else {
            continue;
        };
        let tls = tls::listener(file.get_ref(), checks);
        let listening = listening(file.get_ref(), &address, checks);
        check_unique((&address, listening.ipv6_only), text, &plans, admin, checks);
        let mut plan = ListenerPlan::at(address);
        plan.listening = listening;
        plan.setup.listener = u16::try_from(plans.len()).unwrap_or(u16::MAX);
        plan.setup.proxy = proxy(file.get_ref(), checks);
        plan.setup.half_close = file.get_ref().half_close.unwrap_or(false);
        if let Some(tls) = tls {
            plan.encrypt(tls);
        }
        plan.protocols = protocols(file.get_ref(), plan.protocols, checks);
        plans.push(plan);
    }
    if files.is_empty() && listen.is_none() && sites_have_tls {
        let [mut clear, mut encrypted] = [80, 443].map(|port| {
            let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            let mut plan = ListenerPlan::at(address.into());
            plan.listening.ipv6_only = false;
            plan
        });
        clear.setup.listener = 0;
        encrypted.setup.listener = 1;
        encrypted.encrypt(ListenerTls::default());
        plans.extend([clear, encrypted]);
    } else if files.is_empty() && listen.is_none() {
        let address = LISTEN.parse::<SocketAddr>().ok().map(ListenAddress::from);
        plans.extend(address.map(ListenerPlan::at));
    }
    plans
}

/// Reports an address that another listener or the admin API has, alone or among all addresses of the
/// machine. Several may have port 0, which is a free port. `listener` is the address and its
/// `ipv6_only`.
fn check_unique(
    listener: (&ListenAddress, bool),
    text: &Spanned<String>,
    plans: &[ListenerPlan],
    admin: Option<&ListenAddress>,
    checks: &mut Checks,
) {
    let address = listener.0;
    let mut others = plans.iter();
    let other = others.find(|plan| overlap(listener, (&plan.address, plan.listening.ipv6_only)));
    let (other, owner) = match (other, admin) {
        (Some(other), _) => (other.address.clone(), "another listener"),
        (None, Some(admin)) if overlap(listener, (admin, true)) => {
            (admin.clone(), "the admin address")
        }
        _ => return,
    };
    let (title, help) = match address.ip() {
        Some(_) if *address == other => (
            format!("`{address}` is used twice"),
            "give each one its own port",
        ),
        Some(_) => (
            format!("`{address}` and `{other}` overlap"),
            "give each one its own port, or keep only the one for all addresses",
        ),
        None => (
            format!("`{address}` is used twice"),
            "give each one its own path",
        ),
    };
    checks.push(
        Problem::error(title)
            .at(text.span())
            .label(format!("{owner} uses it already"))
            .help(help),
    );
}

/// Reports an admin address that the default listener has. `text` is the admin address as written.
pub fn check_default(text: &Spanned<String>, admin: SocketAddr, checks: &mut Checks) {
    if let Some(default) = LISTEN.parse::<SocketAddr>().ok().map(ListenAddress::from) {
        check_unique(
            (&admin.into(), true),
            text,
            &[ListenerPlan::at(default)],
            None,
            checks,
        );
    }
}

/// Whether a connection could be for either of two addresses, each with its `ipv6_only`.
fn overlap(one: (&ListenAddress, bool), other: (&ListenAddress, bool)) -> bool {
    let (Some(a), Some(b)) = (one.0.ip(), other.0.ip()) else {
        return one.0 == other.0;
    };
    // Without `ipv6_only`, `[::]` also means all IPv4 addresses.
    let is_both = |ip: SocketAddr, only: bool| ip.is_ipv6() && ip.ip().is_unspecified() && !only;
    let families = a.is_ipv4() == b.is_ipv4() || is_both(a, one.1) || is_both(b, other.1);
    let all = a.ip().is_unspecified() || b.ip().is_unspecified();
    let same = a.ip() == b.ip() || (all && families);
    same && a.port() == b.port() && a.port() != 0
}

fn listening(file: &ListenerFile, address: &ListenAddress, checks: &mut Checks) -> ListenOptions {
    if let (None, Some(typed)) = (address.ip(), &file.tcp_keepalive) {
        checks.push(
            Problem::warning("`tcp_keepalive` does nothing here")
                .at(typed.span())
                .label("a Unix socket has no TCP connections")
                .help("leave it out"),
        );
    }
    if let (false, Some(typed)) = (address.ip().is_some_and(|ip| ip.is_ipv6()), &file.ipv6_only) {
        checks.push(
            Problem::warning("`ipv6_only` does nothing here")
                .at(typed.span())
                .label("the address is not an IPv6 address")
                .help("leave it out"),
        );
    }
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
        defer_accept: file.defer_accept.unwrap_or(d.defer_accept),
        receive_buffer: buffer("receive_buffer", &file.receive_buffer),
        send_buffer: buffer("send_buffer", &file.send_buffer),
        tcp_keepalive: Some(keepalive).filter(|time| !time.is_zero()),
        ipv6_only: file.ipv6_only.as_ref().is_none_or(|typed| *typed.get_ref()),
    }
}

/// Returns the protocols of a listener. `default` are those without the key.
fn protocols(file: &ListenerFile, default: Protocols, checks: &mut Checks) -> Protocols {
    let Some(typed) = &file.protocols else {
        return default;
    };
    if typed.is_false() || typed.get_ref().is_empty() {
        checks.push(
            Problem::error("`protocols` can't be turned off")
                .at(typed.span())
                .label("clients have to speak a protocol")
                .help("write [\"h2\", \"http/1.1\"] or one of the two, or leave it out for the default"),
        );
    }
    let mut listed = Vec::new();
    for entry in typed.get_ref() {
        let protocol = match entry.get_ref().0 {
            ProtocolName::Http2 => Protocol::Http2,
            ProtocolName::Http1 => Protocol::Http1,
        };
        if listed.contains(&protocol) {
            checks.push(
                Problem::warning("`protocols` names this twice")
                    .at(entry.span())
                    .help("leave out one of them"),
            );
        }
        listed.push(protocol);
    }
    Protocols::of(&listed).unwrap_or(default)
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
