//! Balancer that sends the requests of one key to the same server (consistent hashing).

use super::policy::{Balancer, ChoiceContext, Now, Outcome};

/// Chooses by weighted rendezvous hashing (highest random weight): key and server give each pair a
/// rank, and the best rank among the servers wins.
///
/// If a server leaves, only its keys move, and if one comes or gets more weight, only keys that move
/// to it. A ring of points (ketama) has the same property, but shares that differ by some percent
/// with the points, and has to be rebuilt at each change of a weight.
pub(super) struct Hash {
    /// Most requests in progress of a server, in percent of its share of all. 0: no limit.
    load_percent: u64,
    servers: Vec<Server>,
}

#[derive(Clone, Copy, Default)]
struct Server {
    id: u64,
    weight: u32,
    in_progress: u64,
}

impl Hash {
    pub(super) fn new(load_percent: u32) -> Hash {
        Hash {
            load_percent: u64::from(load_percent),
            servers: Vec::new(),
        }
    }

    /// Returns weight and requests in progress of all servers that may be chosen.
    fn sums(&self, context: &ChoiceContext<'_>) -> (u64, u64) {
        let mut sums = (0, 0);
        for (index, server) in self.servers.iter().enumerate() {
            if server.weight > 0 && context.allows(index) {
                sums.0 += u64::from(server.weight);
                sums.1 += server.in_progress;
            }
        }
        sums
    }
}

impl Server {
    /// Whether one more request would exceed the server's share of `in_progress` requests, and one
    /// more, by more than the limit. With a limit of 100 % or more, this is never true for all.
    fn is_overloaded(&self, load_percent: u64, (weights, in_progress): (u64, u64)) -> bool {
        let share = u128::from(load_percent) * u128::from(in_progress + 1);
        let limit = (share * u128::from(self.weight)).div_ceil(100 * u128::from(weights.max(1)));
        load_percent > 0 && u128::from(self.in_progress) >= limit
    }

    /// Returns the rank of this server for a key: an exponentially distributed number whose rate is
    /// the weight. The least of several such numbers is this server's with a probability that is
    /// this server's share of the weights.
    fn rank(&self, key: u64) -> f64 {
        let bits = mix(mix(key) ^ self.id) >> 11;
        let unit = (bits + 1) as f64 / (1u64 << 53) as f64;
        -unit.ln() / f64::from(self.weight)
    }
}

impl Balancer for Hash {
    fn set_ids(&mut self, ids: &[u64]) {
        self.servers.resize(ids.len(), Server::default());
        for (server, &id) in self.servers.iter_mut().zip(ids) {
            server.id = mix(id);
        }
    }

    fn set_weights(&mut self, weights: &[u32]) {
        self.servers.resize(weights.len(), Server::default());
        for (server, &weight) in self.servers.iter_mut().zip(weights) {
            server.weight = weight;
        }
    }

    fn choose(&mut self, context: &ChoiceContext<'_>) -> Option<usize> {
        let (key, sums) = ((context.key)(), self.sums(context));
        let mut best: Option<(usize, f64)> = None;
        for (index, server) in self.servers.iter().enumerate() {
            if server.weight == 0
                || !context.allows(index)
                || server.is_overloaded(self.load_percent, sums)
            {
                continue;
            }
            let rank = server.rank(key);
            if best.is_none_or(|(_, least)| rank < least) {
                best = Some((index, rank));
            }
        }
        best.map(|(index, _)| index)
    }

    fn begin(&mut self, server: usize) {
        self.servers[server].in_progress += 1;
    }

    fn end(&mut self, server: usize, _outcome: Outcome, _now: Now<'_>) {
        let in_progress = &mut self.servers[server].in_progress;
        *in_progress = in_progress.saturating_sub(1);
    }
}

/// Spreads the bits of a number (the finalizer of SplitMix64).
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
