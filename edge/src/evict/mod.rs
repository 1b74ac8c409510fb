//! Eviction policies, one file each, with the trait that they implement.

use serde::Deserialize;

#[cfg(test)]
mod laws;
mod list;
mod lru;
mod policy;
pub mod replay;
mod s3_fifo;

pub use policy::Policy;

/// The eviction policies, as the option `evict` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// S3-FIFO with three queues: entries that are used only once, for example by a scan, do not displace others (Yang et al., SOSP 2023).
    #[default]
    S3Fifo,
    /// The entry whose last use is the longest ago is evicted.
    Lru,
}

impl Kind {
    /// Returns the name of the policy in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Kind::S3Fifo => "s3-fifo",
            Kind::Lru => "lru",
        }
    }

    /// Creates an empty policy of this kind.
    pub fn build(self) -> Box<dyn Policy + Send> {
        match self {
            Kind::S3Fifo => Box::new(s3_fifo::S3Fifo::default()),
            Kind::Lru => Box::new(lru::Lru::default()),
        }
    }
}
