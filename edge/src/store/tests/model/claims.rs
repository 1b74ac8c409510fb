//! Tests of claims: takeovers, ends of flights, wake-ups of readers, and the number of separate ranges in an object.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use smallvec::smallvec;

use super::*;
use crate::store::claim::NotOurs;

#[derive(Default)]
struct Calls(AtomicU32);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_takeover_leaves_the_page_that_is_being_written() {
    let store = store(8 << 20);
    let mut first = begin_sparse(&store, 1, 1 << 20, 0..1 << 20).expect("room");
    let object = first.object().clone();
    assert_eq!(write(&mut first, 1000), Progress::More);
    assert!(
        ask(&store, &object, 1000 + PAGE - 1..500_000).is_empty(),
        "within a page of the flight nothing is taken over"
    );
    let second = ask(&store, &object, 1000 + PAGE..500_000).remove(0);
    assert_eq!(first.range(), 1000..1000 + PAGE);
    assert_eq!(second.range(), 1000 + PAGE..500_000);
    // The bytes after the second claim belonged to the first one, and no flight claims them now.
    assert_eq!(object.snapshot().missing, (500_000..1 << 20).into());
    fill(accepted(second));
    assert_eq!(write(&mut first, 1 << 20), Progress::Done);
    first.land();
    assert!(object.covers(0..500_000));
}

#[test]
fn a_reader_of_bytes_that_a_takeover_left_unclaimed_is_woken() {
    let store = store(8 << 20);
    let first = begin_sparse(&store, 1, 1 << 20, 0..1 << 20).expect("room");
    let object = first.object().clone();
    let (mut far, mut near) = (object.reader(900_000), object.reader(0));
    let (calls, others) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
    let (waker, other) = (calls.clone().into(), others.clone().into());
    let (mut cx, mut other) = (Context::from_waker(&waker), Context::from_waker(&other));
    assert!(far.poll_next(&mut cx).is_pending());
    assert!(near.poll_next(&mut other).is_pending());
    let second = ask(&store, &object, 400_000..500_000);
    assert_eq!(second.len(), 1);
    assert_eq!(calls.0.load(Ordering::SeqCst), 1);
    assert_eq!(others.0.load(Ordering::SeqCst), 0, "its byte is on its way");
    assert!(matches!(far.poll_next(&mut cx), Poll::Ready(Next::Missing)));
}

#[test]
fn the_end_of_a_flight_wakes_the_readers_of_its_bytes() {
    let store = store(8 << 20);
    for fails in [false, true] {
        let mut first = begin_sparse(&store, 1, 1 << 20, 0..1000).expect("room");
        let object = first.object().clone();
        let second = accepted(ask(&store, &object, 5000..6000).remove(0));
        // The readers at 500 and 999 wait for the first flight, the one at 5500 for the second flight, and no flight has claimed byte 800
        // 000.
        let waiting = [500, 999, 5500, 800_000].map(|at| {
            let mut reader = object.reader(at);
            let calls = Arc::new(Calls::default());
            let waker = calls.clone().into();
            let next = reader.poll_next(&mut Context::from_waker(&waker));
            assert_eq!(next.is_pending(), at < 6000);
            (reader, calls)
        });
        let calls = || {
            let calls = waiting
                .iter()
                .map(|(_, calls)| calls.0.load(Ordering::SeqCst));
            calls.collect::<Vec<_>>()
        };
        write(&mut first, if fails { 600 } else { 1000 });
        assert_eq!(calls(), [0, 0, 0, 0], "not announced yet");
        match fails {
            true => drop(first),
            false => first.land(),
        }
        assert_eq!(calls(), [1, 1, 0, 1]);
        fill(second);
        assert_eq!(calls(), [1, 1, 1, 1]);
    }
}

#[test]
fn a_failure_costs_the_claim_and_not_the_object() {
    let store = store(8 << 20);
    let mut first = begin_sparse(&store, 1, 300_000, 0..300_000).expect("room");
    let object = first.object().clone();
    write(&mut first, 100_000);
    let mut reader = object.reader(0);
    let mut got = Vec::new();
    assert!(!read_on(&mut reader, &mut got).expect("waits for the flight"));
    first.fail(Arc::new(Abandoned));
    assert!(read_on(&mut reader, &mut got).is_err());
    assert!(object.failure().is_some());
    assert!(store.enter(1, |locked| locked.find(0)).is_some());
    for _ in 0..3 {
        drop(ask(&store, &object, 100_000..300_000));
    }
    fill(accepted(ask(&store, &object, 100_000..300_000).remove(0)));
    assert!(read_on(&mut reader, &mut got).expect("resumed"));
    assert!(got == content(0, 300_000));
}

