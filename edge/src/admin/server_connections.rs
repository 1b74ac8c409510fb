//! `GET /servers/connections`: which request went over which connection to a server.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::inspect::Shared;
use super::observed::json;
use super::page_query::{PageQuery, Parameters};
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

impl Parameters for ConnectionsQuery {
    const USAGE: &str = "/servers/connections?upstream=NAME&n=200, with the name of an upstream";
}

/// Answers `GET /servers/connections`.
pub(super) async fn show(
    State(edge): State<Shared>,
    PageQuery(query): PageQuery<ConnectionsQuery>,
) -> Response {
    let most = query.n.unwrap_or(EXCHANGES).min(EXCHANGES_MAX);
    match edge.exchanges(&query.upstream) {
        Ok(exchanges) => json(json_text(
            &exchanges.shown(most, &edge.observed().notices().mask()),
        )),
        Err(refusal) => refusal.into_response(),
    }
}
