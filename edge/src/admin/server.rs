//! The admin API's thread: its listener, its access checks and its pages.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http_body_util::LengthLimitError;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use hyper::http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::background::Background;
use super::certificates;
use super::change::ChangeNote;
use super::connections::{AdminListener, AdminSocket, Progress};
use super::dashboard;
use super::explain;
use super::guard::{Guard, check_authority, guard};
use super::headers::mark;
use super::history;
use super::inspect::Shared;
use super::live::{self, Streams};
use super::metrics;
use super::observed;
use super::openapi;
use super::page_query::{PageQuery, Parameters};
use super::purge::{BODY_MAX, LOG_WAIT_MAX, Order};
use super::server_connections;
use super::servers;
use super::settings;
use super::what_if;

/// Longest time that the thread waits at its end for work in progress.
const STOP_WAIT_MAX: Duration = Duration::from_secs(1);

/// Response header with advice for a URL without objects.
const NOTE_HEADER: HeaderName = HeaderName::from_static("sluice-note");

pub(super) const INDEX_TEXT: &str = "\
GET  /dashboard/       the dashboard, for browsers
GET  /status           the state of everything, JSON
GET  /status?url=URL   what is stored and being fetched of a URL, JSON; also &headers=LINES
GET  /explain?url=URL  what would happen to a request, JSON; also &method=METHOD, &headers=LINES, &client=IP
GET  /metrics          counters and gauges for Prometheus
GET  /members          names of all things with a history, and of their series, JSON
GET  /history?scope=SCOPE&member=NAME&series=NAMES[&from=TIME&to=TIME&points=N]
                       series over time, JSON (docs/monitoring.md)
GET  /history?scope=SCOPE&members=*&series=NAMES[&from=TIME&to=TIME&top=N]
                       a table of all members, JSON
GET  /stream?scope=SCOPE&member=NAME&series=NAMES
                       each new point, as server-sent events; also, or only, &events=NUMBER: new errors and events
GET  /health           ok
GET  /openapi.json     the description of these pages, in OpenAPI 3.1
GET  /servers          the servers of all upstreams, JSON
GET  /servers/connections?upstream=NAME&n=200
                       which request went over which connection to a server, JSON (docs/monitoring.md)
GET  /certificates     the certificates, JSON
GET  /settings         version, host name and price of traffic, JSON
GET  /what-if          hit ratios that the caches would have with other sizes, JSON
GET  /top?by=requests|bytes|misses|latency&minutes=5&n=50
                       the URLs with the most of it in the last minutes (at most 60), JSON
GET  /events?after=NUMBER&n=200
                       recent errors and events, JSON, or JSON lines with `accept: application/jsonl`
POST /purge            remove stored responses, or mark them stale; JSON, as described in docs/purging.md
                       (needs the header `x-sluice: 1`)
POST /fetch?url=URL    fetch the missing bytes of a URL; also &headers=LINES, and &refresh=1 to validate what is stored
                       (needs the header `x-sluice: 1`)
POST /reload           read the configuration again (needs the header `x-sluice: 1`)
POST /servers?upstream=NAME&server=ADDRESS&set=up|drain|down or &weight=N
                       give a server another state or weight (needs the header `x-sluice: 1`)
POST /certificates?name=NAME&order=renew|revoke, with revoke also &reason=REASON
                       obtain a certificate now, or revoke it (needs the header `x-sluice: 1`)
If [admin] has tokens, all of these but /health and the dashboard need the header `Authorization: Bearer TOKEN`.
";

/// The running admin API. Dropping this stops the API.
#[derive(Debug)]
pub struct Admin {
    /// `None` for a Unix socket.
    address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Accepts connections on `listener`, which is in non-blocking mode, and responds from `edge`, on a separate
    /// thread.
    ///
    /// # Errors
    ///
    /// The thread can't be started.
    pub fn start(listener: AdminSocket, edge: Shared) -> io::Result<Admin> {
        let address = listener.address()?;
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
                runtime.shutdown_timeout(STOP_WAIT_MAX);
            })?;
        Ok(Admin {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address on which the API listens. `None`: a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
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

async fn serve(listener: AdminSocket, edge: Shared) -> io::Result<()> {
    let listener = AdminListener::new(listener, edge.clone())?;
    tokio::spawn(note_counters(edge.clone()));
    let pages = pages(edge).into_make_service_with_connect_info::<Progress>();
    axum::serve(listener, pages).await
}

/// Has the counters recorded once per second.
async fn note_counters(edge: Shared) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        edge.note_counters();
    }
}

