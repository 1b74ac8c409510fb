//! The setup of a listener's connections: scheme, PROXY protocol, and the protocol that clients
//! speak.

#[cfg(test)]
use std::sync::Arc;

use crate::http::Scheme;

use super::proxy_protocol::ProxyProtocol;

/// The setup of a listener's connections, the same on every worker that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSetup {
    /// The scheme of the requests on these connections.
    pub scheme: Scheme,
    /// The PROXY protocol header that load balancers send first. `None` if the listener does not
    /// require one.
    pub proxy: Option<ProxyProtocol>,
    /// Index of the listener's TLS in `Serving::tls`. `None` if its connections are not encrypted.
    pub tls: Option<u16>,
    /// The protocol that clients speak.
    pub protocol: Protocol,
    /// Whether a client that has closed its sending direction still gets the response. If not, it
    /// counts as gone.
    pub half_close: bool,
}

/// A protocol between clients and Sluice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 and HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, without a choice: over TLS by ALPN, in clear text by prior knowledge (RFC 9113 3.3).
    #[allow(dead_code, reason = "no listener speaks HTTP/2 yet")]
    Http2,
}

impl Protocol {
    /// Returns the name of the protocol in TLS (ALPN, RFC 7301).
    pub fn alpn(self) -> &'static str {
        match self {
            Protocol::Http1 => "http/1.1",
            Protocol::Http2 => "h2",
        }
    }
}

impl ConnectionSetup {
    /// Returns the setup for HTTP/1 in clear text, without the PROXY protocol.
    #[cfg(test)]
    pub fn plain() -> Arc<ConnectionSetup> {
        Arc::new(ConnectionSetup {
            scheme: Scheme::Http,
            proxy: None,
            tls: None,
            protocol: Protocol::default(),
            half_close: false,
        })
    }
}
