//! Handshakes that wait for a certificate of their name to be obtained.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::http::hosts::Hosts;

/// Most names for which handshakes wait at a time.
const WAITING_MAX: usize = 64;
/// Most refused names that are remembered, in each of two ages.
const REFUSED_MAX: usize = 4096;

/// The names for which handshakes demand a certificate.
#[derive(Default)]
pub struct Demands {
    inner: Mutex<Inner>,
    /// Wakes the one who obtains certificates.
    news: Notify,
}

#[derive(Default)]
struct Inner {
    /// The names that may be demanded.
    allowed: Allowed,
    /// The names for which handshakes wait, which begin again when the sender is dropped.
    waiting: HashMap<Box<str>, watch::Sender<()>>,
    /// The names for which none waits: those that were refused since `age_refused` was called last, and those before.
    refused: [HashSet<Box<str>>; 2],
}

/// The names that may be demanded.
#[derive(Default)]
pub struct Allowed(Option<Hosts<()>>);

impl Allowed {
    /// Creates a list of names, each of which may be `*.name`; `None`: all names.
    pub fn new(names: Option<&[String]>) -> Allowed {
        Allowed(names.map(|names| {
            let mut hosts = Hosts::default();
            // An empty list would stand for any host.
            for name in names {
                hosts.add(std::slice::from_ref(name), &());
            }
            hosts
        }))
    }

    /// Whether a name may be demanded.
    pub fn has(&self, name: &str) -> bool {
        self.0
            .as_ref()
            .is_none_or(|hosts| hosts.named(name).is_some())
    }

    /// Whether all these names may be demanded.
    pub fn all(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.has(name))
    }
}

/// The wait of a handshake for a certificate.
pub struct Demand(Pin<Box<dyn Future<Output = ()>>>);

impl Demand {
    /// Is ready when there is a certificate, or none will come.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl Demands {
    /// Permits only demands for these names from now on.
    pub fn allow(&self, allowed: Allowed) {
        let mut inner = self.inner.lock();
        inner.allowed = allowed;
        inner.refused = Default::default();
    }

    /// Demands a certificate. Returns `None` if none will come, or if handshakes wait for too many names.
    pub fn demand(&self, name: &str) -> Option<Demand> {
        let mut inner = self.inner.lock();
        let is_allowed = inner.allowed.has(name);
        let is_refused = inner.refused.iter().any(|names| names.contains(name));
        if !is_allowed || is_refused {
            return None;
        }
        if !inner.waiting.contains_key(name) && inner.waiting.len() >= WAITING_MAX {
            return None;
        }
        let sender = inner.waiting.entry(name.into()).or_default();
        let mut decided = sender.subscribe();
        drop(inner);
        self.news.notify_one();
        Some(Demand(Box::pin(async move {
            // The sender never sends: this ends when it is dropped.
            let _ = decided.changed().await;
        })))
    }

    /// Ends the waits for a name. The handshakes look for a certificate again.
    pub fn decide(&self, name: &str) {
        self.inner.lock().waiting.remove(name);
    }

    /// Ends the waits for a name, and refuses more of them until `age_refused` is called for the second time.
    pub fn refuse(&self, name: &str) {
        let mut inner = self.inner.lock();
        let newest = &mut inner.refused[0];
        if newest.len() < REFUSED_MAX {
            newest.insert(name.into());
        }
        inner.waiting.remove(name);
    }

    /// Forgets the names that were refused before the last call of this.
    pub fn age_refused(&self) {
        let mut inner = self.inner.lock();
        inner.refused[1] = std::mem::take(&mut inner.refused[0]);
    }

    /// Returns the names for which handshakes wait.
    pub fn waiting(&self) -> Vec<String> {
        let inner = self.inner.lock();
        inner.waiting.keys().map(|name| name.to_string()).collect()
    }

    /// Waits until a handshake demands a certificate.
    pub async fn changed(&self) {
        self.news.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn is_ready(demand: &mut Demand) -> bool {
        demand
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn handshakes_wait_until_there_is_a_decision() {
        let demands = Demands::default();
        let mut both = [0; 2].map(|_| demands.demand("a.example").expect("permitted"));
        let mut other = demands.demand("b.example").expect("permitted");
        assert!(!both.iter_mut().any(is_ready));
        assert_eq!(demands.waiting().len(), 2);
        demands.decide("a.example");
        assert!(both.iter_mut().all(is_ready));
        assert!(!is_ready(&mut other));
        demands.refuse("b.example");
        assert!(is_ready(&mut other));
        demands.age_refused();
        assert!(demands.demand("b.example").is_none());
        demands.age_refused();
        assert!(demands.demand("b.example").is_some());
    }

    #[test]
    fn only_permitted_names_are_demanded_and_only_so_many() {
        let demands = Demands::default();
        demands.allow(Allowed::new(Some(&["*.a.example".to_owned()])));
        assert!(demands.demand("a.example").is_none());
        let names: Vec<String> = (0..WAITING_MAX).map(|n| format!("{n}.a.example")).collect();
        let waits: Vec<_> = names
            .iter()
            .filter_map(|name| demands.demand(name))
            .collect();
        assert_eq!(waits.len(), WAITING_MAX);
        assert!(demands.demand("more.a.example").is_none());
        assert!(demands.demand("0.a.example").is_some());
        for name in 0..2 * REFUSED_MAX {
            demands.refuse(&name.to_string());
        }
        assert_eq!(demands.inner.lock().refused[0].len(), REFUSED_MAX);
    }
}
