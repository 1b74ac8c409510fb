//! Determines the client's address and scheme from the headers of trusted proxies (RFC 7239 5.2,
//! 7.4).

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

use crate::handler::Peer;
use crate::http::{Fields, Network, Scheme};

/// Most hops that are read, beginning with the nearest.
const HOPS_MAX: usize = 32;

/// The trusted proxies (`[server] trusted_proxies`), and the header that they set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Proxies trusted to report the client's address. Empty: the client is the other end of the
    /// connection.
    pub proxies: Vec<Network>,
    /// The header in which the proxies report the client's address.
    pub field: ClientIpHeader,
}

/// A header in which trusted proxies report the client. Only one is read: a proxy that sets one of
/// the two headers may forward the other unchanged, as written by its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientIpHeader {
    /// `X-Forwarded-For` for the address, and `X-Forwarded-Proto` for the scheme.
    #[default]
    XForwardedFor,
    /// `Forwarded` for address and scheme (RFC 7239).
    Forwarded,
}

/// The client's address and scheme as one hop reports them.
struct Hop {
    client: IpAddr,
    scheme: Option<Scheme>,
}

impl Trust {
    /// Returns the peer of a request with these headers. If the other end of the connection is not
    /// trusted, returns `peer` unchanged.
    #[inline]
    pub fn peer(&self, peer: Peer, fields: &Fields) -> Peer {
        match self.includes(&peer) {
            false => peer,
            true => self.introduced(peer, fields),
        }
    }

    /// Whether the other end of a connection is a trusted proxy.
    #[inline]
    pub(super) fn includes(&self, peer: &Peer) -> bool {
        !self.proxies.is_empty() && self.trusts(peer.client)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(address))
    }

    /// Reads the hops, beginning with the nearest. An entry is believed if the hop that added it is
    /// a trusted proxy. At an unreadable entry reading stops, since the entries before it may be
    /// forged.
    #[cold]
    fn introduced(&self, mut peer: Peer, fields: &Fields) -> Peer {
        let mut hops: SmallVec<[&[u8]; 8]> = match self.field {
            ClientIpHeader::XForwardedFor => fields.members("x-forwarded-for").collect(),
            ClientIpHeader::Forwarded => elements(fields),
        };
        hops.reverse();
        if self.field == ClientIpHeader::XForwardedFor {
            peer.scheme = sole_scheme(fields).unwrap_or(peer.scheme);
        }
        for hop in hops.iter().take(HOPS_MAX) {
            let read = match self.field {
                ClientIpHeader::XForwardedFor => node(hop).map(|client| Hop {
                    client,
                    scheme: None,
                }),
                ClientIpHeader::Forwarded => element(hop),
            };
            let Some(hop) = read else { break };
            peer.client = hop.client;
            peer.scheme = hop.scheme.unwrap_or(peer.scheme);
            if !self.trusts(hop.client) {
                break;
            }
        }
        peer
    }
}

/// Returns the scheme in X-Forwarded-Proto, if all its values agree.
fn sole_scheme(fields: &Fields) -> Option<Scheme> {
    let mut all = fields.members("x-forwarded-proto");
    let first = all.next().and_then(scheme)?;
    all.all(|other| scheme(other) == Some(first))
        .then_some(first)
}

fn scheme(word: &[u8]) -> Option<Scheme> {
    match word {
        _ if word.eq_ignore_ascii_case(b"http") => Some(Scheme::Http),
        _ if word.eq_ignore_ascii_case(b"https") => Some(Scheme::Https),
        _ => None,
    }
}

/// Parses an address with or without brackets, with or without a port.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let address = match bare {
        Some(six) => IpAddr::V6(six.parse().ok()?),
        None => match text.parse::<IpAddr>() {
            Ok(address) => address,
            Err(_) => text.parse::<SocketAddr>().ok()?.ip(),
        },
    };
    Some(address.to_canonical())
}

