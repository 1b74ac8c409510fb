//! Replacement of a stored object by a new version whose body is still arriving.
//!
//! Until the body is complete, both objects are in the table: the new one under their table key, where lookups find it, and the old one
//! under a key that no lookup uses. Eviction and purges treat both like any object. If the body breaks off, the old object takes its place
//! again. Only when the body is complete are the old object's records on volumes deleted, and the new object's records written. If Sluice
//! itself ends the fetch of the body, the new object replaces the old one although bytes are missing: later requests have them fetched.

use std::sync::{Arc, Weak};

use super::head::Head;
use super::locked::Locked;
use super::object::{Object, Phase, State};
use super::object_store::Store;
use super::page::Page;
use super::rare::{Rare, Replaced};
use super::table_key::TableKey;

/// Distinguishes the variant of an object that is being replaced. Variants are hashes, so that no request has this one.
const ASIDE: u128 = 0x6f1d_22a9_c04b_4e57_93e8_5b60_d7a1_3c0f;

impl TableKey {
    /// Returns the key of the object that the object with this key is to replace.
    pub(super) fn aside(self) -> TableKey {
        TableKey {
            variant: self.variant ^ ASIDE,
            ..self
        }
    }
}

impl State {
    /// Returns the rare state, which the first call creates.
    pub(super) fn rare(&mut self) -> &mut Rare<Object> {
        self.rare.get_or_insert_default()
    }

    /// Changes the rare state, if there is one, and frees its memory if nothing is left.
    pub(super) fn change_rare<T: Default>(
        &mut self,
        change: impl FnOnce(&mut Rare<Object>) -> T,
    ) -> T {
        let Some(rare) = &mut self.rare else {
            return T::default();
        };
        let changed = change(rare);
        if rare.is_empty() {
            self.rare = None;
        }
        changed
    }

    /// Whether the object's body is arriving, and the object that it is to replace is still kept.
    pub(super) fn is_replacing(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| rare.replaces.is_some())
    }
}

impl Object {
    /// Sets the object that this one is to replace.
    fn set_replaced(&self, replaced: Option<Weak<Object>>) {
        let mut state = self.lock();
        let replaced = replaced.map(|object| Replaced {
            object,
            is_back: false,
        });
        match replaced {
            Some(_) => state.rare().replaces = replaced,
            None => state.change_rare(|rare| rare.replaces = None),
        }
    }

    /// Removes and returns the link to the object that this one is to replace.
    fn take_replaced(&self) -> Option<Replaced<Object>> {
        self.lock().change_rare(|rare| rare.replaces.take())
    }

    /// Notes that the object that this one is to replace has taken its place again. Returns that object, if it still exists, and whether it
    /// had done so before. `None` if this object is to replace none.
    fn set_replaced_back(&self) -> Option<(Option<Arc<Object>>, bool)> {
        let mut state = self.lock();
        let replaced = state.rare.as_mut()?.replaces.as_mut()?;
        let was_back = std::mem::replace(&mut replaced.is_back, true);
        Some((replaced.object.upgrade(), was_back))
    }

    /// Whether the object's body is arriving, and the object that it is to replace is still kept.
    pub fn is_replacing(&self) -> bool {
        self.lock().is_replacing()
    }

    /// Whether the object is to replace an older one, and has all bytes that are needed for that. An object that is evicted by block need
    /// not be complete: outside the table, it would soon lose bytes.
    fn may_replace(&self) -> bool {
        let state = self.lock();
        let replaced = state.rare.as_ref().and_then(|rare| rare.replaces.as_ref());
        replaced.is_some_and(|replaced| {
            let is_landed = state.claims.is_empty() || state.block.is_some();
            // Once the body has broken off, only all bytes count.
            state.is_complete() || (!replaced.is_back && is_landed)
        })
    }

    /// Whether any bytes are in memory.
    pub(super) fn has_bytes(&self) -> bool {
        !self.lock().present.is_empty()
    }

    /// Returns the weight of the object's head and pages in the eviction policy, in bytes.
    fn weight(&self) -> u64 {
        let state = self.lock();
        let head = match &state.phase {
            Phase::Open(head) => head.memory(),
            _ => 0,
        };
        let pages = state.pages.within(0..u64::MAX);
        let pages: u64 = pages
            .map(|index| Page::footprint(state.capacity(index)))
            .sum();
        head + pages
    }

