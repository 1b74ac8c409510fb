//! Balancers: which server of an upstream gets a request. One file per policy.

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

#[cfg(test)]
impl Kind {
    /// Every kind.
    pub const ALL: &'static [Kind] = &[Kind::RoundRobin, Kind::LeastConnections];
}

/// The facts about a request on which the choice of its server may depend.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "today's balancers use neither key nor attempt")]
pub struct Ask<'a> {
    /// Computes the hash of the requested URL. A function, since few balancers need the hash.
    pub key: &'a dyn Fn() -> u64,
    /// How many servers were tried for this request before.
    pub attempt: usize,
    /// Whether this server must not be chosen: it failed this request, is full, or another is
    /// preferred.
    pub excluded: &'a dyn Fn(usize) -> bool,
}

impl Ask<'_> {
    /// Whether this server may be chosen.
    pub fn allows(&self, server: usize) -> bool {
        !(self.excluded)(server)
    }
}

/// How an exchange with a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server sent a response head.
    Answered {
        /// The class of its status: 2 for 2xx.
        class: u8,
        /// Microseconds from sending the request to the complete head.
        head_us: u64,
    },
    /// No connection to the server could be opened.
    ConnectFailed,
    /// The server did not accept, answer or send on in time.
    TimedOut,
    /// The connection broke, or what the server sent is not HTTP.
    Broken,
    /// The client left, or the exchange was given up for another reason that says nothing about the
    /// server.
    Cancelled,
}

/// Chooses among the servers of an upstream, which are known by their index and weight.
///
/// Pure: no I/O, no clock. Each worker has its own, so nothing is shared.
pub trait Balancer {
    /// The server for a request, one that `ask` allows; `None` if it allows none.
    fn choose(&mut self, ask: &Ask<'_>) -> Option<usize>;

    /// An exchange with this server has begun. Called after `choose`, and also without it for a
    /// request that waited in the queue until this server had room.
    fn begin(&mut self, server: usize);

    /// An exchange with this server has ended; called once for each `begin`.
    fn end(&mut self, server: usize, outcome: Outcome);
}

/// A balancer of this kind for servers with these weights (0 counts as 1).
pub fn build(kind: Kind, weights: &[u32]) -> Box<dyn Balancer> {
    let weights: Vec<u32> = weights.iter().map(|&weight| weight.max(1)).collect();
    match kind {
        Kind::RoundRobin => Box::new(round_robin::RoundRobin::new(weights)),
        Kind::LeastConnections => Box::new(least_connections::LeastConnections::new(weights)),
    }
}
