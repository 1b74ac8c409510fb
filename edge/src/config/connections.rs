//! Where connections come in, and whose word counts for who the client is.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;

use super::checks::Checks;
use super::file::{ClientWord, Key, ListenerFile, ProxyWord, ServerSection};
use super::names;
use super::plan::{LISTEN, address};
use super::report::Problem;
use super::value::{Size, Word, show_size, show_time};
use super::words;
use crate::downstream::{ClientField, Entrance, ProxyProtocol, Trust, Versions};
use crate::http::Scheme;
use crate::sys::listening::Listening;

/// `[[listener]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPlan {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// What its sockets are set to.
    pub listening: Listening,
    /// How its connections are taken.
    pub entrance: Entrance,
}

impl ListenerPlan {
    /// With all defaults.
    pub fn at(address: SocketAddr) -> ListenerPlan {
        ListenerPlan {
            address,
            listening: Listening::default(),
            entrance: Entrance {
                scheme: Scheme::Http,
                proxy: None,
            },
        }
    }
}

/// Bounds of a socket's buffers, bytes.
const BUFFER: std::ops::RangeInclusive<u64> = 4 << 10..=256 << 20;

/// All `[[listener]]`s, at least one.
pub fn listeners(
    files: &[Spanned<ListenerFile>],
    admin: Option<SocketAddr>,
    checks: &mut Checks,
) -> Vec<ListenerPlan> {
    let mut plans: Vec<ListenerPlan> = Vec::new();
    for file in files {
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
            entrance: Entrance {
                scheme: Scheme::Http,
                proxy: proxy(file.get_ref(), checks),
            },
        });
    }
    if files.is_empty() {
        plans.extend(LISTEN.parse().ok().map(ListenerPlan::at));
    }
    plans
}

fn listening(file: &ListenerFile, checks: &mut Checks) -> Listening {
    let d = Listening::default();
    let backlog = checks.within("backlog", &file.backlog, 0, 0..=1 << 30);
    let keepalive = checks.within(
        "keepalive",
        &file.keepalive,
        Duration::ZERO,
        Duration::ZERO..=Duration::from_secs(24 * 3600),
    );
    let mut buffer = |name: &str, key: &Key<Size>| {
        let bytes = checks.within(name, key, 0, BUFFER);
        u32::try_from(bytes).ok().filter(|&bytes| bytes > 0)
    };
    Listening {
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
    let versions = match typed.map(|typed| typed.get_ref().0) {
        None | Some(ProxyWord::Off) => None,
        Some(ProxyWord::V1) => Some(Versions::V1),
        Some(ProxyWord::V2) => Some(Versions::V2),
        Some(ProxyWord::Any) => Some(Versions::Any),
    };
    let every = "every address may say who its client is";
    let trusted = names::networks("trusted", &file.trusted, every, checks);
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

/// `[server] trusted_proxies` and `client_field`.
pub fn trust(file: &ServerSection, checks: &mut Checks) -> Trust {
    let every = "every client may say who it is";
    let proxies = names::networks("trusted_proxies", &file.trusted_proxies, every, checks);
    let word = |key: &Spanned<Word<ClientWord>>| key.get_ref().0;
    if let Some(typed) = file.client_field.as_ref().filter(|_| proxies.is_empty()) {
        checks.push(
            Problem::warning("`client_field` does nothing here")
                .at(typed.span())
                .label("nobody is trusted to set it")
                .help("add `trusted_proxies`, or leave it out"),
        );
    }
    let field = match file.client_field.as_ref().map(word).unwrap_or_default() {
        ClientWord::XForwardedFor => ClientField::XForwardedFor,
        ClientWord::Forwarded => ClientField::Forwarded,
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
    if let Some(proxy) = &plan.entrance.proxy {
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
