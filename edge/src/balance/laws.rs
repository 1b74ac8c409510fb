//! Laws that hold for every kind of balancer.

use proptest::prelude::*;

use super::{Balancer, Kind, build};

/// Asks `times` times, each request ending only after all have begun, and counts the choices.
fn shares(balancer: &mut dyn Balancer, servers: usize, times: usize) -> Vec<u32> {
    let mut counts = vec![0; servers];
    for _ in 0..times {
        let server = balancer.choose(&|_| false).expect("nothing is excluded");
        balancer.begin(server);
        counts[server] += 1;
    }
    for (server, &count) in counts.iter().enumerate() {
        (0..count).for_each(|_| balancer.end(server));
    }
    counts
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
        masks in prop::collection::vec(0u8..64, 1..60),
    ) {
        for &kind in Kind::ALL {
            let mut balancer = build(kind, &weights);
            for &mask in &masks {
                let excluded = |server: usize| mask >> server & 1 == 1;
                match balancer.choose(&excluded) {
                    Some(server) => {
                        prop_assert!(server < weights.len() && !excluded(server), "{:?}", kind);
                        balancer.begin(server);
                    }
                    None => prop_assert!((0..weights.len()).all(excluded), "{:?}", kind),
                }
            }
        }
    }

    #[test]
    fn equal_servers_take_turns_when_each_request_ends_before_the_next(servers in 1usize..6) {
        for &kind in Kind::ALL {
            let mut balancer = build(kind, &vec![1; servers]);
            let mut counts = vec![0; servers];
            for _ in 0..servers * 4 {
                let server = balancer.choose(&|_| false).expect("nothing is excluded");
                balancer.begin(server);
                balancer.end(server);
                counts[server] += 1;
            }
            prop_assert!(counts.iter().all(|&count| count == 4), "{:?} {:?}", kind, counts);
        }
    }
}

#[test]
fn turns_are_spread_and_not_in_a_row() {
    let mut balancer = build(Kind::RoundRobin, &[5, 1, 1]);
    let order: Vec<_> = (0..7).filter_map(|_| balancer.choose(&|_| false)).collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn the_least_busy_server_for_its_weight_is_asked() {
    let mut balancer = build(Kind::LeastConnections, &[1, 3]);
    for server in [0, 1, 1] {
        balancer.begin(server);
    }
    assert_eq!(balancer.choose(&|_| false), Some(1));
    balancer.begin(1);
    balancer.begin(1);
    assert_eq!(balancer.choose(&|_| false), Some(0));
    balancer.end(1);
    balancer.end(1);
    assert_eq!(balancer.choose(&|_| false), Some(1));
}
