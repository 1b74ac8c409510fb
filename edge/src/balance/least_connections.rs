//! Balancer that chooses the server with the fewest requests in progress relative to its weight.

use super::policy::{Balancer, ChoiceContext, Now, Outcome};
use super::round_robin::RoundRobin;

/// Chooses the server with the fewest requests in progress relative to its weight; among equals, by
/// round robin.
#[derive(Default)]
pub(super) struct LeastConnections {
    weights: Vec<u32>,
    in_progress: Vec<u64>,
    turns: RoundRobin,
}

impl Balancer for LeastConnections {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights = weights.to_vec();
        self.in_progress.resize(weights.len(), 0);
        self.turns.set_weights(weights);
    }

    fn choose(&mut self, context: &ChoiceContext<'_>) -> Option<usize> {
        let (weights, in_progress) = (&self.weights, &self.in_progress);
        // Whether `a` has strictly fewer requests in progress than `b`, relative to their weights.
        // Multiplies crosswise to avoid a division.
        let less_busy = |a: usize, b: usize| {
            let load =
                |of: usize, other: usize| u128::from(in_progress[of]) * u128::from(weights[other]);
            load(a, b) < load(b, a)
        };
        let least = (0..weights.len())
            .filter(|&server| weights[server] > 0 && context.allows(server))
            .reduce(|best, next| if less_busy(next, best) { next } else { best })?;
        let busier = |server| !context.allows(server) || less_busy(least, server);
        self.turns.choose(&context.excluding(&busier))
    }

    fn begin(&mut self, server: usize) {
        self.in_progress[server] += 1;
    }

    fn end(&mut self, server: usize, _outcome: Outcome, _now: Now<'_>) {
        self.in_progress[server] = self.in_progress[server].saturating_sub(1);
    }
}
