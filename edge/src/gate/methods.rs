//! The methods that a route takes: the response to all others, and requests that must not be
//! forwarded because of their method.

use std::rc::Rc;

use crate::handler::{Answer, Fault, Handler, HeadParts, Request, Response};
use crate::http::{Method, Methods};
use crate::reason::Reason;

/// Value of Allow on a route that takes all methods but TRACE. The methods of RFC 9110 and RFC 5789
/// are listed; others are forwarded too.
const USUAL: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Headers that the response to TRACE contains. All others may be secrets of the client, or of the
/// configuration, which may have added headers (RFC 9110 9.3.8).
const TRACED: [&str; 5] = ["host", "via", "max-forwards", "cdn-loop", "user-agent"];

/// A handler that refuses TRACE, unless the route takes it, and answers OPTIONS and TRACE requests
/// that may not be forwarded any further (RFC 9110 7.6.2). All other requests are passed to another
/// handler.
pub struct TraceGate {
    allow_methods: Option<Methods>,
    /// Whether the other handler forwards requests to an origin.
    is_proxy: bool,
    inner: Rc<dyn Handler>,
}

impl TraceGate {
    /// Creates a handler in front of `inner`. `allow_methods` are the methods that the route takes.
    /// `is_proxy` says whether `inner` forwards requests.
    pub fn new(
        allow_methods: Option<&Methods>,
        is_proxy: bool,
        inner: Rc<dyn Handler>,
    ) -> TraceGate {
        TraceGate {
            allow_methods: allow_methods.cloned(),
            is_proxy,
            inner,
        }
    }

    /// Answers or forwards a TRACE or OPTIONS request.
    fn check(&self, mut request: Request) -> Answer {
        let is_trace = request.head.method == Method::Trace;
        if is_trace && self.allow_methods.is_none() {
            return Answer::Ready(Ok(not_allowed(None)));
        }
        if !self.is_proxy {
            return self.inner.handle(request);
        }
        match max_forwards(&request.head) {
            Some(0) if is_trace => return Answer::Ready(Ok(trace(&request.head))),
            Some(0) => return Answer::Ready(Ok(options(self.allow_methods.as_ref()))),
            Some(hops) => request
                .head
                .fields
                .set("max-forwards", (hops - 1).to_string()),
            None => {}
        }
        self.inner.handle(request)
    }
}

impl Handler for TraceGate {
    #[inline]
    fn handle(&self, request: Request) -> Answer {
        match request.head.method {
            Method::Trace | Method::Options => self.check(request),
            _ => self.inner.handle(request),
        }
    }
}

/// Returns the response to a method that a route does not take: 405 with the allowed ones (RFC 9110
/// 15.5.6).
pub(super) fn not_allowed(allowed: Option<&Methods>) -> Response {
    let mut response = Fault::from(Reason::MethodNotAllowed).response();
    response.fields.append("allow", allow(allowed));
    response
}

fn allow(allowed: Option<&Methods>) -> String {
    allowed.map_or_else(|| USUAL.to_owned(), Methods::to_string)
}

/// Returns the response to OPTIONS as its final recipient (RFC 9110 9.3.7).
fn options(allowed: Option<&Methods>) -> Response {
    let mut response = Response::new(200);
    response.fields.append("allow", allow(allowed));
    response
}

/// Returns the response to TRACE as its final recipient: the request as received (RFC 9110 9.3.8).
fn trace(head: &HeadParts) -> Response {
    let version = head.version.as_str();
    let mut text = format!("TRACE {} {version}\r\n", head.target_as_received()).into_bytes();
    for (name, value) in head.fields.iter() {
        if TRACED
            .iter()
            .any(|traced| name.eq_ignore_ascii_case(traced.as_bytes()))
        {
            for part in [name, b": ", value, b"\r\n"] {
                text.extend_from_slice(part);
            }
        }
    }
    text.extend_from_slice(b"\r\n");
    let mut response = Response::text(200, text);
    response.fields.set("content-type", "message/http");
    response
}

/// Returns the value of Max-Forwards. `None` if it is absent, repeated or no number.
fn max_forwards(head: &HeadParts) -> Option<u32> {
    let mut values = head.fields.get_all("max-forwards");
    let value = values.next().filter(|_| values.next().is_none())?;
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A number that is too large counts as the largest one (RFC 9110 7.6.2).
    let digit = |sum: u32, b: &u8| sum.saturating_mul(10).saturating_add(u32::from(b - b'0'));
    Some(value.iter().fold(0, digit))
}
