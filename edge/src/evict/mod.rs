//! One file per eviction policy, behind one trait that speaks only ids.

use serde::Deserialize;

/// `evict = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Three queues; resists scans and one-hit wonders (Yang et al., SOSP 2023).
    #[default]
    S3Fifo,
    /// Least recently used.
    Lru,
}
