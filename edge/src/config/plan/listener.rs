//! A listener of a plan.

use crate::downstream::{ConnectionSetup, Protocol};
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
    /// TLS of the listener, if it has any.
    pub tls: Option<ListenerTls>,
}

impl ListenerPlan {
    /// Returns a listener at `address` with default options.
    pub fn at(address: ListenAddress) -> ListenerPlan {
        ListenerPlan {
            address,
            listening: ListenOptions::default(),
            setup: ConnectionSetup {
                scheme: Scheme::Http,
                proxy: None,
                tls: None,
                protocol: Protocol::default(),
                half_close: false,
            },
            tls: None,
        }
    }
}
