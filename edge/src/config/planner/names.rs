//! Checks names of sections, and lists of names: of headers, cookies, parameters, languages and addresses.

use std::net::IpAddr;
use std::ops::Range;

use toml::Spanned;

use crate::cache::rules::FORWARD_ADDRESS;
use crate::config::checks::Checks;
use crate::config::report::Problem;
use crate::config::suggestions::did_you_mean;
use crate::config::value::{Named, Names};
use crate::http::Network;
use crate::http::fields::is_token_byte;
use crate::http::hop;
use crate::http::pattern::Pattern;
use crate::http::vary::is_language_tag;

/// Most entries in one list of names.
pub const ENTRIES_MAX: usize = 64;
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The kind of thing that a list names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Request or response headers.
    Field,
    /// Cookies.
    Cookie,
    /// Query parameters.
    Parameter,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Field => "header",
            Kind::Cookie => "cookie",
            Kind::Parameter => "parameter",
        }
    }

    /// Whether a name may contain this byte. Names of headers and cookies are tokens (RFC 9110 5.1,
    /// RFC 6265 4.1.1); the name of a parameter may have any byte that can precede its `=`.
    fn allows(self, byte: u8) -> bool {
        match self {
            Kind::Field | Kind::Cookie => is_token_byte(byte),
            Kind::Parameter => byte.is_ascii_graphic() && !matches!(byte, b'&' | b'=' | b'#'),
        }
    }
}

/// Returns the name of a section, and reports it if there is no such section.
pub fn named<T>(
    kind: &str,
    name: Option<&Spanned<String>>,
    sections: &Named<T>,
    checks: &mut Checks,
) -> Option<String> {
    let name = name?;
    let known = || sections.keys().map(|k| k.get_ref().as_str());
    if !known().any(|k| k == name.get_ref()) {
        let help = match did_you_mean(name.get_ref(), known()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if kind == "upstream" && name.get_ref().contains(['.', ':']) => {
                "write the URL of a server, as in \"http://127.0.0.1:9000\", or the NAME of an [upstream.NAME]".to_owned()
            }
            None => format!("add a section [{kind}.{}]", name.get_ref()),
        };
        checks.push(
            Problem::error(format!("no {kind} is named `{}`", name.get_ref()))
                .at(name.span())
                .help(help),
        );
    }
    Some(name.get_ref().clone())
}

/// Reports a list that has too many entries.
pub fn few(name: &str, entries: usize, at: Range<usize>, checks: &mut Checks) {
    if entries > ENTRIES_MAX {
        checks.push(
            Problem::error(format!("`{name}` has too many entries"))
                .at(at)
                .label(format!("{entries} of them"))
                .help(format!("keep at most {ENTRIES_MAX}")),
        );
    }
}

/// Returns names that may end in `*`, or `base` if the key is missing.
pub fn patterns(
    name: &str,
    key: Option<&Names>,
    kind: Kind,
    base: &[Pattern],
    checks: &mut Checks,
) -> Vec<Pattern> {
    let Some(typed) = key else {
        return base.to_vec();
    };
    few(name, typed.get_ref().len(), typed.span(), checks);
    for entry in typed.get_ref() {
        let text = entry.get_ref();
        good(
            text.strip_suffix('*').unwrap_or(text),
            text,
            entry,
            kind,
            checks,
        );
    }
    let all = typed.get_ref().iter();
    all.map(|entry| Pattern::new(entry.get_ref())).collect()
}

/// Returns complete header names in lower case, or `base` if the key is missing.
pub fn fields(
    name: &str,
    key: Option<&Names>,
    base: &[Box<str>],
    checks: &mut Checks,
) -> Vec<Box<str>> {
    let Some(typed) = key else {
        return base.to_vec();
    };
    few(name, typed.get_ref().len(), typed.span(), checks);
    for entry in typed.get_ref() {
        match entry.get_ref().ends_with('*') {
            true => checks.push(
                Problem::error(format!("`{}` is not a whole name", entry.get_ref()))
                    .at(entry.span())
                    .help(format!("`{name}` takes whole names only")),
            ),
            false => good(entry.get_ref(), entry.get_ref(), entry, Kind::Field, checks),
        }
    }
    let all = typed.get_ref().iter();
    all.map(|entry| entry.get_ref().to_ascii_lowercase().into())
        .collect()
}