    /// Whether the object's readers may have its missing bytes fetched.
    fn is_worth_completing(&self) -> bool {
        let state = self.lock();
        matches!(state.phase, Phase::Open(_)) && state.joinable && !state.riders.is_empty()
    }
}

impl Store {
    /// Replaces `old`, whose head is `head`, by `new`, if `old` is in the table. `old` is stale from `now_ms` on (milliseconds since the Unix
    /// epoch), and stays in the table until the body of `new` is complete. If the body breaks off, `old` takes its place again. Returns
    /// whether `old` was in the table.
    pub fn replace_until_broken(
        self: &Arc<Self>,
        table_key: TableKey,
        (old, head): (&Arc<Object>, &Arc<Head>),
        new: &Arc<Object>,
        now_ms: u64,
    ) -> bool {
        let weight = self.weight(&new.key);
        self.enter(table_key.primary, |locked| {
            if !locked.holds(table_key.variant, old) {
                return false;
            }
            old.expire(head, now_ms);
            // If the body of `old` is arriving itself, the object that it was to replace stays.
            let mut replaced = old.take_replaced().map(|replaced| replaced.object);
            if replaced.is_none() {
                replaced = Some(Arc::downgrade(old));
                let aside = table_key.aside().variant;
                locked.removed.extend(locked.shard.refile(table_key, aside));
            }
            new.set_replaced(replaced);
            locked.insert(table_key.variant, new.clone(), weight);
            true
        })
    }

    /// Whether the object stays in the table until the body of a new version is complete.
    pub(super) fn keeps_aside(&self, table_key: TableKey, object: &Arc<Object>) -> bool {
        self.holds(table_key.aside(), object)
    }

    /// Ends the replacement of an older object by `new`, if the bytes of `new` have arrived: the older one leaves the table, and its head the
    /// volumes. If the body broke off before, and a reader had the rest fetched, `new` takes the place of the older object.
    pub(super) fn complete_replacement(self: &Arc<Self>, table_key: TableKey, new: &Arc<Object>) {
        if !new.may_replace() {
            return;
        }
        let here = table_key.variant;
        let (old, is_placed) = self.enter(table_key.primary, |locked| {
            // Another flight may have ended meanwhile.
            let replaced = new.may_replace().then(|| new.take_replaced()).flatten();
            let Some(Replaced { object, is_back }) = replaced else {
                return (None, false);
            };
            let old = object.upgrade();
            match &old {
                None => {}
                // If `new` has left the table, nothing else would remove the older object.
                Some(old) if !is_back => locked.remove(table_key.aside().variant, old),
                Some(old) => {
                    // No purge was checked against an object outside the table.
                    let is_current = self.purges.is_settled(new) && new.is_complete();
                    if is_current && locked.holds(here, old) {
                        locked.insert(here, new.clone(), self.weight(&new.key) + new.weight());
                    }
                }
            }
            (old, locked.holds(here, new))
        });
        if is_placed {
            if let Some(old) = old {
                old.retire().wake();
            }
            self.forget_head(table_key);
            self.enqueue_all(table_key, new);
        }
    }

    /// Undoes the replacement of an older object by `new`, whose body has broken off: `new` leaves the table, and the older object takes its
    /// place again. If `is_resumable` is true, readers of `new` may have the rest fetched.
    pub(super) fn undo_replacement(
        self: &Arc<Self>,
        table_key: TableKey,
        new: &Arc<Object>,
        is_resumable: bool,
    ) {
        if !new.is_replacing() {
            return;
        }
        let is_resumable = is_resumable && new.is_worth_completing();
        self.enter(table_key.primary, |locked| {
            locked.undo_replacement(table_key.variant, new);
            if !is_resumable {
                new.take_replaced();
            }
        });
    }

    /// Removes the older object that `new` was to replace, because there is a newer version that can't be stored.
    pub(super) fn drop_replaced(self: &Arc<Self>, table_key: TableKey, new: &Arc<Object>) {
        if !new.is_replacing() {
            return;
        }
        self.enter(table_key.primary, |locked| {
            let replaced = new.take_replaced().filter(|replaced| !replaced.is_back);
            if let Some(old) = replaced.and_then(|replaced| replaced.object.upgrade()) {
                locked.remove(table_key.aside().variant, &old);
                locked.removed.push(old); // dropped after unlocking
            }
        });
        self.forget_head(table_key);
    }

