//! Edits of heads: request headers before the request is forwarded, and response headers, freshness
//! and error pages after it.
//!
//! `Edit` wraps the handler of a route, including its cache. The cache therefore sees edited
//! requests and never an edited response. Routes without edits have no `Edit`.

mod expires;
mod fields;
mod https;
mod pages;
mod respond;
mod rewrite;
mod security;
mod trailers;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use crate::handler::template::{OwnedValues, RequestValues};
use crate::handler::{Answer, Fault, Handler, Request, Response};
use crate::http::Scheme;
use crate::sys::Clock;

pub use crate::handler::template::{Template, Variable};
pub use expires::{Expires, Lifetime};
pub use fields::FieldEdits;
pub use https::ToHttps;
pub use pages::{ErrorPage, ErrorPages};
pub use respond::{Redirect, RedirectOptions, Respond, RespondOptions};
pub use rewrite::{Rewrite, RewriteRule, Rewriting};
pub use security::SECURITY;

use expires::{Freshness, applies_to};

/// The configured edits of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Changes of the headers of requests.
    pub request: FieldEdits,
    /// Changes of the headers of responses. They apply to all responses and after all other edits.
    pub response: FieldEdits,
    /// Lifetimes from which the response's Expires and Cache-Control are computed.
    pub expires: Option<Expires>,
    /// Value that replaces the response's Cache-Control, including one from `expires`.
    pub cache_control: Option<Box<str>>,
    /// Whether the headers of [`SECURITY`] are added to responses that lack them.
    pub security: bool,
    /// Pages that replace the content of error responses.
    pub errors: ErrorPages,
    /// Whether the site has TLS, so that a request over http has really come without encryption.
    pub tls: bool,
}

impl Options {
    /// Whether the route has no edits.
    pub fn is_empty(&self) -> bool {
        self.request.is_empty() && !self.edits_responses()
    }

    fn edits_responses(&self) -> bool {
        let Options {
            request: _,
            response,
            expires,
            cache_control,
            security,
            errors,
            tls: _,
        } = self;
        let tells = expires.is_some() || cache_control.is_some();
        !response.is_empty() || tells || *security || !errors.pages.is_empty()
    }
}

/// A handler that edits requests, passes them to another handler, and edits its responses.
pub struct Edit(Rc<Parts>);

struct Parts {
    inner: Rc<dyn Handler>,
    options: Arc<Options>,
    clock: Clock,
    edits_responses: bool,
    /// Whether the response edits use variables of the request. If so, the request's values are
    /// copied before the request is forwarded.
    asks: bool,
}

impl Edit {
    /// Creates a handler that edits the requests to `inner` and its responses.
    pub fn new(inner: Rc<dyn Handler>, options: Arc<Options>, clock: Clock) -> Edit {
        Edit(Rc::new(Parts {
            inner,
            edits_responses: options.edits_responses(),
            asks: options
                .response
                .put
                .iter()
                .any(|(_, value)| value.plain().is_none()),
            options,
            clock,
        }))
    }
}

impl Handler for Edit {
    fn handle(&self, mut request: Request) -> Answer {
        let parts = &self.0;
        let after = parts
            .edits_responses
            .then(|| ResponseEdits::of(parts, &request));
        parts.options.request.edit_request(&mut request);
        let answer = parts.inner.handle(request);
        match after {
            Some(after) => answer.map(move |result| after.finish(result)),
            None => answer,
        }
    }
}

/// Response edits to apply to the response to one request.
struct ResponseEdits {
    parts: Rc<Parts>,
    kept: Option<OwnedValues>,
    scheme: Scheme,
    /// Whether error pages may replace the response's content. The content of a response to PURGE
    /// is kept, because it is for operators.
    pages: bool,
}

impl ResponseEdits {
    fn of(parts: &Rc<Parts>, request: &Request) -> ResponseEdits {
        let kept = parts.asks.then(|| {
            let request = RequestValues::of(&request.head, &request.peer);
            OwnedValues::of(&request, parts.options.response.variables())
        });
        ResponseEdits {
            parts: parts.clone(),
            kept,
            scheme: request.peer.scheme,
            pages: !request.head.method.is_purge(),
        }
    }

    fn finish(&self, result: Result<Response, Fault>) -> Result<Response, Fault> {
        let options = &self.parts.options;
        let mut response = match result {
            Ok(mut response) => {
                if self.pages && !options.errors.pages.is_empty() {
                    options.errors.replace(&mut response);
                }
                response
            }
            Err(fault) => match options.errors.of_fault(fault).filter(|_| self.pages) {
                Some(response) => response,
                None if options.response.is_empty() && !options.security => return Err(fault),
                None => fault.response(),
            },
        };
        // Only final responses are edited. 1xx responses, including 101, keep their headers.
        if response.status >= 200 {
            self.fields(&mut response);
        }
        Ok(response)
    }

    /// Applies freshness headers, then security headers, then the configured header edits. The
    /// configured edits are last so that they take precedence.
    fn fields(&self, response: &mut Response) {
        let options = &self.parts.options;
        let freshness = self.freshness(response);
        let goes = |name: &[u8]| {
            let is = |field: &[u8]| name.eq_ignore_ascii_case(field);
            let tells = freshness.is_some() && (is(b"expires") || is(b"cache-control"));
            tells || options.response.removes(name)
        };
        let missing = match options.security {
            true => security::missing(response, self.scheme),
            false => security::NO_HEADERS,
        };
        if freshness.is_some() || !options.response.remove.is_empty() {
            fields::take_out(response, goes);
        }
        let status = response.status;
        let mut put = |name: &str, value: &[u8]| {
            if !options.response.removes(name.as_bytes()) {
                response.fields.append(name, value);
            }
        };
        if let Some(freshness) = &freshness {
            let value = freshness.expires.iter();
            value.for_each(|value| put("expires", value));
            let value = freshness.cache_control.iter();
            value.for_each(|value| put("cache-control", value.as_bytes()));
        }
        security::each(missing, |name, value| {
            if !options.response.puts(name) {
                put(name, value.as_bytes());
            }
        });
        if !options.response.remove.is_empty() {
            let options = options.clone();
            trailers::take_out(response, move |name| options.response.removes(name));
        }
        let request = self.kept.as_ref().map(OwnedValues::request);
        // Browsers ignore this header over http, and servers must not send it (RFC 6797 7.2). Without TLS here, a proxy
        // before Sluice may have it.
        let omitted = (options.tls && self.scheme == Scheme::Http).then_some(security::HSTS);
        let put = &options.response;
        put.put_into(&mut response.fields, request.as_ref(), status, omitted);
    }

    /// Returns the new freshness headers of the response, or `None` if the response keeps its own.
    fn freshness(&self, response: &Response) -> Option<Freshness<'_>> {
        let options = &self.parts.options;
        let now_s = || self.parts.clock.unix_ms() / 1000;
        let freshness = options.expires.as_ref();
        let freshness = freshness.and_then(|expires| expires.headers(response, now_s()));
        let Some(own) = options
            .cache_control
            .as_ref()
            .filter(|_| applies_to(response.status))
        else {
            return freshness;
        };
        Some(Freshness {
            expires: freshness.and_then(|freshness| freshness.expires),
            cache_control: Some(Cow::Borrowed(own)),
        })
    }
}
