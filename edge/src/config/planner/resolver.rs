//! Plans `resolver` of `[server]`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::names;
use crate::config::checks::Checks;
use crate::config::file::ServerSection;
use crate::config::report::Problem;
use crate::upstream::Options;

/// Port of name servers (RFC 1035 4.2).
const PORT: u16 = 53;

/// Sets the name servers of all upstreams that have names.
pub fn plan(file: &ServerSection, upstreams: &mut BTreeMap<String, Options>, checks: &mut Checks) {
    let Some(list) = &file.resolver else {
        return;
    };
    names::few("resolver", list.get_ref().len(), list.span(), checks);
    for typed in list.get_ref() {
        if address(typed.get_ref()).is_none() {
            checks.push(
                Problem::error("`resolver` is not an address of a name server")
                    .at(typed.span())
                    .help("write an IP address, with a port if that is not 53, as in \"10.0.0.53\" or \"127.0.0.1:5353\""),
            );
        }
    }
    let servers = name_servers(file);
    if servers.is_empty() && list.get_ref().is_empty() {
        checks.push(
            Problem::error("`resolver` names no name server")
                .at(list.span())
                .help("leave it out to use the system's (/etc/resolv.conf)"),
        );
    }
    for options in upstreams.values_mut() {
        if options.servers.iter().any(|server| server.is_looked_up()) {
            options.resolver.clone_from(&servers);
        }
    }
}

/// Returns the name servers in `resolver`. Empty: those of the system.
pub fn name_servers(file: &ServerSection) -> Vec<SocketAddr> {
    let list = file.resolver.iter().flat_map(|list| list.get_ref());
    list.filter_map(|typed| address(typed.get_ref())).collect()
}

fn address(text: &str) -> Option<SocketAddr> {
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
