//! Tests of memory: which bytes are evicted, which stay, and how much an object is charged.

use std::task::{Context, Waker};

use super::*;

#[test]
fn blocks_are_evicted_and_fetched_again_while_the_object_stays() {
    let length = 12 * BLOCK;
    let store = store(8 * BLOCK);
    let mut cx = Context::from_waker(Waker::noop());
    let mut landing = Some(begin_sparse(&store, 1, length, 0..BLOCK).expect("room"));
    let object = store.enter(1, |locked| locked.find(0)).expect("filed");
    let mut reader = object.reader(0);
    let mut got = Vec::new();
    for block in 0..12 {
        let range = block * BLOCK..(block + 1) * BLOCK;
        fill(
            landing
                .take()
                .unwrap_or_else(|| accepted(ask(&store, &object, range).remove(0))),
        );
        assert!(read_on(&mut reader, &mut got).is_err() || block == 11);
        assert!(store.ledger.used() <= 8 * BLOCK);
    }
    assert!(got == content(0, length), "more than the store holds");
    drop(reader);
    let stored = object.snapshot().stored;
    assert!(stored.total() < 8 * BLOCK && stored.total() > 5 * BLOCK);
    let gap = object.snapshot().missing.iter().next().expect("evicted");
    let mut again = object.reader(gap.start);
    assert!(matches!(
        again.poll_next(&mut cx),
        Poll::Ready(Next::Missing)
    ));
    fill(accepted(
        ask(&store, &object, gap.start..gap.start + BLOCK).remove(0),
    ));
    assert!(matches!(
        again.poll_next(&mut cx),
        Poll::Ready(Next::Bytes(_))
    ));
}

#[test]
fn a_block_that_a_reader_wants_soon_stays() {
    let store = store_of_the_latest(6 * BLOCK);
    let first = begin_sparse(&store, 1, 4 * BLOCK, 0..4 * BLOCK).expect("room");
    let object = first.object().clone();
    fill(first);
    let mut reader = object.reader(BLOCK);
    keep_until(&mut reader, 3 * BLOCK);
    for key in 2..20 {
        if let Some(landing) = begin(&store, key, Some(2 * BLOCK)) {
            fill(landing);
        }
    }
    assert!(object.covers(BLOCK..3 * BLOCK));
    assert_eq!(object.snapshot().stored, (BLOCK..3 * BLOCK).into());
    assert!(store.numbers().pinned >= 2 * BLOCK);
    drop((reader, object));
    check_weights(&store);
    for key in 20..80 {
        if let Some(landing) = begin(&store, key, Some(2 * BLOCK)) {
            fill(landing);
        }
    }
    assert!(
        store.enter(1, |locked| locked.find(0)).is_none(),
        "the object itself goes in the end"
    );
    check_weights(&store);
}

#[test]
fn a_retired_object_keeps_the_bytes_that_its_readers_still_want() {
    let store = store_of_the_latest(6 * BLOCK);
    let first = begin_sparse(&store, 1, 4 * BLOCK, 0..4 * BLOCK).expect("room");
    let object = first.object().clone();
    fill(first);
    let mut reader = object.reader(2 * BLOCK);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(reader.poll_next(&mut cx).is_ready());
    assert!(store.supersede(table_key(1), &object, None));
    let crowd = |keys: Range<u128>| {
        for key in keys {
            if let Some(landing) = begin(&store, key, Some(2 * BLOCK)) {
                fill(landing);
            }
        }
    };
    crowd(2..20);
    // The reader's bytes stay, since nothing more can be fetched for a retired object.
    assert_eq!(object.snapshot().stored, (2 * BLOCK..4 * BLOCK).into());
    drop(reader);
    crowd(20..40);
    assert!(object.snapshot().stored.is_empty(), "nobody reads it");
}

#[test]
fn one_eviction_drops_one_block_and_the_last_one_the_object() {
    for evict in [evict::Kind::Lru, evict::Kind::S3Fifo] {
        for hot in [false, true] {
            let store = Store::new(&Options {
                memory: 8 << 20,
                max_object_size: 8 << 20,
                evict,
                shards: 1,
                block: BLOCK,
            });
            let length = 7 << 20;
            let first = begin_sparse(&store, 1, length, 0..length).expect("room");
            let object = first.object().clone();
            fill(first);
            let (mut there, mut key) = (length, 100);
            let weak = Arc::downgrade(&object);
            drop(object);
            while let Some(object) = weak.upgrade() {
                if hot && key < 200 {
                    for at in (0..length).step_by(BLOCK as usize) {
                        store.touch_block(table_key(1), &object, at);
                    }
                    store.enter(1, |locked| locked.find(0));
                }
                let stored = object.snapshot().stored.total();
                assert!(there - stored <= BLOCK, "{evict:?}: {there} to {stored}");
                there = stored;
                drop(object);
                key += 1;
                assert!(key < 1000, "{evict:?}, hot {hot}: {there} bytes never go");
                assert!(crowd(&store, key, 60_000));
                // The new object is requested as often as those in the store, so that the policy can't prefer the old ones.
                for _ in 0..3 {
                    store.enter(key, |locked| locked.find(0));
                }
            }
            assert!(there <= BLOCK, "{evict:?}: gone with {there} bytes");
            check_weights(&store);
        }
    }
}

