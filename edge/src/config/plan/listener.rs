//! A listener of a plan.

use crate::downstream::{ConnectionSetup, Protocols};
use crate::http::Scheme;
use crate::sys::ListenAddress;
use crate::sys::listen_options::ListenOptions;
use crate::tls::ListenerTls;

/// A listener (`[[listener]]`).
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPlan {
    /// Address to listen on.
    pub address: ListenAddress,
    /// Options of the listening socket.
    pub listening: ListenOptions,
    /// Setup of the listener's connections.
    pub setup: ConnectionSetup,
    /// The protocols that clients may speak.
    pub protocols: Protocols,
    /// TLS of the listener, if it has any.
    pub tls: Option<ListenerTls>,
}

impl ListenerPlan {
    /// Returns a listener in clear text at `address` with default options. It has to be the first one of its plan.
    pub fn at(address: ListenAddress) -> ListenerPlan {
        ListenerPlan {
            address,
            listening: ListenOptions::default(),
            setup: ConnectionSetup {
                scheme: Scheme::Http,
                listener: 0,
                proxy: None,
                tls: false,
                half_close: false,
            },
            protocols: Protocols::CLEAR,
            tls: None,
        }
    }

    /// Encrypts the listener's connections. Its protocols become the default ones of TLS.
    pub fn encrypt(&mut self, tls: ListenerTls) {
        self.setup.scheme = Scheme::Https;
        self.setup.tls = true;
        self.protocols = Protocols::TLS;
        self.tls = Some(tls);
    }
}
