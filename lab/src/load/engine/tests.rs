//! Tests of the event loop with connections that only record what the loop does.

use super::*;

/// Places of which each is in use from its request on.
#[derive(Default)]
struct Recorder {
    places: usize,
    /// The times from which latencies count, and the times at which the requests had begun.
    begun: Vec<(Instant, Instant)>,
    /// Numbers of requests that had begun when they were to be sent.
    flushed: Vec<usize>,
}

impl Connections for Recorder {
    fn places(&self) -> usize {
        self.places
    }

    fn rests_until(&self, _: usize) -> Option<Instant> {
        None
    }

    fn begin(&mut self, load: &mut Load<'_>, place: usize, due: Due) {
        load.state.choose(due, place);
        self.begun.push((due.began, Instant::now()));
    }

    fn event(
        &mut self,
        _: &mut Load<'_>,
        _: u64,
        _: epoll::EventFlags,
        _: &mut [u8],
    ) -> Option<Instant> {
        None
    }

    fn read_on(&mut self, _: &mut Load<'_>, _: u64, _: &mut [u8]) -> Option<Instant> {
        None
    }

    fn flush(&mut self, _: &mut Load<'_>) {
        self.flushed.push(self.begun.len());
    }

    fn sweep(&mut self, _: &mut Load<'_>, _: Instant) {}

    fn per_connection(&self) -> (u64, u64) {
        (0, 0)
    }
}

fn engine(plan: LoadPlan, places: usize) -> Engine<'static, Recorder> {
    let state = LoadState::new(plan, Turn::new(0, 1), None).expect("a valid plan");
    let recorder = Recorder {
        places,
        ..Recorder::default()
    };
    Engine::new(state, recorder).expect("an engine")
}

fn plan() -> LoadPlan {
    LoadPlan {
        seconds: Some(60.0),
        ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
    }
}

#[test]
fn latencies_of_a_closed_loop_do_not_count_the_begin_of_other_requests() {
    let mut engine = engine(plan(), 1000);
    let now = Instant::now();
    engine.load.state.start(now);
    engine.begin_due(now, BEGUN_AT_ONCE);
    assert_eq!(engine.connections.flushed, [BEGUN_AT_ONCE]);
    let begun = &engine.connections.begun;
    assert_eq!(begun[0].0, now);
    assert!(begun.windows(2).all(|two| two[1].0 >= two[0].1));
    // The rest begins without a wait, after the sockets were looked at.
    let limit = engine.wait_limit(now).expect("a timer");
    assert_eq!(limit, Duration::ZERO);
}

#[test]
fn as_many_requests_begin_after_an_event_as_it_has_freed_places() {
    let mut engine = engine(plan(), 1000);
    engine.load.state.start(Instant::now());
    for (place, count) in [(0..0, 1), (0..3, 3)] {
        let taken: Vec<_> = place.map(|_| engine.load.free.take()).collect();
        let free = engine.load.free.count();
        taken
            .into_iter()
            .flatten()
            .for_each(|place| engine.load.free.give(place));
        let before = engine.connections.begun.len();
        engine.begin_next(free, Some(Instant::now()));
        assert_eq!(engine.connections.begun.len() - before, count);
    }
}
