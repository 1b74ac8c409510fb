//! Purges: rules with sequence numbers, which remove objects or mark them stale at their next lookup. A purge touches no object, so its
//! cost does not depend on the number of objects.
//!
//! Each fetch has a number from the same sequence, taken before its request is sent. A rule covers fetches with smaller numbers. Each
//! object stores the number of the newest rule that it was checked against, so a lookup costs one comparison unless there is a newer rule.
//! `sweep` checks objects that are not looked up, and then drops the rules.

pub(super) mod births;
mod index;
mod matches;
pub(super) mod rule;
pub(super) mod rules;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;

pub use rule::{Full, RULES_MAX, Rule, TEXT_MAX};
pub use rules::Names;
pub use sweep::Swept;

use super::head::Head;
use super::ledger::Charge;
use super::locked::Locked;
use super::object::{Object, Phase};
use super::object_store::Store;
use super::table_key::TableKey;
use births::Birth;
use rules::PURGED;

impl Store {
    /// Purges everything that `rule` covers and whose fetch began before this call. Returns the purge's sequence number; the purge is then
    /// in force for all workers. With `soft`, covered responses become stale at `now_ms` (milliseconds since the Unix epoch) instead of
    /// being removed. Objects without a head are removed in any case.
    ///
    /// # Errors
    ///
    /// Too many rules are in force. `Rule::All` is always accepted.
    pub fn purge(&self, rule: &Rule, soft: bool, now_ms: u64) -> Result<u64, Full> {
        let purges = &self.purges;
        let mut index = purges.index.write();
        let dropped = index.make_room(rule, soft)?;
        let number = self.sequence.fetch_add(1, Ordering::SeqCst);
        index.add(rule, number, soft.then_some(now_ms));
        // The number is stored while the index is locked, so that concurrent purges can't store a smaller number last.
        purges.latest.store(number, Ordering::Release);
        drop(index);
        drop(dropped);
        purges.wake_sweeper();
        Ok(number)
    }

    /// Returns the number of the newest purge; 0 before the first.
    pub fn purged_upto(&self) -> u64 {
        self.purges.latest.load(Ordering::Acquire)
    }

    /// Whether a response must not be sent to a request that waited for its head, because the purge with number `upto` covers the response.
    /// Such a request arrived after the purge; its lookup could not check the response, whose head was still unknown.
    pub fn is_purged(&self, primary: u128, object: &Object, head: &Head, upto: u64) -> bool {
        if upto <= object.born_seq {
            return false;
        }
        let covered = self.purges.covered(primary, object, Some(head), Some(head));
        let out = object.checked.load(Ordering::Relaxed) == PURGED;
        out || covered.hard
            || covered
                .stale_at_ms
                .is_some_and(|ms| ms < head.fresh_until_ms)
    }

    /// Returns the number of rules in force, without those that no object needs any more.
    pub fn rules(&self) -> usize {
        self.purges.index.read().len()
    }

    /// Returns the memory of the rules that is charged to the ledger, in bytes.
    pub(super) fn rules_bytes(&self) -> u64 {
        self.purges.index.read().bytes()
    }

    /// Sets the thread that is unparked by each purge, and when a volume goes out of service. The thread must then call `mark_absence`, and
    /// `sweep` until it returns `Idle`.
    pub fn set_sweeper(&self, thread: Thread) {
        *self.purges.sweeper.lock() = Some(thread);
    }

    /// Returns a sequence number for a request to the origin that is sent from now on; for `create_since`.
    pub fn moment(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::SeqCst)
    }

    /// Creates an object for a response that has arrived already. `moment` is the sequence number at which its request was sent. Returns
    /// `None` if there is no room, or if there was a purge after that number.
    pub fn create_since(&self, key: &[u8], moment: u64) -> Option<Arc<Object>> {
        // The birth is taken before the number of the latest rule is read, so that no rule added after that is dropped before the object
        // was checked.
        let birth = self.birth().at(moment);
        let purged = self.purges.latest.load(Ordering::Acquire) > moment;
        (!purged).then(|| self.create_at(key, birth)).flatten()
    }

    /// Returns the birth of a fetch that begins now.
    pub(super) fn birth(&self) -> Birth {
        self.purges.births.begin(&self.sequence)
    }

    /// Replaces the head of an object in the table by that of a later response of the same version (RFC 9111 sections 3.4 and 4.3.4).
    /// Purges since the request for that response was sent apply to the object by its old tags and by its new ones.
    pub fn renew(
        self: &Arc<Self>,
        table_key: TableKey,
        object: &Arc<Object>,
        head: Arc<Head>,
        charge: Charge,
    ) {
        let more = self.enter(table_key.primary, |locked| {
            let Phase::Open(old) = object.phase() else {
                return None;
            };
            let more = object.renew(head.clone(), charge)?;
            let purges = &self.purges;
            if purges.is_settled(object) && head.born_seq >= purges.latest.load(Ordering::Acquire) {
                return Some(more);
            }
            let covered = purges.covered(table_key.primary, object, Some(&old), Some(&head));
            match covered.stale_at_ms {
                _ if covered.hard => locked.remove(table_key.variant, object),
                Some(at_ms) => object.expire(&head, at_ms),
                None => {}
            }
            object.checked.fetch_min(head.born_seq, Ordering::Relaxed);
            Some(more)
        });
        if let Some(more) = more {
            self.weigh(table_key, object, None, more);
            self.enqueue_head(table_key, object);
        }
    }

    /// Makes the object stale from `at_ms` (milliseconds since the Unix epoch) at the latest, if its head is still this one.
    pub fn expire(
        self: &Arc<Self>,
        table_key: TableKey,
        object: &Arc<Object>,
        head: &Arc<Head>,
        at_ms: u64,
    ) {
        object.expire(head, at_ms);
        self.forget_head(table_key);
        self.enqueue_head(table_key, object);
    }
}

impl Locked<'_> {
    /// Checks a variant that was not checked against all rules. Returns whether the variant stays in the table.
    #[cold]
    pub(super) fn stays(&mut self, variant: u128, object: &Arc<Object>) -> bool {
        if !self.purges.judge(self.primary, object) {
            return true;
        }
        let table_key = self.table_key(variant);
        self.removed.extend(self.shard.remove(table_key));
        false
    }

    /// Removes all variants of the key that purges cover.
    pub(super) fn settle(&mut self) {
        let Some(entry) = self.shard.entries.get(&self.primary) else {
            return;
        };
        let open = |object: &Object| !self.purges.is_settled(object);
        let unsettled: Vec<_> = entry
            .variants
            .iter()
            .filter(|variant| open(&variant.object))
            .map(|variant| (variant.hash, variant.object.clone()))
            .collect();
        for (variant, object) in unsettled {
            self.stays(variant, &object);
        }
    }
}
