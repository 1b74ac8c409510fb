//! The value of `eject` in an upstream, as it was written.

use serde::Deserialize;

use crate::config::value::{EJECT, Key, OrFalse, Shaped, Time};

/// Value of `eject` in an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct EjectFile {
    pub failures: Key<OrFalse<u64>>,
    pub error_rate: Key<OrFalse<f64>>,
    pub latency: Key<OrFalse<f64>>,
    pub window: Key<Time>,
    pub r#for: Key<Time>,
    pub at_most: Key<f64>,
}

impl Shaped for EjectFile {
    const SHAPE: &str = EJECT;
}
