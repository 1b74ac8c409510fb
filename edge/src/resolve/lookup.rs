//! Resolves a name once.

use std::cmp::Reverse;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::task::JoinSet;

use crate::sys::clock::timer_now;

/// Shortest and longest time for which an answer is used.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(3600);
/// Most servers of one answer. Further ones are ignored.
const TARGETS_MAX: usize = 256;
/// Time that a name server has to answer, and the number of attempts.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;
/// Most hosts of one service that are resolved at the same time.
const LOOKUPS_MAX: usize = 8;

/// Text of the failure that a name exists, but has no address.
const NO_ADDRESS: &str = "the name has no address";

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
    /// Time for which the answer may be used.
    pub ttl: Duration,
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

/// Returns a resolver that asks these name servers, or those of the system if there are none. The files of the system
/// are read now.
pub(super) fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, String> {
    let provider = TokioRuntimeProvider::default;
    let local = || {
        ResolverConfig::from_name_servers(vec![NameServerConfig::udp_and_tcp(
            [127, 0, 0, 1].into(),
        )])
    };
    let mut builder = match servers {
        // Without the system's configuration, programs ask the name server on this machine.
        [] => TokioResolver::builder(provider())
            .unwrap_or_else(|_| TokioResolver::builder_with_config(local(), provider())),
        servers => {
            let servers = servers.iter().map(name_server).collect();
            let config = ResolverConfig::from_name_servers(servers);
            TokioResolver::builder_with_config(config, provider())
        }
    };
    let options = builder.options_mut();
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = TIMEOUT;
    options.attempts = ATTEMPTS;
    // The names are resolved again when their answers expire.
    options.cache_size = 0;
    builder.build().map_err(|error| error.to_string())
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}

/// Resolves a name.
///
/// # Errors
///
/// No name server has answered, or the name has no address.
pub(super) async fn lookup(resolver: &TokioResolver, name: &Name) -> Result<Answer, String> {
    if name.is_invalid() {
        return Err("names below `invalid` have no address".to_owned());
    }
    let (mut targets, ttl) = match name {
        Name::Host(host, port) => addresses(resolver, host, *port).await?,
        Name::Service(service) => services(resolver, service).await?,
    };
    // An address in several records has the best priority and the largest weight of them.
    targets.sort_by_key(|one| (one.address, one.backup, Reverse(one.weight)));
    targets.dedup_by_key(|target| target.address);
    targets.truncate(TARGETS_MAX);
    match targets.is_empty() {
        true => Err(NO_ADDRESS.to_owned()),
        false => Ok(Answer {
            targets,
            ttl: ttl.clamp(TTL_MIN, TTL_MAX),
        }),
    }
}

type Found = (Vec<Target>, Duration);

/// Describes a failure, for operators.
fn text(error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => "no such name".to_owned(),
            _ => NO_ADDRESS.to_owned(),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => format!("the name server answers: {code}"),
        NetError::Timeout => "no name server answers".to_owned(),
        NetError::NoConnections => "no name server can be reached".to_owned(),
        NetError::Io(error) => format!("no name server can be reached: {error}"),
        other => other.to_string(),
    }
}

async fn addresses(resolver: &TokioResolver, host: &str, port: u16) -> Result<Found, String> {
    let found = resolver.lookup_ip(host).await;
    let found = found.map_err(|error| text(&error))?;
    let targets = found.iter().map(|ip| Target {
        address: SocketAddr::new(ip, port),
        weight: None,
        backup: false,
    });
    let ttl = found
        .valid_until()
        .saturating_duration_since(timer_now().into());
    Ok((targets.collect(), ttl))
}

/// Resolves a service, and the hosts of its servers. A host without an address is left out.
async fn services(resolver: &TokioResolver, service: &str) -> Result<Found, String> {
    let found = resolver.lookup(service, RecordType::SRV).await;
    let found = found.map_err(|error| text(&error))?;
    let mut ttl = found
        .valid_until()
        .saturating_duration_since(timer_now().into());
    let records = found
        .answers()
        .iter()
        .filter_map(|record| match &record.data {
            RData::SRV(srv) => Some(srv),
            _ => None,
        });
    let records: Vec<_> = records.take(TARGETS_MAX).cloned().collect();
    let best = records.iter().map(|srv| srv.priority).min();
    let (mut targets, mut failure) = (Vec::new(), None);
    let lookups = records.into_iter().map(|srv| {
        let resolver = resolver.clone();
        async move {
            let (hosts, ttl) = addresses(&resolver, &srv.target.to_string(), srv.port).await?;
            let targets = hosts.into_iter().map(|host| Target {
                weight: Some(u32::from(srv.weight).max(1)),
                backup: Some(srv.priority) != best,
                ..host
            });
            Ok((targets.collect(), ttl))
        }
    });
    for found in concurrently(lookups, LOOKUPS_MAX).await {
        match found {
            Ok::<Found, String>((hosts, host_ttl)) => {
                ttl = ttl.min(host_ttl);
                targets.extend(hosts);
            }
            Err(error) => failure = Some(error),
        }
    }
    match (targets.is_empty(), failure) {
        (true, Some(failure)) => Err(failure),
        _ => Ok((targets, ttl)),
    }
}

/// Runs these futures, at most `limit` at the same time, and returns their results in the order in which they end.
async fn concurrently<T: Send + 'static>(
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

    use hickory_resolver::net::NoRecords;
    use hickory_resolver::proto::op::Query;
    use tokio::sync::Barrier;

    use super::*;

    #[test]
    fn failures_have_plain_texts() {
        let none = |code| {
            let none = NoRecords::new(Query::default(), code);
            text(&NetError::Dns(DnsError::NoRecordsFound(none)))
        };
        assert_eq!(none(ResponseCode::NXDomain), "no such name");
        assert_eq!(none(ResponseCode::NoError), "the name has no address");
        assert_eq!(text(&NetError::Timeout), "no name server answers");
        let refused = DnsError::ResponseCode(ResponseCode::Refused);
        let refused = text(&NetError::Dns(refused));
        assert_eq!(refused, "the name server answers: Query Refused");
    }

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