#[test]
fn a_retired_object_without_readers_is_freed_at_once() {
    for evict in [evict::Kind::Lru, evict::Kind::S3Fifo] {
        let store = Store::new(&Options {
            memory: 8 << 20,
            max_object_size: 8 << 20,
            evict,
            shards: 1,
            block: PAGE,
        });
        let length = 7 << 20;
        let first = begin_sparse(&store, 1, length, 0..length).expect("room");
        let object = first.object().clone();
        fill(first);
        store.supersede(table_key(1), &object, None);
        drop(object);
        for key in 100..400 {
            assert!(crowd(&store, key, 60_000), "{evict:?}: {key}");
        }
        assert!(store.enter(1, |locked| locked.find(0)).is_none());
        check_weights(&store);
    }
}

#[test]
fn objects_in_use_do_not_hide_evictable_ones() {
    let store = store(4 << 20);
    // These objects are requested several times, so the eviction policy keeps them longest.
    for key in 1000..1500 {
        assert!(crowd(&store, key, 2000));
        for _ in 0..3 {
            store.enter(key, |locked| locked.find(0));
        }
    }
    let mut held = Vec::new();
    for key in 2000..2800 {
        let landing = begin(&store, key, Some(2000)).expect("idle ones are there");
        held.push(landing.object().clone());
        fill(landing);
    }
    // While every object is in use, failing to make room must be quick.
    while let Some(landing) = begin(&store, held.len() as u128 + 5000, Some(2000)) {
        held.push(landing.object().clone());
        fill(landing);
    }
    assert!(store.numbers().pinned > 4_000_000);
    assert!(store.make_room(100_000).is_none() && store.make_room(100_000).is_none());
    held.clear();
    assert!(store.make_room(100_000).is_some());
}

#[test]
fn a_full_ledger_still_grants_each_flight_a_page() {
    let store = store(2 << 20);
    let pinned = begin(&store, 2, Some((2 << 20) - 300_000)).expect("room");
    let first = begin_sparse(&store, 1, 10 << 20, 0..100_000).expect("room");
    let object = first.object().clone();
    let mut reader = object.reader(0);
    fill(first);
    let (mut got, mut peak) = (Vec::new(), 0);
    // Every object in the store is in use and can't be evicted; a long object is still readable, block by block.
    while read_on(&mut reader, &mut got).is_err() {
        let at = got.len() as u64;
        let mut landing = ask(&store, &object, at..at + BLOCK).remove(0);
        landing.accept(landing.range(), 0).expect("its own");
        if landing.reserve().is_err() {
            landing.reserve_least();
        }
        fill(landing);
        peak = peak.max(store.ledger.used());
        let tracked = store.shards[0].lock().policy.len();
        assert!(
            tracked <= 6,
            "{tracked}: blocks without bytes are forgotten"
        );
    }
    assert!(got == content(0, 10 << 20));
    assert!(peak <= (2 << 20) + 2 * PAGE, "{peak}");
    drop(pinned);
    drop(reader);
    assert!(store.enter(1, |locked| locked.find(0)).is_some());
    drop(object);
    check_weights(&store);
}

