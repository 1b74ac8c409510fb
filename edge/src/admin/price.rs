//! The price of the traffic that the caches save.

use serde::Serialize;

/// Price of a gigabyte (10^9 bytes) that an origin sends, as `[admin]` sets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Price {
    /// The price; 0 without one.
    #[serde(rename = "price_per_gb")]
    pub per_gb: f64,
    /// The currency, as in `$` or `EUR`.
    #[serde(rename = "price_currency")]
    pub currency: String,
}
