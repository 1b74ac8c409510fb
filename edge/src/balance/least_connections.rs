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

    /// Whether `a` has strictly less to do for its weight than `b`, without dividing.
    fn less_busy(&self, a: usize, b: usize) -> bool {
        let load = |of: usize, other: usize| {
            u128::from(self.in_progress[of]) * u128::from(self.weights[other])
        };
        load(a, b) < load(b, a)
    }
}

impl Balancer for LeastConnections {
    fn choose(&mut self, excluded: &dyn Fn(usize) -> bool) -> Option<usize> {
        let least = (0..self.weights.len())
            .filter(|&server| !excluded(server))
            .reduce(|best, server| {
                if self.less_busy(server, best) {
                    server
                } else {
                    best
                }
            })?;
        let mut turns = std::mem::replace(&mut self.turns, RoundRobin::new(Vec::new()));
        let chosen = turns.choose(&|server| excluded(server) || self.less_busy(least, server));
        self.turns = turns;
        chosen
    }

    fn begin(&mut self, server: usize) {
        self.in_progress[server] += 1;
    }

    fn end(&mut self, server: usize) {
        self.in_progress[server] = self.in_progress[server].saturating_sub(1);
    }
}
