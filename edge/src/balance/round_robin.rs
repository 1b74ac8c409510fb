//! Round robin by weight, spread evenly: a server of weight 5 next to one of weight 1 does not get
//! five requests in a row.

use super::policy::{Balancer, ChoiceContext, Now, Outcome};

/// Smooth weighted round robin, as in nginx: at each choice every candidate's credit grows by its
/// weight; the candidate with the most credit is chosen and pays the sum of these weights.
#[derive(Default)]
pub(super) struct RoundRobin {
    weights: Vec<u32>,
    credit: Vec<i64>,
}

impl Balancer for RoundRobin {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights = weights.to_vec();
        self.credit.resize(weights.len(), 0);
        // Credit from larger weights would keep a server out, or alone, for many choices.
        let most: i64 = weights.iter().copied().map(i64::from).sum();
        for (credit, &weight) in self.credit.iter_mut().zip(weights) {
            *credit = match weight {
                0 => 0,
                _ => (*credit).clamp(-most, most),
            };
        }
    }

    fn choose(&mut self, context: &ChoiceContext<'_>) -> Option<usize> {
        let mut gained = 0;
        let mut richest: Option<usize> = None;
        for server in 0..self.weights.len() {
            if self.weights[server] == 0 || !context.allows(server) {
                continue;
            }
            let weight = i64::from(self.weights[server]);
            gained += weight;
            self.credit[server] += weight;
            if richest.is_none_or(|best| self.credit[server] > self.credit[best]) {
                richest = Some(server);
            }
        }
        let chosen = richest?;
        self.credit[chosen] -= gained;
        Some(chosen)
    }

    fn begin(&mut self, _server: usize) {}

    fn end(&mut self, _server: usize, _outcome: Outcome, _now: Now<'_>) {}
}
