//! `GET /servers/connections`: which request went over which connection to a server.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::inspect::Shared;
use super::observed::{json, refused};
use crate::telemetry::json_text;

/// Most exchanges of one answer.
const EXCHANGES_MAX: usize = 2000;
/// Number of exchanges of an answer, unless the request has another one.
const EXCHANGES: usize = 200;

/// Query of `GET /servers/connections`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionsQuery {
    /// Name of the upstream.
    upstream: String,
    /// Most exchanges.
    n: Option<usize>,
}

/// Answers `GET /servers/connections`.
pub(super) async fn show(
    State(edge): State<Shared>,
    query: Result<Query<ConnectionsQuery>, QueryRejection>,
) -> Response {
    let Ok(Query(query)) = query else {
        return refused(
            "write /servers/connections?upstream=NAME&n=200, with the name of an upstream\n",
        );
    };
    let most = query.n.unwrap_or(EXCHANGES).min(EXCHANGES_MAX);
    match edge.exchanges(&query.upstream) {
        Ok(exchanges) => json(json_text(
            &exchanges.shown(most, &edge.observed().notices().mask()),
        )),
        Err(refusal) => refusal.into_response(),
    }
}
