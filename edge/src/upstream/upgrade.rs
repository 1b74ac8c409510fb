//! Upgrade: the protocols to which a connection may be switched (RFC 9110 7.8).

use super::inbound::Received;
use crate::handler::Head;
use crate::http::Version;
use crate::http::hop::is_in;

/// Most protocols forwarded in Upgrade. Real requests name one.
const PROTOCOLS_MAX: usize = 16;

/// Returns the protocols that are forwarded in Upgrade. HTTP/2 in clear text and TLS are left out:
/// requests inside these would bypass every rule of the configuration.
pub(super) fn protocols(head: &Head) -> impl Iterator<Item = &[u8]> {
    let asked = head.wants_tunnel.then(|| head.fields.members("upgrade"));
    let asked = asked.into_iter().flatten().take(PROTOCOLS_MAX);
    asked.filter(|protocol| {
        let name = protocol.split(|&b| b == b'/').next().unwrap_or_default();
        !is_in(&["h2c", "tls"], name.trim_ascii())
    })
}

/// Whether a 101 is a valid response to the request: the server speaks HTTP/1.1, and chose only
/// protocols that the request named (RFC 9110 7.8, 15.2.2).
pub(super) fn may_switch(head: &Head, received: &Received) -> bool {
    let asked = |chosen: &[u8]| protocols(head).any(|name| name.eq_ignore_ascii_case(chosen));
    let chosen = received.protocols.iter();
    let mut chosen = chosen
        .flat_map(|value| value.split(|&b| b == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty())
        .peekable();
    received.version == Version::Http11 && chosen.peek().is_some() && chosen.all(asked)
}
