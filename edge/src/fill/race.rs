//! Tests of the fill policies with a simulated clock and simulated origins, which measure the time
//! and the number of flights that a policy needs.

use std::ops::Range;
use std::time::Duration;

use super::{Flight, Joinable, Kind, OPEN, Options, Pace, Plan, Situation, Unsettled, build};
use crate::ranges::Ranges;

const MIB: u64 = 1 << 20;
const TICK_US: u64 = 1_000;
/// Simulated time in microseconds from a request to the response's head.
const LATENCY_US: u64 = 5_000;
/// Time in microseconds for which a new flight's rate counts as unknown.
const RATE_UNKNOWN_US: u64 = 50_000;

/// A simulated flight with its current rate in bytes per second.
struct Running {
    start: u64,
    at: f64,
    end: u64,
    begun_us: u64,
}

impl Running {
    fn seen(&self, now_us: u64) -> Flight {
        let age_us = now_us - self.begun_us;
        let came = self.at as u64 - self.start;
        Flight {
            at: self.at as u64,
            end: self.end,
            rate: (age_us >= RATE_UNKNOWN_US).then(|| came * 1_000_000 / age_us),
            idle: Duration::from_micros(if came == 0 { age_us } else { 0 }),
        }
    }
}

/// A simulated request for an object that is not stored. The client reads as fast as bytes arrive.
struct Race {
    kind: Kind,
    length: u64,
    /// Largest rates of one connection (`each`) and of all connections together (`link`), in bytes
    /// per second.
    each: u64,
    link: u64,
    now_us: u64,
    have: Ranges,
    running: Vec<Running>,
    known: bool,
    pace: Pace,
    taken_over: usize,
    requests: usize,
    flights_max: usize,
}

impl Race {
    fn new(kind: Kind, length: u64, each: u64, link: u64) -> Race {
        Race {
            kind,
            length,
            each,
            link,
            now_us: 0,
            have: Ranges::new(),
            running: Vec::new(),
            known: false,
            pace: Pace::new(Options::default().parallel),
            taken_over: 0,
            requests: 0,
            flights_max: 0,
        }
    }

    /// Simulates reading the complete object and returns the seconds that the client needed.
    fn run(&mut self) -> f64 {
        let mut ask_us = Some(0);
        let mut block = 0;
        while !self.have.covers(&(0..self.length)) {
            let read = self.have.contiguous_from(0);
            let known = self
                .running
                .iter()
                .any(|r| self.now_us >= r.begun_us + LATENCY_US);
            let head = known && !self.known;
            let crossed = read / MIB > block;
            let stuck = !self.running.iter().any(|r| r.at as u64 == read);
            self.known |= known;
            block = read / MIB;
            if head || crossed || stuck || ask_us.is_some_and(|at| at <= self.now_us) {
                ask_us = self
                    .ask(read)
                    .map(|again| self.now_us + again.as_micros() as u64);
            }
            self.fly();
            assert!(self.now_us < 60_000_000, "it never ends: {:?}", self.have);
        }
        self.now_us as f64 / 1e6
    }

    fn ask(&mut self, read: u64) -> Option<Duration> {
        let flights: Vec<Flight> = self.running.iter().map(|r| r.seen(self.now_us)).collect();
        self.pace
            .observe(self.now_us, self.have.total(), flights.len());
        let plan = build(&Options {
            kind: self.kind,
            ..Options::default()
        })
        .plan(&Situation {
            want: read..OPEN,
            length: self.known.then_some(self.length),
            have: &self.have,
            flights: &flights,
            joinable: if self.known {
                Joinable::Yes
            } else {
                Joinable::Unknown
            },
            unsettled: Unsettled::No,
            leads: true,
            begun: self.known,
            waited: Duration::ZERO,
            spare: 64 * MIB,
            width: self.pace.width(),
            whole_max: 64 * MIB,
        });
        match plan {
            Plan::Fetch { ranges, again } => {
                ranges.into_iter().for_each(|range| self.begin(range));
                again
            }
            Plan::Wait(again) => again,
            other => panic!("{other:?}"),
        }
    }

    fn begin(&mut self, range: Range<u64>) {
        for running in &mut self.running {
            if (running.at as u64..running.end).contains(&range.start) {
                running.end = range.start;
                self.taken_over += 1;
            }
            let coming = running.at as u64..running.end;
            assert!(coming.is_empty() || coming.end <= range.start || range.end <= coming.start);
        }
        assert!(!self.have.intersects(&range), "{range:?} is there already");
        self.requests += 1;
        self.running.push(Running {
            start: range.start,
            at: range.start as f64,
            end: range.end,
            begun_us: self.now_us,
        });
        self.flights_max = self.flights_max.max(self.running.len());
    }