#[test]
fn a_released_claim_is_no_failure() {
    let store = store(8 << 20);
    let mut first = begin_sparse(&store, 1, 300_000, 0..300_000).expect("room");
    let object = first.object().clone();
    write(&mut first, 100);
    let mut reader = object.reader(0);
    let mut got = Vec::new();
    assert!(first.object().is_read() && !first.is_awaited());
    assert!(!read_on(&mut reader, &mut got).expect("waits for the flight"));
    assert!(first.is_awaited());
    reader.limit(2 * PAGE, 300_000);
    assert!(!first.is_awaited(), "the next byte is two pages ahead");
    reader.limit(PAGE, 300_000);
    let calls = Arc::new(Calls::default());
    let waker = calls.clone().into();
    let mut cx = Context::from_waker(&waker);
    assert!(reader.poll_next(&mut cx).is_pending());
    first.give_back();
    assert_eq!(calls.0.load(Ordering::SeqCst), 1);
    assert!(matches!(
        reader.poll_next(&mut cx),
        Poll::Ready(Next::Missing)
    ));
    assert!(object.failure().is_none());
    assert!(object.covers(0..100), "the bytes that it added stay");
    fill(accepted(ask(&store, &object, 100..300_000).remove(0)));
    // The flight of an object without a head ends: its reader must look the key up again.
    drop(reader);
    let alone = launch(&store, 2).expect("room");
    let mut reader = alone.object().reader(0);
    assert!(reader.poll_opening(false, &mut cx).is_pending());
    let before = calls.0.load(Ordering::SeqCst);
    alone.give_back();
    assert_eq!(calls.0.load(Ordering::SeqCst), before + 1);
    assert!(matches!(
        reader.poll_opening(false, &mut cx),
        Poll::Ready(Opening::Other(Phase::Retired))
    ));
    assert!(store.enter(2, |locked| locked.find(0)).is_none());
}

#[test]
fn a_response_begins_with_a_flight_whose_head_was_accepted() {
    let store = store(8 << 20);
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = launch(&store, 1).expect("room");
    let object = first.object().clone();
    let mut reader = object.reader(10);
    assert!(reader.poll_opening(false, &mut cx).is_pending());
    first.accept(0..100, 0).expect("a first flight");
    assert!(
        reader.poll_opening(false, &mut cx).is_pending(),
        "no head yet"
    );
    let known = Head {
        joinable: true,
        ..head(Some(1000))
    };
    let charge = store.charge_head(known.memory()).expect("room");
    first.open(Arc::new(known), charge, true);
    assert!(matches!(
        reader.poll_opening(false, &mut cx),
        Poll::Ready(Opening::Ready(_))
    ));
    reader.limit(500, 600);
    assert!(matches!(
        reader.poll_opening(false, &mut cx),
        Poll::Ready(Opening::Missing)
    ));
    let mut second = ask(&store, &object, 500..600).remove(0);
    assert!(
        reader.poll_opening(false, &mut cx).is_pending(),
        "not verified"
    );
    assert_eq!(second.accept(0..400, 0), Err(NotOurs));
    second.accept(0..550, 0).expect("half of it");
    assert_eq!(second.range(), 500..550);
    assert!(matches!(
        reader.poll_opening(false, &mut cx),
        Poll::Ready(Opening::Ready(_))
    ));
    assert!(store.supersede(table_key(1), &object, None));
    assert!(matches!(
        reader.poll_opening(false, &mut cx),
        Poll::Ready(Opening::Other(Phase::Retired))
    ));
    assert!(ask(&store, &object, 700..800).is_empty());
    store.withdraw(table_key(1), &object);
    assert!(!store.supersede(table_key(1), &object, None));
}

#[test]
fn an_object_that_has_no_head_or_is_not_joinable_has_one_flight() {
    let store = store(8 << 20);
    let first = launch(&store, 1).expect("room");
    assert!(ask(&store, first.object(), 0..10).is_empty());
    drop(first);
    let mut alone = begin(&store, 2, Some(1000)).expect("room");
    assert!(ask(&store, alone.object(), 500..600).is_empty());
    let object = alone.object().clone();
    write(&mut alone, 10);
    drop(alone);
    assert!(ask(&store, &object, 10..20).is_empty());
    assert!(store.enter(2, |locked| locked.find(0)).is_none());
}

