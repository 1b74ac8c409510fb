//! Describes listeners and trusted proxies.

use super::list::networks;
use super::tls;
use crate::config::plan::ListenerPlan;
use crate::config::value::{show_size, show_time};
use crate::downstream::{ClientIpHeader, Protocol, Protocols, Trust, Versions};
use crate::sys::ListenAddress;

/// Returns one line about a listener.
pub fn describe(plan: &ListenerPlan) -> String {
    let listening = &plan.listening;
    let mut text = match &plan.address {
        ListenAddress::Ip(address) => {
            format!("listening on {}://{address}", plan.setup.scheme.as_str())
        }
        path @ ListenAddress::Unix(_) => format!("listening on {path}"),
    };
    if let Some(tls) = &plan.tls {
        text += &tls::listener(tls);
    }
    if plan.setup.tls || plan.protocols != Protocols::CLEAR {
        text += &format!(", {}", protocols(plan.protocols));
    }
    if let Some(backlog) = listening.backlog {
        text += &format!(", backlog {backlog}");
    }
    if !listening.defer_accept && plan.address.ip().is_some() {
        text += ", accepted before their first bytes";
    }
    for (name, bytes) in [
        ("receive", listening.receive_buffer),
        ("send", listening.send_buffer),
    ] {
        if let Some(bytes) = bytes {
            text += &format!(", {name} buffers of {}", show_size(u64::from(bytes)));
        }
    }
    if let Some(time) = listening.tcp_keepalive {
        text += &format!(", probed after {} without a packet", show_time(time));
    }
    if !listening.ipv6_only {
        text += ", IPv4 clients, too";
    }
    if plan.setup.half_close {
        text += ", half-closed connections served";
    }
    if let Some(proxy) = &plan.setup.proxy {
        let versions = match proxy.versions {
            Versions::V1 => "PROXY protocol v1",
            Versions::V2 => "PROXY protocol v2",
            Versions::Any => "PROXY protocol v1 or v2",
        };
        text += &format!(", {versions} from {}", networks(&proxy.trusted));
    }
    text
}

/// Returns the names of protocols, the preferred one first.
fn protocols(protocols: Protocols) -> String {
    let name = |protocol| match protocol {
        Protocol::Http1 => "HTTP/1.1",
        Protocol::Http2 => "HTTP/2",
    };
    let names: Vec<&str> = protocols.iter().map(name).collect();
    names.join(" or ")
}

/// Returns one line about trusted proxies, if there are any.
pub fn describe_trust(trust: &Trust) -> Option<String> {
    let field = match trust.field {
        ClientIpHeader::XForwardedFor => "X-Forwarded-For",
        ClientIpHeader::Forwarded => "Forwarded",
    };
    let proxies = networks(&trust.proxies);
    (!trust.proxies.is_empty()).then(|| format!("client addresses from {field} of {proxies}"))
}