/// Returns the elements of all Forwarded lines, the last one first. A comma or semicolon inside
/// quotes does not separate.
fn elements(fields: &Fields) -> SmallVec<[&[u8]; 8]> {
    let lines = fields.get_all("forwarded");
    let last_first = |line| {
        let parts: SmallVec<[&[u8]; 8]> = split(line, b',').collect();
        parts.into_iter().rev()
    };
    lines.flat_map(last_first).collect()
}

/// Splits from the right, so that a quote that a client left open cannot hide the elements that
/// trusted hops added after it. A quote after a backslash is content (RFC 9110 5.6.4), unless that
/// backslash is itself escaped.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    // `at` counts down with `rsplit`, which visits each byte once, from the last to the first.
    let mut at = text.len();
    let parts = text.rsplit(move |&b| {
        at = at.saturating_sub(1);
        quoted ^= b == b'"' && !is_escaped(&text[..at]);
        b == separator && !quoted
    });
    parts
        .map(<[u8]>::trim_ascii)
        .filter(|part| !part.is_empty())
}

/// Whether the byte that follows this text is escaped: the text ends with an odd number of
/// backslashes.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|&&b| b == b'\\');
    backslashes.count() % 2 == 1
}

/// Reads `for=192.0.2.1;proto=https` (RFC 7239 4). `for=unknown` and obfuscated names give no
/// address. If a parameter occurs twice, the element is unreadable.
fn element(text: &[u8]) -> Option<Hop> {
    let (mut client, mut proto) = (None, None);
    for pair in split(text, b';') {
        let at = memchr::memchr(b'=', pair)?;
        let (name, value) = (&pair[..at], unquoted(&pair[at + 1..])?);
        let twice = match name {
            _ if name.eq_ignore_ascii_case(b"for") => client.replace(node(value)?).is_some(),
            _ if name.eq_ignore_ascii_case(b"proto") => proto.replace(scheme(value)).is_some(),
            _ => false,
        };
        if twice {
            return None;
        }
    }
    Some(Hop {
        client: client?,
        scheme: proto.flatten(),
    })
}

