//! The admin API's thread: its listener, its access checks and its pages.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Sleep;

use super::inspect::Inspect;
use super::metrics;
use super::purge::{BODY_MAX, LASTING_MAX, Order, Refusal};

/// Most connections at once. More wait in the accept queue.
const CONNECTIONS_MAX: usize = 64;
/// Longest life of a connection, so that slow or silent clients can't use up `CONNECTIONS_MAX`.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);
/// Pause after a failed accept, which usually means that no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest time that the thread waits at its end for work in progress.
const END: Duration = Duration::from_secs(1);
/// Header that a `POST` must have. A web page of another origin can't send it without a CORS
/// preflight request.
const POST_HEADER: &str = "x-sluice";

const PAGES: &str = "\
GET  /status           the state of everything, JSON
GET  /status?url=URL   what is stored and being fetched of a URL, JSON
GET  /metrics          counters and gauges for Prometheus
GET  /health           ok
POST /purge            remove stored responses, or mark them stale; JSON, as described in docs/purging.md
                       (needs the header `x-sluice: 1`)
POST /reload           read the configuration again (needs the header `x-sluice: 1`)
";

type Shared = Arc<dyn Inspect>;

/// The running admin API. Dropping this stops the API.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens at `address` (port 0: any free port) and responds from `edge`, on a separate thread.
    ///
    /// # Errors
    ///
    /// The address can't be bound, or the thread can't be started.
    pub fn start(address: SocketAddr, edge: Shared) -> io::Result<Admin> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        served = serve(listener, edge) => {
                            if let Err(error) = served {
                                tracing::error!(%error, "the admin address can't be served");
                            }
                        }
                        // Receiving fails when the sender is dropped, which is the signal to stop.
                        _ = stopped => {}
                    }
                });
                runtime.shutdown_timeout(END);
            })?;
        Ok(Admin {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address on which the API listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the admin thread had panicked");
        }
    }
}

async fn serve(listener: std::net::TcpListener, edge: Shared) -> io::Result<()> {
    let listener = Limited {
        reserve: None,
        listener: TcpListener::from_std(listener)?,
        permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
    };
    axum::serve(listener, pages(edge)).await
}

fn pages(edge: Shared) -> Router {
    Router::new()
        .route("/", get(|| async { PAGES }))
        .route("/status", get(status))
        .route("/purge", post(purge))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .route("/reload", post(reload))
        .layer(from_fn(guard))
        // These pages have no guard against other hosts: monitors use any host name, and the pages
        // contain no secrets.
        .route("/health", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .with_state(edge)
}

#[derive(Deserialize)]
struct StatusQuery {
    url: Option<String>,
}

async fn status(State(edge): State<Shared>, Query(query): Query<StatusQuery>) -> Response {
    let answer = match query.url {
        None => Json(edge.status()).into_response(),
        Some(url) => match edge.url(&url) {
            Ok(state) => Json(state).into_response(),
            Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
        },
    };
    ([(CACHE_CONTROL, "no-store")], answer).into_response()
}

async fn metrics(State(edge): State<Shared>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, metrics::CONTENT_TYPE)],
        metrics::render(&edge.status()),
    )
}

async fn purge(State(edge): State<Shared>, body: Bytes) -> Response {
    let answer = match Order::parse(&body).and_then(|order| edge.purge(&order)) {
        Ok(purging) => purging.outlast(LASTING_MAX).await,
        Err(refusal) => Err(refusal),
    };
    match answer {
        Ok(answer) => ([(CONTENT_TYPE, "application/json")], answer.to_json()).into_response(),
        Err(Refusal { status, why }) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
            (status, format!("{why}\n")).into_response()
        }
    }
}

async fn reload(State(edge): State<Shared>) -> (StatusCode, String) {
    // A reload reads files and builds caches, so it must not run on the thread that responds to
    // other requests.
    match tokio::task::spawn_blocking(move || edge.reload()).await {
        Ok(Ok(changes)) => (StatusCode::OK, changes),
        Ok(Err(why)) => (StatusCode::UNPROCESSABLE_ENTITY, why),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the reload panicked; the old configuration stays in force\n".to_owned(),
        ),
    }
}

/// Refuses requests that a web page in an operator's browser may have sent. After DNS rebinding
/// such a request has the page's host name in Host. From a form or script of another origin it
/// lacks `POST_HEADER`.
async fn guard(request: Request, next: Next) -> Response {
    let named = request.headers().get(HOST).map(|host| host.as_bytes());
    if !named.is_none_or(is_direct) {
        let text = "use an IP address or localhost as host\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    if !request.method().is_safe() && !request.headers().contains_key(POST_HEADER) {
        let text = "this needs the header `x-sluice: 1`\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
}

/// Whether a Host is an IP address or `localhost`, with or without a port.
fn is_direct(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || bare.unwrap_or(name).parse::<IpAddr>().is_ok()
}

/// A listener that accepts a limited number of connections at once.
struct Limited {
    /// A reserved descriptor, so that operators can still connect when clients have taken all
    /// others.
    reserve: Option<OwnedFd>,
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

impl axum::serve::Listener for Limited {
    type Io = Timed;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Timed, SocketAddr) {
        let permit = self.permits.clone().acquire_owned().await.ok();
        loop {
            if self.reserve.is_none() {
                self.reserve = self.listener.as_fd().try_clone_to_owned().ok();
            }
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let end = Box::pin(tokio::time::sleep(CONNECTION_LIFE));
                    let timed = Timed {
                        stream,
                        end,
                        _permit: permit,
                    };
                    return (timed, address);
                }
                Err(_) if self.reserve.take().is_some() => {}
                Err(error) => {
                    tracing::warn!(%error, "the admin address can't accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that is closed after `CONNECTION_LIFE`.
struct Timed {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Timed {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_end(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_end(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
