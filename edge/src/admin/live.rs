//! The page `GET /stream`: each new point of some series, as server-sent events.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Query, State};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::connections::{Progress, Streaming};
use super::history::{missing, off, scope, series};
use super::inspect::Shared;
use super::purge::Refusal;
use crate::telemetry::history::{Scope, SharedHistory};

/// Most streams at once.
const STREAMS_MAX: usize = 16;
/// Events that wait for a client. Further ones are left out until the client reads.
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

#[derive(Deserialize)]
pub(super) struct StreamQuery {
    scope: String,
    #[serde(default)]
    member: String,
    series: String,
}

/// The series that a stream sends.
struct Feed {
    scope: Scope,
    member: String,
    names: Vec<String>,
    positions: Vec<usize>,
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
    ConnectInfo(progress): ConnectInfo<Progress>,
    Query(query): Query<StreamQuery>,
) -> Response {
    let Some(history) = edge.history() else {
        return off();
    };
    let feed = match Feed::of(&query, &history) {
        Ok(feed) => feed,
        Err(refusal) => return refusal.into_response(),
    };
    let Ok(permit) = streams.0.try_acquire_owned() else {
        let text =
            format!("{STREAMS_MAX} streams are open already: close one, or ask again later\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let (sender, events) = mpsc::channel(WAITING_MAX);
    tokio::spawn(send_events(history, feed, sender));
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
    fn of(query: &StreamQuery, history: &SharedHistory) -> Result<Feed, Refusal> {
        let scope = scope(&query.scope)?;
        let names = series(&query.series)?;
        let history = history.read();
        let positions = history.positions(scope, &names);
        let positions = positions.map_err(|unknown| missing(&unknown))?;
        let newest = history.newest(scope, &query.member, &positions);
        newest.map_err(|unknown| missing(&unknown))?;
        Ok(Feed {
            scope,
            member: query.member.clone(),
            names: names.into_iter().map(str::to_owned).collect(),
            positions,
        })
    }

    /// Returns the event about the newest point, if the point begins at `after_s` or later, and the time after it.
    fn next(&self, history: &SharedHistory, after_s: u64) -> Option<(u64, Bytes)> {
        let newest = history
            .read()
            .newest(self.scope, &self.member, &self.positions);
        let (t, values) = newest.ok()??;
        if t < after_s {
            return None;
        }
        let names = self.names.iter().map(String::as_str);
        let point = Point {
            t,
            series: names.zip(values).collect(),
        };
        let data = serde_json::to_string(&point).ok()?;
        Some((t + 1, event("point", t, &data)))
    }
}

/// Returns an event. `data` is one line.
fn event(name: &str, id: u64, data: &str) -> Bytes {
    format!("event: {name}\nid: {id}\ndata: {data}\n\n").into()
}

/// Returns a comment, which clients ignore.
fn comment() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// Sends the events of a stream until its client has left or the history ends.
///
/// Events of other kinds, such as `notice`, belong here, too: into the loop, from a further source beside the
/// announcements of the history.
async fn send_events(history: Arc<SharedHistory>, feed: Feed, sender: mpsc::Sender<Bytes>) {
    let mut announcements = history.announcements();
    let mut after_s = 0;
    let mut next = Some(Bytes::from_static(BEGINNING.as_bytes()));
    loop {
        // A client that does not read misses events, and gets the newest one once it reads again.
        if let Some(event) = next
            && let Err(mpsc::error::TrySendError::Closed(_)) = sender.try_send(event)
        {
            return;
        }
        let announced = tokio::select! {
            announced = timeout(HEARTBEAT, announcements.changed()) => announced,
            () = sender.closed() => return,
        };
        next = match announced {
            Ok(Err(_)) => return,
            Ok(Ok(())) => {
                let found = feed.next(&history, after_s);
                let event = found.map(|(after, event)| {
                    after_s = after;
                    event
                });
                event.or(Some(comment()))
            }
            Err(_) => Some(comment()),
        };
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
