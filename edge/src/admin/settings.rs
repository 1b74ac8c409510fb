//! `GET /settings`: what the dashboard needs to know about this Sluice, and the price of the traffic that the caches save.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::inspect::Shared;

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

/// Response to `GET /settings`.
#[derive(Serialize)]
struct Settings {
    /// Version of the program.
    version: &'static str,
    /// Name of this machine.
    hostname: String,
    #[serde(flatten)]
    price: Price,
    /// Whether the client may give orders: `operator`, or `reader` if not.
    role: &'static str,
}

/// Answers `GET /settings`.
pub(super) async fn show(State(edge): State<Shared>) -> Response {
    let settings = Settings {
        version: env!("CARGO_PKG_VERSION"),
        hostname: edge.host_name(),
        price: edge.price(),
        role: "operator",
    };
    Json(settings).into_response()
}
