//! The page `GET /stream`: each new point of some series, and each new notice, as server-sent events.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::sleep;

use super::access::Caller;
use super::connections::{Progress, Streaming};
use super::history::{missing, off, scope, series};
use super::inspect::Shared;
use super::notice_feed::NoticeFeed;
use super::page_query::{PageQuery, Parameters};
use super::purge::Refusal;
use crate::telemetry::history::{Scope, SharedHistory};

/// Most streams at once.
const STREAMS_MAX: usize = 16;
/// Parts of a stream that wait for a client. Further points are left out, and further notices sent later.
const WAITING_MAX: usize = 8;
/// Longest time without an event, after which a comment shows the client that the stream is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// First line of a stream: the time after which a client connects again, in milliseconds.
const BEGINNING: &str = "retry: 2000\n\n";

/// The permits of streams.
#[derive(Clone)]
pub(super) struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Streams {
        Streams(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

/// Query of `GET /stream`: `scope` and `series` for points, `events` for notices, or all of them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StreamQuery {
    scope: String,
    member: String,
    series: String,
    /// Number of the last change of notices that the client knows.
    events: Option<u64>,
}

impl Parameters for StreamQuery {
    const USAGE: &str = "/stream?scope=SCOPE&member=NAME&series=NAMES, or events=NUMBER, or both; GET /members has the names";
}

/// The series that a stream sends.
struct Feed {
    history: Arc<SharedHistory>,
    announcements: watch::Receiver<u64>,
    scope: Scope,
    member: String,
    names: Vec<String>,
    positions: Vec<usize>,
    /// Earliest time of the next point, as Unix time in seconds.
    after_s: u64,
}

/// The data of the event `point`.
#[derive(Serialize)]
struct Point<'a> {
    /// Beginning of the point, as Unix time in seconds.
    t: u64,
    series: BTreeMap<&'a str, Option<f64>>,
}

pub(super) async fn open(
    State(edge): State<Shared>,
    Extension(streams): Extension<Streams>,
    Extension(caller): Extension<Caller>,
    ConnectInfo(progress): ConnectInfo<Progress>,
    PageQuery(query): PageQuery<StreamQuery>,
) -> Response {
    let notices = query
        .events
        .map(|number| NoticeFeed::after(edge.observed().notices(), number));
    let points = match (notices.is_some() && query.series.is_empty(), edge.history()) {
        (true, _) => None,
        (false, None) => return off(),
        (false, Some(history)) => match Feed::of(query, history) {
            Ok(feed) => Some(feed),
            Err(refusal) => return refusal.into_response(),
        },
    };
    let Ok(permit) = streams.0.try_acquire_owned() else {
        let text =
            format!("{STREAMS_MAX} streams are open already: close one, or ask again later\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let (sender, events) = mpsc::channel(WAITING_MAX);
    let is_permitted = move || caller.may_read(&edge.admin_tokens());
    tokio::spawn(send_events(points, notices, sender, is_permitted));
    let body = EventBody {
        events,
        _permit: permit,
        _streaming: progress.stream(),
    };
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::new(body)).into_response()
}

impl Feed {
    fn of(query: StreamQuery, history: Arc<SharedHistory>) -> Result<Feed, Refusal> {
        let scope = scope(&query.scope)?;
        let names = series(&query.series)?;
        let points = history.read();
        let positions = points.positions(scope, &names);
        let positions = positions.map_err(|unknown| missing(&unknown))?;
        let newest = points.newest(scope, &query.member, &positions);
        newest.map_err(|unknown| missing(&unknown))?;
        drop(points);
        Ok(Feed {
            announcements: history.announcements(),
            history,
            scope,
            names: names.into_iter().map(str::to_owned).collect(),
            member: query.member,
            positions,
            after_s: 0,
        })
    }

    /// Waits for the next readings, and returns the event about their point, or a comment if they complete none. `None` at
    /// the end of the history.
    async fn next(&mut self) -> Option<Bytes> {
        self.announcements.changed().await.ok()?;
        Some(self.newest().unwrap_or_else(comment))
    }

    /// Returns the event about the newest point, unless it was returned before.
    fn newest(&mut self) -> Option<Bytes> {
        let newest = self
            .history
            .read()
            .newest(self.scope, &self.member, &self.positions);
        let (t, values) = newest.ok()??;
        if t < self.after_s {
            return None;
        }
        self.after_s = t + 1;
        let names = self.names.iter().map(String::as_str);
        let point = Point {
            t,
            series: names.zip(values).collect(),
        };
        let data = serde_json::to_string(&point).ok()?;
        Some(format!("event: point\nid: {t}\ndata: {data}\n\n").into())
    }
}

/// Returns a comment, which clients ignore.
fn comment() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// Sends the events of a stream until its client has left or may not read any longer, or the history ends.
async fn send_events(
    mut points: Option<Feed>,
    mut notices: Option<NoticeFeed>,
    sender: mpsc::Sender<Bytes>,
    is_permitted: impl Fn() -> bool,
) {
    let mut next = Some(Bytes::from_static(BEGINNING.as_bytes()));
    while let Some(part) = next.filter(|_| is_permitted()) {
        // A client that does not read misses points, and gets the newest one once it reads again.
        if let Err(TrySendError::Closed(_)) = sender.try_send(part) {
            return;
        }
        // Cancelling any of these loses nothing.
        next = tokio::select! {
            point = next_point(&mut points) => point,
            part = next_notices(&mut notices, &sender) => part,
            () = sleep(HEARTBEAT) => Some(comment()),
            () = sender.closed() => None,
        };
    }
}

/// Waits for the next point. Without points, waits forever.
async fn next_point(points: &mut Option<Feed>) -> Option<Bytes> {
    match points {
        Some(points) => points.next().await,
        None => pending().await,
    }
}

/// Waits for the next notices. Without notices, waits forever.
async fn next_notices(
    notices: &mut Option<NoticeFeed>,
    sender: &mpsc::Sender<Bytes>,
) -> Option<Bytes> {
    match notices {
        Some(notices) => notices.next(sender).await,
        None => pending().await,
    }
}

/// The body of a stream. The stream ends when this is dropped.
struct EventBody {
    events: mpsc::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
    _streaming: Streaming,
}

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.events.poll_recv(cx);
        next.map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
    }
}
