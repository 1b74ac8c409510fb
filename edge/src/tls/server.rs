//! The TLS of one listener in one configuration: all certificates, and the settings for each name.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{KeyLogFile, ServerConfig, ServerConnection};

use super::certificate::Certificate;
use super::client_certificates::Clients;
use super::demand::Demand;
use super::loaded::Loader;
use super::loading::LoadError;
use super::managed::Managed;
use super::names::Names;
use super::options::{
    CipherSuite, ClientCertificates, Group, ListenerTls, Management, Options, SiteTls, UnknownName,
    Version,
};
use super::parameters;
use super::tickets::TicketKeys;
use crate::http::hosts::Hosts;
use crate::http::target::host_of;

/// Most bytes of data before the end of the handshake that are skipped (RFC 8446 4.2.10). rustls keeps at most a record of
/// the largest size, and counts it again whenever further bytes arrive.
const EARLY_DATA_SKIPPED: u32 = 1 << 20;

/// A site of the configuration, as far as TLS needs it.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The site's hosts, in lower case, or `*.name`.
    pub hosts: &'a [String],
    /// The site's TLS, if it has its own.
    pub tls: Option<&'a SiteTls>,
}

/// The reason why the TLS of a listener or a client can't be opened.
#[derive(Debug)]
pub enum OpenError {
    /// A file is wrong.
    Load(LoadError),
    /// The combination of settings is wrong.
    Settings(String),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Load(error) => write!(f, "{error}\n{}", error.help),
            OpenError::Settings(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<LoadError> for OpenError {
    fn from(error: LoadError) -> OpenError {
        OpenError::Load(error)
    }
}

/// The reason why there are no settings for a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSettings {
    /// The name that the client sends is unknown.
    UnknownName,
    /// There is no certificate for the name yet.
    NoCertificate,
    /// There is no certificate for the name yet, but a handshake may demand one.
    OnDemand,
    /// rustls or the configuration failed.
    Internal,
}

/// The TLS of one listener.
pub struct Server {
    names: Arc<Names>,
    managed: Arc<Managed>,
    /// The index in `settings` for each host of a site. The router finds the site of a request by the same rules.
    policies: Hosts<usize>,
    /// The index in `settings` for other hosts, and for clients that send no name.
    default_policy: usize,
    /// The settings for each policy about clients' certificates.
    settings: Vec<Settings>,
    unknown_name: UnknownName,
}

/// The settings for one policy about clients' certificates.
struct Settings {
    /// Identity of the policy: a hash of all of it, so that nobody can make another policy that looks the same.
    policy: [u8; 32],
    /// Settings that choose the first cipher suite of the configuration that the client knows. AES-128 with SHA-256
    /// comes first by default: a handshake with SHA-384 costs about a third more, since few processors have
    /// instructions for SHA-384.
    config: Arc<ServerConfig>,
    /// Settings that choose the first cipher suite of the client.
    by_client: Arc<ServerConfig>,
}

impl Server {
    /// Loads the certificates of a listener and of all sites. `protocols` are the names of the protocols that the
    /// listener speaks (ALPN), `managed` are the certificates that come and go.
    ///
    /// # Errors
    ///
    /// A certificate can't be used, or there is none.
    pub fn open(
        options: &Options,
        listener: &ListenerTls,
        sites: &[Site<'_>],
        protocols: &[&str],
        (tickets, managed): (Option<&Arc<TicketKeys>>, &Arc<Managed>),
        loader: &mut Loader<'_>,
    ) -> Result<Server, OpenError> {
        let mut policies = Policies::default();
        let own = Served {
            hosts: &[],
            certificates: loader.certificates(&listener.certificates)?,
            managed: None,
            policy: policies.index(listener.clients.as_ref()),
        };
        let mut served = Vec::new();
        let mut by_host = Hosts::default();
        for site in sites {
            let files = site.tls.map_or(&[][..], |tls| &tls.certificates);
            let clients = site.tls.and_then(|tls| tls.clients.as_ref());
            let policy = policies.index(clients.or(listener.clients.as_ref()));
            by_host.add(site.hosts, &policy);
            served.push(Served {
                hosts: site.hosts,
                certificates: loader.certificates(files)?,
                managed: site.tls.and_then(|tls| tls.managed),
                policy,
            });
        }
        let default = match listener.certificates.is_empty() && listener.clients.is_none() {
            true => certified(&served).next().unwrap_or(&own),
            false => &own,
        };
        let default_policy = default.policy;
        let names = Arc::new(named(&own.certificates, &served, managed)?);
        let maker = ConfigMaker {
            options,
            min_version: listener.min_version.unwrap_or(options.min_version),
            provider: parameters::provider(&options.ciphers, &options.groups),
            protocols,
            names: &names,
            tickets,
        };
        let settings = policies.0.iter().map(|clients| {
            let load = |clients| loader.clients(clients, &maker.provider);
            maker.make(clients.map(load).transpose()?)
        });
        Ok(Server {
            settings: settings.collect::<Result<_, _>>()?,
            names,
            managed: managed.clone(),
            policies: by_host,
            default_policy,
            unknown_name: options.unknown_name,
        })
    }

    /// Returns the settings for a client, and the identity of their demands on the client's certificate.
    ///
    /// # Errors
    ///
    /// The handshake is to be refused.
    pub fn settings(
        &self,
        hello: &ClientHello<'_>,
    ) -> Result<([u8; 32], Arc<ServerConfig>), NoSettings> {
        let name = hello.server_name().map(host_of);
        if let Some(config) = self.managed.challenge(hello) {
            return Ok(([0; 32], config));
        }
        let is_known = name.is_none_or(|name| self.names.knows(name));
        // Clients that send no name at all get the default certificate in any case.
        if !is_known && self.unknown_name == UnknownName::Refuse {
            return Err(NoSettings::UnknownName);
        }
        if !self.names.has_certificate(name) {
            return Err(match name {
                Some(name) if self.names.is_on_demand(name) => NoSettings::OnDemand,
                _ => NoSettings::NoCertificate,
            });
        }
        let settings = self.settings_for(name).ok_or(NoSettings::Internal)?;
        let config = match prefers_chacha20(hello) || may_need_retry(hello) {
            true => &settings.by_client,
            false => &settings.config,
        };
        Ok((settings.policy, config.clone()))
    }

    /// Demands a certificate for a name. Returns `None` if none will come.
    pub fn demand(&self, name: &str) -> Option<Demand> {
        self.managed.demands.demand(name)
    }

    /// Begins a handshake by the default demands on the client's certificate, whatever name the client sends. The
    /// client's order of cipher suites decides. `None`: rustls failed.
    pub fn session(&self) -> Option<ServerConnection> {
        let settings = self.settings.get(self.default_policy)?;
        ServerConnection::new(settings.by_client.clone()).ok()
    }

    /// Whether a request for `host` may come over a connection whose handshake made the demands `policy`. If not, the
    /// client has to open another connection (421, RFC 9110 15.5.20).
    pub fn permits(&self, policy: [u8; 32], host: &str) -> bool {
        if let [only] = &self.settings[..] {
            return only.policy == policy;
        }
        let settings = self.settings_for(Some(host));
        settings.is_some_and(|settings| settings.policy == policy)
    }

    /// Returns the settings of the site for a host, else the default ones.
    fn settings_for(&self, host: Option<&str>) -> Option<&Settings> {
        let site = host.map_or_else(|| self.policies.any(), |host| self.policies.find(host));
        self.settings.get(*site.unwrap_or(&self.default_policy))
    }
}

/// Whether a client prefers ChaCha20 to AES, as clients without instructions for AES do.
fn prefers_chacha20(hello: &ClientHello<'_>) -> bool {
    let offered = hello.cipher_suites().iter();
    let mut known = offered.filter_map(|suite| CipherSuite::of(*suite));
    known.next().is_some_and(CipherSuite::is_chacha20)
}

/// Whether the client's preferred group is one for which it may have sent no key, so that a HelloRetryRequest follows.
///
/// If the client then wants to resume a session of another server whose suite has another hash than the edge's, it has
/// to withdraw the session (RFC 8446 4.1.2), and rustls refuses that. With the client's own order this is rare.
fn may_need_retry(hello: &ClientHello<'_>) -> bool {
    let offered = hello.named_groups().unwrap_or_default().iter();
    let mut known = offered.filter_map(|group| Group::of(*group));
    known.next() == Some(Group::X25519MlKem768)
}

/// The certificates of a site or of the listener, with the hosts for which they are.
struct Served<'a> {
    hosts: &'a [String],
    certificates: Vec<Certificate>,
    /// Where the certificates come from while Sluice runs.
    managed: Option<Management>,
    /// The index of the policy on clients' certificates.
    policy: usize,
}

/// Returns the sites that have certificates.
fn certified<'a>(sites: &'a [Served<'a>]) -> impl Iterator<Item = &'a Served<'a>> + Clone {
    sites.iter().filter(|site| !site.certificates.is_empty())
}

/// Returns the first host of a site whose certificates come and go.
fn first_managed<'a>(sites: &'a [Served<'a>]) -> Option<&'a String> {
    let is_for_hosts = |site: &&Served<'_>| {
        site.managed
            .is_some_and(|managed| managed != Management::OnDemand)
    };
    let mut managed = sites.iter().filter(is_for_hosts);
    managed.find_map(|site| site.hosts.first())
}

/// Returns the certificates for each name of a listener, and for clients that send no name or an unknown one. `own` are
/// those of the listener.
fn named(
    own: &[Certificate],
    sites: &[Served<'_>],
    managed: &Arc<Managed>,
) -> Result<Names, OpenError> {
    let default = default(own, sites);
    let of_sites = sites.iter().flat_map(|site| &site.certificates);
    let all: Vec<Certificate> = own.iter().chain(of_sites).cloned().collect();
    let mut names = Names::new(default, managed.clone());
    match (default, first_managed(sites)) {
        ([], Some(host)) => names.default_to(host),
        ([], None) if !sites.iter().any(|site| site.managed.is_some()) => {
            let problem = "a listener with TLS has no certificate".to_owned();
            return Err(OpenError::Settings(problem));
        }
        _ => {}
    }
    for site in sites {
        if site.managed == Some(Management::OnDemand) {
            names.add_on_demand(site.hosts);
        }
        for host in site.hosts {
            match &site.certificates[..] {
                [] if site.managed.is_some() => names.add_managed(host),
                [] => names.add(host, &fitting(host, own, &all, default)),
                its => names.add(host, its),
            }
        }
    }
    // The names in certificates are also known, except below the `*.name` of a site that has certificates.
    let mut of_sites = Hosts::default();
    certified(sites).for_each(|site| of_sites.add(site.hosts, &()));
    let mut for_any = sites.iter().filter(|site| site.hosts.is_empty());
    let of_site = for_any.next().map(|site| &site.certificates[..]);
    // The site for any host also uses the certificates of other sites if it has none.
    let others = match of_site {
        Some([]) => &all[..],
        _ => &[],
    };
    for certificates in [of_site.unwrap_or_default(), own, others] {
        for name in certificates.iter().flat_map(|one| &one.facts.names) {
            if of_sites.named(name).is_none() {
                names.add(name, &fitting(name, certificates, &all, default));
            }
        }
    }
    Ok(names)
}

/// Returns the certificates for clients that send no name or an unknown one: those of the site for any host, else of
/// the listener, else of the first site that has some.
fn default<'a>(own: &'a [Certificate], sites: &'a [Served<'a>]) -> &'a [Certificate] {
    let mut certified = certified(sites);
    let for_any = certified.clone().find(|site| site.hosts.is_empty());
    match (for_any, own) {
        (Some(site), _) => &site.certificates,
        (None, []) => certified.next().map_or(&[], |site| &site.certificates),
        (None, own) => own,
    }
}