    /// Replaces `old` by `new`, if `old` is still in the table. `old` is retired: no further flight begins for it. Without a `new`, `old` and
    /// its resource history stay in the table until another object replaces it. Returns whether `old` was in the table.
    ///
    /// If a new version is replacing `old` already, this method does nothing: until the body of that version is complete, `old` must stay
    /// usable. If `old` is to replace an older object itself, `new` then is to replace that one; without a `new`, the older object takes its
    /// place again.
    pub fn supersede(
        self: &Arc<Self>,
        table_key: TableKey,
        old: &Arc<Object>,
        new: Option<Arc<Object>>,
    ) -> bool {
        let here = table_key.variant;
        if new.is_none() && !old.is_replacing() && self.holds(table_key, old) {
            // Otherwise a request that finds no usable object in the table could restore the old head from a volume. If a new version begins
            // to replace `old` at this moment, `old` stays usable, but only in memory.
            self.forget_head(table_key);
        }
        let (has_head, was_here, wakes) = self.enter(table_key.primary, |locked| {
            if locked.holds(table_key.aside().variant, old) {
                return (false, false, None);
            }
            let (was_here, is_replacing) = (locked.holds(here, old), old.is_replacing());
            match new {
                Some(new) if was_here => {
                    new.set_replaced(old.take_replaced().map(|replaced| replaced.object));
                    let weight = self.weight(&new.key);
                    locked.insert(here, new, weight);
                }
                None if is_replacing => {
                    locked.undo_replacement(here, old);
                    old.take_replaced();
                }
                _ => {}
            }
            (was_here && !is_replacing, was_here, Some(old.retire()))
        });
        if let Some(wakes) = wakes {
            wakes.wake();
        }
        if has_head {
            // The old head may have been queued or written meanwhile.
            self.forget_head(table_key);
        }
        was_here
    }
}

