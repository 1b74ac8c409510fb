//! Balancers, which choose the server of an upstream for each request, one file per policy; and
//! `outliers`, which finds servers that fail or are slow.

mod estimate;
mod hash;
mod least_connections;
mod least_time;
mod outliers;
mod policy;
mod random_two;
mod round_robin;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod simulation;

use serde::Deserialize;

pub use estimate::Measure;
pub use outliers::{Cause, Failure, OutlierOptions, Outliers, is_failure, is_failure_status};
#[cfg(test)]
pub use policy::Now;
pub use policy::{Balancer, ChoiceContext, Outcome};

/// Balancing policies, as named by `balance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The servers take turns, weighted.
    #[default]
    RoundRobin,
    /// The server with the fewest requests in progress relative to its weight.
    LeastConnections,
    /// Of two servers chosen at random, the one that is expected to respond first.
    RandomTwo,
    /// The server that is expected to respond first.
    LeastTime,
    /// The same server for all requests of a key.
    Hash,
}

/// A balancing policy with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The policy.
    pub kind: Kind,
    /// The end of the time that `LeastTime` measures.
    pub measure: Measure,
    /// With `Hash`: most requests in progress of a server in percent of its share of all, at least
    /// 101. 0: no limit.
    pub load_percent: u32,
}

impl Options {
    /// Returns a policy with its default options.
    pub fn of(kind: Kind) -> Options {
        Options {
            kind,
            measure: Measure::default(),
            load_percent: 125,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::of(Kind::default())
    }
}

#[cfg(test)]
impl Kind {
    /// Every kind of balancer.
    pub const ALL: &'static [Kind] = &[
        Kind::RoundRobin,
        Kind::LeastConnections,
        Kind::RandomTwo,
        Kind::LeastTime,
        Kind::Hash,
    ];
}

/// Creates a balancer with these options for servers with these weights (0: absent).
pub fn build(options: &Options, weights: &[u32]) -> Box<dyn Balancer> {
    let mut balancer: Box<dyn Balancer> = match options.kind {
        Kind::RoundRobin => Box::new(round_robin::RoundRobin::default()),
        Kind::LeastConnections => Box::new(least_connections::LeastConnections::default()),
        Kind::RandomTwo => Box::new(random_two::RandomTwo::new()),
        Kind::LeastTime => Box::new(least_time::LeastTime::new(options.measure)),
        Kind::Hash => Box::new(hash::Hash::new(options.load_percent)),
    };
    balancer.set_weights(weights);
    balancer
}
