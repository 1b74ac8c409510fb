//! Simulation of servers and clients in virtual time, and the laws of balancers that hold in it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Balancer, ChoiceContext, Kind, Options, Outcome, build};
use crate::sys::Random;

const SECOND_US: u64 = 1_000_000;

/// Kinds that compare servers by time.
const BY_TIME: [Kind; 2] = [Kind::LeastTime, Kind::RandomTwo];

/// Loads, and the seconds for which each runs.
const LOADS: [(Load, u64); 7] = [
    (Load::Open(100.0), 60),
    (Load::Open(1000.0), 10),
    (Load::Open(4000.0), 3),
    (Load::Bursts(20, 50.0), 10),
    (Load::Closed(1), 20),
    (Load::Closed(8), 5),
    (Load::Closed(24), 3),
];

/// Responses of a server that take longer than others.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// Share of these responses, from 0 to 1.
    share: f64,
    /// Factor by which they take longer.
    factor: f64,
}

/// Without slower responses, and with rare and frequent ones that take fifty times as long. If
/// frequent ones come together, a balancer may avoid the server for some seconds.
const NOISES: [Noise; 3] = [
    Noise::of(0.0, 1.0),
    Noise::of(0.001, 50.0),
    Noise::of(0.01, 50.0),
];
const RARE: &[Noise] = NOISES.split_at(2).0;

impl Noise {
    const fn of(share: f64, factor: f64) -> Noise {
        Noise { share, factor }
    }
}

/// The times in which a server responds.
#[derive(Clone, Copy, Debug)]
struct Server {
    /// Mean time of a request, if there is no other one and no noise.
    mean_us: f64,
    /// Whether requests wait for earlier ones. Otherwise any number of them runs at the same time.
    is_queue: bool,
    noise: Noise,
    /// Time at which the last request in the queue is done.
    free_us: u64,
}

impl Server {
    /// A server that takes this time for each of any number of requests.
    fn delay(mean_us: f64, noise: Noise) -> Server {
        Server {
            mean_us,
            is_queue: false,
            noise,
            free_us: 0,
        }
    }

    /// A server that handles one request after the other.
    fn queue(mean_us: f64) -> Server {
        Server {
            is_queue: true,
            ..Server::delay(mean_us, NOISES[0])
        }
    }

    /// Returns the time of the response to a request that comes now.
    fn end_us(&mut self, now_us: u64, random: &Random) -> u64 {
        let mut us = self.mean_us * (0.75 + 0.5 * unit(random));
        if unit(random) < self.noise.share {
            us *= self.noise.factor;
        }
        let begin_us = match self.is_queue {
            true => self.free_us.max(now_us),
            false => now_us,
        };
        self.free_us = begin_us + us as u64;
        self.free_us
    }
}

/// The times at which requests come.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// This many requests per second at random times, independent of the responses.
    Open(f64),
    /// This many requests at once, this many times per second.
    Bursts(usize, f64),
    /// Each of this many clients sends a request when it has the response to the one before.
    Closed(usize),
}

#[derive(Clone, Copy, Debug)]
struct Exchange {
    server: usize,
    took_us: u64,
}

struct Simulation {
    balancer: Box<dyn Balancer>,
    servers: Vec<Server>,
    load: Load,
    random: Random,
    now_us: u64,
    /// Requests in progress: the times of their ends, their servers and the times of their
    /// beginnings.
    in_progress: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// Time of the next request of an open load.
    next_us: u64,
    done: Vec<Exchange>,
}

impl Simulation {
    fn new(kind: Kind, servers: Vec<Server>, load: Load) -> Simulation {
        let mut simulation = Simulation {
            balancer: build(&Options::of(kind), &vec![1; servers.len()]),
            servers,
            load,
            random: Random::seeded(1),
            now_us: 0,
            in_progress: BinaryHeap::new(),
            next_us: 0,
            done: Vec::new(),
        };
        if let Load::Closed(clients) = load {
            (0..clients).for_each(|_| simulation.send());
            simulation.next_us = u64::MAX;
        }
        simulation
    }

    /// Runs for this time, and returns the requests that ended in it.
    fn run(&mut self, seconds: u64) -> Vec<Exchange> {
        let until_us = self.now_us + seconds * SECOND_US;
        loop {
            let first = self.in_progress.peek();
            let end_us = first.map_or(u64::MAX, |Reverse((end_us, ..))| *end_us);
            if end_us.min(self.next_us) > until_us {
                self.now_us = until_us;
                return std::mem::take(&mut self.done);
            }
            self.now_us = end_us.min(self.next_us);
            match end_us <= self.next_us {
                true => self.receive(),
                false => self.send_open(),
            }
        }
    }