impl Locked<'_> {
    /// Lets the older object that `new` is to replace take its place again, and removes `new`.
    fn undo_replacement(&mut self, here: u128, new: &Arc<Object>) {
        // If the older object is back already, it is in its place, or a third one replaces it.
        let Some((old, false)) = new.set_replaced_back() else {
            return;
        };
        let was_here = self.holds(here, new);
        // If the older object has been evicted, a volume may have it: requests find it there if the table has no other.
        self.remove(here, new);
        let Some(old) = old else {
            return;
        };
        let aside = self.table_key(here).aside();
        if self.holds(aside.variant, &old) {
            // If a purge has removed `new`, the older object must not return.
            match was_here && !old.is_retired() {
                true => {
                    let refiled = self.shard.refile(aside, here);
                    self.removed.extend(refiled);
                }
                false => self.remove(aside.variant, &old),
            }
        }
        self.removed.push(old); // dropped after unlocking
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{head, store, table_key};
    use super::super::{Head, Landing, Object, Rule, Store, TableKey};
    use crate::reason::Reason;
    use crate::store::Abandoned;

    fn here() -> TableKey {
        table_key(1)
    }

    fn found(store: &Arc<Store>) -> Option<Arc<Object>> {
        store.enter(here().primary, |locked| locked.find(here().variant))
    }

    fn is_found(store: &Arc<Store>, object: &Arc<Object>) -> bool {
        found(store).is_some_and(|found| Arc::ptr_eq(&found, object))
    }

    fn objects(store: &Arc<Store>) -> usize {
        store.enter(here().primary, |locked| locked.all().len())
    }

    /// Returns the landing of the only flight of a new object.
    fn flight(store: &Arc<Store>) -> Landing {
        let new = store.create(b"a").expect("room");
        let whole = || (smallvec::smallvec![0..u64::MAX], ());
        let ((), mut landings) = store.arrange(&new, here(), 0, |_| whole());
        landings.pop().expect("a flight")
    }

    fn open(store: &Arc<Store>, landing: &mut Landing, joinable: bool) -> Arc<Head> {
        let known = Arc::new(Head {
            joinable,
            ..head(Some(3))
        });
        let charge = store.charge_head(1).expect("room");
        landing.accept(0..3, 0).expect("the first response");
        landing.open(known.clone(), charge, false);
        known
    }

    /// Returns a complete object in the table, and the landing of an open one that replaces it.
    fn replacing(store: &Arc<Store>) -> (Arc<Object>, Landing) {
        replacing_by(store, false)
    }

    /// As `replacing`. Says whether other flights may add bytes to the new object.
    fn replacing_by(store: &Arc<Store>, joinable: bool) -> (Arc<Object>, Landing) {
        let mut landing = flight(store);
        let old = landing.object().clone();
        store.enter(here().primary, |locked| {
            locked.insert(here().variant, old.clone(), 1);
        });
        let known = open(store, &mut landing, joinable);
        let _ = block_on(landing.write(b"abc", 0));
        landing.land();
        let mut landing = flight(store);
        let new = landing.object().clone();
        store.replace_until_broken(here(), (&old, &known), &new, 0);
        open(store, &mut landing, joinable);
        (old, landing)
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(future)
    }

    #[test]
    fn an_old_object_returns_if_the_body_of_the_new_one_breaks_off() {
        let store = store(1 << 20);
        let (old, mut landing) = replacing(&store);
        let new = landing.object().clone();
        assert!(is_found(&store, &new));
        assert_eq!(objects(&store), 2);
        let _ = block_on(landing.write(b"a", 0));
        landing.fail(Arc::new(Abandoned));
        assert!(is_found(&store, &old) && !old.is_retired());
        assert_eq!(objects(&store), 1);
        // The same happens if the task of the flight is dropped.
        let (old, landing) = replacing(&store);
        drop(landing);
        assert!(is_found(&store, &old));
        assert_eq!(objects(&store), 1);
    }

    #[test]
    fn an_old_object_leaves_when_the_body_of_the_new_one_is_complete() {
        let store = store(1 << 20);
        let (old, mut landing) = replacing(&store);
        let new = landing.object().clone();
        let _ = block_on(landing.write(b"abc", 0));
        landing.land();
        assert!(is_found(&store, &new) && old.is_retired());
        assert_eq!(objects(&store), 1);
        assert!(!new.is_replacing());
    }

    #[test]
    fn an_old_object_survives_a_resumed_new_one_that_ends_beside_another() {
        let store = store(1 << 20);
        for completes in [false, true] {
            survives_beside_another(&store, completes);
        }
    }

    fn survives_beside_another(store: &Arc<Store>, completes: bool) {
        let (old, first) = replacing_by(store, true);
        let resumed = first.object().clone();
        let known = old.head().expect("a head");
        let reader = store.ride(&resumed, 0..3);
        first.fail(Arc::new(Abandoned));
        assert!(is_found(store, &old));
        let rest = || (smallvec::smallvec![0..3], ());
        let ((), mut landings) = store.arrange(&resumed, here(), 0, |_| rest());
        let mut rest = landings.pop().expect("a flight");
        let mut second = flight(store);
        store.replace_until_broken(here(), (&old, &known), second.object(), 0);
        open(store, &mut second, false);
        match completes {
            true => {
                rest.accept(0..3, 0).expect("the rest");
                let _ = block_on(rest.write(b"abc", 0));
                rest.land();
            }
            false => rest.fail(Arc::new(Abandoned)),
        }
        assert!(is_found(store, second.object()));
        second.fail(Arc::new(Abandoned));
        assert!(is_found(store, &old));
        drop(reader);
    }

    // The origin has not failed.
    #[test]
    fn a_new_object_with_bytes_replaces_the_old_one_if_its_flight_ends_early() {
        let store = store(1 << 20);
        let give_back: fn(Landing) = Landing::give_back;
        let abandon: fn(Landing) = |landing| landing.abandon(Arc::new(Abandoned));
        for end_early in [give_back, abandon] {
            for (joinable, bytes) in [(true, "a"), (true, ""), (false, "a")] {
                let (old, mut landing) = replacing_by(&store, joinable);
                let new = landing.object().clone();
                let _ = block_on(landing.write(bytes.as_bytes(), 0));
                end_early(landing);
                // Otherwise the new object would be useless.
                let is_kept = joinable && !bytes.is_empty();
                assert!(is_found(&store, if is_kept { &new } else { &old }));
                assert_eq!((old.is_retired(), objects(&store)), (is_kept, 1));
                assert!(!new.is_replacing());
            }
        }
    }

    /// Returns a complete object in the table, and the landing of a new one that inherits the replacement of the first one from another.
    fn inheriting(store: &Arc<Store>) -> (Arc<Object>, Landing) {
        let (old, first) = replacing_by(store, true);
        let second = flight(store);
        let new = second.object().clone();
        assert!(store.supersede(here(), first.object(), Some(new)));
        (old, second)
    }

    #[test]
    fn an_old_object_leaves_if_its_new_version_is_refused() {
        let store = store(1 << 20);
        let (_, landing) = inheriting(&store);
        let new = landing.object().clone();
        landing.refuse(Reason::NoStore, 1);
        assert!(is_found(&store, &new) && !new.is_replacing());
        assert_eq!(objects(&store), 1);
    }

    #[test]
    fn an_old_object_returns_if_its_new_version_is_refused_for_one_client() {
        let store = store(1 << 20);
        let (old, landing) = inheriting(&store);
        landing.refuse_one_client(Reason::NoStore);
        assert!(is_found(&store, &old) && !old.is_retired());
        assert_eq!(objects(&store), 1);
    }

    #[test]
    fn an_old_object_leaves_with_a_new_one_that_was_withdrawn_before_it_was_complete() {
        let store = store(1 << 20);
        let (_, mut landing) = replacing(&store);
        store.withdraw(here(), landing.object());
        let _ = block_on(landing.write(b"abc", 0));
        landing.land();
        assert_eq!(objects(&store), 0);
    }

    #[test]
    fn a_new_object_stays_if_its_flight_ends_and_a_reader_waits_for_the_rest() {
        let store = store(1 << 20);
        for completes in [true, false] {
            let (old, mut landing) = replacing_by(&store, true);
            let new = landing.object().clone();
            let _ = block_on(landing.write(b"a", 0));
            let reader = store.ride(&new, 1..3);
            landing.give_back();
            assert!(is_found(&store, &new) && new.is_replacing());
            let rest = || (smallvec::smallvec![1..3], ());
            let ((), mut landings) = store.arrange(&new, here(), 0, |_| rest());
            let mut landing = landings.pop().expect("a flight");
            landing.accept(0..3, 0).expect("the rest");
            let _ = block_on(landing.write(b"abc", 0));
            match completes {
                true => landing.land(),
                false => landing.fail(Arc::new(Abandoned)),
            }
            drop(reader);
            assert!(is_found(&store, if completes { &new } else { &old }));
            assert_eq!((old.is_retired(), objects(&store)), (completes, 1));
        }
    }

    #[test]
    fn a_replacement_is_complete_once_the_last_flight_ends_without_bytes_to_add() {
        let store = store(1 << 20);
        let (old, mut landing) = replacing_by(&store, true);
        let new = landing.object().clone();
        let _ = block_on(landing.write(b"abc", 0));
        landing.give_back();
        assert!(is_found(&store, &new) && old.is_retired());
        assert!(!new.is_replacing());
    }

    #[test]
    fn a_purge_removes_both_objects() {
        let store = store(1 << 20);
        for completes in [false, true] {
            let (_, mut landing) = replacing(&store);
            store.purge(&Rule::All, false, 0).expect("a rule");
            let _ = block_on(landing.write(b"abc", 0));
            match completes {
                true => landing.land(),
                false => landing.fail(Arc::new(Abandoned)),
            }
            assert!(found(&store).is_none());
            assert_eq!(objects(&store), 0);
        }
    }

    #[test]
    fn an_old_object_that_is_withdrawn_does_not_return() {
        let store = store(1 << 20);
        let (old, landing) = replacing(&store);
        store.withdraw(here(), &old);
        landing.fail(Arc::new(Abandoned));
        assert!(found(&store).is_none());
        assert_eq!(objects(&store), 0);
    }

    #[test]
    fn a_flight_of_the_old_object_does_not_retire_it_until_the_new_one_is_complete() {
        let store = store(1 << 20);
        let (old, landing) = replacing(&store);
        assert!(!store.supersede(here(), &old, None));
        landing.fail(Arc::new(Abandoned));
        assert!(is_found(&store, &old) && !old.is_retired());
    }

    #[test]
    fn removing_all_variants_removes_both_objects() {
        let store = store(1 << 20);
        let (_, mut landing) = replacing(&store);
        store.enter(here().primary, |locked| locked.clear());
        let _ = block_on(landing.write(b"abc", 0));
        landing.land();
        assert!(found(&store).is_none());
    }

    #[test]
    fn an_old_object_survives_several_new_ones_that_break_off() {
        let store = store(1 << 20);
        let (old, first) = replacing(&store);
        // While the body of the first new object arrives, a second one replaces it.
        let mut second = flight(&store);
        let known = first.object().head().expect("a head");
        store.replace_until_broken(here(), (first.object(), &known), second.object(), 0);
        open(&store, &mut second, false);
        assert!(is_found(&store, second.object()));
        assert_eq!(objects(&store), 2);
        first.fail(Arc::new(Abandoned));
        assert!(is_found(&store, second.object()));
        second.fail(Arc::new(Abandoned));
        assert!(is_found(&store, &old));
        assert_eq!(objects(&store), 1);
    }
}
