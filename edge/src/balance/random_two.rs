//! Balancer that compares two servers chosen at random ("power of two choices").

use super::policy::{Ask, Balancer, Now, Outcome};

/// Chooses two servers at random by weight, and of these the one with fewer requests in progress
/// relative to its weight.
///
/// Several workers, or several proxies, that do not know of each other's requests thus do not send
/// all of them to the server that seems the least busy to each.
#[derive(Default)]
pub(super) struct RandomTwo {
    weights: Vec<u32>,
    in_progress: Vec<u64>,
}

impl RandomTwo {
    /// Returns the candidate at position `at` of the sum of all candidates' weights.
    fn candidate(&self, mut at: u64, allows: impl Fn(usize) -> bool) -> Option<usize> {
        let candidates = (0..self.weights.len()).filter(|&server| allows(server));
        let mut with_weight = candidates.filter(|&server| self.weights[server] > 0);
        with_weight.find(|&server| {
            let weight = u64::from(self.weights[server]);
            let found = at < weight;
            at = at.saturating_sub(weight);
            found
        })
    }

    /// Whether `a` has strictly fewer requests in progress than `b`, relative to their weights.
    fn is_less_busy(&self, a: usize, b: usize) -> bool {
        let load = |of: usize, other: usize| {
            u128::from(self.in_progress[of]) * u128::from(self.weights[other])
        };
        load(a, b) < load(b, a)
    }
}

impl Balancer for RandomTwo {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights = weights.to_vec();
        self.in_progress.resize(weights.len(), 0);
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Option<usize> {
        let servers = (0..self.weights.len()).filter(|&server| ask.allows(server));
        let sum: u64 = servers.map(|server| u64::from(self.weights[server])).sum();
        if sum == 0 {
            return None;
        }
        let random = (ask.random)();
        let first = self.candidate(part(random >> 32, sum), |server| ask.allows(server))?;
        let rest = sum - u64::from(self.weights[first]);
        let others = |server| server != first && ask.allows(server);
        let second = self.candidate(part(random & 0xffff_ffff, rest), others);
        Some(
            second.map_or(first, |second| match self.is_less_busy(second, first) {
                true => second,
                false => first,
            }),
        )
    }

    fn begin(&mut self, server: usize) {
        self.in_progress[server] += 1;
    }

    fn end(&mut self, server: usize, _outcome: Outcome, _now: Now<'_>) {
        self.in_progress[server] = self.in_progress[server].saturating_sub(1);
    }
}

/// Maps 32 random bits to a number below `bound`, or to 0 if `bound` is 0.
fn part(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 32) as u64
}
