//! Questions to name servers, and to the hosts file.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{IntoName, Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};

use super::hosts::{Failure, HostAnswer, Looked};
use crate::sys::clock::timer_now;

/// Time that a name server has to answer, and the number of attempts.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;
/// Time for which a first look-up waits for addresses of one family once it has those of the other (RFC 8305 3: resolution
/// delay). Longer than the 50 ms recommended there, since the answer serves more than one connection; short enough that
/// requests hardly notice a name server which never answers questions about IPv6 addresses.
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// The same time for later look-ups, for which no request waits. Every answer to the first attempt is in time.
const LATER_DELAY: Duration = TIMEOUT;
/// Time for which the entries of the hosts file are used, which can be read again at little cost.
const HOSTS_FILE_TTL: Duration = Duration::from_secs(10);

/// Text of the failure that a name exists, but has no address.
const NO_ADDRESS: &str = "the name has no address";
/// Text of the failure that no name server has answered in time.
const NO_ANSWER: &str = "no name server answers";
/// Text of the failure that a name does not exist.
const NO_NAME: &str = "no such name";

/// The name servers, as they are configured when a look-up begins. Cheap to clone.
#[derive(Clone)]
pub(super) struct Dns {
    resolver: TokioResolver,
    search: Arc<Search>,
    hosts_file: Arc<Hosts>,
}

/// The result of looking up one family of a name's addresses.
struct Family {
    looked: Looked,
    /// Time for which the addresses may be used, if there are any.
    ttl: Option<Duration>,
    /// Whether the name does not exist, so that it has no addresses of the other family, either (RFC 8020 2).
    is_unknown_name: bool,
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
        let (config, options) = match servers {
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
        // Without the file, it has no entries.
        Dns::new(config, options, Hosts::from_system().unwrap_or_default())
    }

