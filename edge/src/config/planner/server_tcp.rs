//! Plans `tcp` of an upstream.

use std::net::IpAddr;
use std::time::Duration;

use crate::config::checks::Checks;
use crate::config::file::TcpFile;
use crate::config::report::Problem;
use crate::config::value::{Key, OrFalse, Table};
use crate::sys::connect::TcpOptions;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Returns the options of TCP connections to the servers of an upstream.
pub fn options(key: &Key<Table<TcpFile>>, checks: &mut Checks) -> TcpOptions {
    let d = TcpOptions::default();
    let Some(typed) = key else { return d };
    let Table(table) = typed.get_ref();
    let mut keepalive = None;
    if let Some(typed) = &table.keepalive
        && let OrFalse::On(time) = typed.get_ref()
    {
        let time = Some(toml::Spanned::new(typed.span(), *time));
        keepalive = Some(checks.within("keepalive", &time, HOUR, SECOND..=9 * HOUR));
    }
    let user_timeout = table.user_timeout.as_ref().map(|_| {
        let most = 24 * HOUR;
        checks.within("user_timeout", &table.user_timeout, most, SECOND..=most)
    });
    TcpOptions {
        nodelay: table.nodelay.unwrap_or(d.nodelay),
        keepalive,
        user_timeout,
        bind: bind(&table.bind, checks),
    }
}

fn bind(key: &Key<String>, checks: &mut Checks) -> Option<IpAddr> {
    let typed = key.as_ref()?;
    let parsed = typed.get_ref().parse();
    if parsed.is_err() {
        checks.push(
            Problem::error("`bind` is not an IP address")
                .at(typed.span())
                .help("write an address of this machine, without a port, as in \"10.0.0.7\""),
        );
    }
    parsed.ok()
}
