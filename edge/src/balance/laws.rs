//! Laws that hold for every kind of balancer, and for one that exists only here: `ByKey`, which
//! chooses by key and attempt.

use proptest::prelude::*;

use super::{Ask, Balancer, Kind, Outcome, build};

const ANSWERED: Outcome = Outcome::Answered {
    status: 200,
    head_us: 1000,
};

/// Sends each key to a server of its own, and further attempts to the next servers.
struct ByKey(usize);

impl Balancer for ByKey {
    fn choose(&mut self, ask: &Ask<'_>) -> Option<usize> {
        let servers = self.0;
        let first = (ask.key)() as usize % servers.max(1);
        let turn = |step: usize| (first + ask.attempt + step) % servers;
        (0..servers).map(turn).find(|&server| ask.allows(server))
    }

    fn begin(&mut self, _server: usize) {}

    fn end(&mut self, _server: usize, _outcome: Outcome) {}
}

/// Returns a balancer of each kind, and `ByKey`, with their names.
fn all(weights: &[u32]) -> Vec<(String, Box<dyn Balancer>)> {
    let built = |&kind| (format!("{kind:?}"), build(kind, weights));
    let by_key: Box<dyn Balancer> = Box::new(ByKey(weights.len()));
    let by_key = ("ByKey".to_owned(), by_key);
    Kind::ALL.iter().map(built).chain([by_key]).collect()
}

fn key() -> u64 {
    7
}

/// Returns the choice for a first attempt when these servers are excluded.
fn choose(balancer: &mut dyn Balancer, excluded: &dyn Fn(usize) -> bool) -> Option<usize> {
    balancer.choose(&Ask {
        key: &key,
        attempt: 0,
        excluded,
    })
}

/// Chooses `times` times without ending a request in between, and returns how often each server was
/// chosen.
fn shares(balancer: &mut dyn Balancer, servers: usize, times: usize) -> Vec<u32> {
    let mut counts = vec![0; servers];
    for _ in 0..times {
        let server = choose(balancer, &|_| false).expect("nothing is excluded");
        balancer.begin(server);
        counts[server] += 1;
    }
    for (server, &count) in counts.iter().enumerate() {
        (0..count).for_each(|_| balancer.end(server, ANSWERED));
    }
    counts
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (200u16..600, any::<u64>())
            .prop_map(|(status, head_us)| Outcome::Answered { status, head_us }),
        Just(Outcome::ConnectFailed),
        Just(Outcome::TimedOut),
        Just(Outcome::Broken),
        Just(Outcome::Cancelled),
    ]
}

proptest! {
    #[test]
    fn over_a_cycle_each_server_gets_its_weight(weights in prop::collection::vec(1u32..20, 1..6)) {
        for &kind in Kind::ALL {
            let mut balancer = build(kind, &weights);
            let cycle: u32 = weights.iter().sum();
            for _ in 0..3 {
                let counts = shares(balancer.as_mut(), weights.len(), cycle as usize);
                prop_assert_eq!(&counts, &weights, "{:?}", kind);
            }
        }
    }

    #[test]
    fn an_excluded_server_is_never_chosen_and_none_means_all_are(
        weights in prop::collection::vec(0u32..5, 0..6),
        asks in prop::collection::vec((0u8..64, any::<u64>(), 0usize..4, outcomes(), any::<bool>()), 1..60),
    ) {
        for (name, mut balancer) in all(&weights) {
            for &(mask, key, attempt, outcome, ends) in &asks {
                let excluded = |server: usize| mask >> server & 1 == 1;
                let ask = Ask { key: &|| key, attempt, excluded: &excluded };
                match balancer.choose(&ask) {
                    Some(server) => {
                        prop_assert!(server < weights.len() && !excluded(server), "{}", name);
                        balancer.begin(server);
                        if ends {
                            balancer.end(server, outcome);
                        }
                    }
                    None => prop_assert!((0..weights.len()).all(excluded), "{}", name),
                }
            }
        }
    }

    #[test]
    fn a_server_that_was_not_chosen_may_begin_and_end(
        weights in prop::collection::vec(0u32..5, 1..6),
        exchanges in prop::collection::vec((0usize..6, outcomes()), 1..30),
    ) {
        for (name, mut balancer) in all(&weights) {
            for &(server, _) in &exchanges {
                balancer.begin(server % weights.len());
            }
            for &(server, outcome) in &exchanges {
                balancer.end(server % weights.len(), outcome);
            }
            prop_assert!(choose(balancer.as_mut(), &|_| false).is_some(), "{}", name);
        }
    }

    #[test]
    fn equal_servers_take_turns_when_each_request_ends_before_the_next(servers in 1usize..6) {
        for &kind in Kind::ALL {
            let mut balancer = build(kind, &vec![1; servers]);
            let mut counts = vec![0; servers];
            for _ in 0..servers * 4 {
                let server = choose(balancer.as_mut(), &|_| false).expect("nothing is excluded");
                balancer.begin(server);
                balancer.end(server, ANSWERED);
                counts[server] += 1;
            }
            prop_assert!(counts.iter().all(|&count| count == 4), "{:?} {:?}", kind, counts);
        }
    }
}

#[test]
fn a_balancer_may_choose_by_key_and_attempt() {
    let mut balancer = ByKey(3);
    let mut choose = |key: u64, attempt| {
        let (key, excluded) = (|| key, |server: usize| server == 2);
        balancer.choose(&Ask {
            key: &key,
            attempt,
            excluded: &excluded,
        })
    };
    assert_eq!(choose(4, 0), Some(1));
    assert_eq!(choose(4, 0), Some(1));
    assert_eq!(choose(4, 1), Some(0));
    assert_eq!(choose(6, 1), Some(1));
}

#[test]
fn a_heavy_server_is_not_chosen_many_times_in_a_row() {
    let mut balancer = build(Kind::RoundRobin, &[5, 1, 1]);
    let order: Vec<_> = (0..7)
        .filter_map(|_| choose(balancer.as_mut(), &|_| false))
        .collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn the_least_busy_server_for_its_weight_is_chosen() {
    let mut balancer = build(Kind::LeastConnections, &[1, 3]);
    for server in [0, 1, 1] {
        balancer.begin(server);
    }
    assert_eq!(choose(balancer.as_mut(), &|_| false), Some(1));
    balancer.begin(1);
    balancer.begin(1);
    assert_eq!(choose(balancer.as_mut(), &|_| false), Some(0));
    balancer.end(1, ANSWERED);
    balancer.end(1, Outcome::Cancelled);
    assert_eq!(choose(balancer.as_mut(), &|_| false), Some(1));
}
