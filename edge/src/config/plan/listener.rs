//! A listener of a plan.

use std::net::SocketAddr;

use crate::downstream::{ConnectionSetup, Protocol};
use crate::http::Scheme;
use crate::sys::listen_options::ListenOptions;

/// A listener (`[[listener]]`).
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPlan {
    /// Address and port to listen on. Port 0 takes a free one.
    pub address: SocketAddr,
    /// Options of the listening socket.
    pub listening: ListenOptions,
    /// Setup of the listener's connections.
    pub setup: ConnectionSetup,
}

impl ListenerPlan {
    /// Returns a listener at `address` with default options.
    pub fn at(address: SocketAddr) -> ListenerPlan {
        ListenerPlan {
            address,
            listening: ListenOptions::default(),
            setup: ConnectionSetup {
                scheme: Scheme::Http,
                proxy: None,
                protocol: Protocol::default(),
            },
        }
    }
}
