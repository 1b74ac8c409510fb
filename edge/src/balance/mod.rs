//! Which server of an upstream is asked next: one file per way of choosing.

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
