//! Lets a flight watch whether readers want its bytes.

use std::ops::Range;
use std::task::Context;

use super::landing::Landing;
use super::object::{Object, Phase, State, Wakes};
use super::watcher::{Readers, Watcher};

/// Watches the readers of a flight's object.
pub struct ReaderWatch<'a> {
    object: &'a Object,
    flight: u64,
}

impl Landing {
    /// Begins to watch the readers of the flight's object.
    pub fn watch_readers(&self) -> ReaderWatch<'_> {
        ReaderWatch {
            object: self.object(),
            flight: self.id(),
        }
    }
}

impl ReaderWatch<'_> {
    /// Returns the present readers. The task is woken when readers have left so that the result may change, and when a reader waits so that
    /// the result becomes `OfFlight`.
    pub fn poll(&mut self, cx: &Context<'_>) -> Readers {
        let waker = cx.waker().clone();
        let mut state = self.object.lock();
        let known = state.readers_of(self.flight);
        let before = state.unwatch(self.flight);
        let flight = self.flight;
        state.watchers.push(Watcher {
            flight,
            known,
            waker,
        });
        drop(state);
        drop(before);
        known
    }
}

impl Drop for ReaderWatch<'_> {
    fn drop(&mut self) {
        let watcher = self.object.lock().unwatch(self.flight);
        drop(watcher);
    }
}

impl State {
    fn unwatch(&mut self, flight: u64) -> Option<Watcher> {
        let at = self.watchers.iter().position(|one| one.flight == flight)?;
        let watcher = self.watchers.swap_remove(at);
        if self.watchers.is_empty() {
            // Most objects have no flight most of the time: the list's memory is freed.
            self.watchers = Vec::new();
        }
        Some(watcher)
    }

    fn readers_of(&self, flight: u64) -> Readers {
        if self.riders.is_empty() {
            return Readers::None;
        }
        let mut riders = self.riders.iter();
        let is_wanted = matches!(self.phase, Phase::Awaiting)
            || riders.any(|(_, rider)| self.adds_to(flight, &(rider.at..rider.end)));
        match is_wanted {
            true => Readers::OfFlight,
            false => Readers::OfOtherBytes,
        }
    }

    /// Returns the flights to wake because a reader waits that wants these bytes.
    pub(super) fn watchers_of_wait(&mut self, wanted: &Range<u64>) -> Wakes {
        let is_awaited = matches!(self.phase, Phase::Awaiting);
        self.take_watchers(|state, watcher| {
            watcher.known != Readers::OfFlight
                && (is_awaited || state.adds_to(watcher.flight, wanted))
        })
    }

    /// Returns the flights to wake because a reader that wanted these bytes has left, or wants others.
    pub(super) fn watchers_of_leave(&mut self, wanted: &Range<u64>) -> Wakes {
        let is_unread = self.riders.is_empty();
        let has_head = !matches!(self.phase, Phase::Awaiting);
        self.take_watchers(|state, watcher| match watcher.known {
            Readers::None => false,
            Readers::OfOtherBytes => is_unread,
            Readers::OfFlight => is_unread || (has_head && state.adds_to(watcher.flight, wanted)),
        })
    }

    /// Whether this flight has still to add any of these bytes.
    fn adds_to(&self, flight: u64, wanted: &Range<u64>) -> bool {
        let claim = self.claim(flight);
        claim.is_some_and(|claim| claim.meets(wanted))
    }

    fn take_watchers(&mut self, which: impl Fn(&State, &Watcher) -> bool) -> Wakes {
        if self.watchers.is_empty() {
            return Wakes::default();
        }
        let (taken, left) = std::mem::take(&mut self.watchers)
            .into_iter()
            .partition(|watcher| which(self, watcher));
        self.watchers = left;
        let taken: Vec<Watcher> = taken;
        Wakes::of(taken.into_iter().map(|watcher| watcher.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::super::tests::{head, launch, store, table_key};
    use super::*;
    use crate::store::{Head, Next, ObjectView, Reader};

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn take(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    fn wait(reader: &mut Reader) {
        let polled = reader.poll_next(&mut Context::from_waker(Waker::noop()));
        assert!(!matches!(polled, std::task::Poll::Ready(Next::Bytes(_))));
    }

    #[test]
    fn a_flight_learns_when_readers_of_its_bytes_come_and_leave() {
        let store = store(1 << 20);
        let mut first = launch(&store, 1).expect("room");
        first.accept(0..1, 0).expect("a first flight");
        let joinable = Head {
            joinable: true,
            ..head(Some(400_000))
        };
        let charge = store.charge_head(joinable.memory()).expect("room");
        first.open(Arc::new(joinable), charge, true);
        let object = first.object().clone();
        let range = |_: &ObjectView<'_>| (smallvec::smallvec![100_000..200_000], ());
        let ((), mut flights) = store.arrange(&object, table_key(1), 0, range);
        let flight = flights.remove(0);
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        let mut watch = flight.watch_readers();
        assert_eq!(watch.poll(&cx), Readers::None);

        let mut before = store.ride(&object, 50_000..100_000);
        wait(&mut before);
        assert_eq!(count.take(), 0, "wants other bytes");
        assert_eq!(watch.poll(&cx), Readers::OfOtherBytes);
        let mut across = store.ride(&object, 60_000..100_001);
        wait(&mut across);
        assert_eq!(count.take(), 1);
        assert_eq!(watch.poll(&cx), Readers::OfFlight);
        let mut inside = store.ride(&object, 199_999..400_000);
        wait(&mut inside);
        across.limit(60_000, 100_000);
        assert_eq!(count.take(), 1, "one has turned to other bytes");
        assert_eq!(watch.poll(&cx), Readers::OfFlight);
        drop(across);
        assert_eq!(count.take(), 0);
        drop(inside);
        assert_eq!(count.take(), 1);
        assert_eq!(watch.poll(&cx), Readers::OfOtherBytes);
        drop(before);
        assert_eq!(count.take(), 1);
        assert_eq!(watch.poll(&cx), Readers::None);

        let mut ahead = object.reader(0);
        ahead.set_ahead();
        wait(&mut ahead);
        ahead.limit(150_000, u64::MAX);
        wait(&mut ahead);
        assert_eq!(count.take(), 0);
        assert_eq!(watch.poll(&cx), Readers::OfOtherBytes, "for no client");

        drop(watch);
        wait(&mut object.reader(100_000));
        assert_eq!(count.take(), 0, "the flight no longer watches");
    }

    #[test]
    fn every_reader_of_an_object_without_head_waits_for_its_flight() {
        let store = store(1 << 20);
        let flight = launch(&store, 1).expect("room");
        flight.object().shorten(flight.id(), 10);
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        let mut watch = flight.watch_readers();
        assert_eq!(watch.poll(&cx), Readers::None);
        let readers = [20, 30].map(|at| flight.object().reader(at));
        assert_eq!(watch.poll(&cx), Readers::OfFlight);
        let [one, other] = readers;
        drop(one);
        assert_eq!(count.take(), 0);
        drop(other);
        assert_eq!(count.take(), 1);
        assert_eq!(watch.poll(&cx), Readers::None);
    }
}
