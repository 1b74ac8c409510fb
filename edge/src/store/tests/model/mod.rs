//! Tests of sparse objects: several flights, takeovers, failures and evictions against a model of bytes.

use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use smallvec::SmallVec;

use super::{begin, content, head, launch, now, read_on, store, table_key};
use crate::evict;
use crate::store::page::PAGE;
use crate::store::*;

mod claims;
mod memory;
mod random_steps;

const BLOCK: u64 = 128 << 10;

/// Creates a store with the LRU policy, which evicts every object in the end.
fn store_of_the_latest(memory: u64) -> Arc<Store> {
    Store::new(&Options {
        memory,
        max_object_size: memory,
        evict: evict::Kind::Lru,
        shards: 1,
        block: BLOCK,
    })
}

/// Opens a sparse object of this length, with a first flight for the range `content`.
pub(super) fn begin_sparse(
    store: &Arc<Store>,
    primary: u128,
    length: u64,
    content: Range<u64>,
) -> Option<Landing> {
    let mut landing = launch(store, primary)?;
    landing.accept(content, 0).expect("a first flight");
    if landing.reserve().is_err() {
        landing.refuse(crate::reason::Reason::NoRoom, 0);
        return None;
    }
    let head = Head {
        joinable: true,
        generation: 7,
        ..head(Some(length))
    };
    let charge = store.charge_head(head.memory())?;
    landing.open(Arc::new(head), charge, true);
    Some(landing)
}

/// Protects the bytes before `at` from eviction, if blocks of the reader's object can be evicted.
pub(super) fn keep_until(reader: &mut Reader, at: u64) {
    let object = reader.object().clone();
    let mut state = object.lock();
    if state.block.is_some() {
        reader.keep_until(&mut state, at);
    }
}

fn arrange(
    store: &Arc<Store>,
    object: &Arc<Object>,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> Vec<Landing> {
    let ranges: SmallVec<_> = ranges.into_iter().collect();
    let ((), landings) = store.arrange(object, table_key(1), 0, |_| (ranges, ()));
    landings.into_vec()
}

/// Claims the missing bytes of one range. Returns the landings of the new flights.
pub(super) fn ask(store: &Arc<Store>, object: &Arc<Object>, range: Range<u64>) -> Vec<Landing> {
    arrange(store, object, std::iter::once(range))
}

/// Accepts a response that contains exactly the bytes that the flight claims.
pub(super) fn accepted(mut landing: Landing) -> Landing {
    landing.accept(landing.range(), 0).expect("its own range");
    landing.reserve().expect("room");
    landing
}

fn write(landing: &mut Landing, len: u64) -> Progress {
    let at = landing.range().start;
    match now(landing.write(&content(at, at + len), 0)) {
        Poll::Ready(Ok(progress)) => progress,
        other => panic!("{other:?} instead of progress"),
    }
}

fn fill(mut landing: Landing) {
    let range = landing.range();
    assert_eq!(write(&mut landing, range.end - range.start), Progress::Done);
    landing.land();
}

/// Checks the invariants of an object's state.
fn check_state(object: &Object) {
    let state = object.lock();
    let mut claimed = crate::ranges::Ranges::new();
    for claim in &state.claims {
        let range = claim.at..claim.end;
        assert!(claim.start <= claim.at && claim.at <= claim.end);
        assert!(!claimed.intersects(&range), "two flights claim one byte");
        assert!(
            !state.present.intersects(&range),
            "a byte that is there is claimed"
        );
        claimed.insert(range);
    }
    assert!(state.claims.len() <= CLAIMS_MAX);
    for index in state.pages.within(0..u64::MAX) {
        let base = index * PAGE;
        assert!(
            state.present.intersects(&(base..base + PAGE)),
            "a page without bytes"
        );
    }
    for range in state.present.iter() {
        let (first, last) = (range.start / PAGE, (range.end - 1) / PAGE);
        assert!((first..=last).all(|index| state.pages.get(index).is_some()));
    }
}

/// Checks that the eviction policy knows every charged byte while there are no readers and flights. For a block that was evicted in part,
/// the policy may assume slightly more.
fn check_weights(store: &Store) {
    let (mut weight, mut ids) = (0, 0);
    for shard in &store.shards {
        let shard = shard.lock();
        weight += shard.policy.weight();
        ids += shard.policy.len() as u64;
    }
    let used = store.ledger.used();
    assert!(
        used <= weight && weight <= used + ids * block_index::BLOCK_OVERHEAD,
        "{used} bytes are charged, {weight} are known"
    );
    assert_eq!(store.numbers().pinned, 0);
}

/// Inserts an object of this size without readers. Returns whether there was room.
fn crowd(store: &Arc<Store>, key: u128, size: u64) -> bool {
    begin(store, key, Some(size)).map(fill).is_some()
}
