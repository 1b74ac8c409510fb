//! Tests of purges.

mod model;

use std::sync::Arc;

use smallvec::smallvec;

use super::super::tests::{begin, content, head, launch, now, store, table_key};
use super::super::{Landing, ObjectView};
use super::*;

/// Inserts a complete object without content, with these tags and this key text.
fn filed(store: &Arc<Store>, primary: u128, key: &str, tags: &[u64]) -> Arc<Object> {
    let landing = flying(store, primary, key);
    opened(store, landing, tags)
}
/// Inserts an object without a head, and returns the landing of its first flight.
fn flying(store: &Arc<Store>, primary: u128, key: &str) -> Landing {
    let object = store.create(key.as_bytes()).expect("room");
    let weight = store.weight(key.as_bytes());
    store.enter(primary, |locked| locked.insert(0, object.clone(), weight));
    let all = |_: &ObjectView<'_>| (smallvec![0..u64::MAX], ());
    let ((), mut landings) = store.arrange(&object, table_key(primary), 0, all);
    landings.pop().expect("a claim")
}
/// Opens the flight's object with these tags, and completes it.
fn opened(store: &Arc<Store>, mut landing: Landing, tags: &[u64]) -> Arc<Object> {
    landing.accept(0..0, 0).expect("nothing is claimed");
    let head = Arc::new(tagged(landing.born_seq(), tags));
    let charge = store.charge_head(head.memory()).expect("room");
    landing.open(head, charge, false);
    let object = landing.object().clone();
    landing.land();
    object
}
fn tagged(born_seq: u64, tags: &[u64]) -> Head {
    Head {
        born_seq,
        tags: tags.into(),
        ..head(Some(0))
    }
}
fn find(store: &Arc<Store>, primary: u128) -> Option<Arc<Object>> {
    store.enter(primary, |locked| locked.find(0))
}
fn fresh_until(object: &Object) -> Option<u64> {
    match object.phase() {
        Phase::Open(head) => Some(head.fresh_until_ms),
        _ => None,
    }
}
fn purge(store: &Arc<Store>, rule: &Rule) -> u64 {
    store.purge(rule, false, 0).expect("room")
}
fn prefix(text: &str) -> Rule {
    Rule::Prefix(text.as_bytes().into())
}
/// Runs the sweep until no work is left, or until it has to wait for fetches.
fn sweep(store: &Arc<Store>) -> Swept {
    (0..10_000)
        .map(|_| store.sweep(64))
        .find(|swept| *swept != Swept::More)
        .expect("an end")
}
fn checks(store: &Arc<Store>) -> u64 {
    store.purges.checks.load(Ordering::Relaxed)
}
#[test]
fn each_rule_removes_only_objects_that_it_covers() {
    let rules = [
        (Rule::Resource(1), vec![1]),
        (prefix("/a/"), vec![1, 2]),
        (prefix("/a/x"), vec![1]),
        (prefix(""), vec![1, 2, 3]),
        (Rule::Tag(7), vec![2, 3]),
        (Rule::Tag(9), vec![]),
        (Rule::All, vec![1, 2, 3]),
    ];
    for (rule, covered) in rules {
        for soft in [false, true] {
            let store = store(1 << 20);
            filed(&store, 1, "/a/x", &[]);
            filed(&store, 2, "/a/y", &[7]);
            filed(&store, 3, "/b", &[6, 7]);
            store.purge(&rule, soft, 50).expect("room");
            for primary in 1..=3 {
                let found = find(&store, primary);
                let until = found.as_deref().and_then(fresh_until);
                let expected = match (covered.contains(&primary), soft) {
                    (false, _) => Some(u64::MAX),
                    (true, true) => Some(50),
                    (true, false) => None,
                };
                assert_eq!(until, expected, "{rule:?} {soft} {primary}");
            }
            // Objects that are fetched after the purge are not covered.
            filed(&store, 1, "/a/x", &[7]);
            assert_eq!(
                find(&store, 1).as_deref().and_then(fresh_until),
                Some(u64::MAX)
            );
        }
    }
}
#[test]
fn a_purge_touches_no_object_and_each_is_checked_once() {
    let store = store(256 << 20);
    for n in 0..100_000_u64 {
        let tags: &[u64] = if n % 10 == 0 { &[7] } else { &[8] };
        filed(&store, u128::from(n), "/", tags);
    }
    assert!(find(&store, 1).is_some() && checks(&store) == 0);
    purge(&store, &Rule::Tag(7));
    assert_eq!(checks(&store), 0);
    let there = (0..100_000).filter(|n| find(&store, *n).is_some()).count();
    assert_eq!((there, checks(&store)), (90_000, 100_000));
    let there = (0..100_000).filter(|n| find(&store, *n).is_some()).count();
    assert_eq!((there, checks(&store)), (90_000, 100_000));
    assert_eq!(store.numbers().objects, 90_000);
    assert_eq!((sweep(&store), store.rules()), (Swept::Idle, 0));
    assert_eq!(checks(&store), 100_000);
}
#[test]
fn a_running_fetch_is_not_joined_after_a_purge() {
    let store = store(1 << 20);
    for soft in [false, true] {
        let landing = launch(&store, 1).expect("room");
        let rider = landing.object().reader(0);
        assert!(find(&store, 1).is_some());
        store.purge(&Rule::Resource(1), soft, 0).expect("room");
        assert!(find(&store, 1).is_none(), "{soft}");
        let other = filed(&store, 1, "key", &[]);
        let was = opened(&store, landing, &[]);
        assert!(!Arc::ptr_eq(&was, &other));
        drop(rider);
        let found = find(&store, 1).expect("the second stays");
        assert!(Arc::ptr_eq(&found, &other) && fresh_until(&found) == Some(u64::MAX));
    }
}
#[test]
fn a_flight_from_before_a_purge_restores_nothing() {
    let store = store(1 << 20);
    let landing = flying(&store, 1, "/");
    let soft = flying(&store, 2, "/");
    purge(&store, &Rule::Tag(7));
    store.purge(&Rule::Tag(8), true, 50).expect("room");
    // The objects have no head, so the tag rules can't remove them yet.
    assert!(find(&store, 1).is_some() && find(&store, 2).is_some());
    opened(&store, landing, &[7]);
    opened(&store, soft, &[8]);
    assert!(find(&store, 1).is_none());
    assert_eq!(find(&store, 2).as_deref().and_then(fresh_until), Some(50));
}
#[test]
fn another_version_is_as_old_as_the_fetch_that_received_it() {
    let store = store(1 << 20);
    let landing = flying(&store, 1, "/");
    let old = landing.object().clone();
    purge(&store, &Rule::Tag(7));
    let new = landing.successor().expect("room");
    assert!(store.supersede(table_key(1), &old, Some(new.clone())));
    let all = |_: &ObjectView<'_>| (smallvec![0..u64::MAX], ());
    let ((), mut landings) = store.arrange(&new, table_key(1), 0, all);
    let second = landings.pop().expect("a claim");
    assert_eq!(second.born_seq(), landing.born_seq());
    drop(landing);
    assert_eq!(sweep(&store), Swept::Waiting, "its tags are not known yet");
    opened(&store, second, &[7]);
    assert_eq!((sweep(&store), store.rules()), (Swept::Idle, 0));
    assert!(find(&store, 1).is_none());
}
#[test]
fn a_validated_head_neither_hides_nor_survives_a_purge() {
    let renewed_when =
        |settled, rule: &Rule, soft, validated: bool, before: &[u64], after: &[u64]| {
            let store = store(1 << 20);
            let object = filed(&store, 1, "/", before);
            let early = store.birth();
            store.purge(rule, soft, 50).expect("room");
            if settled {
                // A lookup checks the object by the tags that it has before the renewal.
                find(&store, 1);
            }
            let birth = if validated { store.birth() } else { early };
            let head = Arc::new(tagged(birth.seq, after));
            let charge = store.charge_head(head.memory()).expect("room");
            store.renew(table_key(1), &object, head, charge);
            find(&store, 1).as_deref().and_then(fresh_until)
        };
    let renewed = |rule: Rule, soft, validated, before: &[u64], after: &[u64]| {
        let until = renewed_when(false, &rule, soft, validated, before, after);
        let settled = renewed_when(true, &rule, soft, validated, before, after);
        assert_eq!(
            until, settled,
            "{rule:?} {soft} {validated} {before:?} {after:?}"
        );
        until
    };
    let fresh = Some(u64::MAX);
    // A purge of the old tag and one of the new tag have the same effect.
    for (before, after) in [([7], [8]), ([8], [7])] {
        assert_eq!(renewed(Rule::Tag(7), false, false, &before, &after), None);
        assert_eq!(
            renewed(Rule::Tag(7), true, false, &before, &after),
            Some(50)
        );
        // The head was validated after the soft purge, so the object is fresh again.
        assert_eq!(renewed(Rule::Tag(7), true, true, &before, &after), fresh);
    }
    assert_eq!(renewed(Rule::Tag(7), false, true, &[7], &[7]), None);
    assert_eq!(renewed(Rule::Tag(7), false, true, &[8], &[7]), fresh);
    assert_eq!(renewed(Rule::Tag(9), false, false, &[7], &[8]), fresh);
    assert_eq!(renewed(Rule::All, false, true, &[], &[]), None);
    assert_eq!(renewed(Rule::All, true, true, &[], &[]), fresh);
}
#[test]
fn a_purged_object_stays_available_to_its_readers() {
    let store = store(1 << 20);
    let mut landing = begin(&store, 1, Some(100)).expect("room");
    assert!(now(landing.write(&content(0, 100), 0)).is_ready());
    let object = landing.object().clone();
    landing.land();
    purge(&store, &Rule::All);
    assert!(find(&store, 1).is_none());
    assert!(object.is_complete());
    drop(object);
    assert_eq!(sweep(&store), Swept::Idle);
    assert_eq!(store.ledger.used(), 0);
}
#[test]
fn purged_variants_are_not_counted() {
    let store = store(1 << 20);
    filed(&store, 1, "/", &[7]);
    let second = store.create(b"/").expect("room");
    store.enter(1, |locked| {
        locked.insert(5, second.clone(), 0);
        assert_eq!(locked.variants(), 2);
    });
    purge(&store, &Rule::Tag(7));
    store.enter(1, |locked| {
        assert_eq!(locked.variants(), 1);
        let all = locked.all();
        assert!(all.len() == 1 && Arc::ptr_eq(&all[0].1, &second));
    });
    purge(&store, &Rule::Resource(1));
    assert!(store.enter(1, |locked| locked.all()).is_empty());
    assert_eq!(store.numbers().objects, 0);
}

