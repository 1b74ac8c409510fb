//! The setup of a listener's connections: scheme, PROXY protocol and TLS. A reload doesn't change it.

#[cfg(test)]
use std::sync::Arc;

use crate::http::Scheme;

use super::proxy_protocol::ProxyProtocol;

/// The setup of a listener's connections, the same on every worker that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSetup {
    /// The scheme of the requests on these connections.
    pub scheme: Scheme,
    /// Index of the listener, for the settings in `Serving`.
    pub listener: u16,
    /// The PROXY protocol header that load balancers send first. `None` if the listener does not
    /// require one.
    pub proxy: Option<ProxyProtocol>,
    /// Whether the listener's connections are encrypted.
    pub tls: bool,
    /// Whether a client that has closed its sending direction still gets the response. If not, it
    /// counts as gone.
    pub half_close: bool,
}

impl ConnectionSetup {
    /// Returns the setup for clear text, without the PROXY protocol.
    #[cfg(test)]
    pub fn plain() -> Arc<ConnectionSetup> {
        Arc::new(ConnectionSetup {
            scheme: Scheme::Http,
            listener: 0,
            proxy: None,
            tls: false,
            half_close: false,
        })
    }
}
