//! The values of `token`, `operators` and `readers` of the admin API, as they were written.

use serde::Deserialize;

use crate::config::value::{Key, Shaped, TOKENS};

/// Value of `token`, `operators` and `readers` of the admin API.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct TokensFile {
    pub file: Key<String>,
}

impl Shaped for TokensFile {
    const SHAPE: &str = TOKENS;
}