/// Returns the certificates for a host of a site without certificates: those of the listener or of another site that
/// are valid for the host, else those of the listener, else the default ones.
fn fitting(
    host: &str,
    own: &[Certificate],
    all: &[Certificate],
    default: &[Certificate],
) -> Vec<Certificate> {
    let is_valid = |one: &&Certificate| one.facts.is_for(host);
    let valid = [own, all].map(|list| list.iter().filter(is_valid).cloned());
    let lists = valid.into_iter().map(Vec::from_iter);
    let mut lists = lists.chain([own, default].map(<[_]>::to_vec));
    lists.find(|list| !list.is_empty()).unwrap_or_default()
}

/// The different demands on the certificates of clients.
#[derive(Default)]
struct Policies<'a>(Vec<Option<&'a ClientCertificates>>);

impl<'a> Policies<'a> {
    fn index(&mut self, clients: Option<&'a ClientCertificates>) -> usize {
        let known = self.0.iter().position(|known| *known == clients);
        known.unwrap_or_else(|| {
            self.0.push(clients);
            self.0.len() - 1
        })
    }
}

/// The parts of which the settings of connections are made.
struct ConfigMaker<'a> {
    options: &'a Options,
    min_version: Version,
    provider: Arc<CryptoProvider>,
    protocols: &'a [&'a str],
    names: &'a Arc<Names>,
    tickets: Option<&'a Arc<TicketKeys>>,
}

