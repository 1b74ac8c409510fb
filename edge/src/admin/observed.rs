//! `GET /top` and `GET /events`: the URLs with the most requests, bytes, misses and latency, and the recent errors and
//! events.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use hyper::http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::inspect::Shared;
use super::page_query::{PageQuery, Parameters};
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

impl Parameters for TopQuery {
    const USAGE: &str = "/top?by=requests&minutes=5&n=50, with by=requests, bytes, misses or latency, and at most 60 minutes";
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

impl Parameters for EventsQuery {
    const USAGE: &str = "/events?after=0&n=200, with the number of the last change that you know";
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
    PageQuery(query): PageQuery<TopQuery>,
) -> Response {
    let Some(by) = Measure::named(&query.by) else {
        return TopQuery::refuse("there is no such order").into_response();
    };
    if !(1..=MINUTES_MAX).contains(&query.minutes) {
        return TopQuery::refuse("there is no such time").into_response();
    }
    json(json_text(&edge.observed().top(by, query.minutes, query.n)))
}

/// Answers `GET /events`.
pub(super) async fn events(
    State(edge): State<Shared>,
    headers: HeaderMap,
    PageQuery(query): PageQuery<EventsQuery>,
) -> Response {
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
