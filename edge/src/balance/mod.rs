//! Which server of an upstream is asked next: one file per way of choosing.

mod least_connections;
mod round_robin;

#[cfg(test)]
mod laws;

use serde::Deserialize;

/// `balance = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// Fewest requests in progress, by weight.
    LeastConnections,
}

impl Kind {
    /// Every kind.
    pub const ALL: &'static [Kind] = &[Kind::RoundRobin, Kind::LeastConnections];
}

/// Chooses among servers, which it knows by their place in the list and by their weight.
///
/// Pure: no I/O, no clock. Each worker has its own, so nothing is shared.
pub trait Balancer {
    /// The server to ask next among those for which `excluded` does not hold; `None` if it holds
    /// for all.
    fn choose(&mut self, excluded: &dyn Fn(usize) -> bool) -> Option<usize>;

    /// A request to this server has begun, whether it was chosen here or had to wait for it.
    fn begin(&mut self, server: usize);

    /// A request to this server has ended; called once for each `begin`.
    fn end(&mut self, server: usize);
}

/// A balancer of this kind for servers with these weights (0 counts as 1).
pub fn build(kind: Kind, weights: &[u32]) -> Box<dyn Balancer> {
    let weights: Vec<u32> = weights.iter().map(|&weight| weight.max(1)).collect();
    match kind {
        Kind::RoundRobin => Box::new(round_robin::RoundRobin::new(weights)),
        Kind::LeastConnections => Box::new(least_connections::LeastConnections::new(weights)),
    }
}