/// Returns a token, or the text between quotes. Backslashes are not interpreted, since no address
/// or scheme contains one.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    match value.strip_prefix(b"\"") {
        Some(rest) => rest.strip_suffix(b"\""),
        None => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trust(field: ClientIpHeader) -> Trust {
        let network = |address: &str, bits| Network {
            address: address.parse().expect("an address"),
            bits,
        };
        Trust {
            proxies: vec![network("10.0.0.0", 8), network("fd00::", 8)],
            field,
        }
    }

    fn peer(address: &str) -> Peer {
        let address: SocketAddr = address.parse().expect("an address");
        Peer {
            address: address.into(),
            client: address.ip().to_canonical(),
            local: address.into(),
            scheme: Scheme::Http,
            tls: None,
            shared: false,
        }
    }

    /// Returns client and scheme of a request that 10.0.0.1 sends with these lines.
    fn seen(field: ClientIpHeader, lines: &[(&str, &str)]) -> String {
        let fields: Fields = lines.iter().copied().collect();
        let peer = trust(field).peer(peer("10.0.0.1:5"), &fields);
        format!("{} {}", peer.client, peer.scheme.as_str())
    }

    #[test]
    fn x_forwarded_for_is_read_from_the_right_over_trusted_hops() {
        let table: &[(&[&str], &str)] = &[
            (&[], "10.0.0.1"),
            (&["192.0.2.1"], "192.0.2.1"),
            (&["203.0.113.9, 192.0.2.1, 10.2.3.4"], "192.0.2.1"),
            (
                &["203.0.113.9", "192.0.2.1, 10.2.3.4", "fd00::1"],
                "192.0.2.1",
            ),
            (&["10.9.9.9, 10.2.3.4"], "10.9.9.9"),
            (&["192.0.2.1, nonsense, 10.2.3.4"], "10.2.3.4"),
            (&["192.0.2.1, unknown"], "10.0.0.1"),
            (&["192.0.2.1:8080"], "192.0.2.1"),
            (&["[2001:db8::1]:80, [fd00::2]"], "2001:db8::1"),
            (&["::ffff:192.0.2.1"], "192.0.2.1"),
            (&[",, 192.0.2.1 ,"], "192.0.2.1"),
        ];
        for (lines, client) in table {
            let lines: Vec<_> = lines
                .iter()
                .map(|line| ("X-Forwarded-For", *line))
                .collect();
            let seen = seen(ClientIpHeader::XForwardedFor, &lines);
            assert_eq!(seen, format!("{client} http"), "{lines:?}");
        }
    }

    #[test]
    fn forwarded_is_read_if_it_is_the_configured_header() {
        let table = [
            ("for=192.0.2.1", "192.0.2.1 http"),
            (
                "For=\"[2001:db8::1]:4711\";Proto=https",
                "2001:db8::1 https",
            ),
            (
                "for=192.0.2.1;by=\"a,b;c\";proto=https, for=10.1.1.1",
                "192.0.2.1 https",
            ),
            (
                r#"for=203.0.113.9, for=192.0.2.1;by="a\",for=203.0.113.8;b";proto=https"#,
                "192.0.2.1 https",
            ),
            (
                r#"for=203.0.113.9;by="a\\", for=192.0.2.1"#,
                "192.0.2.1 http",
            ),
            ("for=192.0.2.1, for=_hidden", "10.0.0.1 http"),
            ("for=192.0.2.1, for=unknown;proto=https", "10.0.0.1 http"),
            ("for=203.0.113.9;for=192.0.2.1", "10.0.0.1 http"),
            ("for=\"192.0.2.1", "10.0.0.1 http"),
            ("for=\"203.0.113.9, for=192.0.2.1", "192.0.2.1 http"),
            ("proto=https", "10.0.0.1 http"),
            ("for", "10.0.0.1 http"),
        ];
        for (line, client) in table {
            let lines = [("Forwarded", line), ("X-Forwarded-For", "203.0.113.1")];
            assert_eq!(seen(ClientIpHeader::Forwarded, &lines), client, "{line}");
        }
        let unread = [("Forwarded", "for=203.0.113.9")];
        assert_eq!(
            seen(ClientIpHeader::XForwardedFor, &unread),
            "10.0.0.1 http"
        );
    }

    #[test]
    fn a_trusted_proxy_may_report_the_scheme_if_its_values_agree() {
        let table: &[(&[&str], &str)] = &[
            (&["https"], "https"),
            (&["HTTPS, https"], "https"),
            (&["https", "http"], "http"),
            (&["gopher"], "http"),
        ];
        for (lines, scheme) in table {
            let lines: Vec<_> = lines
                .iter()
                .map(|line| ("X-Forwarded-Proto", *line))
                .collect();
            let seen = seen(ClientIpHeader::XForwardedFor, &lines);
            assert_eq!(seen, format!("10.0.0.1 {scheme}"), "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn an_untrusted_other_end_is_not_believed(text in "[ -~]{0,60}", field: bool) {
            let fields: Fields = [("Forwarded", &*text), ("X-Forwarded-For", &text)]
                .into_iter()
                .collect();
            let field = match field {
                true => ClientIpHeader::Forwarded,
                false => ClientIpHeader::XForwardedFor,
            };
            let seen = trust(field).peer(peer("192.0.2.7:1"), &fields);
            prop_assert_eq!(seen.client, peer("192.0.2.7:1").client);
        }

        #[test]
        fn the_nearest_untrusted_hop_is_the_client_whatever_it_claims(
            claim in "[ -~]{0,60}",
            own: [u8; 4],
        ) {
            let own = IpAddr::from(own);
            prop_assume!(!trust(ClientIpHeader::default()).trusts(own));
            let list = format!("{claim}, {own}, 10.1.1.1");
            let fields: Fields = [("X-Forwarded-For", &*list)].into_iter().collect();
            let seen = trust(ClientIpHeader::XForwardedFor).peer(peer("10.0.0.1:1"), &fields);
            prop_assert_eq!(seen.client, own);
        }
    }
}
