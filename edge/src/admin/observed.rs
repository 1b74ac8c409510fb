//! `GET /top` and `GET /events`: the URLs with the most requests, bytes, misses and latency, and the recent errors and
//! events.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use hyper::http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::inspect::Shared;
use crate::telemetry::{MINUTES_MAX, Measure, NOTICES_MAX, Notice, json_text};

/// Media types of JSON lines.
const LINES: [&str; 3] = [
    "application/jsonl",
    "application/x-ndjson",
    "application/json-lines",
];

/// Query of `GET /top`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TopQuery {
    by: String,
    minutes: usize,
    n: usize,
}

impl Default for TopQuery {
    fn default() -> TopQuery {
        TopQuery {
            by: Measure::Requests.name().to_owned(),
            minutes: 5,
            n: 50,
        }
    }
}

/// Query of `GET /events`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsQuery {
    after: u64,
    n: usize,
}

impl Default for EventsQuery {
    fn default() -> EventsQuery {
        EventsQuery { after: 0, n: 200 }
    }
}

/// The answer of `GET /events`.
#[derive(Serialize)]
struct Events {
    /// Number of the last change, for `after` of the next request.
    last: u64,
    events: Vec<Notice>,
}

/// Answers `GET /top`.
pub(super) async fn top(
    State(edge): State<Shared>,
    query: Result<Query<TopQuery>, QueryRejection>,
) -> Response {
    let query = query
        .ok()
        .filter(|query| (1..=MINUTES_MAX).contains(&query.minutes));
    let parts = query.and_then(|Query(query)| Some((Measure::named(&query.by)?, query)));
    match parts {
        Some((by, query)) => json(json_text(&edge.observed().top(by, query.minutes, query.n))),
        None => refused(
            "write /top?by=requests&minutes=5&n=50, with by=requests, bytes, misses or latency, and at most 60 minutes\n",
        ),
    }
}

/// Answers `GET /events`.
pub(super) async fn events(
    State(edge): State<Shared>,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Response {
    let Ok(Query(query)) = query else {
        return refused(
            "write /events?after=0&n=200, with the number of the last change that you know\n",
        );
    };
    let notices = edge.observed().notices();
    // The number is read first, so that no change is missed.
    let last = notices.last();
    let events = notices.after(query.after, query.n.min(2 * NOTICES_MAX));
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let wants_lines = accept.is_some_and(|accept| {
        let mut types = accept.split(',').filter_map(|one| one.split(';').next());
        types.any(|one| {
            LINES
                .iter()
                .any(|line| one.trim().eq_ignore_ascii_case(line))
        })
    });
    if !wants_lines {
        return json(json_text(&Events { last, events }));
    }
    let text: String = events.iter().map(|event| json_text(event) + "\n").collect();
    (
        [(CONTENT_TYPE, LINES[0]), (CACHE_CONTROL, "no-store")],
        text,
    )
        .into_response()
}

/// Returns the response with this text of JSON.
pub(super) fn json(text: String) -> Response {
    (
        [
            (CONTENT_TYPE, "application/json"),
            (CACHE_CONTROL, "no-store"),
        ],
        text,
    )
        .into_response()
}

/// Returns the response to a request that can't be understood.
pub(super) fn refused(text: &'static str) -> Response {
    (StatusCode::BAD_REQUEST, text).into_response()
}
