//! Finds the name servers of a zone, and follows aliases, by the resolver of the system.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::rr::{Name, RData, RecordType};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::system_conf::read_system_conf;

/// Time that a resolver has to answer, and the number of attempts.
const TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPTS: usize = 2;
/// Most aliases in a row.
const ALIASES_MAX: usize = 8;
/// Most name servers of a zone, and most addresses of each family of one of them.
const SERVERS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 2;
/// Port of name servers.
const PORT: u16 = 53;

/// A resolver without a cache.
pub struct Resolver(TokioResolver);

impl Resolver {
    /// Creates a resolver that asks these name servers, or those of the system if there are none.
    ///
    /// # Errors
    ///
    /// The configuration of the system can't be used.
    pub fn new(servers: &[SocketAddr]) -> Result<Resolver, String> {
        let (config, mut options) = match servers {
            [] => read_system_conf().map_err(|error| error.to_string())?,
            servers => {
                let servers = servers.iter().map(name_server).collect();
                let config = ResolverConfig::from_name_servers(servers);
                (config, ResolverOpts::default())
            }
        };
        options.timeout = TIMEOUT;
        options.attempts = ATTEMPTS;
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        let provider = TokioRuntimeProvider::default();
        let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
        let resolver = builder.build().map_err(|error| error.to_string())?;
        Ok(Resolver(resolver))
    }

    /// Returns the name to which a name leads by aliases (CNAME); itself if it is none, or if that can't be found out.
    pub async fn target(&self, name: &Name) -> Name {
        let mut target = name.clone();
        for _ in 0..ALIASES_MAX {
            let found = self.look_up(&target, RecordType::CNAME).await;
            let next = found
                .unwrap_or_default()
                .into_iter()
                .find_map(|data| match data {
                    RData::CNAME(alias) => Some(alias.0),
                    _ => None,
                });
            match next {
                Some(next) => target = next,
                None => break,
            }
        }
        target
    }

    /// Returns the addresses of the name servers of the zone that contains a name.
    ///
    /// # Errors
    ///
    /// They can't be found out.
    pub async fn of_zone(&self, name: &Name) -> Result<Vec<SocketAddr>, String> {
        let mut zone = name.clone();
        while !zone.is_root() {
            let found = self.look_up(&zone, RecordType::NS).await?;
            let names = found.into_iter().filter_map(|data| match data {
                RData::NS(server) => Some(server.0),
                _ => None,
            });
            let names: Vec<Name> = names.take(SERVERS_MAX).collect();
            if !names.is_empty() {
                return self.addresses(&names).await;
            }
            zone = zone.base_name();
        }
        Err("no zone is found".to_owned())
    }

    async fn addresses(&self, names: &[Name]) -> Result<Vec<SocketAddr>, String> {
        let mut addresses = Vec::new();
        let mut why = "they have no address".to_owned();
        for name in names {
            for family in [RecordType::A, RecordType::AAAA] {
                match self.look_up(name, family).await {
                    Ok(found) => {
                        let ips = found.iter().filter_map(RData::ip_addr);
                        let found = ips.map(|ip: IpAddr| SocketAddr::new(ip, PORT));
                        addresses.extend(found.take(ADDRESSES_MAX));
                    }
                    Err(error) => why = error,
                }
            }
        }
        match addresses.is_empty() {
            true => Err(why),
            false => Ok(addresses),
        }
    }

    /// Returns the records of a type that a name itself has.
    async fn look_up(&self, name: &Name, kind: RecordType) -> Result<Vec<RData>, String> {
        match self.0.lookup(name.clone(), kind).await {
            Ok(found) => {
                let records = found.answers().iter();
                let records = records.filter(|record| record.record_type() == kind);
                // A resolver adds the records of an alias, whose zone is another one.
                let own = records.filter(|record| kind.is_ip_addr() || record.name == *name);
                Ok(own.map(|record| record.data.clone()).collect())
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(_))) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}
