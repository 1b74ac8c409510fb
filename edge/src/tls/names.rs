//! Finds the certificates for the name that a client sends (SNI).

use std::fmt;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use crate::http::hosts::Hosts;
use crate::http::target::host_of;

/// The certificates of one listener by name.
pub struct Names {
    hosts: Hosts<Candidates>,
    default: Candidates,
}

/// The certificates for a name, those with the cheapest type of key first.
type Candidates = Arc<[Certificate]>;

impl Names {
    /// Creates the names of a listener. Clients that send no name, or an unknown one, get a `default` certificate.
    pub fn new(default: &[Certificate]) -> Names {
        Names {
            hosts: Hosts::default(),
            default: candidates(default),
        }
    }

    /// Adds certificates for a host, which may be `*.name`. A host that has certificates keeps them.
    pub fn add(&mut self, host: &str, certificates: &[Certificate]) {
        let host = [host.to_owned()];
        self.hosts.add(&host, &candidates(certificates));
    }

    /// Whether a name has certificates.
    pub fn knows(&self, name: &str) -> bool {
        self.hosts.named(name).is_some()
    }

    /// Returns the certificate for a client. If it can verify one for this name, it gets no other one.
    fn choose(
        &self,
        name: Option<&str>,
        is_usable: impl Fn(&Certificate) -> bool,
    ) -> Option<&Certificate> {
        let named = name.and_then(|name| self.hosts.named(name));
        let candidates = named.unwrap_or(&self.default);
        let is_valid = |one: &Certificate| name.is_none_or(|name| one.facts.is_for(name));
        let mut usable = candidates.iter().filter(|one| is_usable(one));
        let valid = usable.clone().find(|one| is_valid(one));
        // If the client can verify none of them, rustls refuses the handshake with the fitting alert.
        valid.or_else(|| usable.next()).or(candidates.first())
    }
}

fn candidates(certificates: &[Certificate]) -> Candidates {
    let mut sorted = certificates.to_vec();
    sorted.sort_by_key(Certificate::rank);
    sorted.into()
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let name = hello.server_name().map(host_of);
        let is_usable = |one: &Certificate| one.key.key.choose_scheme(schemes).is_some();
        self.choose(name, is_usable).map(|one| one.key.clone())
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}
