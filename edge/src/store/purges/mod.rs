//! Purges: rules with sequence numbers that take objects out, or mark them stale, when they are
//! looked up next. A purge touches no object, so its cost does not grow with their number.
//!
//! Everything that is fetched has a number of the same sequence, taken before the origin is asked.
//! A rule covers what has a smaller one. An object remembers up to which rule it was checked, so
//! that a look-up costs one comparison until there is a newer one; `sweep` checks those that nobody
//! looks up, and then drops the rules.

mod births;
mod index;
mod sweep;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;

pub(super) use births::{Birth, Births};
pub use index::{RULES_MAX, TEXT_MAX};
pub use sweep::Swept;

use super::head::Head;
use super::ledger::{Charge, Ledger};
use super::object::{Object, Phase};
use super::sync::{Mutex, RwLock};
use super::table::TableKey;
use super::{Locked, Store};
use index::{Covered, Index};
use sweep::Round;

/// What an object is said to be checked up to that a purge took out.
const OUT: u64 = u64::MAX;

/// What a purge covers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Rule {
    /// All variants of one resource, by the hash that `Names::resource` gives.
    Resource(u128),
    /// Every resource of which a text that `Names::texts` gives begins so.
    Prefix(Box<[u8]>),
    /// Every response that carries the tag of this hash.
    Tag(u64),
    /// Everything.
    All,
}

/// What the store has to know of its keys, which are the cache's.
pub trait Names: Send + Sync {
    /// Names the resource of a key: the part of it that a URL can name. `primary`: the key's hash.
    fn resource(&self, primary: u128, key: &[u8]) -> u128;

    /// Tells the texts of a key that a prefix may be a prefix of.
    fn texts(&self, key: &[u8], each: &mut dyn FnMut(&[u8]));

    /// Whether a head that was read from a volume may be given to clients.
    fn is_sound(&self, _head: &Head) -> bool {
        true
    }
}

/// Keys that are a text, which is all that can be said of them.
struct Plain;

impl Names for Plain {
    fn resource(&self, primary: u128, _: &[u8]) -> u128 {
        primary
    }

    fn texts(&self, key: &[u8], each: &mut dyn FnMut(&[u8])) {
        each(key);
    }
}

/// Too many rules are in force, or too long ones: until some objects more are checked against them,
/// only everything can be purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{RULES_MAX} purges are in force already: wait until the store has been gone through, or purge everything"
        )
    }
}

impl std::error::Error for Full {}

/// The rules in force.
pub(super) struct Purges {
    pub(super) names: &'static dyn Names,
    /// The newest rule's number. Published after the rule, and before its purge is answered.
    latest: AtomicU64,
    index: RwLock<Index>,
    pub(super) births: Births,
    round: Mutex<Option<Round>>,
    /// The newest rule that all in memory was checked against.
    swept: AtomicU64,
    /// Who sweeps; woken by a purge.
    sweeper: Mutex<Option<Thread>>,
    /// Checks against the rules, for tests.
    #[cfg(test)]
    checks: AtomicU64,
}

