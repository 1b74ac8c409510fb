//! Tests of the store as a whole: readers get the bytes that flights have written, within the memory limit, in any order of steps.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use proptest::prelude::*;
use smallvec::smallvec;

use super::page::PAGE;
use super::pass_through::WINDOW;
use super::*;
use crate::evict;

mod model;
#[cfg(feature = "shuttle")]
mod shuttle;

pub(super) fn store(memory: u64) -> Arc<Store> {
    Store::new(&Options {
        memory,
        max_object_size: memory,
        evict: evict::Kind::S3Fifo,
        shards: 1,
        block: 128 << 10,
    })
}

pub(super) fn table_key(primary: u128) -> TableKey {
    TableKey {
        primary,
        variant: 0,
    }
}

/// Inserts an object and opens its head. The object's bytes can't be fetched again.
pub(super) fn begin(store: &Arc<Store>, primary: u128, length: Option<u64>) -> Option<Landing> {
    let mut landing = launch(store, primary)?;
    let content = 0..length.unwrap_or(u64::MAX);
    landing.accept(content, 0).expect("all is claimed");
    if length.is_some() && landing.reserve().is_err() {
        landing.refuse(crate::reason::Reason::NoRoom, 0);
        return None;
    }
    let head = head(length);
    let charge = store.charge_head(head.memory())?;
    landing.open(Arc::new(head), charge, false);
    Some(landing)
}

/// Inserts an object without a head. Returns the landing of its first flight, which claims the whole object.
pub(super) fn launch(store: &Arc<Store>, primary: u128) -> Option<Landing> {
    let object = store.create(b"key")?;
    let weight = store.weight(b"key");
    store.enter(primary, |locked| locked.insert(0, object.clone(), weight));
    let all = |_: &ObjectView<'_>| (smallvec![0..u64::MAX], ());
    let ((), landings) = store.arrange(&object, table_key(primary), 0, all);
    landings.into_iter().next()
}

/// Returns the head of a response with content of this length.
pub(super) fn head(length: Option<u64>) -> Head {
    Head {
        status: 200,
        length,
        fresh_until_ms: u64::MAX,
        ..Head::default()
    }
}

/// Returns the bytes `from..to` of the content that all objects in these tests have. The content repeats with a period that is no multiple
/// of a page, so that no two pages are alike.
pub(super) fn content(from: u64, to: u64) -> Vec<u8> {
    const PERIOD: u64 = 1_000_033;
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: u64| (at.wrapping_mul(2_654_435_761) >> 7) as u8;
        (0..PERIOD).map(byte).collect()
    });
    let mut content = Vec::with_capacity((to - from) as usize);
    let mut at = from;
    while at < to {
        let start = at % PERIOD;
        let take = (PERIOD - start).min(to - at);
        content.extend_from_slice(&BYTES[start as usize..(start + take) as usize]);
        at += take;
    }
    content
}

pub(super) fn now<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Error: no flight has claimed the next byte.
#[derive(Debug)]
pub(super) struct Missing;

/// Reads everything that can be read without waiting. Returns whether the end was reached.
pub(super) fn read_on(reader: &mut Reader, into: &mut Vec<u8>) -> Result<bool, Missing> {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match reader.poll_next(&mut cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Next::End) => return Ok(true),
            Poll::Ready(Next::Bytes(bytes)) => into.extend_from_slice(&bytes),
            Poll::Ready(Next::Missing) => return Err(Missing),
        }
    }
}

