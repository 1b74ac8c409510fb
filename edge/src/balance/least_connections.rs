//! Balancer that chooses the server with the fewest requests in progress relative to its weight.

use super::policy::{Ask, Balancer, Outcome};
use super::round_robin::RoundRobin;

/// Chooses the server with the fewest requests in progress relative to its weight; among equals, by
/// round robin.
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
    fn choose(&mut self, ask: &Ask<'_>) -> Option<usize> {
        let (weights, in_progress) = (&self.weights, &self.in_progress);
        // Whether `a` has strictly fewer requests in progress than `b`, relative to their weights.
        // Multiplies crosswise to avoid a division.
        let less_busy = |a: usize, b: usize| {
            let load =
                |of: usize, other: usize| u128::from(in_progress[of]) * u128::from(weights[other]);
            load(a, b) < load(b, a)
        };
        let least = (0..weights.len())
            .filter(|&server| ask.allows(server))
            .reduce(|best, next| if less_busy(next, best) { next } else { best })?;
        let busier = |server| !ask.allows(server) || less_busy(least, server);
        self.turns.choose(&ask.excluding(&busier))
    }

    fn begin(&mut self, server: usize) {
        self.in_progress[server] += 1;
    }

    fn end(&mut self, server: usize, _outcome: Outcome) {
        self.in_progress[server] = self.in_progress[server].saturating_sub(1);
    }
}
