//! The ledger: every byte the store holds is charged here, pinned pages included.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts bytes held against a limit. Shared by all workers; cloning gives another handle.
#[derive(Clone)]
pub struct Ledger(Arc<Account>);

struct Account {
    limit: AtomicU64,
    used: AtomicU64,
    /// Bytes that were ever charged within the limit.
    turned: AtomicU64,
}

impl Ledger {
    /// An empty ledger of `limit` bytes.
    pub fn new(limit: u64) -> Ledger {
        Ledger(Arc::new(Account {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            turned: AtomicU64::new(0),
        }))
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Sets another limit. What is charged stays charged.
    pub fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes charged now. Over the limit only by what `charge_anyway` took.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes that were ever charged within the limit: how far memory has turned over since some
    /// moment.
    pub fn turned(&self) -> u64 {
        self.0.turned.load(Ordering::Relaxed)
    }

    /// Charges `bytes` if the limit allows it.
    pub fn try_charge(&self, bytes: u64) -> Option<Charge> {
        let limit = self.limit();
        self.0
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= limit)
            })
            .ok()?;
        self.0.turned.fetch_add(bytes, Ordering::Relaxed);
        Some(Charge {
            ledger: self.clone(),
            bytes,
        })
    }

    /// Charges `bytes` in any case: for the one window that a fetch with waiting readers may
    /// always have, so that a full ledger can't stop a response that is under way.
    pub fn charge_anyway(&self, bytes: u64) -> Charge {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            ledger: self.clone(),
            bytes,
        }
    }
}

/// Bytes charged; given back on drop.
pub struct Charge {
    ledger: Ledger,
    bytes: u64,
}

impl Charge {
    /// Bytes held by this charge.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` out of this charge into one of their own; `None` if it holds fewer.
    pub fn split(&mut self, bytes: u64) -> Option<Charge> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(Charge {
            ledger: self.ledger.clone(),
            bytes,
        })
    }

    /// Joins another charge to the same ledger with this one.
    pub fn absorb(&mut self, mut other: Charge) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Charges `bytes` more to the same ledger in any case: for small things of bounded number.
    pub fn beside(&self, bytes: u64) -> Charge {
        self.ledger.charge_anyway(bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_over_the_limit_and_all_given_back() {
        let ledger = Ledger::new(100);
        let mut a = ledger.try_charge(60).expect("room");
        assert!(ledger.try_charge(41).is_none());
        let b = a.split(20).expect("60 holds 20");
        assert!(a.split(41).is_none());
        drop(a);
        assert_eq!(ledger.used(), 20);
        let c = ledger.charge_anyway(200);
        assert_eq!(ledger.used(), 220);
        assert!(ledger.try_charge(u64::MAX).is_none());
        drop((b, c));
        assert_eq!(ledger.used(), 0);
    }
}
