//! Parses addresses of listeners and of the admin API.

use std::net::SocketAddr;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::report::Problem;

/// Parses the socket address in `text`, the value of a key. `:PORT` means all IPv4 addresses.
pub fn address(what: &str, text: &Spanned<String>, checks: &mut Checks) -> Option<SocketAddr> {
    // An address without a host means every IPv4 address of this machine.
    let parsed = match text.get_ref().strip_prefix(':') {
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => format!("0.0.0.0:{port}").parse(),
        _ => text.get_ref().parse(),
    };
    if parsed.is_err() {
        checks.push(
            Problem::error(format!("`{what}` is not an address"))
                .at(text.span())
                .label("not an IP address with a port")
                .help("write a port, as in \":8080\", or an IP address and a port, as in \"127.0.0.1:0\" or \"[::]:8080\""),
        );
    }
    parsed.ok()
}
