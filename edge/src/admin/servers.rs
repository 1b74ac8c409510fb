//! `GET` and `POST /servers`: the servers of all upstreams, and the operator's orders about them.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::header::CACHE_CONTROL;

use super::change::ChangeNote;
use super::inspect::Shared;
use super::page_query::{PageQuery, Parameters};
use super::server_order::ServerOrder;

impl Parameters for ServerOrder {
    const USAGE: &str =
        "/servers?upstream=NAME&server=ADDRESS&set=up, with set=up, drain or down, or weight=N";
}

/// Answers `GET /servers`.
pub(super) async fn list(State(edge): State<Shared>) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(edge.upstreams())).into_response()
}

/// Answers `POST /servers`.
pub(super) async fn order(
    State(edge): State<Shared>,
    Extension(note): Extension<ChangeNote>,
    PageQuery(order): PageQuery<ServerOrder>,
) -> Response {
    note.describe(order.describe(&edge.observed().notices().mask()));
    match order.check().and_then(|()| edge.order_server(&order)) {
        Ok(()) => Json(edge.upstreams()).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}