proptest! {
    #[test]
    fn readers_at_any_offset_get_every_byte_once(
        chunks in prop::collection::vec(1usize..90_000, 0..12),
        starts in prop::collection::vec(0u64..400_000, 1..6),
        known in any::<bool>(),
    ) {
        let length: u64 = chunks.iter().map(|&c| c as u64).sum();
        let store = store(64 << 20);
        let mut landing = begin(&store, 1, known.then_some(length)).expect("room");
        let mut readers: Vec<_> = starts
            .iter()
            .map(|&start| (start, landing.object().reader(start), Vec::new()))
            .collect();
        let mut at = 0;
        for chunk in chunks {
            let bytes = content(at, at + chunk as u64);
            prop_assert!(matches!(now(landing.write(&bytes, 0)), Poll::Ready(Ok(_))));
            at += chunk as u64;
            for (start, reader, got) in &mut readers {
                let done = read_on(reader, got).expect("no failure");
                // Without a known length, a reader can't know that it has read everything before the flight ends.
                prop_assert!(!done || known && at.max(*start) >= length);
            }
        }
        landing.land();
        for (start, reader, got) in &mut readers {
            prop_assert!(read_on(reader, got).expect("no failure"));
            prop_assert_eq!(&*got, &content((*start).min(length), length));
        }
        let object = store.enter(1, |locked| locked.find(0)).expect("filed");
        prop_assert!(object.is_complete());
        let end = length.min(PAGE);
        if end > 0 {
            prop_assert_eq!(object.piece(0, end).expect("one page"), content(0, end));
        }
    }

    #[test]
    fn the_ledger_is_never_over_its_limit_and_empty_in_the_end(
        sizes in prop::collection::vec((0u128..40, 0u64..300_000, any::<bool>()), 1..60),
    ) {
        let store = store(1 << 20);
        for (key, size, known) in sizes {
            let Some(mut landing) = begin(&store, key, known.then_some(size)) else {
                continue;
            };
            if matches!(now(landing.write(&content(0, size), 0)), Poll::Ready(Ok(_))) {
                landing.land();
            }
            prop_assert!(store.numbers().bytes <= 1 << 20);
        }
        for key in 0..40 {
            store.enter(key, |locked| locked.clear());
        }
        prop_assert_eq!(store.numbers().bytes, 0);
        prop_assert_eq!(store.numbers().objects, 0);
    }
}

#[test]
fn a_failure_reaches_readers_where_the_bytes_end() {
    let store = store(1 << 20);
    let mut landing = begin(&store, 1, Some(1000)).expect("room");
    let mut reader = landing.object().reader(0);
    assert!(matches!(
        now(landing.write(&content(0, 300), 0)),
        Poll::Ready(Ok(_))
    ));
    landing.fail(Arc::new(Abandoned));
    let mut got = Vec::new();
    assert!(read_on(&mut reader, &mut got).is_err());
    assert_eq!(got, content(0, 300));
    assert!(
        store.enter(1, |locked| locked.find(0)).is_none(),
        "nobody is offered it again"
    );
}

#[test]
fn a_dropped_landing_wakes_all_readers() {
    let store = store(1 << 20);
    let landing = begin(&store, 1, None).expect("room");
    let mut reader = landing.object().reader(0);
    assert!(!read_on(&mut reader, &mut Vec::new()).expect("waits"));
    drop(landing);
    assert!(read_on(&mut reader, &mut Vec::new()).is_err());
}

#[test]
fn fewer_bytes_than_declared_is_a_failure() {
    let store = store(1 << 20);
    let mut landing = begin(&store, 1, Some(10)).expect("room");
    let mut reader = landing.object().reader(0);
    assert!(matches!(
        now(landing.write(b"short", 0)),
        Poll::Ready(Ok(_))
    ));
    landing.land();
    assert!(read_on(&mut reader, &mut Vec::new()).is_err());
}

