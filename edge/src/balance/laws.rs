//! Laws that hold for every kind of balancer, and for one that exists only here: `ByKey`, which
//! chooses by key.

use proptest::prelude::*;

use super::{Balancer, ChoiceContext, Kind, Measure, Now, Options, Outcome, build};
use crate::sys::Random;

const ANSWERED: Outcome = Outcome::Answered {
    status: 200,
    head_us: 1000,
    total_us: Some(1000),
};

/// Kinds that give each server exactly its share when nothing distinguishes the servers.
const EXACT: [Kind; 3] = [Kind::RoundRobin, Kind::LeastConnections, Kind::LeastTime];

/// The time of all choices and ends, unless a test needs a clock.
const NOW_US: u64 = 1_000_000_000;

fn now() -> u64 {
    NOW_US
}

/// Sends each key to a server of its own, or the next one that is allowed.
struct ByKey(Vec<u32>);

impl Balancer for ByKey {
    fn set_weights(&mut self, weights: &[u32]) {
        self.0 = weights.to_vec();
    }

    fn choose(&mut self, context: &ChoiceContext<'_>) -> Option<usize> {
        let servers = self.0.len();
        let first = (context.key)() as usize % servers.max(1);
        let turn = |step: usize| (first + step) % servers;
        (0..servers)
            .map(turn)
            .find(|&server| self.0[server] > 0 && context.allows(server))
    }

    fn begin(&mut self, _server: usize) {}

