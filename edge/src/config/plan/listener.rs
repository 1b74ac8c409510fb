//! A listener of a plan.

use std::net::SocketAddr;

use crate::downstream::{ConnectionSetup, Protocol};
use crate::http::Scheme;
use crate::sys::listen_options::ListenOptions;

/// `[[listener]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPlan {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// Socket options.
    pub listening: ListenOptions,
    /// How its connections begin.
    pub setup: ConnectionSetup,
}

impl ListenerPlan {
    /// With all defaults.
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
