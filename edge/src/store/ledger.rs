//! The ledger: counts every byte that the store holds, including pages held by readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts bytes against a limit. Shared by all workers; clones are handles of the same ledger.
#[derive(Clone)]
pub struct Ledger(Arc<Account>);

struct Account {
    limit: AtomicU64,
    used: AtomicU64,
    /// Total of all bytes ever charged within the limit; releasing a charge does not reduce this number.
    turned: AtomicU64,
}

impl Ledger {
    /// Creates an empty ledger with a limit of `limit` bytes.
    pub fn new(limit: u64) -> Ledger {
        Ledger(Arc::new(Account {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            turned: AtomicU64::new(0),
        }))
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit in bytes. Existing charges stay, even beyond the new limit.
    pub fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns the number of bytes charged now. Only `charge_anyway` can exceed the limit.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Returns the total of all bytes ever charged within the limit. The difference between two calls tells how often the whole memory was
    /// replaced between them.
    pub fn turned(&self) -> u64 {
        self.0.turned.load(Ordering::Relaxed)
    }

    /// Charges `bytes`, unless that would exceed the limit.
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

    /// Charges `bytes` even beyond the limit. A flight with waiting readers always gets room for one window in this way, so that a full
    /// ledger can't block a response in progress.
    pub fn charge_anyway(&self, bytes: u64) -> Charge {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            ledger: self.clone(),
            bytes,
        }
    }
}

/// A number of bytes charged to a ledger; released on drop.
pub struct Charge {
    ledger: Ledger,
    bytes: u64,
}

impl Charge {
    /// Returns the number of bytes of this charge.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Splits `bytes` off into a separate charge; returns `None` if this charge is smaller.
    pub fn split(&mut self, bytes: u64) -> Option<Charge> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(Charge {
            ledger: self.ledger.clone(),
            bytes,
        })
    }

    /// Adds another charge of the same ledger to this one.
    pub fn absorb(&mut self, mut other: Charge) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Charges `bytes` more to the same ledger, even beyond the limit: for small allocations of
    /// bounded number.
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
    fn the_ledger_never_exceeds_its_limit_and_gets_everything_back() {
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