/// Defines a function that adds routes to a router, and the list of their methods and paths, with which a test compares
/// `openapi.json`.
macro_rules! routes {
    ($(#[doc = $about:literal])* $name:ident, $list:ident: $($path:expr => $($method:ident $handler:expr),+;)+) => {
        #[cfg(test)]
        pub(super) const $list: &[(&str, &str)] = &[$($((stringify!($method), $path),)+)+];

        $(#[doc = $about])*
        fn $name(router: Router<Shared>) -> Router<Shared> {
            router$($(.route($path, $method($handler)))+)+
        }
    };
}

routes! {
    /// Adds the pages that have a guard.
    guarded, GUARDED:
    "/" => get index;
    "/dashboard" => get dashboard::redirect;
    dashboard::PATH => get dashboard::page;
    "/dashboard/{*name}" => get dashboard::part;
    "/openapi.json" => get openapi::show;
    "/settings" => get settings::show;
    "/status" => get status;
    "/explain" => get explain::explain;
    "/fetch" => post explain::fetch;
    "/purge" => post purge;
    "/reload" => post reload;
    "/servers" => get servers::list, post servers::order;
    "/servers/connections" => get server_connections::show;
    "/certificates" => get certificates::list, post certificates::order;
    "/metrics" => get metrics;
    "/members" => get history::members;
    "/history" => get history::history;
    "/stream" => get live::open;
    "/what-if" => get what_if::show;
    "/top" => get observed::top;
    "/events" => get observed::events;
}

routes! {
    /// Adds the page that has no guard against other hosts: load balancers use any host name, and the page shows nothing.
    unguarded, UNGUARDED:
    "/health" => get health;
}

fn pages(edge: Shared) -> Router {
    let guarded = guarded(Router::new())
        .fallback(no_page)
        .method_not_allowed_fallback(other_method);
    unguarded(guarded.layer(from_fn_with_state(Guard::new(edge.clone()), guard)))
        .method_not_allowed_fallback(other_method)
        .layer(from_fn(receive))
        .layer(from_fn(check_authority))
        .layer(map_response(mark))
        .layer(Extension(Streams::default()))
        .layer(Extension(Background::default()))
        .with_state(edge)
}

async fn no_page() -> (StatusCode, &'static str) {
    let text = "there is no such page\n(GET / lists the pages)\n";
    (StatusCode::NOT_FOUND, text)
}

/// Answers a method that a page does not have. The router adds Allow.
async fn other_method() -> (StatusCode, &'static str) {
    let text = "the page does not have this method\n(the header Allow lists those that it has)\n";
    (StatusCode::METHOD_NOT_ALLOWED, text)
}

async fn health() -> &'static str {
    "ok\n"
}

/// Answers `GET /`: browsers get the dashboard, other clients the list of pages.
async fn index(headers: HeaderMap) -> Response {
    match dashboard::is_wanted(&headers) {
        true => Redirect::temporary(dashboard::PATH).into_response(),
        false => INDEX_TEXT.into_response(),
    }
}

/// Query of `GET /status`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusQuery {
    url: Option<String>,
    /// Lines of request headers.
    #[serde(default)]
    headers: String,
}

impl Parameters for StatusQuery {
    const USAGE: &str = "/status for everything, or /status?url=URL, with headers=LINES as needed";
}

async fn status(State(edge): State<Shared>, PageQuery(query): PageQuery<StatusQuery>) -> Response {
    let answer = match query.url {
        None => Json(edge.status()).into_response(),
        Some(url) => match edge.url(&url, &query.headers) {
            Ok(found) => {
                let note = found.note.and_then(|note| HeaderValue::try_from(note).ok());
                let note = note.map(|note| [(NOTE_HEADER, note)]);
                (
                    note.into_iter().flatten().collect::<HeaderMap>(),
                    Json(found.caches),
                )
                    .into_response()
            }
            Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
        },
    };
    ([(CACHE_CONTROL, "no-store")], answer).into_response()
}

async fn metrics(State(edge): State<Shared>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get_all(ACCEPT).iter();
    let format = metrics::Format::accepted(accept.filter_map(|value| value.to_str().ok()));
    let text = metrics::render(&edge.status(), format);
    ([(CONTENT_TYPE, format.content_type())], text)
}

async fn purge(
    State(edge): State<Shared>,
    Extension(note): Extension<ChangeNote>,
    body: Bytes,
) -> Response {
    let order = Order::parse(&body);
    if let Ok(order) = &order {
        note.describe(order.describe(&edge.observed().notices().mask()));
    }
    let answer = match order.and_then(|order| edge.purge(&order)) {
        Ok(purging) => purging.outlast(LOG_WAIT_MAX).await,
        Err(refusal) => Err(refusal),
    };
    match answer {
        Ok(answer) => ([(CONTENT_TYPE, "application/json")], answer.to_json()).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn reload(
    State(edge): State<Shared>,
    Extension(note): Extension<ChangeNote>,
) -> (StatusCode, String) {
    note.describe("read the configuration again".to_owned());
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

/// Receives the whole request before it is answered. Until then its connection may have to make room for others.
async fn receive(
    ConnectInfo(progress): ConnectInfo<Progress>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let body = match to_bytes(body, BODY_MAX).await {
        Ok(body) => body,
        Err(error) => return unreadable(&error),
    };
    let _answering = progress.answer();
    next.run(Request::from_parts(head, body.into())).await
}

/// Returns the response to a request whose body is too long, or is malformed or cut (RFC 9112 6.3, 8).
fn unreadable(error: &axum::Error) -> Response {
    let is_too_long = error
        .source()
        .is_some_and(|cause| cause.is::<LengthLimitError>());
    if is_too_long {
        let text = format!("the body has more than {BODY_MAX} bytes\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    }
    let text = "the body is malformed or incomplete\n";
    (StatusCode::BAD_REQUEST, text).into_response()
}
