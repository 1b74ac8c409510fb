//! Fewest requests in progress, by weight.

use super::Balancer;
use super::round_robin::RoundRobin;

/// Asks the server with the fewest requests in progress for its weight; among equals, in turn.
pub(super) struct LeastConnections {
    weights: Vec<u32>,
    in_progress: Vec<u64>,
    turns: RoundRobin,
}

impl LeastConnections {
    pub(super) fn new(weights: Vec<u32>) -> LeastConnections {
        LeastConnections {
            in_progress: vec![0; weights.len()],
            turns: RoundRobin::new(weights.clone()),
            weights,
        }
    }
}

impl Balancer for LeastConnections {
    fn choose(&mut self, excluded: &dyn Fn(usize) -> bool) -> Option<usize> {
        let (weights, in_progress) = (&self.weights, &self.in_progress);
        // Whether `a` has strictly less to do for its weight than `b`, without dividing.
        let less_busy = |a: usize, b: usize| {
            let load =
                |of: usize, other: usize| u128::from(in_progress[of]) * u128::from(weights[other]);
            load(a, b) < load(b, a)
        };
        let least = (0..weights.len())
            .filter(|&server| !excluded(server))
            .reduce(|best, next| if less_busy(next, best) { next } else { best })?;
        self.turns
            .choose(&|server| excluded(server) || less_busy(least, server))
    }

    fn begin(&mut self, server: usize) {
        self.in_progress[server] += 1;
    }

    fn end(&mut self, server: usize) {
        self.in_progress[server] = self.in_progress[server].saturating_sub(1);
    }
}
