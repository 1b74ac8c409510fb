//! Balancers, which choose the server of an upstream for each request. One file per policy.

mod least_connections;
mod policy;
mod round_robin;

#[cfg(test)]
mod laws;

use serde::Deserialize;

pub use policy::{Ask, Balancer, Outcome};

/// Balancing policies, as named by `balance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The servers take turns, weighted.
    #[default]
    RoundRobin,
    /// The server with the fewest requests in progress relative to its weight.
    LeastConnections,
}

#[cfg(test)]
impl Kind {
    /// Every kind of balancer.
    pub const ALL: &'static [Kind] = &[Kind::RoundRobin, Kind::LeastConnections];
}

/// Creates a balancer of this kind for servers with these weights (0 counts as 1).
pub fn build(kind: Kind, weights: &[u32]) -> Box<dyn Balancer> {
    let weights: Vec<u32> = weights.iter().map(|&weight| weight.max(1)).collect();
    match kind {
        Kind::RoundRobin => Box::new(round_robin::RoundRobin::new(weights)),
        Kind::LeastConnections => Box::new(least_connections::LeastConnections::new(weights)),
    }
}
