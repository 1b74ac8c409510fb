//! Tests with random steps of flights, readers and evictions against a model of the bytes.

use std::task::{Context, Waker};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::telemetry::CacheNumbers;

#[derive(Clone, Debug)]
enum Step {
    Arrange(Vec<Range<u64>>),
    /// A flight's response arrives; it begins this many bytes after the start of the claim, or before it if negative.
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
    /// Another object of this size is inserted, so that others must be evicted.
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

/// One flight of the run, and whether its response has arrived.
struct Flying {
    landing: Landing,
    accepted: bool,
}

/// One reader with its offset and the bytes that it received, which are compared again at the end.
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
    /// Number of bytes charged in excess of the ledger's limit.
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
                    keep_until(&mut reading.reader, at);
                }
            }
            Step::Touch(at) => self.store.touch_block(table_key(1), &self.object, at),
            Step::Crowd(size) => self.crowd(size),
        }
    }

    fn arrange(&mut self, ranges: Vec<Range<u64>>) {
        let before = self.object.snapshot();
        let landings = arrange(&self.store, &self.object, ranges.clone());
        for landing in &landings {
            let range = landing.range();
            assert!(!range.is_empty() && range.end <= LENGTH);
            assert!(!before.stored.intersects(&range));
        }
        let state = self.object.lock();
        for claim in &before.flights {
            // A takeover shortens a claim to a page after its `at` at the least: the flight may be copying that page.
            let now = state.claim(claim.id).expect("claims outlive takeovers");
            assert!(now.end == claim.end || now.end >= claim.at + PAGE && now.end < claim.end);
        }
        let all_claimed = state.claims.len() < CLAIMS_MAX;
        // Only the last range is checked, since a takeover for it may have shortened the claims of earlier ones.
        let wanted = ranges.last().map(|r| [r.start, r.end.min(LENGTH) - 1]);
        for at in wanted.into_iter().flatten().filter(|_| all_claimed) {
            assert!(state.present.contains(at) || state.claim_at(at).is_some());
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

    /// Reserves memory for a flight. If the store has none, the flight gets one page beyond the limit.
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
        // Bytes after the end of the claim are ignored.
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
            // Some of the received views are kept until the end of the run, to check that their bytes never change.
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
    #![proptest_config(ProptestConfig::with_cases(200 * sluice_lab::soak::factor()))]
    #[test]
    fn bytes_are_correct_and_charged_after_any_steps(
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
            // The first flight reserves memory before the length of the object is known, so it may exceed the limit by a page.
            anyway: PAGE,
        };
        for step in steps {
            run.step(step);
            check_state(&run.object);
            prop_assert!(store.ledger.used() <= memory + run.anyway);
            store.numbers();
        }
        let Run { object, flights, readers, .. } = run;
        drop(flights);
        check_state(&object);
        for (at, bytes) in readers.iter().flat_map(|reading| &reading.got) {
            prop_assert_eq!(bytes, &content(*at, at + bytes.len() as u64));
        }
        drop(readers);
        let stored = object.snapshot().stored;
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
        prop_assert_eq!(store.numbers(), CacheNumbers { limit: memory, evicted: store.numbers().evicted, ..CacheNumbers::default() });
    }
}
