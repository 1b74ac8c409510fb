//! Balancer that chooses the server which is expected to respond first.

use super::estimate::{Estimates, Measure};
use super::policy::{Balancer, ChoiceContext, Now, Outcome};

/// Chooses the server with the smallest product of expected time and load.
pub(super) struct LeastTime(Estimates);

impl LeastTime {
    pub(super) fn new(measure: Measure) -> LeastTime {
        LeastTime(Estimates::new(measure))
    }
}

impl Balancer for LeastTime {
    fn set_weights(&mut self, weights: &[u32]) {
        self.0.set_weights(weights);
    }

    fn choose(&mut self, context: &ChoiceContext<'_>) -> Option<usize> {
        let now_us = (context.now)();
        let mut best: Option<(usize, f64)> = None;
        for server in 0..self.0.len() {
            if self.0.weight(server) == 0 || !context.allows(server) {
                continue;
            }
            let cost = self.0.cost(server, now_us);
            // Equal servers take turns.
            let is_better = best.is_none_or(|(other, least)| {
                cost < least || (cost == least && self.0.chosen(server) < self.0.chosen(other))
            });
            if is_better {
                best = Some((server, cost));
            }
        }
        let (chosen, _) = best?;
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
