//! Addresses of both families (IPv4 and IPv6) to which one name leads: a connection to one of them
//! may be opened to one of the other family as well (RFC 8305).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::condition::{Condition, Order};

/// Time for which the other address is tried first after it has accepted a connection earlier than
/// the own one. Then the own address gets another chance: whatever made it slow may be over.
const PREFERRED: Duration = Duration::from_secs(600);

/// An address of the other family than that of a slot's own address, which has a slot of its own.
#[derive(Clone)]
pub(super) struct Other {
    pub(super) address: SocketAddr,
    pub(super) condition: Arc<Condition>,
    /// The state of its server in the configuration.
    pub(super) configured: Order,
}

/// The address of the other family, if there is one, and whether it is preferred.
#[derive(Default)]
pub(super) struct OtherFamily(Mutex<State>);

#[derive(Default)]
struct State {
    other: Option<Other>,
    /// Time until which the other address is tried first.
    preferred_until: Option<Instant>,
}

impl OtherFamily {
    /// Returns the addresses to which connections are opened, `own` being the slot's own one: the
    /// one to try first, and another one of the other family. That one is left out if its own server
    /// gets no requests from clients without a cookie, or if other servers are preferred to it.
    pub(super) fn in_order(
        &self,
        own: SocketAddr,
        now: Instant,
    ) -> (SocketAddr, Option<SocketAddr>) {
        let state = self.0.lock();
        let other = state.usable();
        let is_preferred = state.preferred_until.is_some_and(|until| now < until);
        match other {
            Some(other) if is_preferred => (other, Some(own)),
            other => (own, other),
        }
    }

    /// Whether this is the other address, and not left out.
    pub(super) fn is_usable(&self, address: SocketAddr) -> bool {
        self.0.lock().usable() == Some(address)
    }

    /// Notes that a connection was opened to `opened`, one of the addresses, when `first` was tried
    /// first. The address is tried first next time. A connection to the other address that was tried
    /// first says nothing about the own one, and does not prolong the preference.
    pub(super) fn note_opened(&self, opened: SocketAddr, first: SocketAddr, now: Instant) {
        if opened == first {
            return;
        }
        let mut state = self.0.lock();
        let other = state.other.as_ref().map(|other| other.address);
        state.preferred_until = (Some(opened) == other).then(|| now + PREFERRED);
    }

    /// Chooses the address among those of the name. Several slots (`nth` counts them) have different
    /// ones as far as possible.
    pub(super) fn choose(&self, own: SocketAddr, nth: usize, all: &[Other]) {
        let is_other = |other: &&Other| other.address.is_ipv4() != own.is_ipv4();
        let others: Vec<&Other> = all.iter().filter(is_other).collect();
        let chosen = others.get(nth % others.len().max(1)).copied().cloned();
        let address = |other: &Option<Other>| other.as_ref().map(|other| other.address);
        let mut state = self.0.lock();
        if address(&state.other) != address(&chosen) {
            state.preferred_until = None;
        }
        state.other = chosen;
    }
}

impl State {
    /// Returns the other address, unless it is left out.
    fn usable(&self) -> Option<SocketAddr> {
        let other = self.other.as_ref()?;
        other
            .condition
            .is_usable(other.configured)
            .then_some(other.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn other(text: &str) -> Other {
        Other {
            address: address(text),
            condition: Arc::default(),
            configured: Order::Up,
        }
    }

    /// Returns an own address, another one, and the pair of both.
    fn pair() -> (SocketAddr, Other, OtherFamily) {
        let (own, v6) = (address("10.0.0.1:80"), other("[::1]:80"));
        let family = OtherFamily::default();
        family.choose(own, 0, &[other("10.0.0.2:80"), v6.clone()]);
        (own, v6, family)
    }

    #[test]
    fn the_other_address_is_preferred_for_a_while_after_it_was_faster() {
        let (own, other, family) = pair();
        let (now, v6) = (Instant::now(), other.address);
        assert_eq!(family.in_order(own, now), (own, Some(v6)));
        family.note_opened(v6, own, now);
        let last = now + PREFERRED - SECOND;
        assert_eq!(family.in_order(own, last), (v6, Some(own)));
        // Connections to the preferred address do not prolong the time.
        family.note_opened(v6, v6, last);
        assert_eq!(family.in_order(own, now + PREFERRED), (own, Some(v6)));
        family.note_opened(v6, own, now);
        family.note_opened(own, v6, now);
        assert_eq!(family.in_order(own, now), (own, Some(v6)));
    }

    #[test]
    fn the_preference_ends_when_another_address_is_chosen() {
        let (own, v6, family) = pair();
        let now = Instant::now();
        family.note_opened(v6.address, own, now);
        family.choose(own, 0, std::slice::from_ref(&v6));
        assert_eq!(family.in_order(own, now), (v6.address, Some(own)));
        let next = other("[::2]:80");
        family.choose(own, 0, std::slice::from_ref(&next));
        assert_eq!(family.in_order(own, now), (own, Some(next.address)));
        family.choose(own, 0, &[]);
        assert_eq!(family.in_order(own, now), (own, None));
    }

    #[test]
    fn an_address_whose_server_is_avoided_or_ordered_away_is_not_used() {
        let (own, other, family) = pair();
        let (now, v6) = (Instant::now(), other.address);
        family.note_opened(v6, own, now);
        let is_used = || family.in_order(own, now) == (v6, Some(own));
        let is_alone = || family.in_order(own, now) == (own, None);
        assert!(is_used());
        for order in [Order::Down, Order::Drain] {
            other.condition.set_order(order, Order::Up, 1);
            assert!(is_alone());
            other.condition.set_order(Order::Up, Order::Up, 2);
            assert!(is_used());
        }
        other.condition.set_healthy(Err("status 500".to_owned()), 3);
        assert!(is_alone());
        other.condition.set_healthy(Ok(()), 4);
        assert!(is_used());
        other.condition.eject(SECOND, String::new(), 5);
        assert!(is_alone());
    }
}
