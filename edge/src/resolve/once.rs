//! Looks up the addresses of hosts once, for a command.

use std::net::{IpAddr, SocketAddr};

use super::dns::Dns;
use super::hosts::{Failure, Hosts};
use super::lookup::{Name, concurrently, lookup};

/// Most hosts that are looked up at the same time.
const LOOKUPS_MAX: usize = 32;

/// Looks up the addresses of these hosts, by these name servers or those of the system if there are none. Returns each host
/// with its addresses, at least one, in the order in which the look-ups end. The caller bounds the time.
///
/// # Errors
///
/// The name servers of the system can't be read. A host may have its own failure.
pub async fn addresses(
    hosts: &[String],
    servers: &[SocketAddr],
) -> Result<Vec<(String, Result<Vec<IpAddr>, Failure>)>, Failure> {
    let dns = Dns::open(servers)?;
    let lookups = hosts.iter().cloned().map(|host| {
        let dns = dns.clone();
        async move {
            let name = Name::Host(host.clone(), 0);
            let found = lookup(&dns, &name, &Hosts::default()).await;
            let addresses = found.map(|found| {
                let targets = found.answer.targets.into_iter();
                targets.map(|target| target.address.ip()).collect()
            });
            (host, addresses)
        }
    });
    Ok(concurrently(lookups, LOOKUPS_MAX).await)
}
