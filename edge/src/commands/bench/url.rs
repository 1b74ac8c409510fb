//! The URLs that a load requests: one scheme, host and port, and several targets.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Most addresses of a host name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Longest wait for a connection to one of several addresses.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest accepted URL in bytes.
const URL_MAX: usize = 8 << 10;

/// A server, and request targets on it.
#[derive(Debug, PartialEq, Eq)]
pub struct Targets {
    /// Whether the connections have TLS.
    pub is_tls: bool,
    /// Host name or IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Host and port as the header Host has them.
    pub authority: String,
    /// Paths with queries.
    pub paths: Vec<String>,
}

impl Targets {
    /// Parses URLs, which must have the same scheme, host and port. An error says how to write the URL.
    pub fn parse(urls: &[String]) -> Result<Targets, (String, String)> {
        let mut found: Option<Targets> = None;
        for url in urls {
            let wrong = |help: &str| (url.clone(), help.to_owned());
            let one = parse(url).map_err(wrong)?;
            match &mut found {
                None => found = Some(one),
                Some(all) if (all.is_tls, &all.authority) == (one.is_tls, &one.authority) => {
                    all.paths.extend(one.paths);
                }
                Some(_) => {
                    return Err(wrong(
                        "write URLs of one server, as in http://a/x http://a/y",
                    ));
                }
            }
        }
        found.ok_or_else(|| {
            (
                String::new(),
                "write a URL, as in http://127.0.0.1:8080/".to_owned(),
            )
        })
    }

    /// Returns the server's address. A host name is looked up once. If it has several addresses, the first one that
    /// accepts a connection is used, or the first one if none does. `localhost` is `::1` or else `127.0.0.1`; with
    /// `is_version_4`, only an IPv4 address is returned.
    ///
    /// # Errors
    ///
    /// The name has no address.
    pub fn address(&self, is_version_4: bool) -> std::io::Result<SocketAddr> {
        let found: Vec<SocketAddr> = match self.host.as_str() {
            "localhost" => vec![
                (Ipv6Addr::LOCALHOST, self.port).into(),
                (Ipv4Addr::LOCALHOST, self.port).into(),
            ],
            host => (host, self.port).to_socket_addrs()?.collect(),
        };
        let usable = found
            .into_iter()
            .filter(|address| address.is_ipv4() || !is_version_4);
        let usable: Vec<SocketAddr> = usable.take(ADDRESSES_MAX).collect();
        let accepts = |address: &&SocketAddr| TcpStream::connect_timeout(address, PATIENCE).is_ok();
        let first = match usable.as_slice() {
            [only] => Some(only),
            several => several.iter().find(accepts).or(several.first()),
        };
        let none = || std::io::Error::other("the host name has no address");
        first.copied().ok_or_else(none)
    }
}

fn parse(url: &str) -> Result<Targets, &'static str> {
    if url.len() > URL_MAX {
        return Err("write a URL of at most 8 KiB");
    }
    let (is_tls, rest) = match url.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => return Err("begin the URL with http:// or https://"),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = target.split('#').next().unwrap_or_default();
    let path = match target.starts_with('/') {
        true => target.to_owned(),
        false => format!("/{target}"),
    };
    // Braces are not valid in a URL, but `{n}` stands for a number.
    if !path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("percent-encode spaces and other characters than printable ASCII");
    }
    let (host, port) = host_and_port(authority, if is_tls { 443 } else { 80 })
        .ok_or("write a host name, an IPv4 address or an IPv6 address in brackets, and a port")?;
    Ok(Targets {
        is_tls,
        host,
        port,
        authority: authority.to_owned(),
        paths: vec![path],
    })
}

fn host_and_port(authority: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, after)
        }
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            let (host, after) = authority.split_at(end);
            let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            if host.is_empty() || !host.bytes().all(is_host) {
                return None;
            }
            (host, after)
        }
    };
    let port = match port.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok()?,
        None if port.is_empty() => usual,
        _ => return None,
    };
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(urls: &[&str]) -> Result<Targets, (String, String)> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        Targets::parse(&urls)
    }

    #[test]
    fn urls_have_a_host_a_port_and_targets() {
        let targets = parsed(&["http://a.example:81/x?y#z", "http://a.example:81"]).expect("URLs");
        assert_eq!((targets.is_tls, targets.port), (false, 81));
        assert_eq!(targets.paths, ["/x?y", "/"]);
        let six = parsed(&["https://[::1]/{n}.ts"]).expect("a URL");
        assert_eq!(
            (six.is_tls, six.port, six.host.as_str()),
            (true, 443, "::1")
        );
        assert_eq!(
            six.address(false).expect("an address").to_string(),
            "[::1]:443"
        );
        assert_eq!(parsed(&["http://a?q"]).expect("a URL").paths, ["/?q"]);
    }

    #[test]
    fn other_texts_are_refused() {
        for wrong in [
            "a/b",
            "ftp://a/",
            "http://",
            "http://a:b/",
            "http://a:70000/",
            "http://[::1/",
            "http://u@a/",
            "http://a/ b",
            "http://[a]/",
        ] {
            assert!(parsed(&[wrong]).is_err(), "{wrong}");
        }
        assert!(parsed(&["http://a/", "http://b/"]).is_err());
        assert!(parsed(&["http://a/", "https://a/"]).is_err());
    }
}