    fn new(
        config: ResolverConfig,
        mut options: ResolverOpts,
        hosts_file: Hosts,
    ) -> Result<Dns, Failure> {
        options.timeout = TIMEOUT;
        options.attempts = ATTEMPTS;
        // The names are resolved again when their answers expire.
        options.cache_size = 0;
        // The resolver would look up each family by itself, in the file or else by a question.
        options.use_hosts_file = ResolveHosts::Never;
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
            hosts_file: Arc::new(hosts_file),
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

    /// Looks up the addresses of a host: in the hosts file, or else by questions. Both families are those of the same
    /// name, the first one that has addresses. `is_first`: whether requests wait for the answer, as none is known yet.
    pub(super) async fn host(&self, host: &str, is_first: bool) -> HostAnswer {
        let name = match host.into_name() {
            Ok(name) => name,
            Err(error) => return HostAnswer::failed(&error.to_string()),
        };
        if let Some(answer) = self.in_hosts_file(&name) {
            return answer;
        }
        let delay = if is_first { FIRST_DELAY } else { LATER_DELAY };
        let mut answer = HostAnswer::failed(NO_ADDRESS);
        for name in self.search.names(name) {
            answer = self.families(name, delay).await;
            // If it is unknown whether this name has addresses, those of the next name may be of another host.
            if answer.has_address() || answer.has_failed() {
                break;
            }
        }
        answer
    }

    /// Returns the addresses of a host in the hosts file, if it has any. The file alone decides about the hosts that it
    /// names, and neither their other family nor their names in the search domains are looked up.
    fn in_hosts_file(&self, name: &Name) -> Option<HostAnswer> {
        let families = [RecordType::A, RecordType::AAAA].map(|family| {
            let found = self
                .hosts_file
                .lookup_static_host(&Query::query(name.clone(), family));
            let records = found.iter().flat_map(|found| found.answers());
            let addresses: Vec<IpAddr> =
                records.filter_map(|record| record.data.ip_addr()).collect();
            match addresses.is_empty() {
                true => Looked::Absent(NO_ADDRESS.to_owned()),
                false => Looked::Found(addresses),
            }
        });
        let answer = HostAnswer {
            families,
            ttl: Some(HOSTS_FILE_TTL),
        };
        answer.has_address().then_some(answer)
    }

    /// Looks up both families of a name's addresses. Once one of them is known, waits `delay` at most for the other one.
    async fn families(&self, name: Name, delay: Duration) -> HostAnswer {
        let mut v4 = pin!(self.family(name.clone(), RecordType::A));
        let mut v6 = pin!(self.family(name, RecordType::AAAA));
        let (v4, mut v6) = tokio::select! {
            v4 = &mut v4 => {
                let is_enough = v4.has_address() || v4.is_unknown_name;
                let v6 = other(is_enough, v6, delay).await;
                (v4, v6)
            }
            v6 = &mut v6 => {
                // Some name servers deny in error the existence of names without IPv6 addresses (RFC 4074 4.2).
                let v4 = other(v6.has_address(), v4, delay).await;
                (v4, v6)
            }
        };
        if v4.is_unknown_name && !v6.has_address() {
            v6.looked = v4.looked.clone();
        }
        HostAnswer {
            ttl: v4.ttl.into_iter().chain(v6.ttl).min(),
            families: [v4.looked, v6.looked],
        }
    }

    /// Looks up the addresses of one family.
    async fn family(&self, name: Name, family: RecordType) -> Family {
        let found = match self.resolver.lookup(name, family).await {
            Ok(found) => found,
            Err(error @ NetError::Dns(DnsError::NoRecordsFound(_))) => {
                return Family {
                    is_unknown_name: is_unknown_name(&error),
                    ..Family::without(Looked::Absent(text(&error)))
                };
            }
            Err(error) => return Family::without(Looked::Failed(text(&error))),
        };
        let records = found.answers().iter();
        let addresses: Vec<IpAddr> = records.filter_map(|record| record.data.ip_addr()).collect();
        if addresses.is_empty() {
            return Family::without(Looked::Absent(NO_ADDRESS.to_owned()));
        }
        let until = found.valid_until();
        Family {
            looked: Looked::Found(addresses),
            ttl: Some(until.saturating_duration_since(timer_now().into())),
            is_unknown_name: false,
        }
    }
}

/// Returns the result of the look-up of a family. If the other family `is_enough`, the look-up fails after `delay`.
async fn other(is_enough: bool, family: impl Future<Output = Family>, delay: Duration) -> Family {
    if !is_enough {
        return family.await;
    }
    let looked = tokio::time::timeout(delay, family).await;
    looked.unwrap_or_else(|_| Family::without(Looked::Failed(NO_ANSWER.to_owned())))
}

impl Family {
    /// Returns the result of a look-up that has found no address.
    fn without(looked: Looked) -> Family {
        Family {
            looked,
            ttl: None,
            is_unknown_name: false,
        }
    }

