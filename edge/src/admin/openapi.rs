//! `GET /openapi.json`: the description of the admin API.

use axum::response::IntoResponse;
use hyper::header::CONTENT_TYPE;

#[cfg(test)]
mod tests;

/// The description, in OpenAPI 3.1. Tests compare it with the routes, the queries and the numbers, and the answers of the
/// program with it.
const DESCRIPTION: &str = include_str!("openapi.json");

/// Answers `GET /openapi.json`.
pub(super) async fn show() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION)
}