#[test]
fn the_memory_of_rules_does_not_count_as_pinned() {
    let store = store(64 << 20);
    filed(&store, 1, "/", &[]);
    purge(&store, &Rule::Tag(7));
    let numbers = store.numbers();
    assert_eq!((store.rules(), numbers.pinned), (1, 0));
    assert!(numbers.bytes > 0);
}

#[test]
fn rules_are_bounded_and_everything_can_always_be_purged() {
    let store = store(64 << 20);
    let held = flying(&store, 1, "/");
    for tag in 0..RULES_MAX as u64 {
        purge(&store, &Rule::Tag(tag));
    }
    assert!(store.ledger.used() > RULES_MAX as u64 * 40);
    assert_eq!(store.purge(&Rule::Tag(u64::MAX), false, 0), Err(Full));
    assert_eq!(store.purge(&Rule::Resource(1), false, 0), Err(Full));
    // A purge with the same rule as before is accepted: it uses no more memory.
    purge(&store, &Rule::Tag(1));
    assert_eq!(sweep(&store), Swept::Waiting);
    store.purge(&Rule::All, true, 0).expect("everything goes");
    assert_eq!(store.rules(), RULES_MAX + 1);
    purge(&store, &Rule::All);
    assert_eq!(store.rules(), 1);
    assert!(find(&store, 1).is_none());
    drop(held);
    assert_eq!((sweep(&store), store.rules()), (Swept::Idle, 0));
    let long = vec![b'x'; TEXT_MAX + 1];
    assert_eq!(store.purge(&Rule::Prefix(long.into()), false, 0), Err(Full));
    let mut last = Ok(0);
    for n in 0..10_000 {
        let text = format!("{n:0>TEXT_MAX$}");
        last = store.purge(&prefix(&text), false, 0);
        if last.is_err() {
            break;
        }
    }
    assert_eq!(last, Err(Full));
    assert!(store.ledger.used() < 9 << 20);
    assert_eq!(sweep(&store), Swept::Idle);
    assert_eq!(store.ledger.used(), 0);
}
#[test]
fn no_request_waits_for_a_validation_from_before_a_purge() {
    let store = store(1 << 20);
    let object = filed(&store, 1, "/", &[7]);
    let validate = || {
        let spare = store.create(b"/").expect("room");
        object.revalidate_with(Arc::new(tagged(0, &[7])), &spare);
        spare
    };
    let _early = validate();
    assert!(object.revalidation().is_some());
    store.purge(&Rule::Tag(7), true, 50).expect("room");
    assert!(find(&store, 1).is_some() && object.revalidation().is_none());
    let later = validate();
    store.purge(&Rule::Tag(8), true, 60).expect("room");
    assert!(find(&store, 1).is_some());
    let running = object.revalidation().expect("another's purge");
    assert!(Arc::ptr_eq(&running, &later));
}
#[test]
fn a_response_requested_before_a_purge_is_not_stored_after_it() {
    let store = store(1 << 20);
    let moment = store.moment();
    let object = store
        .create_since(b"/", moment)
        .expect("nothing was purged");
    assert_eq!(object.born_seq, moment);
    store.enter(1, |locked| locked.insert(0, object, 0));
    assert_eq!(store.purge(&Rule::All, false, 0), Ok(moment + 2));
    assert!(find(&store, 1).is_none());
    assert!(store.create_since(b"/", moment).is_none());
    assert!(store.create_since(b"/", store.moment()).is_some());
}
#[test]
fn a_purge_wakes_the_sweeping_thread() {
    let store = store(1 << 20);
    store.set_sweeper(std::thread::current());
    purge(&store, &Rule::All);
    // `park` returns at once, since the purge has unparked this thread; otherwise the test would hang.
    std::thread::park();
    assert_eq!(store.sweep(1), Swept::More);
}
