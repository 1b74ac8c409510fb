//! Compares names of hosts that may be spelled in different ways.

use std::net::{IpAddr, Ipv6Addr};

/// The host that a name stands for.
enum Host<'a> {
    Address(IpAddr),
    /// A name, without the dot that marks it as complete.
    Name(&'a str),
    /// A name whose meaning depends on the reader: one with percent-encoding, or an address in another
    /// form than four decimal numbers or that of RFC 4291 2.2.
    Ambiguous,
}

/// Whether a reader of `spelled` may take it for the host `name`. Servers that write URLs in the
/// canonical form of the WHATWG URL Standard decode percent-encoding, and read `127.2`, `0x7f000002`
/// and `0177.0.0.2` as 127.0.0.2. An ambiguous name may be any host. Brackets around IPv6 addresses
/// may be missing; ports may not be there.
pub(super) fn may_mean(spelled: &str, name: &str) -> bool {
    match (Host::of(spelled), Host::of(name)) {
        (Host::Ambiguous, _) => true,
        (Host::Address(one), Host::Address(other)) => one == other,
        (Host::Name(one), Host::Name(other)) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

impl Host<'_> {
    fn of(name: &str) -> Host<'_> {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        if bare.contains(':') {
            let address = bare.parse::<Ipv6Addr>();
            return address.map_or(Host::Ambiguous, |address| Host::Address(address.into()));
        }
        let bare = bare.trim_end_matches('.');
        match bare.parse::<IpAddr>() {
            Ok(address) => Host::Address(address),
            Err(_) if !bare.is_ascii() || bare.contains('%') || ends_in_number(bare) => {
                Host::Ambiguous
            }
            Err(_) => Host::Name(bare),
        }
    }
}

/// Whether the last label of a name is a number, so that the name is an IPv4 address or invalid
/// (WHATWG URL Standard, "ends in a number checker").
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let digits = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    match digits {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_may_mean_the_host() {
        for (name, spellings) in [
            (
                "localhost",
                &[
                    "localhost",
                    "LocalHost",
                    "localhost.",
                    "localhost..",
                    "loc%61lhost",
                    "%6c%6F%63alhost",
                    "%256cocalhost",
                ][..],
            ),
            (
                "127.0.0.2",
                &[
                    "127.0.0.2",
                    "127.0.0.2.",
                    "127.2",
                    "127.0.2",
                    "2130706434",
                    "0x7f000002",
                    "0X7F000002",
                    "0x7f.2",
                    "0177.0.0.2",
                    "127.0.0.02",
                    "127.0.0.0x2",
                    "127.0.0.%32",
                ],
            ),
            ("0.0.0.0", &["0", "0x", "0.0.0.0"]),
            (
                "[::1]",
                &[
                    "::1",
                    "[::1]",
                    "[0:0:0:0:0:0:0:1]",
                    "[::0001]",
                    "[::0.0.0.1]",
                    "[::1%25lo]",
                ],
            ),
            ("2001:DB8::A", &["[2001:db8::a]", "2001:db8:0::000a"]),
        ] {
            for spelled in spellings {
                assert!(may_mean(spelled, name), "{spelled} {name}");
            }
        }
    }

    #[test]
    fn other_hosts_do_not_mean_the_host() {
        for (spelled, name) in [
            ("localhost", "host"),
            ("", "localhost"),
            ("localhost", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.2"),
            ("[::2]", "[::1]"),
            ("127.0.0.1", "[::1]"),
            ("1.example", "2.example"),
            ("0xfg.0xg", "127.0.0.1"),
        ] {
            assert!(!may_mean(spelled, name), "{spelled} {name}");
        }
    }
}
