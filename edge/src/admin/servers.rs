//! `GET` and `POST /servers`: the servers of all upstreams, and the operator's orders about them.

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::StatusCode;
use hyper::header::CACHE_CONTROL;

use super::change::ChangeNote;
use super::inspect::Shared;
use super::server_order::ServerOrder;

/// Answers `GET /servers`.
pub(super) async fn list(State(edge): State<Shared>) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(edge.upstreams())).into_response()
}

/// Answers `POST /servers`.
pub(super) async fn order(
    State(edge): State<Shared>,
    Extension(note): Extension<ChangeNote>,
    order: Result<Query<ServerOrder>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let Ok(Query(order)) = order else {
        let text = "write /servers?upstream=NAME&server=ADDRESS&set=up, with set=up, drain or down, or weight=N\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    note.describe(order.describe(&edge.observed().notices().mask()));
    match order.check().and_then(|()| edge.order_server(&order)) {
        Ok(()) => Json(edge.upstreams()).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}
