//! The purge rules in force, and checks of objects against them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;

use super::births::{Births, Era};
use super::index::{Covered, Index};
use super::rule::{Full, Rule};
use crate::store::head::Head;
use crate::store::ledger::Ledger;
use crate::store::object::{Object, Phase};
use crate::store::sync::{Mutex, RwLock};

/// Value of `Object::checked` for an object that a purge has removed.
pub(super) const PURGED: u64 = u64::MAX;

/// Functions on primary keys that purges need. The cache defines the keys, and implements these functions.
pub trait Names: Send + Sync {
    /// Returns the hash of a key's resource: the part of the key that a URL can name. `primary` is the hash of the key.
    fn resource(&self, primary: u128, key: &[u8]) -> u128;

    /// Calls `each` with the texts of a key that prefix rules are compared with.
    fn texts(&self, key: &[u8], each: &mut dyn FnMut(&[u8]));

    /// Whether a head that was read from a volume may be sent to clients.
    fn is_sound(&self, _head: &Head) -> bool {
        true
    }
}

/// Implementation of `Names` for opaque keys.
struct OpaqueNames;

impl Names for OpaqueNames {
    fn resource(&self, primary: u128, _: &[u8]) -> u128 {
        primary
    }

    fn texts(&self, key: &[u8], each: &mut dyn FnMut(&[u8])) {
        each(key);
    }
}

/// The state of one sweep through the store.
pub(super) struct Round {
    /// Number of the newest rule when the sweep began: rules up to it are dropped at the end.
    pub(super) upto: u64,
    /// The era of the fetches that were in progress when the sweep began.
    pub(super) era: Era,
    /// Whether all fetches of `era` had a head, or had ended, when the present walk through the shards began.
    pub(super) sure: bool,
    pub(super) shard: usize,
    pub(super) id: usize,
}

/// The purge rules in force in one store.
pub(in crate::store) struct Purges {
    pub(in crate::store) names: &'static dyn Names,
    /// Number of the newest rule. The rule is added to the index first; the purge is acknowledged only after this number is stored.
    pub(super) latest: AtomicU64,
    pub(super) index: RwLock<Index>,
    pub(in crate::store) births: Births,
    pub(super) round: Mutex<Option<Round>>,
    /// Number of the newest rule that all objects in memory were checked against.
    pub(super) swept: AtomicU64,
    /// The thread that runs the sweep; each purge wakes it.
    pub(super) sweeper: Mutex<Option<Thread>>,
    /// Number of objects checked against the index, for tests.
    #[cfg(test)]
    pub(super) checks: AtomicU64,
}

impl Purges {
    pub(in crate::store) fn new(ledger: &Ledger, names: Option<&'static dyn Names>) -> Purges {
        Purges {
            names: names.unwrap_or(&OpaqueNames),
            latest: AtomicU64::new(0),
            index: RwLock::new(Index::new(ledger.charge_anyway(0))),
            births: Births::new(),
            round: Mutex::new(None),
            swept: AtomicU64::new(0),
            sweeper: Mutex::new(None),
            #[cfg(test)]
            checks: AtomicU64::new(0),
        }
    }

    /// Whether the object was checked against all rules.
    #[inline]
    pub(in crate::store) fn is_settled(&self, object: &Object) -> bool {
        object.checked.load(Ordering::Relaxed) >= self.latest.load(Ordering::Acquire)
    }

    /// Checks an object that is in the table, or about to be inserted, against the rules. The caller has locked its shard. Returns whether
    /// a rule removes the object. Rules of soft purges make it stale.
    #[cold]
    pub(in crate::store) fn judge(&self, primary: u128, object: &Object) -> bool {
        // The number is read before the rules: newer rules may then be applied too, which does no harm, but none is missed.
        let latest = self.latest.load(Ordering::Acquire);
        let phase = object.phase();
        let head = match &phase {
            Phase::Open(head) => Some(&**head),
            _ => None,
        };
        let covered = self.covered(primary, object, head, head);
        match (&phase, covered.stale_at_ms) {
            _ if covered.hard => {
                object.checked.store(PURGED, Ordering::Relaxed);
                return true;
            }
            // A soft purge removes an object without a usable head: there is nothing that could be served stale, and later requests must
            // not wait for a fetch from before the purge.
            (Phase::Awaiting | Phase::Refused { .. }, Some(_)) => return true,
            (Phase::Open(head), Some(at_ms)) => {
                object.expire(head, at_ms);
                object.forget_revalidation(covered.soft);
            }
            _ => {}
        }
        // The tags are known only with the head, so an object without a head stays unchecked until it has one.
        if !matches!(phase, Phase::Awaiting) {
            object.checked.store(latest, Ordering::Relaxed);
        }
        false
    }