    fn end(&mut self, _server: usize, _outcome: Outcome, _now: Now<'_>) {}
}

/// Returns a balancer of each kind, and `ByKey`, with their names.
fn all(weights: &[u32]) -> Vec<(String, Box<dyn Balancer>)> {
    let built = |&kind| (format!("{kind:?}"), of(kind, weights));
    let by_key: Box<dyn Balancer> = Box::new(ByKey(weights.to_vec()));
    let by_key = ("ByKey".to_owned(), by_key);
    Kind::ALL.iter().map(built).chain([by_key]).collect()
}

fn of(kind: Kind, weights: &[u32]) -> Box<dyn Balancer> {
    let mut balancer = build(&Options::of(kind), weights);
    let ids: Vec<u64> = (0..weights.len() as u64).collect();
    balancer.set_ids(&ids);
    balancer
}

fn key() -> u64 {
    7
}

/// Returns the choice for this key and random number, with nothing excluded.
fn choose_for(balancer: &mut dyn Balancer, key: u64, random: u64) -> Option<usize> {
    balancer.choose(&ChoiceContext {
        key: &|| key,
        now: &now,
        random: &|| random,
        excluded: &|_| false,
    })
}

/// Returns the choice when these servers are excluded.
fn choose(balancer: &mut dyn Balancer, excluded: &dyn Fn(usize) -> bool) -> Option<usize> {
    balancer.choose(&ChoiceContext {
        key: &key,
        now: &now,
        random: &|| 1 << 62,
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
        (0..count).for_each(|_| balancer.end(server, ANSWERED, &now));
    }
    counts
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (200u16..600, any::<u64>(), any::<Option<u64>>()).prop_map(
            |(status, head_us, total_us)| Outcome::Answered {
                status,
                head_us,
                total_us
            }
        ),
        Just(Outcome::ConnectFailed),
        Just(Outcome::TimedOut),
        Just(Outcome::Broken),
        Just(Outcome::Cancelled),
    ]
}

proptest! {
    #[test]
    fn over_a_cycle_each_server_gets_its_weight(weights in prop::collection::vec(1u32..20, 1..6)) {
        for kind in EXACT {
            let mut balancer = of(kind, &weights);
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
        asks in prop::collection::vec((0u8..64, any::<(u64, u64, u64)>(), outcomes(), any::<bool>()), 1..60),
    ) {
        for (name, mut balancer) in all(&weights) {
            for &(mask, (key, now, random), outcome, ends) in &asks {
                let excluded = |server: usize| mask >> server & 1 == 1;
                let (now, random) = (|| now, || random);
                let context =
                    ChoiceContext { key: &|| key, now: &now, random: &random, excluded: &excluded };
                match balancer.choose(&context) {
                    Some(server) => {
                        prop_assert!(weights[server] > 0 && !excluded(server), "{}", name);
                        balancer.begin(server);
                        if ends {
                            balancer.end(server, outcome, &now);
                        }
                    }
                    None => prop_assert!(
                        (0..weights.len()).all(|server| weights[server] == 0 || excluded(server)),
                        "{}",
                        name
                    ),
                }
            }
        }
    }

    #[test]
    fn a_server_that_was_not_chosen_may_begin_and_end(
        weights in prop::collection::vec(1u32..5, 1..6),
        exchanges in prop::collection::vec((0usize..6, outcomes()), 1..30),
    ) {
        for (name, mut balancer) in all(&weights) {
            for &(server, _) in &exchanges {
                balancer.begin(server % weights.len());
            }
            for &(server, outcome) in &exchanges {
                balancer.end(server % weights.len(), outcome, &now);
            }
            prop_assert!(choose(balancer.as_mut(), &|_| false).is_some(), "{}", name);
        }
    }

    #[test]
    fn new_weights_hold_from_the_next_choice_on(
        before in prop::collection::vec(0u32..1000, 1..6),
        choices in 0usize..50,
        more in prop::collection::vec(0u32..20, 6),
    ) {
        for (name, mut balancer) in all(&before) {
            let begun: Vec<usize> = (0..choices)
                .filter_map(|_| {
                    let server = choose(balancer.as_mut(), &|_| false)?;
                    balancer.begin(server);
                    Some(server)
                })
                .collect();
            balancer.set_weights(&more);
            for &server in &begun {
                balancer.end(server, ANSWERED, &now);
            }
            let sum: u32 = more.iter().sum();
            if sum == 0 {
                prop_assert_eq!(choose(balancer.as_mut(), &|_| false), None, "{}", name);
                continue;
            }
            let cycles = 4;
            let counts = shares(balancer.as_mut(), more.len(), (sum * cycles) as usize);
            for (&count, &weight) in counts.iter().zip(&more) {
                prop_assert!(weight > 0 || count == 0, "{} {:?} {:?}", name, counts, more);
                // Credit from before the change may move a few requests.
                let is_exact = ["RoundRobin", "LeastConnections"].contains(&&*name);
                let fair = !is_exact || count.abs_diff(weight * cycles) <= 6;
                prop_assert!(fair, "{} {:?} {:?}", name, counts, more);
            }
        }
    }

    #[test]
    fn equal_servers_take_turns_when_each_request_ends_before_the_next(servers in 1usize..6) {
        for kind in EXACT {
            let mut balancer = of(kind, &vec![1; servers]);
            let mut counts = vec![0; servers];
            for _ in 0..servers * 4 {
                let server = choose(balancer.as_mut(), &|_| false).expect("nothing is excluded");
                balancer.begin(server);
                balancer.end(server, ANSWERED, &now);
                counts[server] += 1;
            }
            prop_assert!(counts.iter().all(|&count| count == 4), "{:?} {:?}", kind, counts);
        }
    }
}

#[test]
fn a_balancer_may_choose_by_key() {
    let mut balancer = ByKey(vec![1; 3]);
    let mut choose = |key: u64| {
        let (key, excluded) = (|| key, |server: usize| server == 2);
        balancer.choose(&ChoiceContext {
            key: &key,
            now: &now,
            random: &|| 0,
            excluded: &excluded,
        })
    };
    assert_eq!(choose(4), Some(1));
    assert_eq!(choose(4), Some(1));
    assert_eq!(choose(5), Some(0));
    assert_eq!(choose(6), Some(0));
}

#[test]
fn a_heavy_server_is_not_chosen_many_times_in_a_row() {
    let mut balancer = of(Kind::RoundRobin, &[5, 1, 1]);
    let order: Vec<_> = (0..7)
        .filter_map(|_| choose(balancer.as_mut(), &|_| false))
        .collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn the_least_busy_server_for_its_weight_is_chosen() {
    let mut balancer = of(Kind::LeastConnections, &[1, 3]);
    for server in [0, 1, 1] {
        balancer.begin(server);
    }
    assert_eq!(choose(balancer.as_mut(), &|_| false), Some(1));
    balancer.begin(1);
    balancer.begin(1);
    assert_eq!(choose(balancer.as_mut(), &|_| false), Some(0));
    balancer.end(1, ANSWERED, &now);
    balancer.end(1, Outcome::Cancelled, &now);
    assert_eq!(choose(balancer.as_mut(), &|_| false), Some(1));
}

#[test]
fn shares_of_keys_and_of_random_choices_follow_the_weights() {
    let weights = [1, 2, 3, 4];
    for kind in [Kind::RandomTwo, Kind::Hash] {
        let (mut balancer, random) = (of(kind, &weights), Random::seeded(1));
        let mut counts = [0u32; 4];
        for _ in 0..20_000 {
            let chosen = choose_for(balancer.as_mut(), random.next_u64(), random.next_u64());
            counts[chosen.expect("nothing is excluded")] += 1;
        }
        for (count, weight) in counts.into_iter().zip(weights) {
            let fair = 2000 * weight;
            assert!(count.abs_diff(fair) < fair / 10, "{kind:?} {counts:?}");
        }
    }
}

#[test]
fn a_busy_server_is_chosen_at_random_only_against_busier_ones() {
    let (mut balancer, random) = (of(Kind::RandomTwo, &[1; 3]), Random::seeded(2));
    let mut stuck = 0;
    for _ in 0..3000 {
        let chosen = choose_for(balancer.as_mut(), 0, random.next_u64());
        let chosen = chosen.expect("nothing is excluded");
        balancer.begin(chosen);
        match chosen {
            0 => stuck += 1,
            _ => balancer.end(chosen, ANSWERED, &now),
        }
    }
    assert_eq!(
        stuck, 1,
        "after one request that does not end, others are preferred"
    );
}

#[test]
fn a_key_moves_only_if_its_server_leaves_or_a_better_one_comes() {
    let mut balancer = of(Kind::Hash, &[1; 10]);
    let mut all = |weights: &[u32]| -> Vec<usize> {
        balancer.set_weights(weights);
        let choice = |key| choose_for(balancer.as_mut(), key, 0).expect("nothing is excluded");
        (0..10_000).map(choice).collect()
    };
    let ten = all(&[1; 10]);
    for gone in 0..10 {
        let mut weights = [1; 10];
        weights[gone] = 0;
        let nine = all(&weights);
        let moved: Vec<usize> = (0..nine.len())
            .filter(|&key| nine[key] != ten[key])
            .collect();
        assert!(moved.iter().all(|&key| ten[key] == gone));
        assert!(moved.len() <= 1200, "{} of 10000 keys moved", moved.len());
        weights[gone] = 3;
        let more = all(&weights);
        let moves = |key: &usize| more[*key] != ten[*key];
        assert!((0..more.len()).filter(moves).all(|key| more[key] == gone));
    }
    let mut loads = [0; 10];
    ten.iter().for_each(|&server| loads[server] += 1);
    assert!(loads.iter().all(|&load| load <= 1250), "{loads:?}");
}

#[test]
fn ids_and_not_indices_decide_about_keys() {
    let mut one = build(&Options::of(Kind::Hash), &[1; 3]);
    let mut other = build(&Options::of(Kind::Hash), &[1; 3]);
    one.set_ids(&[7, 8, 9]);
    other.set_ids(&[9, 7, 8]);
    for key in 0..100 {
        let choice = choose_for(one.as_mut(), key, 0).expect("nothing is excluded");
        let same = choose_for(other.as_mut(), key, 0).expect("nothing is excluded");
        assert_eq!((choice + 1) % 3, same);
    }
}

#[test]
fn a_popular_key_spreads_when_its_server_has_too_many_requests_in_progress() {
    for (load_percent, most) in [(125, 25), (0, 200)] {
        let options = Options {
            load_percent,
            ..Options::of(Kind::Hash)
        };
        let mut balancer = build(&options, &[1; 10]);
        balancer.set_ids(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let mut loads = [0; 10];
        for _ in 0..200 {
            let chosen = choose_for(balancer.as_mut(), 5, 0).expect("nothing is excluded");
            balancer.begin(chosen);
            loads[chosen] += 1;
        }
        assert_eq!(loads.into_iter().max(), Some(most), "{loads:?}");
    }
}

/// Returns the share of server 0 in 3000 requests, one after the other, with these outcomes of
/// requests to server 0 and to the others. The clock advances by the time of each.
fn share_of_first(options: &Options, first: Outcome, others: Outcome) -> f64 {
    let mut balancer = build(options, &[1; 3]);
    let (mut now_us, mut count) = (NOW_US, 0);
    for _ in 0..3000 {
        let context = ChoiceContext {
            key: &key,
            now: &|| now_us,
            random: &|| 0,
            excluded: &|_| false,
        };
        let chosen = balancer.choose(&context).expect("nothing is excluded");
        balancer.begin(chosen);
        let outcome = if chosen == 0 { first } else { others };
        if let Outcome::Answered {
            head_us, total_us, ..
        } = outcome
        {
            now_us += total_us.unwrap_or(head_us);
        }
        balancer.end(chosen, outcome, &|| now_us);
        count += u32::from(chosen == 0);
    }
    f64::from(count) / 3000.0
}

#[test]
fn slow_and_failing_servers_get_few_requests() {
    let answer = |status, head_us, total_us| Outcome::Answered {
        status,
        head_us,
        total_us: Some(total_us),
    };
    let by_header = Options::of(Kind::LeastTime);
    let good = answer(200, 1000, 2000);
    let share = |first| share_of_first(&by_header, first, good);
    assert!(share(answer(200, 10_000, 11_000)) < 0.02);
    assert!(share(answer(500, 10, 10)) < 0.1);
    assert!(share(Outcome::ConnectFailed) < 0.1);
    let by_last_byte = Options {
        measure: Measure::LastByte,
        ..by_header.clone()
    };
    let slow_body = answer(200, 500, 50_000);
    assert!(share(slow_body) > 0.5);
    assert!(share_of_first(&by_last_byte, slow_body, good) < 0.05);
}

#[test]
fn requests_in_progress_count_against_a_fast_server() {
    let mut balancer = of(Kind::LeastTime, &[1, 1]);
    for (server, head_us) in [(0, 1000), (1, 1900)] {
        balancer.begin(server);
        let outcome = Outcome::Answered {
            status: 200,
            head_us,
            total_us: None,
        };
        balancer.end(server, outcome, &now);
    }
    let order: Vec<usize> = (0..5)
        .map(|_| {
            let server = choose(balancer.as_mut(), &|_| false).expect("nothing is excluded");
            balancer.begin(server);
            server
        })
        .collect();
    assert_eq!(order, [0, 0, 1, 0, 0]);
}