/// Returns the language tags in `languages` as written, or `base` if the key is missing.
pub fn languages(key: Option<&Names>, base: &[Box<str>], checks: &mut Checks) -> Vec<Box<str>> {
    let Some(typed) = key else {
        return base.to_vec();
    };
    few("languages", typed.get_ref().len(), typed.span(), checks);
    let mut seen: Vec<Box<str>> = Vec::new();
    for entry in typed.get_ref() {
        let text = entry.get_ref();
        let fits = text.len() <= NAME_BYTES_MAX && is_language_tag(text);
        let again = seen.iter().any(|tag| tag.eq_ignore_ascii_case(text));
        seen.push(text.as_str().into());
        let problem = match (fits, again) {
            (true, false) => continue,
            (true, true) => Problem::warning(format!("`{text}` is listed twice"))
                .label("the first one is used")
                .help("leave this one out; language tags are case-insensitive"),
            (false, _) => Problem::error(format!("`{text}` is not a language tag"))
                .help("write a tag as in \"de\", \"pt-BR\" or \"zh-Hant\", without weight or `*`"),
        };
        checks.push(problem.at(entry.span()));
    }
    seen
}

/// Reports an invalid name. `stem` is the name without a trailing `*`.
fn good(stem: &str, text: &str, entry: &Spanned<String>, kind: Kind, checks: &mut Checks) {
    let word = kind.word();
    let problem = match () {
        () if text.is_empty() => Problem::error(format!("a {word} without a name")),
        () if text.len() > NAME_BYTES_MAX => {
            Problem::error(format!("the name of a {word} is too long"))
                .label(format!("{} bytes; at most {NAME_BYTES_MAX}", text.len()))
        }
        () if stem.contains('*') => Problem::error(format!("`{text}` is not the name of a {word}"))
            .help("a `*` is allowed at the end only, for all names with this prefix"),
        () if !stem.bytes().all(|b| kind.allows(b)) => {
            Problem::error(format!("`{text}` is not the name of a {word}")).help(match kind {
                Kind::Parameter => {
                    "write the name alone, as written in URLs, without `=`, `&` or spaces"
                }
                _ => "write the name alone: letters, digits and !#$%&'+-.^_`|~",
            })
        }
        () => return,
    };
    checks.push(problem.at(entry.span()));
}

/// Returns the client headers that shared fetches contain (`forward_headers` or `trusted_headers`).
pub fn forwarded(
    name: &'static str,
    key: Option<&Names>,
    base: &[Pattern],
    checks: &mut Checks,
) -> Vec<Pattern> {
    let patterns = patterns(name, key, Kind::Field, base, checks);
    for entry in key.iter().flat_map(|typed| typed.get_ref()) {
        let name = entry.get_ref().as_bytes();
        let Some((label, help)) = unfit(name) else {
            continue;
        };
        checks.push(
            Problem::error(format!("`{}` can't be forwarded", entry.get_ref()))
                .at(entry.span())
                .label(label)
                .help(help),
        );
    }
    patterns
}

/// Returns the reason why a shared fetch can't contain this header, and the advice.
fn unfit(name: &[u8]) -> Option<(&'static str, &'static str)> {
    if name.eq_ignore_ascii_case(b"authorization") {
        let label = "one client's credentials must not be used for others";
        return Some((
            label,
            "leave it out: RFC 9111 3.5 governs responses to requests with credentials",
        ));
    }
    if name.eq_ignore_ascii_case(FORWARD_ADDRESS.as_bytes()) {
        return None;
    }
    if name.eq_ignore_ascii_case(b"host") || hop::is_in(hop::SHARED, name) {
        return Some(("shared fetches always contain it", "leave it out"));
    }
    hop::why_not_carried(name).map(|why| (why, "leave it out"))
}

