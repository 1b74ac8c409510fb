//! Finds the certificates for the name that a client sends (SNI).

use std::fmt;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::managed::Managed;
use crate::http::hosts::Hosts;
use crate::http::target::host_of;

/// The certificates of one listener by name.
pub struct Names {
    hosts: Hosts<Candidates>,
    default: Candidates,
    /// Whether names without an entry get their certificates when a handshake asks for it.
    is_any_on_demand: bool,
    managed: Arc<Managed>,
}

/// The certificates for a name.
#[derive(Clone)]
enum Candidates {
    /// Those in files, the ones with the cheapest type of key first.
    Loaded(Arc<[Certificate]>),
    /// The one that is in use for the name at the moment. A client that sends no name gets the one for this name.
    Managed(Arc<str>),
    /// The one for the name, which is obtained if a handshake asks for it.
    OnDemand,
}

impl Names {
    /// Creates the names of a listener. Clients that send no name, or an unknown one, get a `default` certificate.
    pub fn new(default: &[Certificate], managed: Arc<Managed>) -> Names {
        Names {
            hosts: Hosts::default(),
            default: loaded(default),
            is_any_on_demand: false,
            managed,
        }
    }

    /// Gives clients that send no name, or an unknown one, the certificate that is in use for this name.
    pub fn default_to(&mut self, name: &str) {
        self.default = Candidates::Managed(name.into());
    }

    /// Adds certificates for a host, which may be `*.name`. A host that has certificates keeps them.
    pub fn add(&mut self, host: &str, certificates: &[Certificate]) {
        let host = [host.to_owned()];
        self.hosts.add(&host, &loaded(certificates));
    }

    /// Adds a host, which may be `*.name`, whose certificate comes and goes. A host that has certificates keeps them.
    pub fn add_managed(&mut self, host: &str) {
        let candidates = Candidates::Managed(host.into());
        self.hosts.add(&[host.to_owned()], &candidates);
    }

    /// Adds hosts whose certificates are obtained when a handshake asks for one; without hosts, all names that have no
    /// entry.
    pub fn add_on_demand(&mut self, hosts: &[String]) {
        match hosts {
            [] => self.is_any_on_demand = true,
            hosts => self.hosts.add(hosts, &Candidates::OnDemand),
        }
    }

    /// Whether a name has certificates, or may get one.
    pub fn knows(&self, name: &str) -> bool {
        self.is_any_on_demand || self.hosts.named(name).is_some()
    }

    /// Whether the certificate for a name is obtained when a handshake asks for it.
    pub fn is_on_demand(&self, name: &str) -> bool {
        matches!(self.candidates(Some(name)), Candidates::OnDemand)
    }

    /// Whether there is a certificate for a client that sends this name.
    pub fn has_certificate(&self, name: Option<&str>) -> bool {
        match self.candidates(name) {
            Candidates::Loaded(list) => !list.is_empty(),
            Candidates::Managed(usual) => self.in_use(name, usual).is_some(),
            Candidates::OnDemand => self.on_demand(name).is_some(),
        }
    }

    fn on_demand(&self, name: Option<&str>) -> Option<Certificate> {
        self.managed.find(name?)
    }

    /// Returns the certificate in use for a name, else the usual one for the host that the name belongs to.
    fn in_use(&self, name: Option<&str>, usual: &str) -> Option<Certificate> {
        let named = name.and_then(|name| self.managed.in_use(name));
        named.or_else(|| self.managed.in_use(usual))
    }

    fn candidates(&self, name: Option<&str>) -> &Candidates {
        let named = name.and_then(|name| self.hosts.named(name));
        match named {
            Some(named) => named,
            None if name.is_some() && self.is_any_on_demand => &Candidates::OnDemand,
            None => &self.default,
        }
    }

    /// Returns the certificate for a client. If it can verify one for this name, it gets no other one.
    fn choose(
        &self,
        name: Option<&str>,
        is_usable: impl Fn(&Certificate) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        let candidates = match self.candidates(name) {
            Candidates::Loaded(list) => list,
            Candidates::Managed(usual) => return self.in_use(name, usual).map(|one| one.key),
            Candidates::OnDemand => return self.on_demand(name).map(|one| one.key),
        };
        let is_valid = |one: &Certificate| name.is_none_or(|name| one.facts.is_for(name));
        let mut usable = candidates.iter().filter(|one| is_usable(one));
        let valid = usable.clone().find(|one| is_valid(one));
        // If the client can verify none of them, rustls refuses the handshake with the fitting alert.
        let chosen = valid.or_else(|| usable.next()).or(candidates.first());
        chosen.map(|one| one.key.clone())
    }
}

fn loaded(certificates: &[Certificate]) -> Candidates {
    let mut sorted = certificates.to_vec();
    sorted.sort_by_key(Certificate::rank);
    Candidates::Loaded(sorted.into())
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let name = hello.server_name().map(host_of);
        let is_usable = |one: &Certificate| one.key.key.choose_scheme(schemes).is_some();
        self.choose(name, is_usable)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}