#[test]
fn a_page_for_a_waiting_reader_costs_no_more_than_it_takes() {
    let store = Store::new(&Options {
        memory: 18 * PAGE,
        max_object_size: 1 << 30,
        evict: evict::Kind::S3Fifo,
        shards: 1,
        block: 16 * PAGE,
    });
    let length = 100 * 16 * PAGE;
    let first = begin_sparse(&store, 1, length, 0..16 * PAGE).expect("room");
    let object = first.object().clone();
    let mut reader = object.reader(4 * PAGE);
    keep_until(&mut reader, 8 * PAGE);
    fill(first);
    let mut readers = Vec::new();
    let mut before = 16;
    for block in 1..24 {
        let start = block * 16 * PAGE;
        let mut landing = ask(&store, &object, start..length).remove(0);
        assert!(block == 1 || landing.reserve().is_err(), "all is in use");
        landing.reserve_least();
        landing.shorten(start + PAGE);
        readers.push(object.reader(start));
        fill(landing);
        let stored = object.snapshot().stored;
        let pages = |range: Range<u64>| stored.within(range.start * PAGE..range.end * PAGE);
        let total = |range| pages(range).map(|r| (r.end - r.start) / PAGE).sum::<u64>();
        let now = total(0..16);
        assert!(before <= now + 2, "{before} to {now} pages for one");
        before = now;
        // Pages that the reader has passed are evicted first, pages that it wants soon last, and the page with its next byte never.
        assert!(total(0..4) == 0 || total(4..16) == 12, "{stored:?}");
        assert!(total(8..16) == 0 || total(4..8) == 4, "{stored:?}");
        assert_eq!(total(4..5), 1);
        assert!(now == 1 || store.ledger.used() <= store.ledger.limit());
        assert_eq!(readers.len() as u64, total(16..100 * 16));
    }
    assert_eq!(before, 1);
    check_state(&object);
}

#[test]
fn an_object_outside_the_table_keeps_only_the_bytes_its_readers_need() {
    let store = store(16 << 20);
    let first = begin_sparse(&store, 1, 10 << 20, 0..BLOCK).expect("room");
    let object = first.object().clone();
    let mut reader = object.reader(0);
    fill(first);
    store.enter(1, |locked| locked.clear());
    let mut got = Vec::new();
    while read_on(&mut reader, &mut got).is_err() {
        let at = got.len() as u64;
        fill(accepted(ask(&store, &object, at..at + BLOCK).remove(0)));
        assert!(store.ledger.used() < 3 * BLOCK);
    }
    assert!(got == content(0, 10 << 20));
    drop((reader, object));
    assert_eq!(store.ledger.used(), 0);
}

#[test]
fn an_object_that_may_take_its_place_again_keeps_its_blocks() {
    let store = store(16 << 20);
    let first = begin_sparse(&store, 1, 10 << 20, 0..BLOCK).expect("room");
    let old = first.object().clone();
    fill(first);
    let (known, new) = (
        old.head().expect("a head"),
        store.create(b"key").expect("room"),
    );
    assert!(store.replace_until_broken(table_key(1), (&old, &known), &new, 0));
    // A reader of the old object has another block fetched.
    let reader = old.reader(4 * BLOCK);
    fill(accepted(ask(&store, &old, 4 * BLOCK..5 * BLOCK).remove(0)));
    drop(reader);
    store.undo_replacement(table_key(1), &new, true);
    assert!(store.holds(table_key(1), &old));
    for block in [0, 4] {
        let stored = old.snapshot().stored;
        assert!(stored.contains(block * BLOCK), "{stored:?}");
    }
    drop((old, new, known));
    check_weights(&store);
}

#[test]
fn a_new_object_without_a_complete_block_does_not_replace_the_old_one() {
    let store = store(16 << 20);
    let first = begin_sparse(&store, 1, 10 << 20, 0..BLOCK).expect("room");
    let old = first.object().clone();
    let known = old.head().expect("a head");
    fill(first);
    let new = store.create(b"key").expect("room");
    assert!(store.replace_until_broken(table_key(1), (&old, &known), &new, 0));
    let mut first = ask(&store, &new, 0..BLOCK).remove(0);
    first.accept(0..BLOCK, 0).expect("a first flight");
    let charge = store.charge_head(known.memory()).expect("room");
    first.open(known, charge, true);
    let second = accepted(ask(&store, &new, 4 * BLOCK..5 * BLOCK).remove(0));
    first.fail(Arc::new(Abandoned));
    assert!(!old.is_retired() && new.is_replacing());
    second.fail(Arc::new(Abandoned));
    assert!(!old.is_retired() && store.holds(table_key(1), &old));
}

#[test]
fn a_reader_ahead_of_a_flight_without_room_gets_the_stored_bytes() {
    let store = store(1 << 20);
    let pinned = begin(&store, 2, Some(900_000)).expect("room");
    let length = 10 * PAGE + 5000;
    for (start, bytes) in [(7 * PAGE + 10, 3 * PAGE + 4990), (20 * PAGE, 0)] {
        let mut landing = begin(&store, 1, None).expect("room");
        let object = landing.object().clone();
        let mut reader = object.reader(start);
        let mut behind = Some(object.reader(0));
        let (mut at, mut got, mut all) = (0, Vec::new(), Vec::new());
        while at < length {
            // Both readers read on after each write. The first one leaves after three pages; the other one begins ahead of the flight.
            let next = (at + 40_000).min(length);
            let Poll::Ready(written) = now(landing.write(&content(at, next), 0)) else {
                panic!("stalled at {at}");
            };
            written.expect("somebody reads");
            at = next;
            check_state(&object);
            match &mut behind {
                Some(first) if at < 3 * PAGE => drop(read_on(first, &mut all)),
                _ => drop(behind.take()),
            }
            check_state(&object);
            drop(read_on(&mut reader, &mut got));
            check_state(&object);
            assert!(store.ledger.used() < (1 << 20) + 4 * PAGE);
        }
        landing.land();
        assert!(read_on(&mut reader, &mut got).expect("the end is known"));
        assert_eq!(got.len() as u64, bytes);
        assert!(got == content(start, start + bytes));
        assert!(all == content(0, all.len() as u64) && !all.is_empty());
    }
    drop(pinned);
}