    fn has_address(&self) -> bool {
        matches!(self.looked, Looked::Found(_))
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

/// Whether a name server has answered that there is no such name.
fn is_unknown_name(error: &NetError) -> bool {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            none.response_code == ResponseCode::NXDomain
        }
        _ => false,
    }
}

/// Describes a failure, for operators.
fn text(error: &NetError) -> Failure {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => NO_NAME.to_owned(),
            _ => NO_ADDRESS.to_owned(),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => format!("the name server answers: {code}"),
        NetError::Timeout => NO_ANSWER.to_owned(),
        NetError::NoConnections => "no name server can be reached".to_owned(),
        NetError::Io(error) => format!("no name server can be reached: {error}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::net::NoRecords;
    use sluice_lab::dns::{Ipv6, NameServer};

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

    const V4: [u8; 4] = [10, 0, 0, 1];
    const OTHER_V4: [u8; 4] = [10, 0, 0, 2];
    const V6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];

    /// Looks up `host` with this name server, the search domains `one.test` and `two.test`, and these entries of the
    /// hosts file.
    fn look_up(server: &NameServer, host: &str, is_first: bool, hosts_file: &str) -> HostAnswer {
        let name = |text: &str| text.into_name().expect("a name");
        let servers = vec![name_server(&server.addr())];
        let search = ["one.test.", "two.test."].map(name).into();
        let config = ResolverConfig::from_parts(None, search, servers);
        let mut hosts = Hosts::default();
        hosts
            .read_hosts_conf(hosts_file.as_bytes())
            .expect("a hosts file");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let dns = Dns::new(config, ResolverOpts::default(), hosts).expect("name servers");
            dns.host(host, is_first).await
        })
    }

    fn found(ip: impl Into<IpAddr>) -> Looked {
        Looked::Found(vec![ip.into()])
    }

    fn absent() -> Looked {
        Looked::Absent(NO_ADDRESS.to_owned())
    }

    fn unanswered() -> Looked {
        Looked::Failed(NO_ANSWER.to_owned())
    }

    // The second domain may answer for all names, with addresses of its own.
    #[test]
    fn a_name_that_could_not_be_looked_up_is_not_searched_in_further_domains() {
        let server = NameServer::start().expect("a port");
        server.set("app.two.test", &[OTHER_V4.into()]);
        let families = |host| look_up(&server, host, false, "").families;
        assert_eq!(families("app"), [found(OTHER_V4), absent()]);
        let before = server.questions("app.two.test");
        server.fail_host("app.one.test", true);
        let [v4, v6] = families("app");
        for looked in [v4, v6] {
            assert!(matches!(looked, Looked::Failed(_)), "{looked:?}");
        }
        assert_eq!(server.questions("app.two.test"), before);
    }

    // Otherwise, a name server without answers about IPv6 would end each search at the first domain.
    #[test]
    fn a_name_that_does_not_exist_is_searched_further_without_an_answer_about_ipv6() {
        for ipv6 in [Ipv6::Failing, Ipv6::Ignored] {
            let server = NameServer::start().expect("a port");
            server.set_ipv6(ipv6);
            server.set("app.two.test", &[V4.into()]);
            let [v4, v6] = look_up(&server, "app", true, "").families;
            assert_eq!(v4, found(V4));
            assert!(matches!(v6, Looked::Failed(_)), "{v6:?}");
            let [v4, v6] = look_up(&server, "none", true, "").families;
            let unknown = Looked::Absent(NO_NAME.to_owned());
            assert_eq!((&v4, &v6), (&unknown, &unknown));
        }
    }

    #[test]
    fn the_hosts_file_alone_decides_about_the_hosts_that_it_names() {
        let server = NameServer::start().expect("a port");
        for name in ["app.one.test", "app"] {
            server.set(name, &[OTHER_V4.into(), V6.into()]);
        }
        let answer = look_up(&server, "APP", true, "10.0.0.1 other app # comment\n");
        assert_eq!(answer.families, [found(V4), absent()]);
        assert_eq!(answer.ttl, Some(HOSTS_FILE_TTL));
        let both = "10.0.0.1 app\n2001:db8::1 app\n";
        let answer = look_up(&server, "app", true, both);
        assert_eq!(answer.families, [found(V4), found(V6)]);
        assert_eq!(
            server.questions("app") + server.questions("app.one.test"),
            0
        );
        let answer = look_up(&server, "app", false, "10.0.0.1 other\n");
        assert_eq!(answer.families, [found(OTHER_V4), found(V6)]);
    }

    // The resolver itself would report a failure only after all attempts, and a later look-up finds out what the first
    // one did not.
    #[test]
    fn addresses_of_one_family_do_not_wait_long_for_the_other() {
        let server = NameServer::start().expect("a port");
        server.set("app.test", &[V4.into(), V6.into()]);
        server.set_ipv6(Ipv6::Ignored);
        let answer = look_up(&server, "app.test.", true, "");
        assert_eq!(answer.families, [found(V4), unanswered()]);
        assert!(server.questions("app.test") <= 2, "no further attempt");
        server.set_ipv6(Ipv6::Answered);
        let answer = look_up(&server, "app.test.", false, "");
        assert_eq!(answer.families, [found(V4), found(V6)]);
    }
}
