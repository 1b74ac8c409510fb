//! Plans `resolver` of `[server]`, and other lists of name servers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::names;
use crate::config::checks::Checks;
use crate::config::file::ServerSection;
use crate::config::report::Problem;
use crate::config::value::Names;
use crate::upstream::Options;

/// Port of name servers (RFC 1035 4.2).
const PORT: u16 = 53;

/// Sets the name servers of all upstreams that have names.
pub fn plan(file: &ServerSection, upstreams: &mut BTreeMap<String, Options>, checks: &mut Checks) {
    let Some(list) = &file.resolver else {
        return;
    };
    let servers = addresses("resolver", list, checks);
    for options in upstreams.values_mut() {
        if options.servers.iter().any(|server| server.is_looked_up()) {
            options.resolver.clone_from(&servers);
        }
    }
}

/// Returns the addresses of name servers in the list of this key.
pub fn addresses(key: &str, list: &Names, checks: &mut Checks) -> Vec<SocketAddr> {
    names::few(key, list.get_ref().len(), list.span(), checks);
    let mut servers: Vec<SocketAddr> = Vec::new();
    for typed in list.get_ref() {
        match address(typed.get_ref()) {
            Some(address) => servers.push(address),
            None => checks.push(
                Problem::error(format!("`{key}` is not an address of a name server"))
                    .at(typed.span())
                    .help("write an IP address, with a port if that is not 53, as in \"10.0.0.53\" or \"127.0.0.1:5353\""),
            ),
        }
    }
    if servers.is_empty() && list.get_ref().is_empty() {
        checks.push(
            Problem::error(format!("`{key}` names no name server"))
                .at(list.span())
                .help("leave it out to use the system's (/etc/resolv.conf)"),
        );
    }
    servers
}

/// Returns the name servers in `resolver`. Empty: those of the system.
pub fn name_servers(file: &ServerSection) -> Vec<SocketAddr> {
    let list = file.resolver.iter().flat_map(|list| list.get_ref());
    list.filter_map(|typed| address(typed.get_ref())).collect()
}

/// Returns the address of a name server, with or without a port.
pub fn address(text: &str) -> Option<SocketAddr> {
    let ip = |text: &str| text.parse::<IpAddr>().ok();
    let alone = ip(text.trim_matches(['[', ']'])).map(|ip| SocketAddr::new(ip, PORT));
    alone.or_else(|| {
        text.parse()
            .ok()
            .filter(|address: &SocketAddr| address.port() != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_is_an_address_with_or_without_a_port() {
        let port = |text| address(text).map(|address| address.port());
        assert_eq!(port("10.0.0.53"), Some(53));
        assert_eq!(port("127.0.0.1:5353"), Some(5353));
        assert_eq!(port("::1"), Some(53));
        assert_eq!(port("[::1]:54"), Some(54));
        assert_eq!(port("dns.example.com"), None);
        assert_eq!(port("10.0.0.53:0"), None);
    }
}