/// Parses a list of addresses and networks. `every` is the warning if the list contains all
/// addresses.
pub fn networks(name: &str, key: Option<&Names>, every: &str, checks: &mut Checks) -> Vec<Network> {
    let Some(typed) = key else {
        return Vec::new();
    };
    few(name, typed.get_ref().len(), typed.span(), checks);
    let entries = typed.get_ref().iter();
    entries
        .filter_map(|entry| network(entry, Some(every), checks))
        .collect()
}

/// Parses a list of at most `most` addresses and networks, which may include all addresses.
pub fn addresses(
    name: &str,
    entries: &[Spanned<String>],
    at: Range<usize>,
    most: usize,
    checks: &mut Checks,
) -> Vec<Network> {
    if entries.len() > most {
        checks.push(
            Problem::error(format!("`{name}` has too many entries"))
                .at(at)
                .label(format!("{} of them", entries.len()))
                .help(format!("keep at most {most}")),
        );
    }
    let entries = entries.iter();
    entries
        .filter_map(|entry| network(entry, None, checks))
        .collect()
}

fn network(entry: &Spanned<String>, every: Option<&str>, checks: &mut Checks) -> Option<Network> {
    let Some(network) = parse(entry.get_ref()) else {
        checks.push(
            Problem::error(format!("`{}` is not an address", entry.get_ref()))
                .at(entry.span())
                .help(match entry.get_ref().as_str() {
                    "all" | "any" | "*" => "write \"0.0.0.0/0\" and \"::/0\" for all addresses; without `allow`, all are allowed",
                    "localhost" => "write \"127.0.0.1\" and \"::1\"",
                    _ => "write an IP address or a network, as in \"127.0.0.1\", \"10.0.0.0/8\" or \"fd00::/8\"",
                }),
        );
        return None;
    };
    let Network { address, bits } = network;
    let every = every.filter(|_| bits == 0);
    if let Some(every) = every {
        checks.push(
            Problem::warning(every)
                .at(entry.span())
                .help("list the intended addresses"),
        );
    } else if let Some(first) = first_of(network).filter(|first| *first != address) {
        checks.push(
            Problem::warning(format!(
                "`{}` names an address within its network",
                entry.get_ref()
            ))
            .at(entry.span())
            .label(format!("only the first {bits} bits count"))
            .help(format!(
                "write \"{first}/{bits}\" for the network, or \"{address}\" for the address alone"
            )),
        );
    }
    Some(network)
}

/// Parses `address` or `address/bits`. IPv4 addresses written as IPv6 become IPv4.
fn parse(text: &str) -> Option<Network> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 = match bits {
        None => all,
        // `parse` would accept a sign, so only digits are passed to it.
        Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().ok()?,
        Some(_) => return None,
    };
    if bits > all {
        return None;
    }
    let own = address.to_canonical();
    match own.is_ipv4() && all == 128 {
        true => Some(Network {
            address: own,
            bits: bits.checked_sub(96)?,
        }),
        false => Some(Network { address, bits }),
    }
}

/// Returns the first address of a network, or `None` if the prefix length is invalid.
fn first_of(network: Network) -> Option<IpAddr> {
    let bits = u32::from(network.bits);
    Some(match network.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits)?).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128_u32.checked_sub(bits)?)
                .unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_in_both_families() {
        let shown = |text: &str| parse(text).map(|n| format!("{}/{}", n.address, n.bits));
        for (text, is) in [
            ("127.0.0.1", "127.0.0.1/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::1", "::1/128"),
            ("fd00::/8", "fd00::/8"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(is), "{text}");
        }
        for text in [
            "",
            "localhost",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "10/8",
            "::ffff:10.0.0.0/90",
            "10.0.0.1:80",
            "10.0.0.0/1000",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_address_has_no_bits_beyond_its_network() {
        let first = |text: &str| first_of(parse(text)?).map(|a| a.to_string());
        assert_eq!(first("10.1.2.3/8").as_deref(), Some("10.0.0.0"));
        assert_eq!(first("10.1.2.3").as_deref(), Some("10.1.2.3"));
        assert_eq!(first("1.2.3.4/0").as_deref(), Some("0.0.0.0"));
        assert_eq!(first("fd12::1/8").as_deref(), Some("fd00::"));
    }
}
