//! Questions to name servers, and to the hosts file.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{IntoName, Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;

use super::hosts::{Failure, HostAnswer, Looked};
use crate::sys::clock::timer_now;

/// Time that a name server has to answer, and the number of attempts.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;

/// Text of the failure that a name exists, but has no address.
const NO_ADDRESS: &str = "the name has no address";

/// The name servers, as they are configured when a look-up begins. Cheap to clone.
#[derive(Clone)]
pub(super) struct Dns {
    resolver: TokioResolver,
    search: Arc<Search>,
}

/// The domains in which names that are not fully qualified are searched.
#[derive(Default)]
struct Search {
    domains: Vec<Name>,
    /// Number of dots from which on a name is first looked up as it is.
    ndots: usize,
}

impl Dns {
    /// Returns these name servers, or those of the system if there are none. The files of the system are read now.
    pub(super) fn open(servers: &[SocketAddr]) -> Result<Dns, Failure> {
        let (config, mut options) = match servers {
            // Without the system's configuration, programs ask the name server on this machine.
            [] => read_system_conf().unwrap_or_else(|_| {
                let local = NameServerConfig::udp_and_tcp([127, 0, 0, 1].into());
                let config = ResolverConfig::from_name_servers(vec![local]);
                (config, ResolverOpts::default())
            }),
            servers => {
                let servers = servers.iter().map(name_server).collect();
                let config = ResolverConfig::from_name_servers(servers);
                (config, ResolverOpts::default())
            }
        };
        options.timeout = TIMEOUT;
        options.attempts = ATTEMPTS;
        // The names are resolved again when their answers expire.
        options.cache_size = 0;
        let search = Search {
            domains: config
                .domain()
                .into_iter()
                .chain(config.search())
                .cloned()
                .collect(),
            ndots: options.ndots,
        };
        let provider = TokioRuntimeProvider::default();
        let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
        Ok(Dns {
            resolver: builder.build().map_err(|error| error.to_string())?,
            search: Arc::new(search),
        })
    }

    /// Looks up the servers of a service, at most `most`, and the time for which the answer may be used.
    pub(super) async fn service(
        &self,
        service: &str,
        most: usize,
    ) -> Result<(Vec<SRV>, Duration), Failure> {
        let found = self.resolver.lookup(service, RecordType::SRV).await;
        let found = found.map_err(|error| text(&error))?;
        let records = found.answers().iter();
        let servers = records.filter_map(|record| match &record.data {
            RData::SRV(srv) => Some(srv.clone()),
            _ => None,
        });
        let until = found.valid_until();
        let ttl = until.saturating_duration_since(timer_now().into());
        Ok((servers.take(most).collect(), ttl))
    }

    /// Looks up the addresses of a host. Both families are those of the same name, the first one that has addresses.
    pub(super) async fn host(&self, host: &str) -> HostAnswer {
        let name = match host.into_name() {
            Ok(name) => name,
            Err(error) => return HostAnswer::failed(&error.to_string()),
        };
        let mut answer = HostAnswer::failed(NO_ADDRESS);
        for name in self.search.names(name) {
            let ((v4, v4_ttl), (v6, v6_ttl)) = tokio::join!(
                self.family(name.clone(), RecordType::A),
                self.family(name, RecordType::AAAA)
            );
            answer = HostAnswer {
                families: [v4, v6],
                ttl: v4_ttl.into_iter().chain(v6_ttl).min(),
            };
            if answer.has_address() {
                break;
            }
        }
        answer
    }

    /// Looks up the addresses of one family, and the time for which they may be used.
    async fn family(&self, name: Name, family: RecordType) -> (Looked, Option<Duration>) {
        let found = match self.resolver.lookup(name, family).await {
            Ok(found) => found,
            Err(error @ NetError::Dns(DnsError::NoRecordsFound(_))) => {
                return (Looked::Absent(text(&error)), None);
            }
            Err(error) => return (Looked::Failed(text(&error)), None),
        };
        let records = found.answers().iter();
        let addresses: Vec<IpAddr> = records.filter_map(|record| record.data.ip_addr()).collect();
        if addresses.is_empty() {
            return (Looked::Absent(NO_ADDRESS.to_owned()), None);
        }
        let until = found.valid_until();
        let ttl = until.saturating_duration_since(timer_now().into());
        (Looked::Found(addresses), Some(ttl))
    }
}

impl Search {
    /// Returns the fully qualified names for a name, in the order in which they are looked up (resolv.conf(5)).
    fn names(&self, name: Name) -> Vec<Name> {
        if name.is_fqdn() {
            return vec![name];
        }
        let mut itself = name.clone();
        itself.set_fqdn(true);
        let domains = self.domains.iter();
        // A name that would be too long is not looked up.
        let mut names: Vec<Name> = domains
            .filter_map(|domain| name.clone().append_domain(domain).ok())
            .collect();
        match usize::from(name.num_labels()) > self.ndots {
            true => names.insert(0, itself),
            false => names.push(itself),
        }
        let mut unique = Vec::new();
        for name in names {
            if !unique.contains(&name) {
                unique.push(name);
            }
        }
        unique
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}

/// Describes a failure, for operators.
fn text(error: &NetError) -> Failure {
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

#[cfg(test)]
mod tests {
    use hickory_resolver::net::NoRecords;
    use hickory_resolver::proto::op::Query;

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

    #[test]
    fn short_names_are_searched_in_domains() {
        let name = |text: &str| text.into_name().expect("a name");
        let search = |ndots| Search {
            domains: ["one.test", "two.test.", "one.test"].map(name).into(),
            ndots,
        };
        let names = |ndots, text| {
            let names = search(ndots).names(name(text));
            names.iter().map(Name::to_string).collect::<Vec<_>>()
        };
        let searched = ["app.one.test.", "app.two.test.", "app."];
        assert_eq!(names(1, "app"), searched);
        assert_eq!(names(1, "app."), ["app."]);
        let first = ["a.app.", "a.app.one.test.", "a.app.two.test."];
        assert_eq!(names(1, "a.app"), first);
        let last = ["a.app.one.test.", "a.app.two.test.", "a.app."];
        assert_eq!(names(5, "a.app"), last);
        assert_eq!(Search::default().names(name("app")), [name("app.")]);
    }
}
