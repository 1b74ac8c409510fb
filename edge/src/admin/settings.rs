//! `GET /settings`: what the dashboard needs to know about this Sluice.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;

use super::access::Caller;
use super::inspect::Shared;
use super::price::Price;

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
pub(super) async fn show(
    State(edge): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let settings = Settings {
        version: env!("CARGO_PKG_VERSION"),
        hostname: edge.host_name(),
        price: edge.price(),
        role: caller.role.as_str(),
    };
    Json(settings).into_response()
}
