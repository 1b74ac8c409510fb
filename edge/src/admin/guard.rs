//! Decides which requests the admin API answers.

use std::net::IpAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::HOST;

use super::connections::Progress;
use super::inspect::{Inspect, Shared};
use crate::http::{Method, Scheme, Version, target};
use crate::reason::Reason;

/// Header that a `POST` must have. A web page of another origin can't send it without a CORS
/// preflight request.
const POST_HEADER: &str = "x-sluice";

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

/// Refuses requests that a web page in an operator's browser may have sent. After DNS rebinding
/// such a request has the page's host name. From a form or script of another origin it lacks
/// `POST_HEADER`.
pub(super) async fn guard(State(edge): State<Shared>, request: Request, next: Next) -> Response {
    let authority = request.extensions().get::<Authority>();
    if !authority.is_some_and(|Authority(host)| is_permitted(host, &*edge)) {
        let text = "use an IP address, localhost, or a name in `hosts` of [admin] as host\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    if !request.method().is_safe() && !request.headers().contains_key(POST_HEADER) {
        let text = "this needs the header `x-sluice: 1`\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
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