    /// Chooses the server of a request that comes now.
    fn choose(&mut self) -> usize {
        let context = ChoiceContext {
            key: &|| 0,
            now: &|| self.now_us,
            random: &|| self.random.next_u64(),
            excluded: &|_| false,
        };
        let chosen = self.balancer.choose(&context).expect("nothing is excluded");
        self.balancer.begin(chosen);
        chosen
    }

    fn send(&mut self) {
        let chosen = self.choose();
        let end_us = self.servers[chosen].end_us(self.now_us, &self.random);
        self.in_progress
            .push(Reverse((end_us, chosen, self.now_us)));
    }

    /// Sends the next requests of an open load.
    fn send_open(&mut self) {
        let (requests, rate) = match self.load {
            Load::Open(rate) => (1, rate),
            Load::Bursts(requests, rate) => (requests, rate),
            Load::Closed(_) => return,
        };
        (0..requests).for_each(|_| self.send());
        let pause_us = -(1.0 - unit(&self.random)).ln() * 1e6 / rate;
        self.next_us = self.now_us + pause_us as u64;
    }

    fn receive(&mut self) {
        let Some(Reverse((end_us, server, began_us))) = self.in_progress.pop() else {
            return;
        };
        let took_us = end_us - began_us;
        self.balancer.end(server, answered(took_us), &|| end_us);
        self.done.push(Exchange { server, took_us });
        if let Load::Closed(_) = self.load {
            self.send();
        }
    }
}

fn answered(us: u64) -> Outcome {
    Outcome::Answered {
        status: 200,
        head_us: us,
        total_us: Some(us),
    }
}