impl Purges {
    pub(super) fn new(ledger: &Ledger, names: Option<&'static dyn Names>) -> Purges {
        Purges {
            names: names.unwrap_or(&Plain),
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

    /// Whether there is no rule that this object was not checked against.
    #[inline]
    pub(super) fn is_settled(&self, object: &Object) -> bool {
        object.checked.load(Ordering::Relaxed) >= self.latest.load(Ordering::Acquire)
    }

    /// Checks an object that is in the table, or comes there now, against the rules; its shard is locked. Whether they take it
    /// out. What they mark stale is stale from here on.
    #[cold]
    pub(super) fn judge(&self, primary: u128, object: &Object) -> bool {
        // Read first: the check may meet newer rules, which does no harm.
        let latest = self.latest.load(Ordering::Acquire);
        let phase = object.phase();
        let head = match &phase {
            Phase::Open(head) => Some(&**head),
            _ => None,
        };
        let covered = self.covered(primary, object, head, head);
        match (&phase, covered.stale_at_ms) {
            _ if covered.hard => {
                object.checked.store(OUT, Ordering::Relaxed);
                return true;
            }
            // Nothing of it can be kept, and whoever asks from now on must not be told to wait for
            // what was asked for before.
            (Phase::Awaiting | Phase::Refused { .. }, Some(_)) => return true,
            (Phase::Open(head), Some(at_ms)) => {
                object.expire(head, at_ms);
                object.forget_revalidation(covered.soft);
            }
            _ => {}
        }
        // Its tags come with the head: then it is checked for them.
        if !matches!(phase, Phase::Awaiting) {
            object.checked.store(latest, Ordering::Relaxed);
        }
        false
    }

    /// Whether the rules take an object with this head out.
    pub(super) fn covers(&self, primary: u128, object: &Object, head: &Head) -> bool {
        self.covered(primary, object, Some(head), Some(head)).hard
    }

    /// The newest rule in force that takes out what it covers of this key, however young; 0 for none.
    /// A tag that is not known of it may have been that of an earlier response of the same version.
    pub(super) fn newest_hard(&self, primary: u128, key: &[u8]) -> u64 {
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

    /// A rule of an earlier run is in force again.
    pub(super) fn restore(
        &self,
        rule: &Rule,
        number: u64,
        soft_ms: Option<u64>,
    ) -> Result<(), Full> {
        let mut index = self.index.write();
        let dropped = match rule {
            // There may be newer ones, which it does not make needless.
            Rule::All => None,
            rule => index.make_room(rule, soft_ms.is_some())?,
        };
        index.add(rule, number, soft_ms);
        self.restore_upto(number);
        drop(index);
        drop(dropped);
        Ok(())
    }

    /// The rules of another store are in force here, too.
    pub(super) fn take_over(&self, before: &Purges) {
        let rules = before.index.read().rules();
        let latest = before.latest.load(Ordering::Acquire);
        let taken = rules
            .iter()
            .try_for_each(|(rule, number, soft_ms)| self.restore(rule, *number, *soft_ms));
        if taken.is_err() {
            // There are others already, which came just now. For this one there is always room.
            let _ = self.restore(&Rule::All, latest, None);
        }
        self.restore_upto(latest);
    }

    /// There have been rules up to this number.
    pub(super) fn restore_upto(&self, number: u64) {
        self.latest.fetch_max(number, Ordering::AcqRel);
    }

    /// There is something to do for who sweeps.
    pub(super) fn wake_sweeper(&self) {
        if let Some(sweeper) = &*self.sweeper.lock() {
            sweeper.unpark();
        }
    }

    /// What the rules say of an object with the tags of one head and the age of another.
    fn covered(
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

impl Store {
    /// Purges what `rule` covers: whatever was fetched, or is being fetched, since before now. It
    /// is in force for all workers when this returns, with its sequence number. `soft`: what it
    /// covers becomes stale at `now_ms` (Unix ms) instead of being dropped; but what has no head
    /// yet is dropped all the same, for there is nothing to keep.
    ///
    /// # Errors
    /// There are too many rules in force. `Rule::All` is always taken.
    pub fn purge(&self, rule: &Rule, soft: bool, now_ms: u64) -> Result<u64, Full> {
        let purges = &self.purges;
        let mut index = purges.index.write();
        let dropped = index.make_room(rule, soft)?;
        let number = self.sequence.fetch_add(1, Ordering::SeqCst);
        index.add(rule, number, soft.then_some(now_ms));
        // Under the index's lock, so that it only grows.
        purges.latest.store(number, Ordering::Release);
        drop(index);
        drop(dropped);
        purges.wake_sweeper();
        Ok(number)
    }

    /// The number of the newest purge; 0 before the first.
    pub fn purged_upto(&self) -> u64 {
        self.purges.latest.load(Ordering::Acquire)
    }

    /// Whether a request that came after the purge with this number may not have a response that
    /// it waited for: what was known of it when the request was looked up did not tell.
    pub fn is_purged(&self, primary: u128, object: &Object, head: &Head, upto: u64) -> bool {
        if upto <= object.born_seq {
            return false;
        }
        let covered = self.purges.covered(primary, object, Some(head), Some(head));
        let out = object.checked.load(Ordering::Relaxed) == OUT;
        out || covered.hard
            || covered
                .stale_at_ms
                .is_some_and(|ms| ms < head.fresh_until_ms)
    }

    /// Rules in force, those that no object needs any more not counted.
    pub fn rules(&self) -> usize {
        self.purges.index.read().len()
    }

    /// Has this thread unparked by each purge, and when a volume is out: it is to call `mark_absence`,
    /// and `sweep` until that says `Idle`.
    pub fn set_sweeper(&self, thread: Thread) {
        *self.purges.sweeper.lock() = Some(thread);
    }

    /// A number for what is asked from now on; for `create_since`.
    pub fn moment(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::SeqCst)
    }

    /// A new object, as `create` gives one, for a response that is here already: it was asked for
    /// at this moment. `None` also where anything was purged since.
    pub fn create_since(&self, key: &[u8], moment: u64) -> Option<Arc<Object>> {
        // Held from before the look at the rules, so that those that come behind it are kept.
        let birth = self.birth().at(moment);
        let purged = self.purges.latest.load(Ordering::Acquire) > moment;
        (!purged).then(|| self.create_at(key, birth)).flatten()
    }

    /// A number for what is fetched from now on.
    pub(super) fn birth(&self) -> Birth {
        self.purges.births.begin(&self.sequence)
    }

    /// Gives an object of the table the head of a later response of the same version (RFC 9111
    /// 3.4, 4.3.4). Purges that came between that response's request and now hold for the object
    /// by the tags it had then, and by those it has from now on.
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

    /// This head, if it is the one that is there, is stale from this time on (Unix ms) at the latest.
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
    /// Checks a variant that is not settled; whether it is still there.
    #[cold]
    pub(super) fn stays(&mut self, variant: u128, object: &Arc<Object>) -> bool {
        if !self.purges.judge(self.primary, object) {
            return true;
        }
        let table_key = self.table_key(variant);
        self.removed.extend(self.shard.remove(table_key));
        false
    }

    /// Takes out what purges cover of all variants.
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
