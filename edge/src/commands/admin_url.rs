//! The URL of the admin address of a running Sluice.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::config;
use crate::sys::ListenAddress;

/// The URL of an admin address. Displayed without `http://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminUrl {
    /// A host, with or without TLS.
    Host {
        /// Whether the address speaks TLS.
        is_tls: bool,
        /// Host name or IP address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl AdminUrl {
    /// Returns the URL at which a program on this machine reaches a listener of this address.
    pub fn of(address: &ListenAddress, is_tls: bool) -> AdminUrl {
        match address {
            ListenAddress::Ip(address) => AdminUrl::of_ip(*address, is_tls),
            ListenAddress::Unix(path) => AdminUrl::Unix(path.clone()),
        }
    }

    fn of_ip(address: SocketAddr, is_tls: bool) -> AdminUrl {
        let ip = match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        AdminUrl::Host {
            is_tls,
            host: ip.to_string(),
            port: address.port(),
        }
    }

    /// Parses `IP:PORT`, `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.
    pub fn parse(text: &str) -> Option<AdminUrl> {
        if let Some(path) = text.strip_prefix("unix:") {
            return (!path.is_empty()).then(|| AdminUrl::Unix(path.into()));
        }
        let (is_tls, rest) = match text.split_once("://") {
            None => return config::parse_address(text).map(|ip| AdminUrl::of_ip(ip, false)),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return None,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if let Ok(address) = authority.parse() {
            return Some(AdminUrl::of_ip(address, is_tls));
        }
        let (host, port) = authority.rsplit_once(':')?;
        let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        let is_valid = !host.is_empty() && host.bytes().all(is_host);
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        Some(AdminUrl::Host {
            is_tls,
            host: host.to_owned(),
            port: port.parse().ok().filter(|_| is_valid && digits)?,
        })
    }

    /// Whether the address speaks TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, AdminUrl::Host { is_tls: true, .. })
    }

    /// Returns host and port, for the header Host.
    pub fn authority(&self) -> String {
        match self {
            AdminUrl::Host { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            AdminUrl::Host { host, port, .. } => format!("{host}:{port}"),
            AdminUrl::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminUrl::Unix(path) => write!(f, "unix:{}", path.display()),
            url if url.is_tls() => write!(f, "https://{}", url.authority()),
            url => f.write_str(&url.authority()),
        }
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
            ("unix:/run/sluice/admin.sock", "unix:/run/sluice/admin.sock"),
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
            "unix:",
            "",
        ] {
            assert_eq!(AdminUrl::parse(text), None, "{text}");
        }
    }
}
