//! Decides which requests the admin API answers.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{StatusCode, Uri};
use parking_lot::Mutex;

use super::access::{self, Caller, Denied, Presented};
use super::change::Change;
use super::change_in_progress::ChangeInProgress;
use super::connections::Progress;
use super::inspect::{Inspect, Shared};
use super::tokens::Role;
use super::tries::{AGAIN_S, Failed, FailedTries};
use crate::http::{Method, Scheme, Version, target};
use crate::reason::Reason;

/// Header that a `POST` must have. A web page of another origin can't send it without a CORS
/// preflight request.
const POST_HEADER: &str = "x-sluice";
/// Path of the dashboard.
const DASHBOARD: &str = "/dashboard";
/// The pages that make changes, whose names are the kinds of changes in the log.
const CHANGES: [&str; 5] = ["purge", "fetch", "reload", "servers", "certificates"];
/// The challenge of requests without a valid token (RFC 6750 3).
const REALM: &str = "Bearer realm=\"sluice\"";

/// Host and port of a request in canonical form. Empty if a request of HTTP/1.0 names none.
#[derive(Clone)]
struct Authority(String);

/// Refuses requests whose target or Host the listeners would refuse, too (RFC 9112 3.2).
pub(super) async fn check_authority(
    ConnectInfo(progress): ConnectInfo<Progress>,
    mut request: Request,
    next: Next,
) -> Response {
    match authority(&request, progress.scheme) {
        Ok(authority) => {
            request.extensions_mut().insert(Authority(authority));
            next.run(request).await
        }
        Err(reason) => {
            let text = format!("400 {}\n", reason.text());
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}

/// Returns the authority of a request: that of its target if that is a URI, else Host (RFC 9112
/// 3.2.2, 3.3).
fn authority(request: &Request, of_connection: Scheme) -> Result<String, Reason> {
    let version = match request.version() {
        hyper::Version::HTTP_10 => Version::Http10,
        _ => Version::Http11,
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    let first = hosts.next().map(|host| host.as_bytes());
    let lines = usize::from(first.is_some()) + hosts.count();
    let host = target::only_host(lines, first, version)?.unwrap_or_default();
    let mut authority = String::new();
    target::host(host, &mut authority).map_err(|error| error.reason())?;
    let method = Method::from_token(request.method().as_str());
    let (raw, mut path) = (request.uri().to_string(), String::new());
    let form = target::canonical(&method, raw.as_bytes(), &mut path);
    let form = form.map_err(|error| error.reason())?;
    if let target::Form::Absolute {
        scheme,
        authority: named,
    } = form
    {
        if scheme != of_connection {
            return Err(Reason::TargetOfAnotherScheme);
        }
        authority.clear();
        target::host(named, &mut authority).map_err(|error| error.reason())?;
    }
    Ok(authority)
}

/// The state of the guard.
#[derive(Clone)]
pub(super) struct Guard {
    edge: Shared,
    tries: Arc<Mutex<FailedTries>>,
}

impl Guard {
    /// Creates a guard that has seen no failed try.
    pub(super) fn new(edge: Shared) -> Guard {
        Guard {
            edge,
            tries: Arc::default(),
        }
    }

    /// Returns the client of a request.
    fn identify(&self, progress: &Progress, headers: &HeaderMap) -> Result<Caller, Denied> {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let only = lines.next().filter(|_| lines.next().is_none());
        let request = Presented {
            peer: progress.peer,
            scheme: progress.scheme,
            authorization: only.map(HeaderValue::as_bytes),
        };
        let (tokens, now_us) = (self.edge.admin_tokens(), self.edge.now_us());
        access::identify(request, &tokens, &mut self.tries.lock(), now_us)
    }
}

/// Refuses requests of clients without the right to send them, and requests that a web page in an operator's browser may
/// have sent. After DNS rebinding such a request has the page's host name. From a form or script of another origin it
/// lacks `POST_HEADER`, and the token in any case.
pub(super) async fn guard(
    State(guard): State<Guard>,
    ConnectInfo(progress): ConnectInfo<Progress>,
    mut request: Request,
    next: Next,
) -> Response {
    let authority = request.extensions().get::<Authority>();
    if !authority.is_some_and(|Authority(host)| is_permitted(host, &*guard.edge)) {
        let text = "use an IP address, localhost, or a name in `hosts` of [admin] as host\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    let is_safe = request.method().is_safe();
    if is_safe && is_public(request.uri().path()) {
        return next.run(request).await;
    }
    let caller = match guard.identify(&progress, request.headers()) {
        Ok(caller) => caller,
        Err(denied) => return refuse(denied, &progress),
    };
    if !is_safe && caller.role < Role::Operator {
        return read_only(&caller);
    }
    if !is_safe && !request.headers().contains_key(POST_HEADER) {
        let text = "this needs the header `x-sluice: 1`\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let change = (!is_safe).then(|| change(&guard.edge, &caller, request.uri()));
    request.extensions_mut().insert(caller);
    let note = change.as_ref().map(ChangeInProgress::note);
    request.extensions_mut().insert(note.unwrap_or_default());
    let response = next.run(request).await;
    if let Some(change) = change {
        change.end(response.status().as_u16());
    }
    response
}

/// Whether a page needs no token, since it contains nothing about this Sluice: the list of the pages, and the dashboard's
/// files, which ask for the token.
fn is_public(path: &str) -> bool {
    let below = path.strip_prefix(DASHBOARD);
    path == "/" || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// Returns the change that a request makes.
fn change(edge: &Shared, caller: &Caller, uri: &Uri) -> ChangeInProgress {
    let action = uri.path().split('/').find(|part| !part.is_empty());
    let known = action.filter(|action| CHANGES.contains(action));
    let mask = edge.observed().notices().mask();
    let change = Change {
        action: known.unwrap_or("request").to_owned(),
        // A query may contain headers and URLs with secrets, so only the handler that understands the query shows parts of it.
        what: mask.shown(uri.path().as_bytes(), false),
        who: caller.name.to_string(),
        client: caller.peer.to_string(),
        status: None,
    };
    ChangeInProgress::new(edge.clone(), change)
}

/// Returns the response to a refused request, and logs wrong tokens: the first one of a client, and the last one.
fn refuse(denied: Denied, progress: &Progress) -> Response {
    let client = progress.peer;
    match denied {
        Denied::NotLocal => {
            let text = "requests of other machines need a token\n(add `token` to [admin])\n";
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Denied::NeedsTls => {
            let text = "requests of other machines need TLS\n(add `tls` to [admin])\n";
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Denied::NeedsToken => {
            let text = "a token is missing\n(send the header Authorization: Bearer TOKEN)\n";
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, REALM)], text).into_response()
        }
        Denied::WrongToken(failed) => {
            match failed {
                Failed::First => {
                    tracing::warn!(%client, "a wrong token was sent to the admin address")
                }
                Failed::Last => tracing::warn!(
                    %client,
                    "so many wrong tokens were sent to the admin address that no token of this client is accepted for now"
                ),
                Failed::Again => {}
            }
            let challenge = format!("{REALM}, error=\"invalid_token\"");
            let text = "the token is wrong\n";
            (
                StatusCode::UNAUTHORIZED,
                [(WWW_AUTHENTICATE, challenge)],
                text,
            )
                .into_response()
        }
        Denied::TooManyTries => {
            let text = "there were too many wrong tokens\n(wait a few seconds)\n";
            let after = AGAIN_S.to_string();
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, after)], text).into_response()
        }
    }
}

/// Returns the response to a change that a token does not permit.
fn read_only(caller: &Caller) -> Response {
    let challenge = format!("{REALM}, error=\"insufficient_scope\"");
    let text = format!(
        "the token {} may only read\n(use one of `token` or `operators` in [admin])\n",
        caller.name
    );
    (StatusCode::FORBIDDEN, [(WWW_AUTHENTICATE, challenge)], text).into_response()
}

/// Whether a canonical host, with or without a port, is an IP address, `localhost` or a configured
/// name, or is missing.
fn is_permitted(host: &str, edge: &dyn Inspect) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    let is_address = bare.unwrap_or(name).parse::<IpAddr>().is_ok();
    host.is_empty() || is_address || name == "localhost" || edge.is_admin_host(name)
}
