//! Connections of the test origin with HTTP/2, by prior knowledge. Each request has a task, and one task drives the
//! connection.

use std::future::{pending, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::Request;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::exchange::seen;
use super::fault::{Ending, Fault};
use super::record::{Outcome, Seen};
use super::stream::{Reply, Stop, Stream};
use super::wire::Head;
use super::{ConnectionRules, Shared};

/// The beginning of the preface (RFC 9113 3.4). No method of HTTP/1.1 is called so.
const PREFACE_BEGIN: &[u8] = b"PRI";
/// Window of each request's content.
const STREAM_WINDOW: u32 = 1 << 20;
/// Window of a connection.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// An order of a request's task to the task of its connection.
pub(super) enum Order {
    /// Send GOAWAY, and serve the requests that are on their way.
    Drain,
    /// Send GOAWAY with this code, and end the connection.
    GoAway(Reason),
    /// End the connection in this way, without GOAWAY.
    End(Ending),
}

/// Whether the client's first bytes are those of HTTP/2. The bytes stay unread.
pub(super) async fn is_requested(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE_BEGIN.len()];
    loop {
        let count = stream.peek(&mut first).await?;
        if count == 0 || !PREFACE_BEGIN.starts_with(&first[..count]) {
            return Ok(false);
        }
        if count == first.len() {
            return Ok(true);
        }
        // No event tells that more bytes have arrived than the one or two that are unread.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Serves a connection until its end. Returns the way to close it.
pub(super) async fn serve(stream: &mut TcpStream, id: u64, shared: &Arc<Shared>) -> Ending {
    let rules = shared.rules.lock().clone();
    let handshake = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(rules.max_streams)
        .handshake(stream);
    let Ok(mut connection) = handshake.await else {
        shared.recorder.connection(id, |one| one.malformed = true);
        return Ending::Fin;
    };
    let (orders, mut ordered) = unbounded_channel();
    // The tasks end with this function, also if the connection is aborted.
    let mut tasks = JoinSet::new();
    let mut served = 0;
    let ending = loop {
        let rules = shared.rules.lock().clone();
        let patience = rules.idle_timeout.filter(|_| tasks.is_empty());
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    let seen = record(&request, id, served, respond.stream_id().as_u32(), shared);
                    served += 1;
                    if drains(&rules, served) {
                        connection.graceful_shutdown();
                    }
                    tasks.spawn(run(seen, request.into_body(), respond, shared.clone(), orders.clone()));
                }
                Some(Err(error)) => {
                    let is_violation = error.is_library();
                    shared.recorder.connection(id, |one| one.malformed |= is_violation);
                    break Ending::Fin;
                }
                None => break Ending::Fin,
            },
            Some(order) = ordered.recv() => match order {
                Order::Drain => connection.graceful_shutdown(),
                Order::GoAway(reason) => connection.abrupt_shutdown(reason),
                Order::End(ending) => {
                    flush(&mut connection).await;
                    break ending;
                }
            },
            Some(_) = tasks.join_next() => {}
            () = pass(patience) => connection.graceful_shutdown(),
        }
    };
    // The outcomes of the requests are recorded before the end of their connection.
    tasks.shutdown().await;
    ending
}

/// Sends the frames that wait, as far as the socket takes them: what a test origin sends before a fault does arrive.
async fn flush(connection: &mut h2::server::Connection<&mut TcpStream, Bytes>) {
    poll_fn(|context| {
        // A request that arrives now is not served, and errors end the connection anyway.
        let _ = connection.poll_accept(context);
        Poll::Ready(())
    })
    .await;
}

/// Whether a connection accepts no more requests after this number of them.
fn drains(rules: &ConnectionRules, served: u64) -> bool {
    let most = rules.max_requests.or(rules.max_requests_silent);
    !rules.keepalive || most.is_some_and(|most| served >= most)
}

async fn pass(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => pending().await,
    }
}

/// Adds a request to the record.
fn record(
    request: &Request<RecvStream>,
    connection: u64,
    nth_on_connection: u64,
    stream: u32,
    shared: &Shared,
) -> Seen {
    let target = request.uri().path_and_query();
    let target = target.map_or("", |target| target.as_str());
    let mut headers = Vec::new();
    if let Some(authority) = request.uri().authority() {
        headers.push((":authority".to_owned(), authority.to_string()));
    }
    for (name, value) in request.headers() {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.push((name.as_str().to_owned(), value));
    }
    let scheme = request.uri().scheme_str().unwrap_or("");
    let mut raw = format!(
        ":method: {}\r\n:scheme: {scheme}\r\n:path: {target}\r\n",
        request.method()
    );
    for (name, value) in &headers {
        raw.push_str(&format!("{name}: {value}\r\n"));
    }
    raw.push_str("\r\n");
    let head = Head {
        raw: raw.into_bytes(),
        method: request.method().to_string(),
        target: target.to_owned(),
        minor_version: 0,
        headers,
    };
    shared
        .recorder
        .connection(connection, |one| one.requests += 1);
    shared.recorder.requested(Seen {
        stream: Some(stream),
        ..seen(head, connection, nth_on_connection)
    })
}

/// Records the outcome of a request when dropped, also if the task is aborted.
struct Pending {
    id: u64,
    shared: Arc<Shared>,
    outcome: Outcome,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.shared.recorder.ended(self.id, self.outcome);
    }
}

/// Serves one request.
async fn run(
    seen: Seen,
    body: RecvStream,
    respond: SendResponse<Bytes>,
    shared: Arc<Shared>,
    orders: UnboundedSender<Order>,
) {
    let mut pending = Pending {
        id: seen.id,
        shared: shared.clone(),
        outcome: Outcome::Aborted,
    };
    let mut resource = shared.find(&seen.target);
    while let Some(choose) = resource.dynamic.take() {
        resource = choose(&seen);
    }
    let reused = seen.nth_on_connection > 0;
    let armed = resource.faults.iter();
    let faults: Vec<Fault> = armed.filter_map(|armed| armed.fire(reused)).collect();
    let close = resource.close;
    let mut stream = Stream {
        seen: &seen,
        resource,
        faults,
        body,
        reply: Reply::new(respond),
        recorder: &shared.recorder,
    };
    let order = match stream.run().await {
        Ok(()) => {
            pending.outcome = Outcome::Sent;
            close.then_some(Order::Drain)
        }
        Err(Stop::Gone) => None,
        Err(Stop::Reset(reason)) => {
            pending.outcome = Outcome::Faulted;
            // The connection's task sends the content before, which the reset would discard.
            tokio::task::yield_now().await;
            stream.reply.reset(reason);
            None
        }
        Err(Stop::Connection(order)) => {
            pending.outcome = Outcome::Faulted;
            Some(order)
        }
    };
    // The outcome is recorded before the connection ends, which the client may see at once.
    drop(pending);
    if let Some(order) = order {
        let ends = !matches!(order, Order::Drain);
        // If the connection has ended, nobody receives the order.
        let _ = orders.send(order);
        if ends {
            // Dropping the stream would reset it before the connection ends, and with that this task.
            std::future::pending::<()>().await;
        }
    }
}
