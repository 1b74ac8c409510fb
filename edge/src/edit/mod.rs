//! Editing heads: request fields before they go on, response fields, freshness and error pages after.
//!
//! `Edit` stands around whatever answers on a route, so a cache within sees edited requests, and never
//! an edited response. Routes without any of it have no `Edit`.

mod expires;
mod fields;
mod pages;
mod respond;
mod security;
mod template;

use std::borrow::Cow;
use std::rc::Rc;

use crate::handler::{Answer, Fault, Handler, Request, Response};
use crate::http::Scheme;
use crate::sys::Clock;

pub use expires::{Expires, Lifetime};
pub use fields::FieldEdits;
pub use pages::{ErrorPage, ErrorPages, Which};
pub use respond::{Redirect, RedirectOptions, Respond, RespondOptions};
pub use security::SECURITY;
pub use template::{Template, TemplateError, Variable};

use expires::{Told, is_told};
use template::{Asked, Kept};

/// What is done to the heads of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// To requests.
    pub request: FieldEdits,
    /// To responses, all of them, last.
    pub response: FieldEdits,
    /// What responses say about freshness.
    pub expires: Option<Expires>,
    /// Cache-Control in place of the response's, or of what `expires` says: a field value.
    pub cache_control: Option<Box<str>>,
    /// Whether the fields of `SECURITY` are added where they are missing.
    pub security: bool,
    /// Content in place of errors'.
    pub errors: ErrorPages,
}

impl Options {
    /// Whether nothing is done.
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
        } = self;
        let tells = expires.is_some() || cache_control.is_some();
        !response.is_empty() || tells || *security || !errors.pages.is_empty()
    }
}

/// Edits what goes to a handler and what comes back.
pub struct Edit(Rc<Parts>);

struct Parts {
    inner: Rc<dyn Handler>,
    options: Options,
    clock: Clock,
    edits_responses: bool,
    /// Whether a response's fields need to know what was asked.
    asks: bool,
}

impl Edit {
    /// Around a handler.
    pub fn new(inner: Rc<dyn Handler>, options: Options, clock: Clock) -> Edit {
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
        let after = parts.edits_responses.then(|| After::of(parts, &request));
        parts.options.request.edit_request(&mut request);
        let answer = parts.inner.handle(request);
        match after {
            Some(after) => answer.map(move |result| after.finish(result)),
            None => answer,
        }
    }
}

/// What is to be done to the response of one request.
struct After {
    parts: Rc<Parts>,
    kept: Option<Kept>,
    scheme: Scheme,
    /// A PURGE is answered to whoever runs this, not to a reader.
    pages: bool,
}

impl After {
    fn of(parts: &Rc<Parts>, request: &Request) -> After {
        let kept = parts.asks.then(|| {
            let asked = Asked::of(&request.head, &request.peer);
            Kept::of(&asked, parts.options.response.variables())
        });
        After {
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
        // A switch of protocols is between the two ends.
        if response.status >= 200 {
            self.fields(&mut response);
        }
        Ok(response)
    }

    /// Freshness, then security, then what is set, added and removed: the last word.
    fn fields(&self, response: &mut Response) {
        let options = &self.parts.options;
        let told = self.told(response);
        let goes = |name: &[u8]| {
            let is = |field: &[u8]| name.eq_ignore_ascii_case(field);
            let tells = told.is_some() && (is(b"expires") || is(b"cache-control"));
            tells || options.response.removes(name)
        };
        let missing = match options.security {
            true => security::missing(response, self.scheme),
            false => security::NOTHING,
        };
        if told.is_some() || !options.response.remove.is_empty() {
            fields::take_out(response, goes);
        }
        let status = response.status;
        let mut put = |name: &str, value: &[u8]| {
            if !options.response.removes(name.as_bytes()) {
                response.fields.append(name, value);
            }
        };
        if let Some(told) = &told {
            let value = told.expires.iter();
            value.for_each(|value| put("expires", value));
            let value = told.cache_control.iter();
            value.for_each(|value| put("cache-control", value.as_bytes()));
        }
        security::each(missing, |name, value| {
            if !options.response.puts(name) {
                put(name, value.as_bytes());
            }
        });
        let asked = self.kept.as_ref().map(Kept::asked);
        let put = &options.response;
        put.put_into(&mut response.fields, asked.as_ref(), status);
    }

    /// What the response says about freshness from here on; `None`: what it says already.
    fn told(&self, response: &Response) -> Option<Told<'_>> {
        let options = &self.parts.options;
        let now_s = || self.parts.clock.unix_ms() / 1000;
        let told = options.expires.as_ref();
        let told = told.and_then(|expires| expires.tell(response, now_s()));
        let Some(own) = options
            .cache_control
            .as_ref()
            .filter(|_| is_told(response.status))
        else {
            return told;
        };
        Some(Told {
            expires: told.and_then(|told| told.expires),
            cache_control: Some(Cow::Borrowed(own)),
        })
    }
}
