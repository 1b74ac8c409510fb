//! Addresses of both families (IPv4 and IPv6) to which one name leads: a connection to one of them
//! may be opened to one of the other family as well (RFC 8305).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::resolve::Target;

/// An address of the other family than that of a slot's own address.
#[derive(Default)]
pub(super) struct OtherFamily {
    address: Mutex<Option<SocketAddr>>,
    /// Whether the last connection was opened to it.
    is_preferred: AtomicBool,
}

impl OtherFamily {
    /// Returns the addresses to which connections are opened, `own` being the slot's own one: the
    /// one to try first, and another one of the other family.
    pub(super) fn in_order(&self, own: SocketAddr) -> (SocketAddr, Option<SocketAddr>) {
        match *self.address.lock() {
            Some(other) if self.is_preferred.load(Ordering::Relaxed) => (other, Some(own)),
            other => (own, other),
        }
    }

    /// Notes whether the other address accepted the last connection. The address that did is tried
    /// first next time.
    pub(super) fn prefer(&self, is_other: bool) {
        self.is_preferred.store(is_other, Ordering::Relaxed);
    }

    /// Chooses the address among the targets of the name. Several slots (`nth` counts them) have
    /// different ones as far as possible.
    pub(super) fn choose(&self, own: SocketAddr, nth: usize, targets: &[Target]) {
        let addresses = targets.iter().map(|one| one.address);
        let others: Vec<SocketAddr> = addresses
            .filter(|address| address.is_ipv4() != own.is_ipv4())
            .collect();
        *self.address.lock() = others.get(nth % others.len().max(1)).copied();
    }
}
