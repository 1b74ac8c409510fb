//! Round robin by weight, spread evenly: a server of weight 5 next to one of weight 1 does not get
//! five requests in a row.

use super::policy::{Ask, Balancer, Outcome};

/// Smooth weighted round robin, as in nginx: at each choice every candidate's credit grows by its
/// weight; the candidate with the most credit is chosen and pays the sum of these weights.
pub(super) struct RoundRobin {
    weights: Vec<u32>,
    credit: Vec<i64>,
}

impl RoundRobin {
    pub(super) fn new(weights: Vec<u32>) -> RoundRobin {
        let credit = vec![0; weights.len()];
        RoundRobin { weights, credit }
    }
}

impl Balancer for RoundRobin {
    fn choose(&mut self, ask: &Ask<'_>) -> Option<usize> {
        let mut gained = 0;
        let mut richest: Option<usize> = None;
        for server in 0..self.weights.len() {
            if !ask.allows(server) {
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

    fn end(&mut self, _server: usize, _outcome: Outcome) {}
}
