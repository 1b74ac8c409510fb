//! Parses the URLs of origin servers.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::address::PATH_MAX;
use crate::http::Scheme;

/// The parts of a server's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// The scheme.
    pub scheme: Scheme,
    /// Whether the server speaks HTTP/2 in clear text.
    pub h2c: bool,
    /// Host name or address, without brackets; `localhost` for a Unix socket.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether `host` is the name of a service (SRV).
    pub srv: bool,
    /// The path of a Unix socket.
    pub unix: Option<PathBuf>,
}

/// The defect of a URL: a label and the advice.
type Wrong = (&'static str, &'static str);

const EXAMPLE: &str =
    "write a URL such as \"http://127.0.0.1:9000\" or \"https://origin.example.com\"";

/// Whether a route's `proxy` is a URL instead of the name of an upstream.
pub fn is_url(proxy: &str) -> bool {
    proxy.contains("://") || proxy.starts_with("unix:")
}

/// Parses `http://host:port`, `https://host:port` and `h2c://host:port`, all also after `srv+`, and `unix:/path`.
///
/// # Errors
///
/// The text is no such URL.
pub fn parse(url: &str) -> Result<ServerUrl, Wrong> {
    if let Some(path) = url.strip_prefix("unix:") {
        return unix(path);
    }
    let (srv, url) = match url.strip_prefix("srv+") {
        Some(url) => (true, url),
        None => (false, url),
    };
    let (scheme, h2c, rest) = if let Some(rest) = url.strip_prefix("http://") {
        (Scheme::Http, false, rest)
    } else if let Some(rest) = url.strip_prefix("https://") {
        (Scheme::Https, false, rest)
    } else if let Some(rest) = url.strip_prefix("h2c://") {
        (Scheme::Http, true, rest)
    } else {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        return Err(match scheme {
            Some("grpc" | "grpcs" | "h2" | "http2") => (
                "`h2c://` or `https://` is missing",
                "write `h2c://host:port` for HTTP/2 in clear text, or `https://host:port` with TLS",
            ),
            _ => ("`http://` or `https://` is missing", EXAMPLE),
        });
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return Err((
            "a server has no path",
            "leave the path out here, and write it in the route: proxy = \"NAME/base\"",
        ));
    }
    if authority.contains('@') {
        return Err(("a server has no user name", EXAMPLE));
    }
    let (host, port) =
        split_port(authority).ok_or(("the port is not a number from 1 to 65535", EXAMPLE))?;
    if !is_host(&host) {
        return Err(("the host is not a name or an IP address", EXAMPLE));
    }
    if srv && (port.is_some() || !host.starts_with('_')) {
        return Err((
            "not the name of a service",
            "write it without a port, as in \"srv+http://_http._tcp.example.com\"",
        ));
    }
    let default = match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    };
    Ok(ServerUrl {
        scheme,
        h2c,
        host,
        port: port.unwrap_or(default),
        srv,
        unix: None,
    })
}

fn unix(path: &str) -> Result<ServerUrl, Wrong> {
    const EXAMPLE: &str = "write a full path, as in \"unix:/run/app.sock\"";
    let label = match Path::new(path) {
        path if !path.is_absolute() || path.file_name().is_none() => "not the full path of a file",
        _ if path.len() > PATH_MAX => "longer than 107 bytes, the kernel's limit",
        _ if path.contains('\0') => "a path with a NUL byte",
        path => {
            return Ok(ServerUrl {
                scheme: Scheme::Http,
                h2c: false,
                host: "localhost".to_owned(),
                port: 80,
                srv: false,
                unix: Some(path.to_owned()),
            });
        }
    };
    Err((label, EXAMPLE))
}

/// Splits an authority into host (an IPv6 address without its brackets) and port.
pub fn split_port(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return None,
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port != 0)?)
        }
        Some(_) => return None,
        None => None,
    };
    Some((host.to_ascii_lowercase(), port))
}

/// Whether this is an address, or a name of letters, digits, `-`, `_` and dots. RFC 9110 4.2.1
/// allows more in a name, which is not used in practice.
pub fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    host.parse::<IpAddr>().is_ok()
        || (host.len() <= 253
            && host
                .strip_suffix('.')
                .unwrap_or(host)
                .split('.')
                .all(is_label))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (Scheme, String, u16) {
        let url = parse(url).expect("a URL of a server");
        (url.scheme, url.host, url.port)
    }

    #[test]
    fn a_server_is_scheme_host_and_port_or_a_socket() {
        let name = || "a.example".to_owned();
        assert_eq!(parsed("http://A.example:81"), (Scheme::Http, name(), 81));
        assert_eq!(parsed("http://a.example/"), (Scheme::Http, name(), 80));
        assert_eq!(parsed("https://a.example"), (Scheme::Https, name(), 443));
        assert_eq!(parsed("http://[::1]:9"), (Scheme::Http, "::1".into(), 9));
        assert_eq!(parsed("h2c://a.example"), (Scheme::Http, name(), 80));
        assert!(parse("srv+h2c://_grpc._tcp.a.example").is_ok_and(|url| url.h2c));
        let socket = parse("unix:/run/app.sock").expect("a socket");
        assert_eq!(socket.unix.as_deref(), Some(Path::new("/run/app.sock")));
        let service = parse("srv+https://_https._tcp.a.example").expect("a service");
        assert!(service.srv && service.scheme == Scheme::Https);
        for bad in [
            "a.example",
            "ftp://a.example",
            "http://",
            "https://",
            "http://a:0",
            "http://a:65536",
            "http://a:+1",
            "http://a/x",
            "http://u@a",
            "http://a b",
            "http://[::1",
            "http://[::1]x",
            "http://a..b",
            "http://a\r\nb",
            "http://::1",
            "unix:",
            "srv+http://example.com",
            "srv+http://_http._tcp.example.com:80",
            "unix:app.sock",
            "unix:/",
        ] {
            assert!(parse(bad).is_err(), "{bad:?} is no server");
        }
    }
}