#[test]
fn content_larger_than_the_store_passes_through_a_window() {
    let store = store(2 << 20);
    let mut landing = begin(&store, 1, None).expect("room");
    let mut reader = landing.object().reader(0);
    let (total, mut got) = (8 << 20, Vec::new());
    let all = content(0, total);
    let mut writing = Box::pin(async {
        landing.write(&all, 0).await.expect("somebody reads");
        landing.land();
    });
    let mut cx = Context::from_waker(Waker::noop());
    while writing.as_mut().poll(&mut cx).is_pending() {
        let before = got.len();
        read_on(&mut reader, &mut got).expect("no failure");
        assert!(
            got.len() > before,
            "a stalled flight means that there is something to read"
        );
        assert!(store.ledger.used() <= (2 << 20) + WINDOW + 2 * PAGE);
    }
    assert!(read_on(&mut reader, &mut got).expect("no failure"));
    assert!(got == all);
    assert!(
        store.enter(1, |locked| locked.find(0)).is_none(),
        "nobody can join it"
    );
    drop((writing, reader));
    assert_eq!(store.ledger.used(), 0);
}

#[test]
fn a_flight_without_readers_and_room_ends() {
    let store = store(1 << 20);
    let mut landing = begin(&store, 1, None).expect("room");
    assert!(matches!(
        now(landing.write(&content(0, 2 << 20), 0)),
        Poll::Ready(Err(Abandoned))
    ));
}

#[test]
fn objects_in_use_are_not_evicted() {
    let store = store(1 << 20);
    let mut landing = begin(&store, 1, Some(600_000)).expect("room");
    assert!(matches!(
        now(landing.write(&content(0, 600_000), 0)),
        Poll::Ready(Ok(_))
    ));
    let reader = landing.object().reader(0);
    landing.land();
    assert!(
        begin(&store, 2, Some(600_000)).is_none(),
        "the first is being read"
    );
    drop(reader);
    assert!(begin(&store, 3, Some(600_000)).is_some(), "now it may go");
    assert!(store.enter(1, |locked| locked.find(0)).is_none());
}

// Keys are hashes without a secret, so a client can choose keys with equal bits.
#[test]
fn keys_with_equal_bits_are_in_different_shards() {
    for bit in [0, 32, 64, 96] {
        let store = Store::new(&Options {
            memory: 8 << 20,
            max_object_size: 1 << 20,
            evict: evict::Kind::S3Fifo,
            shards: 16,
            block: 128 << 10,
        });
        for primary in 0..1024_u128 {
            let object = store.create(b"key").expect("room");
            let weight = store.weight(b"key");
            store.enter(primary << bit, |locked| locked.insert(0, object, weight));
        }
        assert!(store.shards.iter().all(|shard| shard.lock().len() > 0));
    }
}

#[test]
fn vary_moves_an_object_and_drops_variants_of_other_names() {
    let store = store(1 << 20);
    let landing = begin(&store, 1, Some(0)).expect("room");
    let object = landing.object().clone();
    let names: VaryNames = Arc::from(vec!["accept".into()]);
    let others: VaryNames = Arc::from(vec!["cookie".into()]);
    store.enter(1, |locked| {
        assert!(locked.refile(0, 7, Some(&names), &object));
        assert!(locked.find(0).is_none() && locked.find(7).is_some());
        assert_eq!(locked.vary(), Some(&names));
        let second = Arc::new(Object::new(Bytes::new(), 0, store.ledger.charge_anyway(0)));
        locked.insert(8, second.clone(), 0);
        assert!(locked.refile(8, 9, Some(&others), &second));
        assert!(
            locked.find(7).is_none(),
            "filed under names no longer in force"
        );
        assert!(locked.find(9).is_some());
    });
}

#[test]
fn a_late_reader_of_a_window_learns_that_the_beginning_was_dropped() {
    let store = store(1 << 20);
    let mut landing = begin(&store, 1, None).expect("room");
    let object = landing.object().clone();
    let mut reader = object.reader(0);
    let all = content(0, 3 << 20);
    let mut writing = Box::pin(landing.write(&all, 0));
    let mut cx = Context::from_waker(Waker::noop());
    while writing.as_mut().poll(&mut cx).is_pending() {
        read_on(&mut reader, &mut Vec::new()).expect("no failure");
    }
    drop(writing);
    let mut late = object.reader(0);
    assert!(read_on(&mut late, &mut Vec::new()).is_err());
    assert!(!object.snapshot().stored.contains(0));
}