/// Returns a random number from 0 to 1.
fn unit(random: &Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns the share of a server in these requests, from 0 to 1.
fn share(done: &[Exchange], server: usize) -> f64 {
    let count = done.iter().filter(|one| one.server == server).count();
    count as f64 / done.len().max(1) as f64
}

fn p99_us(done: &[Exchange]) -> u64 {
    let mut times: Vec<u64> = done.iter().map(|one| one.took_us).collect();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Returns all loads with all kinds and these noises, and the seconds for which each runs.
fn cases(noises: &[Noise]) -> impl Iterator<Item = (Kind, Noise, Load, u64)> {
    BY_TIME.into_iter().flat_map(move |kind| {
        noises
            .iter()
            .flat_map(move |&noise| LOADS.map(|(load, seconds)| (kind, noise, load, seconds)))
    })
}

/// Returns three servers, of which the last takes ten times as long as the others.
fn one_slow(noise: Noise) -> Vec<Server> {
    let of = |mean_us| Server::delay(mean_us, noise);
    vec![of(2e3), of(2e3), of(20e3)]
}

#[test]
fn a_server_of_ten_times_the_latency_gets_less_than_one_percent() {
    for (kind, noise, load, seconds) in cases(&NOISES) {
        let done = Simulation::new(kind, one_slow(noise), load).run(seconds);
        let slow = share(&done, 2);
        assert!(slow < 0.01, "{kind:?} {noise:?} {load:?}: {slow}");
    }
}

#[test]
fn by_time_the_99th_percentile_is_at_most_half_of_that_of_round_robin() {
    let capacity = || [1e3, 1e3, 10e3].map(Server::queue).to_vec();
    let latency = LOADS.map(|(load, seconds)| (load, seconds, one_slow(NOISES[0])));
    let rates = [300.0, 1000.0, 1500.0].map(|rate| (Load::Open(rate), 10, capacity()));
    for (load, seconds, servers) in latency.into_iter().chain(rates) {
        let p99 = |kind| p99_us(&Simulation::new(kind, servers.clone(), load).run(seconds));
        let in_turn = p99(Kind::RoundRobin);
        for kind in BY_TIME {
            let by_time = p99(kind);
            assert!(
                by_time * 2 <= in_turn,
                "{kind:?} {load:?} {servers:?}: {by_time} of {in_turn} µs"
            );
        }
    }
}

#[test]
fn requests_queue_at_most_twice_as_long_as_by_least_connections_if_servers_are_equal() {
    for rate in [1500.0, 2700.0] {
        let p99 = |kind| {
            let servers = vec![Server::queue(1e3); 3];
            p99_us(&Simulation::new(kind, servers, Load::Open(rate)).run(10))
        };
        let least = p99(Kind::LeastConnections);
        for kind in BY_TIME {
            let by_time = p99(kind);
            assert!(
                by_time <= least * 2,
                "{kind:?} {rate}: {by_time} of {least} µs"
            );
        }
    }
}

#[test]
fn a_server_that_became_fast_is_found_within_seconds() {
    for (kind, noise, load, seconds) in cases(RARE) {
        let mut simulation = Simulation::new(kind, one_slow(noise), load);
        simulation.run(seconds);
        simulation.servers[2] = simulation.servers[0];
        simulation.run(7);
        let found = share(&simulation.run(3), 2);
        assert!(found > 0.1, "{kind:?} {noise:?} {load:?}: {found}");
    }
}

#[test]
fn a_server_that_became_slow_is_avoided_at_once() {
    for (kind, noise, load, seconds) in cases(&NOISES) {
        let mut simulation = Simulation::new(kind, one_slow(noise), load);
        simulation.run(seconds);
        simulation.servers.swap(0, 2);
        let slow = share(&simulation.run(seconds), 0);
        assert!(slow < 0.01, "{kind:?} {noise:?} {load:?}: {slow}");
    }
}

#[test]
fn equal_servers_all_get_requests_however_much_their_times_differ_at_random() {
    for (kind, noise, load, seconds) in cases(RARE) {
        let servers = vec![Server::delay(2e3, noise); 3];
        let done = Simulation::new(kind, servers, load).run(seconds);
        for server in 0..3 {
            let share = share(&done, server);
            assert!(share > 0.1, "{kind:?} {noise:?} {load:?}: {share}");
        }
    }
}

#[test]
fn equally_fast_servers_get_requests_by_weight_also_if_few_are_in_progress() {
    for (kind, noise, load, seconds) in cases(&NOISES[..1]) {
        for weights in [[1, 4], [1, 49]] {
            let servers = vec![Server::delay(2e3, noise); 2];
            let mut simulation = Simulation::new(kind, servers, load);
            simulation.balancer.set_weights(&weights);
            let share = share(&simulation.run(seconds), 0);
            let fair = 1.0 / f64::from(weights[0] + weights[1]);
            // As with the least connections, an idle server gets some requests beyond its weight.
            let is_fair = share > fair * 0.5 && share < fair + 0.12;
            assert!(is_fair, "{kind:?} {noise:?} {load:?} {weights:?}: {share}");
        }
    }
}

/// Returns whether server 0 gets one of some requests, ten per second, after its first exchange had
/// this outcome.
fn is_tried_again(kind: Kind, first: Outcome, seconds: u64) -> bool {
    let mut balancer = build(&Options::of(kind), &[1; 3]);
    let (random, mut now_us) = (Random::seeded(1), SECOND_US);
    balancer.begin(0);
    balancer.end(0, first, &|| now_us);
    (0..seconds * 10).any(|_| {
        now_us += SECOND_US / 10;
        let context = ChoiceContext {
            key: &|| 0,
            now: &|| now_us,
            random: &|| random.next_u64(),
            excluded: &|_| false,
        };
        let chosen = balancer.choose(&context).expect("nothing is excluded");
        balancer.begin(chosen);
        balancer.end(chosen, answered(1000), &|| now_us + 1000);
        chosen == 0
    })
}

#[test]
fn a_server_that_failed_is_tried_again_sooner_than_one_that_is_slow() {
    for kind in BY_TIME {
        assert!(!is_tried_again(kind, Outcome::ConnectFailed, 2));
        assert!(is_tried_again(kind, Outcome::ConnectFailed, 20));
        assert!(!is_tried_again(kind, answered(100_000), 20));
    }
}

#[test]
fn a_try_that_is_cancelled_is_not_repeated_at_once() {
    for kind in BY_TIME {
        let mut simulation = Simulation::new(kind, one_slow(NOISES[0]), Load::Open(1000.0));
        simulation.run(20);
        let mut cancelled = 0;
        for _ in 0..20_000 {
            simulation.now_us += 1000;
            let now_us = simulation.now_us;
            let chosen = simulation.choose();
            let outcome = match chosen {
                2 => Outcome::Cancelled,
                _ => answered(2000),
            };
            cancelled += u32::from(chosen == 2);
            simulation.balancer.end(chosen, outcome, &|| now_us);
        }
        assert!((1..20).contains(&cancelled), "{kind:?}: {cancelled}");
    }
}