    /// Whether a rule removes an object with this head.
    pub(in crate::store) fn covers(&self, primary: u128, object: &Object, head: &Head) -> bool {
        self.covered(primary, object, Some(head), Some(head)).hard
    }

    /// Returns the number of the newest rule in force that removes objects with this key, whatever their `born_seq`; 0 for none. All tag
    /// rules count, since an earlier response of the same version may have had any tag.
    pub(in crate::store) fn newest_hard(&self, primary: u128, key: &[u8]) -> u64 {
        let index = self.index.read();
        if index.len() == 0 {
            return 0;
        }
        let mut covered = Covered::nothing(0, u64::MAX);
        index.all(&mut covered);
        index.resource(self.names.resource(primary, key), &mut covered);
        covered.by(&index.newest_tag());
        let mut each = |text: &[u8]| index.prefixes(text, &mut covered);
        self.names.texts(key, &mut each);
        covered.hardest
    }

    /// Restores a rule from the log of a volume or from another store.
    pub(in crate::store) fn restore(
        &self,
        rule: &Rule,
        number: u64,
        soft_ms: Option<u64>,
    ) -> Result<(), Full> {
        let mut index = self.index.write();
        let dropped = match rule {
            // A restored rule for everything must not remove newer rules that are in force.
            Rule::All => None,
            rule => index.make_room(rule, soft_ms.is_some())?,
        };
        index.add(rule, number, soft_ms);
        self.restore_upto(number);
        drop(index);
        drop(dropped);
        Ok(())
    }

    /// Adds the rules of another store.
    pub(in crate::store) fn take_over(&self, before: &Purges) {
        let rules = before.index.read().rules();
        let latest = before.latest.load(Ordering::Acquire);
        let taken = rules
            .iter()
            .try_for_each(|(rule, number, soft_ms)| self.restore(rule, *number, *soft_ms));
        if taken.is_err() {
            // The index has no room for all these rules, so everything is purged: `Rule::All` is always accepted.
            let _ = self.restore(&Rule::All, latest, None);
        }
        self.restore_upto(latest);
    }

    /// Raises the number of the newest rule to `number`.
    pub(in crate::store) fn restore_upto(&self, number: u64) {
        self.latest.fetch_max(number, Ordering::AcqRel);
    }

    /// Wakes the thread that runs the sweep.
    pub(in crate::store) fn wake_sweeper(&self) {
        if let Some(sweeper) = &*self.sweeper.lock() {
            sweeper.unpark();
        }
    }

    /// Returns the effect of the rules on an object with the tags of one head and the age of another.
    pub(super) fn covered(
        &self,
        primary: u128,
        object: &Object,
        tagged: Option<&Head>,
        head: Option<&Head>,
    ) -> Covered {
        #[cfg(test)]
        self.checks.fetch_add(1, Ordering::Relaxed);
        let born = object.born_seq;
        let head_born = head.map_or(born, |head| head.born_seq);
        let mut covered = Covered::nothing(born, head_born);
        let index = self.index.read();
        index.all(&mut covered);
        if !covered.hard && index.has_resources() {
            let resource = self.names.resource(primary, &object.key);
            index.resource(resource, &mut covered);
        }
        if let Some(tagged) = tagged.filter(|_| !covered.hard) {
            index.tags(&tagged.tags, tagged.born_seq, &mut covered);
        }
        if !covered.hard && index.has_prefixes() {
            let mut each = |text: &[u8]| index.prefixes(text, &mut covered);
            self.names.texts(&object.key, &mut each);
        }
        covered
    }
}