    /// Simulates one tick of the clock: all flights receive bytes.
    fn fly(&mut self) {
        self.now_us += TICK_US;
        let is_receiving = |r: &Running| self.now_us > r.begun_us + LATENCY_US;
        let share = self.link
            / self
                .running
                .iter()
                .filter(|r| is_receiving(r))
                .count()
                .max(1) as u64;
        let rate = self.each.min(share);
        for running in &mut self.running {
            if self.now_us > running.begun_us + LATENCY_US {
                let end = running.end.min(self.length);
                let came = rate as f64 * TICK_US as f64 / 1e6;
                running.at = (running.at + came).min(end as f64);
                self.have.insert(running.start..running.at as u64);
            }
        }
        let length = self.length;
        self.running.retain(|r| (r.at as u64) < r.end.min(length));
    }
}

#[test]
fn ten_slow_connections_fetch_a_file_ten_times_as_fast() {
    let mut auto = Race::new(Kind::Auto, 10 * MIB, MIB, 100 * MIB);
    let seconds = auto.run();
    assert!(seconds <= 2.1, "{seconds} s");
    // The first flight keeps the bytes that it can deliver within about a second. Each of the other
    // flights fetches one block.
    assert!(auto.requests <= 10 && auto.taken_over == 1);
    let mut slice = Race::new(Kind::Slice, 10 * MIB, MIB, 100 * MIB);
    let seconds = slice.run();
    assert!(seconds <= 1.4, "{seconds} s");
    assert_eq!((slice.requests, slice.taken_over), (10, 0));
}

#[test]
fn whole_is_as_fast_as_one_connection() {
    let mut whole = Race::new(Kind::Whole, 10 * MIB, MIB, 100 * MIB);
    let seconds = whole.run();
    assert!((10.0..10.1).contains(&seconds), "{seconds} s");
    assert_eq!((whole.requests, whole.taken_over), (1, 0));
}

#[test]
fn few_flights_are_used_if_more_do_not_help() {
    for kind in [Kind::Auto, Kind::Slice] {
        let mut race = Race::new(kind, 20 * MIB, MIB, MIB);
        let seconds = race.run();
        assert!(seconds <= 20.5, "{kind:?}: {seconds} s");
        assert!(race.flights_max <= 8, "{kind:?}: {}", race.flights_max);
        assert!(race.pace.width() <= 8);
    }
}

#[test]
fn a_fast_origin_gets_one_request() {
    for length in [10 * MIB, 1000 * MIB] {
        let mut race = Race::new(Kind::Auto, length, 1_000_000_000, 1_000_000_000);
        race.run();
        assert_eq!((race.requests, race.taken_over), (1, 0));
    }
    let mut race = Race::new(Kind::Slice, 100 * MIB, 1_000_000_000, 1_000_000_000);
    race.run();
    assert!(race.flights_max <= 8, "{}", race.flights_max);
}

#[test]
fn pace_is_bounded_and_recovers() {
    assert_eq!(
        (
            Pace::new(0).width(),
            Pace::new(2).width(),
            Pace::new(64).width()
        ),
        (1, 2, 4)
    );
    let mut pace = Pace::new(6);
    let (mut now_us, mut received) = (0, 0);
    let mut second = |pace: &mut Pace, rate_of: fn(usize) -> u64| {
        let mut widest = 0;
        for _ in 0..100 {
            pace.observe(now_us, received, pace.width());
            now_us += 10_000;
            received += rate_of(pace.width()) / 100;
            widest = widest.max(pace.width());
        }
        widest
    };
    second(&mut pace, |flights| flights as u64 * MIB);
    assert_eq!(pace.width(), 6);
    assert_eq!(
        second(&mut pace, |_| MIB),
        6,
        "it stays where it has proved itself"
    );
    let mut pace = Pace::new(16);
    assert_eq!(second(&mut pace, |_| MIB), 8);
    assert_eq!(pace.width(), 4, "it went back");
    assert_eq!(second(&mut pace, |_| MIB), 8, "and tries again");
    // If fewer flights run than the width permits, their rate does not change the width.
    let mut idle = Pace::new(16);
    (0..100).for_each(|i| idle.observe(i * 100_000, i * MIB, 1));
    assert_eq!(idle.width(), 4);
}