#[test]
fn a_flight_with_a_longer_response_goes_on_to_the_next_stored_byte() {
    let store = store(8 << 20);
    let mut first = begin_sparse(&store, 1, 500_000, 200_000..200_100).expect("room");
    let object = first.object().clone();
    let third = ask(&store, &object, 300_000..300_100).remove(0);
    assert_eq!(write(&mut first, 100), Progress::Done);
    first.extend();
    assert_eq!(first.range(), 200_100..300_000);
    first.reserve().expect("room");
    fill(first);
    let mut before = accepted(ask(&store, &object, 0..10).remove(0));
    before.extend();
    assert_eq!(before.range(), 0..200_000);
    let mut third = accepted(third);
    third.extend();
    assert_eq!(third.range(), 300_000..500_000);
}

#[test]
fn tiny_claims_fragment_an_object_into_a_bounded_number_of_ranges() {
    let store = store(8 << 20);
    let first = begin_sparse(&store, 1, 1 << 20, 0..1).expect("room");
    let object = first.object().clone();
    fill(first);
    for at in (0..4 * PAGE).step_by(3) {
        for landing in ask(&store, &object, at..at + 1) {
            fill(accepted(landing));
        }
        assert!(object.lock().present.contains(at));
    }
    assert!(object.snapshot().stored.len() < 100);
}

#[test]
fn thousands_of_one_byte_ranges_leave_an_object_usable() {
    const FEW: u64 = 8;
    let store = store(64 << 20);
    let pages = crate::store::arrange::FRAGMENTS_MAX as u64 / FEW + 10;
    let length = pages * 2 * PAGE;
    let first = begin_sparse(&store, 1, length, 0..1).expect("room");
    let object = first.object().clone();
    fill(first);
    // Adds eight one-byte ranges to each page: too few to widen claims because of the page alone.
    for at in (1..pages * FEW).map(|i| i * PAGE / FEW) {
        let mut landings = ask(&store, &object, at..at + 1);
        if let Some(landing) = landings.pop() {
            fill(accepted(landing));
        }
        assert!(object.lock().present.contains(at));
    }
    let in_pieces = object.snapshot().stored.len();
    assert!(in_pieces >= crate::store::arrange::FRAGMENTS_MAX);
    assert!(in_pieces < crate::store::arrange::FRAGMENTS_MAX + 10);
    let full = |seen: &ObjectView<'_>| (smallvec![], seen.is_full());
    assert!(!store.arrange(&object, table_key(1), 0, full).0);
    // The object has so many ranges now that a claim is widened to whole pages, …
    let far = pages * PAGE + 10_000;
    let wide = ask(&store, &object, far..far + 1).remove(0);
    assert_eq!(wide.range(), pages * PAGE..(pages + 1) * PAGE);
    let wide = ask(&store, &object, far + 2 * PAGE..far + 5 * PAGE).remove(0);
    assert_eq!(wide.range(), (pages + 2) * PAGE..(pages + 6) * PAGE);
    drop(wide);
    // … or up to bytes that are stored, …
    let gap = ask(&store, &object, 100..101).remove(0);
    assert_eq!(gap.range(), 1..PAGE / FEW);
    fill(accepted(gap));
    assert_eq!(object.snapshot().stored.len(), in_pieces - 1);
    // … or up to bytes that other flights have claimed.
    let taken = ask(&store, &object, far..far + PAGE).remove(0);
    assert_eq!(taken.range(), (pages + 1) * PAGE..(pages + 2) * PAGE);
}

#[test]
fn a_length_in_the_head_shortens_an_open_claim() {
    let store = store(1 << 20);
    for length in [0, 10] {
        let mut landing = launch(&store, 1).expect("room");
        let object = landing.object().clone();
        landing.accept(0..u64::MAX, 0).expect("a first flight");
        let charge = store.charge_head(1).expect("room");
        landing.open(Arc::new(head(Some(length))), charge, true);
        assert_eq!(write(&mut landing, 20), Progress::Done);
        landing.land();
        check_state(&object);
        assert_eq!(object.snapshot().stored.total(), length);
        assert!(object.is_complete());
    }
}

#[test]
fn the_number_of_flights_of_an_object_is_bounded() {
    let store = store(64 << 20);
    let first = begin_sparse(&store, 1, 32 << 20, 0..1).expect("room");
    let ranges = (1..400).map(|i| i * PAGE..i * PAGE + 1);
    let landings = arrange(&store, first.object(), ranges);
    assert_eq!(landings.len(), CLAIMS_MAX - 1);
}
