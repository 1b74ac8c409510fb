//! The setup of a listener's connections: scheme, PROXY protocol, and the protocol spoken.

#[cfg(test)]
use std::sync::Arc;

use crate::http::Scheme;

use super::proxy_protocol::ProxyProtocol;

/// How a listener's connections are set up, by whichever worker serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSetup {
    /// The scheme of their requests.
    pub scheme: Scheme,
    /// The PROXY protocol header that load balancers send first, if this listener requires one.
    pub proxy: Option<ProxyProtocol>,
    /// The protocol that clients speak.
    pub protocol: Protocol,
}

/// A protocol between clients and the edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 and HTTP/1.1.
    #[default]
    Http1,
}

impl ConnectionSetup {
    /// HTTP/1 in clear text, without the PROXY protocol.
    #[cfg(test)]
    pub fn plain() -> Arc<ConnectionSetup> {
        Arc::new(ConnectionSetup {
            scheme: Scheme::Http,
            proxy: None,
            protocol: Protocol::default(),
        })
    }
}
