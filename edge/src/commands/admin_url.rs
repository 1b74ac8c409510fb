//! The URL of the admin address of a running Sluice.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use crate::config;

/// The URL of an admin address. Displayed without `http://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminUrl {
    /// Whether the address speaks TLS.
    pub is_tls: bool,
    /// Host name or IP address, without brackets.
    pub host: String,
    port: u16,
}

impl AdminUrl {
    /// Returns the URL at which a program on this machine reaches a listener of this address.
    pub fn of(address: SocketAddr, is_tls: bool) -> AdminUrl {
        let ip = match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        AdminUrl {
            is_tls,
            host: ip.to_string(),
            port: address.port(),
        }
    }

    /// Parses `IP:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
    pub fn parse(text: &str) -> Option<AdminUrl> {
        let (is_tls, rest) = match text.split_once("://") {
            None => return config::parse_address(text).map(|address| AdminUrl::of(address, false)),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return None,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if let Ok(address) = authority.parse() {
            return Some(AdminUrl::of(address, is_tls));
        }
        let (host, port) = authority.rsplit_once(':')?;
        let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        let is_valid = !host.is_empty() && host.bytes().all(is_host);
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        Some(AdminUrl {
            is_tls,
            host: host.to_owned(),
            port: port.parse().ok().filter(|_| is_valid && digits)?,
        })
    }

    /// Returns host and port.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Returns the addresses of the host, at least one.
    ///
    /// # Errors
    ///
    /// The host name can't be resolved.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<_> = (&*self.host, self.port).to_socket_addrs()?.collect();
        match found.is_empty() {
            true => Err(io::Error::other("the host name has no address")),
            false => Ok(found),
        }
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https://" } else { "" };
        write!(f, "{scheme}{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_urls_are_parsed() {
        for (text, shown) in [
            ("127.0.0.1:9901", "127.0.0.1:9901"),
            (":9901", "127.0.0.1:9901"),
            ("localhost:9901", "127.0.0.1:9901"),
            ("[::]:9901", "[::1]:9901"),
            ("http://127.0.0.1:9901/", "127.0.0.1:9901"),
            ("http://edge1:80", "edge1:80"),
            (
                "https://edge1.example.com:9901",
                "https://edge1.example.com:9901",
            ),
            ("https://localhost:9901/", "https://localhost:9901"),
            ("https://[::1]:9901", "https://[::1]:9901"),
        ] {
            let url = AdminUrl::parse(text).map(|url| url.to_string());
            assert_eq!(url.as_deref(), Some(shown), "{text}");
        }
        for text in [
            "edge1:9901",
            "https://edge1",
            "https://:9901",
            "https://edge1:99010",
            "https://edge1:+99",
            "https://a@b:1",
            "https://a:1/status",
            "ftp://a:1",
            "9901",
            "",
        ] {
            assert_eq!(AdminUrl::parse(text), None, "{text}");
        }
    }
}
