//! The value of `sticky` in an upstream, as it was written.

use serde::Deserialize;

use crate::config::value::{Key, STICKY, Shaped, Time};

/// Value of `sticky` in an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct StickyFile {
    pub cookie: Key<String>,
    pub max_age: Key<Time>,
}

impl Shaped for StickyFile {
    const SHAPE: &str = STICKY;
}