#[test]
fn a_later_head_replaces_the_first_one_and_its_weight() {
    let store = store(1 << 20);
    let first = begin_sparse(&store, 1, 1000, 0..500).expect("room");
    let object = first.object().clone();
    fill(first);
    for size in [1000, 10] {
        let second = accepted(ask(&store, &object, 500..501).remove(0));
        let value = "y".repeat(size - "x: \r\n".len());
        let known = Head {
            joinable: true,
            fields: [("x", &*value)].into_iter().collect(),
            ..head(Some(1000))
        };
        let charge = store.charge_head(known.memory()).expect("room");
        second.renew(Arc::new(known), charge);
        assert!(matches!(object.phase(), Phase::Open(head) if head.fields.text().len() == size));
    }
    drop(object);
    check_weights(&store);
}

#[test]
fn the_last_decisions_are_kept_and_charged() {
    let store = store(1 << 20);
    let first = begin_sparse(&store, 1, 1000, 0..500).expect("room");
    let object = first.object().clone();
    fill(first);
    for at in 0..20 {
        let decision = Decision {
            unix_ms: at,
            want: at..at + 1,
            kind: DecisionKind::Fetch,
            ranges: (0..100).map(|i| i..i + 1).collect(),
            why: crate::reason::Reason::FirstFetch,
        };
        object.lock().note(decision, &object);
    }
    let snapshot = object.snapshot();
    let times: Vec<_> = snapshot.decisions.iter().map(|d| d.unix_ms).collect();
    assert_eq!(times, (12..20).collect::<Vec<_>>());
    assert!((object.is_sparse(), snapshot.generation) == (true, 7));
    drop(object);
    assert_eq!(store.numbers().pinned, 0);
    store.enter(1, |locked| locked.clear());
    assert_eq!(store.ledger.used(), 0);
}

#[test]
fn the_resource_history_is_kept_while_the_key_has_an_object() {
    let store = store(1 << 20);
    let history = ResourceHistory {
        no_ranges_until_ms: 1,
        changes: 3,
        ..ResourceHistory::default()
    };
    store.enter(1, |locked| locked.set_history(history));
    assert_eq!(
        store.enter(1, |locked| locked.history()),
        ResourceHistory::default()
    );
    let first = launch(&store, 1).expect("room");
    store.enter(1, |locked| locked.set_history(history));
    let second = store.create(b"key").expect("room");
    assert!(store.supersede(table_key(1), first.object(), Some(second.clone())));
    assert!(matches!(first.object().phase(), Phase::Retired));
    assert_eq!(store.enter(1, |locked| locked.history()), history);
    assert!(!store.supersede(table_key(1), first.object(), None));
    assert!(store.enter(1, |locked| locked.find(0)).is_some());
    store.withdraw(table_key(1), &second);
    assert_eq!(
        store.enter(1, |locked| locked.history()),
        ResourceHistory::default()
    );
}

#[test]
fn an_object_takes_no_more_than_is_charged_for_it() {
    use crate::store::block_index::BLOCK_OVERHEAD;
    use crate::store::object_store::OBJECT_OVERHEAD;
    use crate::store::page::Page;
    use crate::store::table::row_bytes;
    // Computes the size of an object with its reference counts in the allocator's size class. Tables are between half full and full, so
    // their rows count one and a half times. The eviction policy has a node in its lists and a ghost entry per object.
    let object = Page::footprint(size_of::<Object>() as u64 + 16) - Page::footprint(0) + 64;
    let (entry, id) = row_bytes();
    let policy = 32 + 33;
    let total = object + (entry + id + policy) as u64 * 3 / 2;
    assert!(
        total <= OBJECT_OVERHEAD,
        "{object} + 3/2 * ({entry} + {id} + {policy}) = {total}"
    );
    let block = size_of::<(u64, block_index::Block)>();
    let part = (block + id + policy) as u64 * 3 / 2;
    assert!(part <= BLOCK_OVERHEAD, "{part}");
}