impl ConfigMaker<'_> {
    fn make(&self, clients: Option<Clients>) -> Result<Settings, OpenError> {
        let versions = parameters::versions(self.min_version);
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(versions)
            .map_err(|why| OpenError::Settings(format!("TLS can't be set up: {why}")))?;
        // A ticket would hold the client's certificate, which rustls does not verify again.
        let tickets = self.tickets.filter(|_| clients.is_none());
        let hash = clients.as_ref().map_or([0; 32], |clients| clients.hash);
        let verifier =
            clients.map_or_else(WebPkiClientVerifier::no_client_auth, |its| its.verifier);
        let mut config = builder
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(self.names.clone());
        config.alpn_protocols = self
            .protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match tickets {
            Some(keys) => {
                config.ticketer = keys.clone();
            }
            None => config.send_tls13_tickets = 0,
        }
        // Data before the end of the handshake can be replayed, so it is never accepted: rustls accepts none with tickets
        // that hold sessions, and there is no other storage. This is how much of it rustls skips.
        config.max_early_data_size = EARLY_DATA_SKIPPED;
        if self.options.key_log {
            config.key_log = Arc::new(KeyLogFile::new());
        }
        let by_client = Arc::new(config.clone());
        config.ignore_client_order = true;
        Ok(Settings {
            policy: hash,
            config: Arc::new(config),
            by_client,
        })
    }
}
