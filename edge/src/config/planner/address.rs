//! Parses addresses of listeners and of the admin API.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::report::Problem;
use crate::config::syntax::foreign_advice;
use crate::sys::ListenAddress;

/// Longest path of a Unix socket in bytes, which is a limit of the kernel.
pub const PATH_MAX: usize = 107;

/// Advice on the URL of a listener with TLS.
const HTTPS: &str = "write only the address, as in \":443\"; TLS needs a [[listener]] with `tls = true` in a \
     configuration file: see docs/tls.md";

/// Parses the address of a listener, the value of the key `name`: `unix:PATH`, or a socket address.
pub fn listen_address(
    name: &str,
    text: &Spanned<String>,
    checks: &mut Checks,
) -> Option<ListenAddress> {
    let Some(path) = text.get_ref().strip_prefix("unix:") else {
        return address(name, text, checks).map(ListenAddress::Ip);
    };
    let why = match socket_path(path) {
        Ok(path) => return Some(ListenAddress::Unix(path.to_owned())),
        Err(why) => why,
    };
    checks.push(
        Problem::error("the path of a Unix socket can't be used")
            .at(text.span())
            .label(why)
            .help("write a full path, as in \"unix:/run/sluice.sock\""),
    );
    None
}

/// Returns the path of a Unix socket.
///
/// # Errors
///
/// The path can't be used. The text says why.
fn socket_path(path: &str) -> Result<&Path, &'static str> {
    match Path::new(path) {
        path if !path.is_absolute() || path.file_name().is_none() => {
            Err("not the full path of a file")
        }
        _ if path.len() > PATH_MAX => Err("longer than 107 bytes, the kernel's limit"),
        _ if path.contains('\0') => Err("a path with a NUL byte"),
        path => Ok(path),
    }
}

/// Parses `unix:PATH`, or an IP address with a port as `parse` does.
pub fn parse_listen(text: &str) -> Option<ListenAddress> {
    match text.strip_prefix("unix:") {
        Some(path) => socket_path(path).ok().map(|path| path.to_owned().into()),
        None => parse(text).map(ListenAddress::Ip),
    }
}

/// Parses an IP address with a port. `:PORT` means all IPv4 addresses of this machine, and
/// `localhost:PORT` means 127.0.0.1. An IPv4-mapped IPv6 address (RFC 4291 2.5.5.2) becomes the IPv4
/// address, since an IPv6 socket can listen on it only if the socket accepts IPv4, too.
pub fn parse(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(match address.ip().to_canonical() {
            ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
            IpAddr::V6(_) => address,
        });
    }
    let (host, port) = text.rsplit_once(':')?;
    let ip = match host {
        "" => Ipv4Addr::UNSPECIFIED,
        host if host.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST,
        _ => return None,
    };
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    Some((ip, port.parse().ok().filter(|_| digits)?).into())
}

/// Parses the socket address in `text`, the value of a key.
pub fn address(what: &str, text: &Spanned<String>, checks: &mut Checks) -> Option<SocketAddr> {
    let parsed = parse(text.get_ref());
    if parsed.is_none() {
        let bare = text.get_ref();
        // nginx has parameters after the address, as in `listen 443 ssl`.
        let mut parts = bare.split_whitespace();
        let first = parts.next().unwrap_or_default();
        let known = |word| Some((word, foreign_advice(word, &[])?));
        let help = match (first.parse::<u16>(), parts.find_map(known)) {
            _ if bare.starts_with("https://") => HTTPS.to_owned(),
            (_, Some((word, advice))) => format!("write only the address; for `{word}`: {advice}"),
            (Ok(port), None) => format!("write \":{port}\""),
            (Err(_), None) => "write a port, as in \":8080\", or an IP address and a port, as in \"127.0.0.1:0\" or \"[::]:8080\"".to_owned(),
        };
        checks.push(
            Problem::error(format!("`{what}` is not an address"))
                .at(text.span())
                .label("not an IP address with a port")
                .help(help),
        );
    }
    parsed
}
