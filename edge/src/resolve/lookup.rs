//! Resolves a name once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::proto::rr::rdata::SRV;
use tokio::task::JoinSet;

use super::dns::Dns;
use super::hosts::{Failure, HostAnswer, Hosts};

/// Shortest and longest time for which an answer is used.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(3600);
/// Most servers of one answer. Further ones are ignored.
const TARGETS_MAX: usize = 256;
/// Most hosts of one service that are resolved at the same time.
const LOOKUPS_MAX: usize = 8;

/// A name to resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A host, whose addresses are servers on this port (A and AAAA records).
    Host(String, u16),
    /// A service such as `_http._tcp.example.com` (SRV records, RFC 2782).
    Service(String),
}

/// A server to which a name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address and port.
    pub address: SocketAddr,
    /// Share of the requests relative to the other targets, at least 1, if the answer has one.
    pub weight: Option<u32>,
    /// Whether the target is used only while those of a better priority fail.
    pub backup: bool,
}

/// The servers to which a name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The servers, at least one, sorted by address and without repetitions.
    pub targets: Vec<Target>,
    /// The addresses of the hosts, for later look-ups of which a part fails.
    pub hosts: Hosts,
    /// The failure for which some of the servers are those of the last answer.
    pub kept: Option<Failure>,
}

/// An answer, and how soon the name is looked up again.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) answer: Answer,
    /// Time for which the answer may be used.
    pub(super) ttl: Duration,
    /// Whether a part of the look-up failed.
    pub(super) is_partial: bool,
}

/// A host on which a server is, with the server's port.
#[derive(Debug)]
struct Location {
    host: String,
    port: u16,
    /// As in `Target`.
    weight: Option<u32>,
    backup: bool,
}

impl Name {
    /// Whether the name is below `invalid`, which never leads anywhere. No name server is asked for
    /// such names (RFC 6761 6.4).
    fn is_invalid(&self) -> bool {
        let (Name::Host(name, _) | Name::Service(name)) = self;
        let last = name.trim_end_matches('.').rsplit('.').next();
        last.is_some_and(|label| label.eq_ignore_ascii_case("invalid"))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Host(host, port) => write!(f, "{host}:{port}"),
            Name::Service(name) => f.write_str(name),
        }
    }
}

/// Resolves a name. Hosts that could not be looked up now have the addresses that they have in `last`, the hosts of the
/// last answer.
///
/// # Errors
///
/// No name server has answered, or the name has no address.
pub(super) async fn lookup(dns: &Dns, name: &Name, last: &Hosts) -> Result<Found, Failure> {
    if name.is_invalid() {
        return Err("names below `invalid` have no address".to_owned());
    }
    let (locations, ttl) = match name {
        Name::Host(host, port) => (vec![Location::of_host(host, *port)], TTL_MAX),
        Name::Service(service) => {
            let (servers, ttl) = dns.service(service, TARGETS_MAX).await?;
            (Location::of_servers(&servers), ttl)
        }
    };
    let answers = look_up_hosts(dns, &locations, last).await;
    let ttls = answers.values().filter_map(|answer| answer.ttl);
    let ttl = ttls.fold(ttl, Duration::min).clamp(TTL_MIN, TTL_MAX);
    let completed = last.complete(answers)?;
    Ok(Found {
        answer: Answer {
            targets: targets(&locations, &completed.hosts),
            hosts: completed.hosts,
            kept: completed.kept,
        },
        ttl,
        is_partial: completed.is_partial,
    })
}

impl Location {
    fn of_host(host: &str, port: u16) -> Location {
        Location {
            host: host.to_owned(),
            port,
            weight: None,
            backup: false,
        }
    }

    /// Returns the locations in the SRV records of a service.
    fn of_servers(servers: &[SRV]) -> Vec<Location> {
        let best = servers.iter().map(|srv| srv.priority).min();
        let locations = servers.iter().map(|srv| Location {
            host: srv.target.to_string(),
            port: srv.port,
            weight: Some(u32::from(srv.weight).max(1)),
            backup: Some(srv.priority) != best,
        });
        locations.collect()
    }
}

/// Looks up the addresses of all hosts. `last` has those of the last answer.
async fn look_up_hosts(
    dns: &Dns,
    locations: &[Location],
    last: &Hosts,
) -> BTreeMap<String, HostAnswer> {
    let hosts: BTreeSet<String> = locations.iter().map(|one| one.host.clone()).collect();
    // A look-up that panics has no other result.
    let panicked = || HostAnswer::failed("the look-up has broken off");
    let mut answers: BTreeMap<_, _> = hosts
        .iter()
        .cloned()
        .map(|host| (host, panicked()))
        .collect();
    let lookups = hosts.into_iter().map(|host| {
        let dns = dns.clone();
        let is_first = last.addresses(&host).next().is_none();
        async move {
            let answer = dns.host(&host, is_first).await;
            (host, answer)
        }
    });
    answers.extend(concurrently(lookups, LOOKUPS_MAX).await);
    answers
}

/// Returns the servers at these locations.
fn targets(locations: &[Location], hosts: &Hosts) -> Vec<Target> {
    let targets = locations.iter().flat_map(|one| {
        hosts.addresses(&one.host).map(|ip| Target {
            address: SocketAddr::new(ip, one.port),
            weight: one.weight,
            backup: one.backup,
        })
    });
    let mut targets: Vec<Target> = targets.collect();
    // An address in several records has the best priority and the largest weight of them.
    targets.sort_by_key(|one| (one.address, one.backup, Reverse(one.weight)));
    targets.dedup_by_key(|target| target.address);
    targets.truncate(TARGETS_MAX);
    targets
}

/// Runs these futures, at most `limit` at the same time, and returns their results in the order in which they end.
pub(super) async fn concurrently<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
    limit: usize,
) -> Vec<T> {
    let (mut waiting, mut running) = (futures.into_iter(), JoinSet::new());
    let mut results = Vec::new();
    loop {
        while running.len() < limit
            && let Some(future) = waiting.next()
        {
            running.spawn(future);
        }
        match running.join_next().await {
            Some(Ok(result)) => results.push(result),
            // A panic has been reported by the panic hook; its future has no result.
            Some(Err(_)) => {}
            None => return results,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Barrier;

    use super::*;

    // The futures wait for one another in groups of four, so that fewer at a time would never end.
    #[test]
    fn futures_run_concurrently_up_to_the_limit() {
        let (running, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let group = Arc::new(Barrier::new(4));
        let futures = (0..12).map(|number| {
            let (running, most, group) = (running.clone(), most.clone(), group.clone());
            async move {
                let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                most.fetch_max(now, Ordering::Relaxed);
                group.wait().await;
                running.fetch_sub(1, Ordering::Relaxed);
                number
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        let mut results = runtime.block_on(concurrently(futures, 4));
        results.sort_unstable();
        assert_eq!(results, (0..12).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::Relaxed), 4);
    }
}
