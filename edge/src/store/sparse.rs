//! Objects in pieces: several flights, takeovers, failures and evictions against a model of bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};

use super::tests::{begin, content, head, launch, now, place, read_on, store};
use super::*;

const BLOCK: u64 = 128 << 10;

/// A store that drops what was used longest ago, so in the end everything.
fn store_of_the_latest(memory: u64) -> Arc<Store> {
    Store::new(&Options {
        memory,
        object: memory,
        evict: evict::Kind::Lru,
        shards: 1,
        block: BLOCK,
    })
}

/// Opens an object of this length with a first flight for `content`, in blocks.
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

fn arrange(
    store: &Arc<Store>,
    object: &Arc<Object>,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> Vec<Landing> {
    let ranges: SmallVec<_> = ranges.into_iter().collect();
    let ((), landings) = store.arrange(object, place(1), 0, |_| (ranges, ()));
    landings.into_vec()
}

/// Asks for one range.
pub(super) fn ask(store: &Arc<Store>, object: &Arc<Object>, range: Range<u64>) -> Vec<Landing> {
    arrange(store, object, std::iter::once(range))
}

/// Takes a flight's response: exactly what it claims.
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

/// What the state has to keep to at any moment.
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

/// With nobody reading or filling, the policy knows of every byte that is charged. (Of a block that
/// was shed in part it may think a little more.)
fn check_weights(store: &Store) {
    let (mut weight, mut ids) = (0, 0);
    for shard in &store.shards {
        let shard = shard.lock();
        weight += shard.policy.weight();
        ids += shard.policy.len() as u64;
    }
    let used = store.ledger.used();
    assert!(
        used <= weight && weight <= used + ids * parts::PART_OVERHEAD,
        "{used} bytes are charged, {weight} are known"
    );
    assert_eq!(store.status().pinned, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Arrange(Vec<Range<u64>>),
    /// The flight's response comes; it begins so many bytes before the claim, or after.
    Accept(usize, i64),
    Write(usize, u64),
    Extend(usize),
    Shorten(usize, u64),
    Least(usize),
    Fail(usize),
    Drop(usize),
    Reader(u64, u64),
    Read(usize),
    Leave(usize),
    Keep(usize, u64),
    Touch(u64),
    /// Another object of this size comes and wants room.
    Crowd(u64),
}

const LENGTH: u64 = 1_000_003;

fn a_range() -> impl Strategy<Value = Range<u64>> {
    let size = prop_oneof![1..200u64, 1..70_000u64, 1..600_000u64];
    (0..LENGTH, size).prop_map(|(start, size)| start..start + size)
}

fn a_step() -> impl Strategy<Value = Step> {
    let which = 0usize..8;
    prop_oneof![
        4 => prop::collection::vec(a_range(), 1..3).prop_map(Step::Arrange),
        3 => (which.clone(), -80_000i64..20_000).prop_map(|(i, by)| Step::Accept(i, by)),
        8 => (which.clone(), 1u64..200_000).prop_map(|(i, len)| Step::Write(i, len)),
        1 => which.clone().prop_map(Step::Extend),
        1 => (which.clone(), 0..LENGTH).prop_map(|(i, end)| Step::Shorten(i, end)),
        1 => which.clone().prop_map(Step::Least),
        1 => which.clone().prop_map(Step::Fail),
        1 => which.clone().prop_map(Step::Drop),
        2 => (0..LENGTH, 1..400_000u64).prop_map(|(at, len)| Step::Reader(at, len)),
        6 => which.clone().prop_map(Step::Read),
        1 => which.clone().prop_map(Step::Leave),
        1 => (which, 0..LENGTH).prop_map(|(i, at)| Step::Keep(i, at)),
        1 => (0..LENGTH).prop_map(Step::Touch),
        3 => (0..700_000u64).prop_map(Step::Crowd),
    ]
}

/// One flight of the run, with whether its response has come.
struct Flying {
    landing: Landing,
    accepted: bool,
}

/// One reader with where it is and what bytes it got, to be looked at again in the end.
struct Reading {
    reader: Reader,
    at: u64,
    got: Vec<(u64, Bytes)>,
}

struct Run {
    store: Arc<Store>,
    object: Arc<Object>,
    flights: Vec<Flying>,
    readers: Vec<Reading>,
    crowd: u128,
    /// Pages charged over the limit.
    anyway: u64,
}

impl Run {
    fn flight(&mut self, i: usize) -> Option<&mut Flying> {
        let many = self.flights.len();
        (many > 0).then(|| &mut self.flights[i % many])
    }

    fn take(&mut self, i: usize) -> Option<Flying> {
        let many = self.flights.len();
        (many > 0).then(|| self.flights.swap_remove(i % many))
    }

    fn reading(&mut self, i: usize) -> Option<&mut Reading> {
        let many = self.readers.len();
        (many > 0).then(|| &mut self.readers[i % many])
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrange(ranges) => self.arrange(ranges),
            Step::Accept(i, by) => self.accept(i, by),
            Step::Write(i, len) => self.write(i, len),
            Step::Extend(i) => {
                if let Some(flying) = self.flight(i).filter(|f| f.accepted) {
                    flying.landing.extend();
                }
                self.reserve(i);
            }
            Step::Shorten(i, end) => {
                if let Some(flying) = self.flight(i) {
                    flying.landing.shorten(end);
                }
            }
            Step::Least(i) => {
                if let Some(flying) = self.flight(i) {
                    flying.landing.reserve_least();
                    self.anyway += PAGE + 1024;
                }
            }
            Step::Fail(i) => {
                if let Some(flying) = self.take(i) {
                    flying.landing.fail(Arc::new(Abandoned));
                }
            }
            Step::Drop(i) => drop(self.take(i)),
            Step::Reader(at, len) => {
                let mut reader = self.object.reader(0);
                reader.limit(at, at + len);
                let got = Vec::new();
                self.readers.push(Reading { reader, at, got });
            }
            Step::Read(i) => self.read(i),
            Step::Leave(i) => {
                if !self.readers.is_empty() {
                    let at = i % self.readers.len();
                    self.readers.swap_remove(at);
                }
            }
            Step::Keep(i, at) => {
                if let Some(reading) = self.reading(i) {
                    reading.reader.keep_until(at);
                }
            }
            Step::Touch(at) => self.store.touch_part(place(1), &self.object, at),
            Step::Crowd(size) => self.crowd(size),
        }
    }

    fn arrange(&mut self, ranges: Vec<Range<u64>>) {
        let before = self.object.xray(0);
        let landings = arrange(&self.store, &self.object, ranges.clone());
        for landing in &landings {
            let range = landing.range();
            assert!(!range.is_empty() && range.end <= LENGTH);
            assert!(!before.stored.intersects(&range));
        }
        let state = self.object.lock();
        for claim in &before.flights {
            // Cut at a page beyond what it may be copying, if at all.
            let now = state.claim(claim.id).expect("claims outlive takeovers");
            assert!(now.end == claim.end || now.end >= claim.at + PAGE && now.end < claim.end);
        }
        let all_claimed = state.claims.len() < CLAIMS_MAX;
        // The last may have taken over from those before.
        let wanted = ranges.last().map(|r| [r.start, r.end.min(LENGTH) - 1]);
        for at in wanted.into_iter().flatten().filter(|_| all_claimed) {
            assert!(state.present.contains(at) || state.bringing(at).is_some());
        }
        drop(state);
        self.flights
            .extend(landings.into_iter().map(|landing| Flying {
                landing,
                accepted: false,
            }));
    }

    fn accept(&mut self, i: usize, by: i64) {
        let Some(flying) = self.flight(i).filter(|f| !f.accepted) else {
            return;
        };
        let range = flying.landing.range();
        let content = range.start.saturating_add_signed(by)..range.end;
        let meets = content.start < range.end && !range.is_empty();
        let accepted = flying.landing.accept(content.clone(), 0);
        assert_eq!(accepted.is_ok(), meets);
        if meets {
            assert_eq!(
                flying.landing.range(),
                content.start.max(range.start)..range.end
            );
            let skipped = range.start.saturating_sub(content.start);
            let skip = vec![0xee; skipped as usize];
            assert!(matches!(
                now(flying.landing.write(&skip, 0)),
                Poll::Ready(Ok(_))
            ));
            flying.accepted = true;
            self.reserve(i);
        }
    }

    /// Room for a flight: without any, it takes one page in any case.
    fn reserve(&mut self, i: usize) {
        let Some(flying) = self.flight(i) else {
            return;
        };
        if flying.landing.reserve().is_err() {
            flying.landing.reserve_least();
            self.anyway += PAGE + 1024;
        }
    }

    fn write(&mut self, i: usize, len: u64) {
        let Some(flying) = self.flight(i).filter(|f| f.accepted) else {
            return;
        };
        let range = flying.landing.range();
        // What comes beyond the claim's end is not taken in.
        let bytes = content(range.start, range.start + len);
        let done = now(flying.landing.write(&bytes, 0));
        let expected = match range.end - range.start <= len {
            true => Progress::Done,
            false => Progress::More,
        };
        assert!(matches!(done, Poll::Ready(Ok(progress)) if progress == expected));
        if expected == Progress::Done
            && let Some(flying) = self.take(i)
        {
            flying.landing.land();
        }
    }

    fn read(&mut self, i: usize) {
        let Some(reading) = self.reading(i) else {
            return;
        };
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Next::Bytes(bytes)) = reading.reader.poll_next(&mut cx) {
            let at = reading.at;
            reading.at += bytes.len() as u64;
            assert_eq!(bytes, content(at, reading.at));
            // A view of some bytes is kept: they may never change.
            if reading.got.len() < 4 {
                reading.got.push((at, bytes));
            }
        }
    }

    fn crowd(&mut self, size: u64) {
        self.crowd += 1;
        if let Some(mut landing) = begin(&self.store, self.crowd, Some(size)) {
            assert!(matches!(
                now(landing.write(&content(0, size), 0)),
                Poll::Ready(Ok(_))
            ));
            landing.land();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whatever_happens_bytes_are_right_and_paid_for(
        first in a_range(),
        memory in 400_000u64..3_000_000,
        steps in prop::collection::vec(a_step(), 1..80),
    ) {
        let store = store(memory);
        let first = first.start..first.end.min(LENGTH);
        let Some(landing) = begin_sparse(&store, 1, LENGTH, first) else {
            return Ok(());
        };
        let mut run = Run {
            object: landing.object().clone(),
            store: store.clone(),
            flights: vec![Flying { landing, accepted: true }],
            readers: Vec::new(),
            crowd: 1,
            // The first flight reserves before it knows how the object goes on.
            anyway: PAGE,
        };
        for step in steps {
            run.step(step);
            check_state(&run.object);
            prop_assert!(store.ledger.used() <= memory + run.anyway);
            store.status();
        }
        let Run { object, flights, readers, .. } = run;
        drop(flights);
        check_state(&object);
        for (at, bytes) in readers.iter().flat_map(|reading| &reading.got) {
            prop_assert_eq!(bytes, &content(*at, at + bytes.len() as u64));
        }
        drop(readers);
        let stored = object.xray(0).stored;
        for range in stored.iter() {
            let mut got = Vec::new();
            let mut reader = object.reader(0);
            reader.limit(range.start, range.end);
            prop_assert!(read_on(&mut reader, &mut got).expect("all there"));
            prop_assert_eq!(got, content(range.start, range.end));
        }
        drop(object);
        check_weights(&store);
        for key in 0..100 {
            store.enter(key, |locked| locked.clear());
        }
        prop_assert_eq!(store.status(), Status { limit: memory, evictions: store.status().evictions, ..Status::default() });
    }
}

/// Counts how often it is called.
#[derive(Default)]
struct Calls(AtomicU32);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_takeover_leaves_the_page_that_may_be_copied_now() {
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
    // The rest of the first one's claim is nobody's.
    assert_eq!(object.xray(0).missing, (500_000..1 << 20).into());
    fill(accepted(second));
    assert_eq!(write(&mut first, 1 << 20), Progress::Done);
    first.land();
    assert!(object.covers(0..500_000));
}

#[test]
fn who_waits_for_bytes_that_a_takeover_left_to_nobody_is_told() {
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
fn the_end_of_a_flight_is_told_to_whom_it_concerns() {
    let store = store(8 << 20);
    for fails in [false, true] {
        let mut first = begin_sparse(&store, 1, 1 << 20, 0..1000).expect("room");
        let object = first.object().clone();
        let second = accepted(ask(&store, &object, 5000..6000).remove(0));
        // Its bytes come; it waits for a byte on another flight; nobody brings its byte.
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
fn a_claim_that_is_given_back_is_no_failure() {
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
    assert!(!first.is_awaited(), "that is two pages further on");
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
    assert!(object.covers(0..100), "what it brought stays");
    fill(accepted(ask(&store, &object, 100..300_000).remove(0)));
    // Without a head there is nothing to go on with.
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
fn an_answer_begins_on_a_flight_whose_head_was_accepted() {
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
        Poll::Ready(Opening::Here(_))
    ));
    reader.limit(500, 600);
    assert!(matches!(
        reader.poll_opening(false, &mut cx),
        Poll::Ready(Opening::Missing(_))
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
        Poll::Ready(Opening::Here(_))
    ));
    assert!(store.supersede(place(1), &object, None));
    assert!(matches!(
        reader.poll_opening(false, &mut cx),
        Poll::Ready(Opening::Other(Phase::Retired))
    ));
    assert!(ask(&store, &object, 700..800).is_empty());
    store.withdraw(place(1), &object);
    assert!(!store.supersede(place(1), &object, None));
}

#[test]
fn one_flight_waits_for_a_head_and_none_joins_what_is_not_joinable() {
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
fn a_flight_that_brings_more_than_asked_goes_on_to_the_next_that_is_there() {
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
fn blocks_go_and_come_back_while_the_object_stays() {
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
    let stored = object.xray(0).stored;
    assert!(stored.total() < 8 * BLOCK && stored.total() > 5 * BLOCK);
    let gap = object.xray(0).missing.iter().next().expect("evicted");
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
    reader.keep_until(3 * BLOCK);
    for key in 2..20 {
        if let Some(landing) = begin(&store, key, Some(2 * BLOCK)) {
            fill(landing);
        }
    }
    assert!(object.covers(BLOCK..3 * BLOCK));
    assert_eq!(object.xray(0).stored, (BLOCK..3 * BLOCK).into());
    assert!(store.status().pinned >= 2 * BLOCK);
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
fn a_retired_object_keeps_what_its_readers_have_before_them() {
    let store = store_of_the_latest(6 * BLOCK);
    let first = begin_sparse(&store, 1, 4 * BLOCK, 0..4 * BLOCK).expect("room");
    let object = first.object().clone();
    fill(first);
    let mut reader = object.reader(2 * BLOCK);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(reader.poll_next(&mut cx).is_ready());
    assert!(store.supersede(place(1), &object, None));
    let crowd = |keys: Range<u128>| {
        for key in keys {
            if let Some(landing) = begin(&store, key, Some(2 * BLOCK)) {
                fill(landing);
            }
        }
    };
    crowd(2..20);
    // They can't be had again.
    assert_eq!(object.xray(0).stored, (2 * BLOCK..4 * BLOCK).into());
    drop(reader);
    crowd(20..40);
    assert!(object.xray(0).stored.is_empty(), "nobody reads it");
}

/// A whole object of this size comes, and nobody holds it; whether there was room.
fn crowd(store: &Arc<Store>, key: u128, size: u64) -> bool {
    begin(store, key, Some(size)).map(fill).is_some()
}

#[test]
fn one_eviction_drops_one_block_and_the_object_goes_with_its_last() {
    for evict in [evict::Kind::Lru, evict::Kind::S3Fifo] {
        for hot in [false, true] {
            let store = Store::new(&Options {
                memory: 8 << 20,
                object: 8 << 20,
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
                        store.touch_part(place(1), &object, at);
                    }
                    store.enter(1, |locked| locked.find(0));
                }
                let stored = object.xray(0).stored.total();
                assert!(there - stored <= BLOCK, "{evict:?}: {there} to {stored}");
                there = stored;
                drop(object);
                key += 1;
                assert!(key < 1000, "{evict:?}, hot {hot}: {there} bytes never go");
                assert!(crowd(&store, key, 60_000));
                // Those that come are of as much use as what is there.
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
fn a_retired_object_that_nobody_reads_makes_room_at_once() {
    for evict in [evict::Kind::Lru, evict::Kind::S3Fifo] {
        let store = Store::new(&Options {
            memory: 8 << 20,
            object: 8 << 20,
            evict,
            shards: 1,
            block: PAGE,
        });
        let length = 7 << 20;
        let first = begin_sparse(&store, 1, length, 0..length).expect("room");
        let object = first.object().clone();
        fill(first);
        store.supersede(place(1), &object, None);
        drop(object);
        for key in 100..400 {
            assert!(crowd(&store, key, 60_000), "{evict:?}: {key}");
        }
        assert!(store.enter(1, |locked| locked.find(0)).is_none());
        check_weights(&store);
    }
}

#[test]
fn those_in_use_do_not_hide_those_that_may_go() {
    let store = store(4 << 20);
    // The eviction policy has seen these used, and keeps them for longest.
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
    // While all is in use, that is found out quickly.
    while let Some(landing) = begin(&store, held.len() as u128 + 5000, Some(2000)) {
        held.push(landing.object().clone());
        fill(landing);
    }
    assert!(store.status().pinned > 4_000_000);
    assert!(store.make_room(100_000).is_none() && store.make_room(100_000).is_none());
    held.clear();
    assert!(store.make_room(100_000).is_some());
}

#[test]
fn a_full_ledger_leaves_each_flight_a_page() {
    let store = store(2 << 20);
    let pinned = begin(&store, 2, Some((2 << 20) - 300_000)).expect("room");
    let first = begin_sparse(&store, 1, 10 << 20, 0..100_000).expect("room");
    let object = first.object().clone();
    let mut reader = object.reader(0);
    fill(first);
    let (mut got, mut peak) = (Vec::new(), 0);
    // Nothing that is in the store may go, but all of a long object passes through.
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
        object: 1 << 30,
        evict: evict::Kind::S3Fifo,
        shards: 1,
        block: 16 * PAGE,
    });
    let length = 100 * 16 * PAGE;
    let first = begin_sparse(&store, 1, length, 0..16 * PAGE).expect("room");
    let object = first.object().clone();
    let mut reader = object.reader(4 * PAGE);
    reader.keep_until(8 * PAGE);
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
        let stored = object.xray(0).stored;
        let pages = |range: Range<u64>| stored.within(range.start * PAGE..range.end * PAGE);
        let total = |range| pages(range).map(|r| (r.end - r.start) / PAGE).sum::<u64>();
        let now = total(0..16);
        assert!(before <= now + 2, "{before} to {now} pages for one");
        before = now;
        // What the reader has passed goes first, and what it wants soon last, the next page never.
        assert!(total(0..4) == 0 || total(4..16) == 12, "{stored:?}");
        assert!(total(8..16) == 0 || total(4..8) == 4, "{stored:?}");
        assert_eq!(total(4..5), 1);
        assert!(now == 1 || store.ledger.used() <= store.limit());
        assert_eq!(readers.len() as u64, total(16..100 * 16));
    }
    assert_eq!(before, 1);
    check_state(&object);
}

#[test]
fn out_of_the_table_an_object_keeps_only_what_its_readers_need() {
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
fn tiny_wants_break_an_object_into_a_bounded_number_of_pieces() {
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
    assert!(object.xray(0).stored.len() < 100);
}

#[test]
fn thousands_of_one_byte_ranges_leave_an_object_usable() {
    const FEW: u64 = 8;
    let store = store(64 << 20);
    let pages = claims::FRAGMENTS_MAX as u64 / FEW + 10;
    let length = pages * 2 * PAGE;
    let first = begin_sparse(&store, 1, length, 0..1).expect("room");
    let object = first.object().clone();
    fill(first);
    // A few bytes in each page, less than would crowd any of them.
    for at in (1..pages * FEW).map(|i| i * PAGE / FEW) {
        let mut landings = ask(&store, &object, at..at + 1);
        if let Some(landing) = landings.pop() {
            fill(accepted(landing));
        }
        assert!(object.lock().present.contains(at));
    }
    let in_pieces = object.xray(0).stored.len();
    assert!(in_pieces >= claims::FRAGMENTS_MAX);
    assert!(in_pieces < claims::FRAGMENTS_MAX + 10);
    let full = |seen: &Seen<'_>| (smallvec![], seen.is_full());
    assert!(!store.arrange(&object, place(1), 0, full).0);
    // From now on all that is free around a claim in its pages comes along: up to their ends …
    let far = pages * PAGE + 10_000;
    let wide = ask(&store, &object, far..far + 1).remove(0);
    assert_eq!(wide.range(), pages * PAGE..(pages + 1) * PAGE);
    let wide = ask(&store, &object, far + 2 * PAGE..far + 5 * PAGE).remove(0);
    assert_eq!(wide.range(), (pages + 2) * PAGE..(pages + 6) * PAGE);
    drop(wide);
    // … or to what is there.
    let gap = ask(&store, &object, 100..101).remove(0);
    assert_eq!(gap.range(), 1..PAGE / FEW);
    fill(accepted(gap));
    assert_eq!(object.xray(0).stored.len(), in_pieces - 1);
    // What others bring stays theirs.
    let taken = ask(&store, &object, far..far + PAGE).remove(0);
    assert_eq!(taken.range(), (pages + 1) * PAGE..(pages + 2) * PAGE);
}

#[test]
fn a_reader_ahead_of_a_flight_without_room_gets_what_is_there() {
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
            // In the middle of a page some reader moves, at last ahead of the flight.
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
fn a_later_head_takes_the_first_ones_place_and_its_weight() {
    let store = store(1 << 20);
    let first = begin_sparse(&store, 1, 1000, 0..500).expect("room");
    let object = first.object().clone();
    fill(first);
    for size in [1000, 10] {
        let second = accepted(ask(&store, &object, 500..501).remove(0));
        let known = Head {
            joinable: true,
            fields: vec![0; size].into(),
            ..head(Some(1000))
        };
        let charge = store.charge_head(known.memory()).expect("room");
        second.renew(Arc::new(known), charge);
        assert!(matches!(object.phase(), Phase::Open(head) if head.fields.len() == size));
    }
    drop(object);
    check_weights(&store);
}

#[test]
fn a_length_that_comes_with_the_head_cuts_an_open_claim() {
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
        assert_eq!(object.xray(0).stored.total(), length);
        assert!(object.is_complete());
    }
}

#[test]
fn the_last_decisions_are_kept_and_paid_for() {
    let store = store(1 << 20);
    let first = begin_sparse(&store, 1, 1000, 0..500).expect("room");
    let object = first.object().clone();
    fill(first);
    for at in 0..20 {
        object.note(Decision {
            unix_ms: at,
            want: at..at + 1,
            what: "fetch",
            ranges: (0..100).map(|i| i..i + 1).collect(),
            why: crate::reason::Reason::FirstFetch,
        });
    }
    let xray = object.xray(5);
    let times: Vec<_> = xray.decisions.iter().map(|d| d.unix_ms).collect();
    assert_eq!(times, (12..20).collect::<Vec<_>>());
    assert!((xray.sparse, xray.generation, xray.now_us) == (true, 7, 5));
    drop(object);
    assert_eq!(store.status().pinned, 0);
    store.enter(1, |locked| locked.clear());
    assert_eq!(store.ledger.used(), 0);
}

#[test]
fn lore_lasts_as_long_as_the_key_has_an_object() {
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
    assert!(store.supersede(place(1), first.object(), Some(second.clone())));
    assert!(matches!(first.object().phase(), Phase::Retired));
    assert_eq!(store.enter(1, |locked| locked.history()), history);
    assert!(!store.supersede(place(1), first.object(), None));
    assert!(store.enter(1, |locked| locked.find(0)).is_some());
    store.withdraw(place(1), &second);
    assert_eq!(
        store.enter(1, |locked| locked.history()),
        ResourceHistory::default()
    );
}

#[test]
fn an_object_has_only_so_many_flights() {
    let store = store(64 << 20);
    let first = begin_sparse(&store, 1, 32 << 20, 0..1).expect("room");
    let ranges = (1..400).map(|i| i * PAGE..i * PAGE + 1);
    let landings = arrange(&store, first.object(), ranges);
    assert_eq!(landings.len(), CLAIMS_MAX - 1);
}

#[test]
fn an_object_takes_no_more_than_is_charged_for_it() {
    use super::page::Page;
    use super::parts::PART_OVERHEAD;
    use super::table::row_bytes;
    // The object with its reference counts, in the allocator's size class. Tables are between half
    // full and full, so their rows count one and a half times. Of the eviction policy's: a node in
    // its lists, and a ghost.
    let object = Page::footprint(size_of::<Object>() as u64 + 16) - Page::footprint(0) + 64;
    let (entry, id) = row_bytes();
    let policy = 32 + 33;
    let total = object + (entry + id + policy) as u64 * 3 / 2;
    assert!(
        total <= OBJECT_OVERHEAD,
        "{object} + 3/2 * ({entry} + {id} + {policy}) = {total}"
    );
    let block = size_of::<(u64, parts::Part)>();
    let part = (block + id + policy) as u64 * 3 / 2;
    assert!(part <= PART_OVERHEAD, "{part}");
}
