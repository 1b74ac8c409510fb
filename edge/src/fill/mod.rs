//! Fill policies: which ranges to fetch now.

use serde::Deserialize;

/// `fill = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One fetch of everything missing, which everyone rides.
    #[default]
    Whole,
}
