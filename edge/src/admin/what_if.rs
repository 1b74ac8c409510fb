//! `GET /what-if`: the hit ratios that the caches would have with other sizes.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::header::CACHE_CONTROL;

use super::inspect::Shared;

/// Answers `GET /what-if`.
pub(super) async fn show(State(edge): State<Shared>) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(edge.what_if())).into_response()
}
