//! The pages `GET /explain`, which explains a request, and `POST /fetch`, which fetches a URL.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::StatusCode;
use hyper::header::CACHE_CONTROL;
use serde::Deserialize;
use tokio::time::timeout;

use super::background::Background;
use super::change::ChangeNote;
use super::explanation::Question;
use super::fetch_order::{FetchOrder, Fetched};
use super::inspect::Shared;
use super::page_query::{PageQuery, Parameters};

/// Longest time for which a response waits for the end of a fetch, which goes on after that.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchQuery {
    url: String,
    #[serde(default)]
    headers: String,
    /// `1` for a fetch that validates first.
    refresh: Option<String>,
}

impl Parameters for FetchQuery {
    const USAGE: &str = "/fetch?url=URL, with headers=LINES and refresh=1 as needed";
}

impl Parameters for Question {
    const USAGE: &str =
        "/explain?url=URL, with method=METHOD, headers=LINES and client=IP as needed";
}

/// Explains what would happen to a request.
pub(super) async fn explain(
    State(edge): State<Shared>,
    Extension(background): Extension<Background>,
    PageQuery(question): PageQuery<Question>,
) -> Response {
    // Folders of files are read, which may take long.
    let answer = match background.run(move || edge.explain(&question)).await {
        Ok(Ok(explanation)) => Json(explanation).into_response(),
        Ok(Err(why)) => (StatusCode::BAD_REQUEST, format!("{}\n", why.trim_end())).into_response(),
        Err(failed) => failed,
    };
    ([(CACHE_CONTROL, "no-store")], answer).into_response()
}

/// Has a URL fetched, and waits some time for the end.
pub(super) async fn fetch(
    State(edge): State<Shared>,
    Extension(note): Extension<ChangeNote>,
    PageQuery(query): PageQuery<FetchQuery>,
) -> Response {
    let refresh = match query.refresh.as_deref() {
        None | Some("0") => false,
        Some("1") => true,
        Some(_) => return FetchQuery::refuse("refresh is 1, or left out").into_response(),
    };
    // The headers may have secrets.
    let mask = edge.observed().notices().mask();
    let refreshed = if refresh { ", refreshed" } else { "" };
    note.describe(format!(
        "{}{refreshed}",
        mask.shown(query.url.as_bytes(), false)
    ));
    let question = Question::of(&query.url, &query.headers);
    let fetching = match edge.fetch(FetchOrder { question, refresh }) {
        Ok(fetching) => fetching,
        Err(refusal) => return refusal.into_response(),
    };
    match timeout(FETCH_WAIT_MAX, fetching).await {
        Ok(Ok(fetched)) => Json(fetched).into_response(),
        Ok(Err(_)) => Json(Fetched {
            state: "failed".to_owned(),
            ..Fetched::default()
        })
        .into_response(),
        Err(_) => {
            let running = Fetched {
                state: "running".to_owned(),
                ..Fetched::default()
            };
            (StatusCode::ACCEPTED, Json(running)).into_response()
        }
    }
}
