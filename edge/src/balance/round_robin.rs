//! In turn, by weight, spread evenly: a server of weight 5 beside one of weight 1 is not asked five
//! times in a row.

use super::Balancer;

/// Smooth weighted round robin: each turn every candidate gains its weight, the richest one is
/// chosen and pays what all of them gained.
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
    fn choose(&mut self, excluded: &dyn Fn(usize) -> bool) -> Option<usize> {
        let mut gained = 0;
        let mut richest: Option<usize> = None;
        for server in 0..self.weights.len() {
            if excluded(server) {
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

    fn end(&mut self, _server: usize) {}
}
