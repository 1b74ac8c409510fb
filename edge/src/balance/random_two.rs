//! Balancer that compares two servers chosen at random ("power of two choices").

use super::estimate::{Estimates, Measure};
use super::policy::{Balancer, ChoiceContext, Now, Outcome};

/// Chooses two servers at random by weight, and of these the one that is expected to respond first.
///
/// Several workers, or several proxies, that do not know of each other's requests thus do not send
/// all of them to the server that seems the best to each.
pub(super) struct RandomTwo(Estimates);

impl RandomTwo {
    pub(super) fn new() -> RandomTwo {
        RandomTwo(Estimates::new(Measure::Header))
    }

    /// Returns the candidate at position `at` of the sum of all candidates' weights.
    fn candidate(&self, mut at: u64, allows: impl Fn(usize) -> bool) -> Option<usize> {
        let mut candidates = (0..self.0.len()).filter(|&server| allows(server));
        candidates.find(|&server| {
            let weight = u64::from(self.0.weight(server));
            let found = at < weight;
            at = at.saturating_sub(weight);
            found
        })
    }
}

impl Balancer for RandomTwo {
    fn set_weights(&mut self, weights: &[u32]) {
        self.0.set_weights(weights);
    }

    fn choose(&mut self, context: &ChoiceContext<'_>) -> Option<usize> {
        let servers = (0..self.0.len()).filter(|&server| context.allows(server));
        let sum: u64 = servers.map(|server| u64::from(self.0.weight(server))).sum();
        if sum == 0 {
            return None;
        }
        let random = (context.random)();
        let first = self.candidate(part(random >> 32, sum), |server| context.allows(server))?;
        let rest = sum - u64::from(self.0.weight(first));
        let others = |server| server != first && context.allows(server);
        let second = self.candidate(part(random & 0xffff_ffff, rest), others);
        let now_us = (context.now)();
        let cost = |server| self.0.cost(server, now_us);
        let chosen = second
            .filter(|&second| cost(second) < cost(first))
            .unwrap_or(first);
        self.0.choose(chosen, now_us);
        Some(chosen)
    }

    fn begin(&mut self, server: usize) {
        self.0.begin(server);
    }

    fn end(&mut self, server: usize, outcome: Outcome, now: Now<'_>) {
        self.0.end(server, outcome, now);
    }
}

/// Maps 32 random bits to a number below `bound`, or to 0 if `bound` is 0.
fn part(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 32) as u64
}
