//! The value of `health` in an upstream, as it was written.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::config::value::{HEALTH, Key, List, Shaped, StatusRange, Time};

/// Value of `health` in an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct HealthFile {
    pub path: Key<String>,
    pub port: Key<u64>,
    pub method: Key<String>,
    pub headers: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    pub status: Option<List<StatusRange>>,
    pub body: Key<String>,
    pub interval: Key<Time>,
    pub jitter: Key<f64>,
    pub timeout: Key<Time>,
    pub up: Key<u64>,
    pub down: Key<u64>,
}

impl Shaped for HealthFile {
    const SHAPE: &str = HEALTH;
}
