//! The redirect from `http` to `https`.

use std::rc::Rc;

use super::respond::{Redirect, RedirectOptions};
use crate::handler::template::Template;
use crate::handler::{Answer, Handler, Request};
use crate::http::Scheme;

/// Status of the redirect, which keeps the method (RFC 9110 15.4.9).
const STATUS: u16 = 308;
/// Port of `https` (RFC 9110 4.2.2).
const HTTPS_PORT: u16 = 443;

/// A handler that redirects requests with the scheme `http` to the same URL with `https`, and passes all others to
/// another handler. A PURGE is passed on, too, since its URL names a stored response and not a place.
pub struct ToHttps {
    redirect: Redirect,
    inner: Rc<dyn Handler>,
}

impl ToHttps {
    /// Creates a handler that redirects to this port. Returns `None` if the target can't be written.
    pub fn new(port: u16, inner: Rc<dyn Handler>) -> Option<ToHttps> {
        let target = match port {
            HTTPS_PORT => "https://{hostname}{path}{query}".to_owned(),
            port => format!("https://{{hostname}}:{port}{{path}}{{query}}"),
        };
        let redirect = Redirect::new(RedirectOptions {
            to: Template::parse(&target).ok()?,
            status: STATUS,
        });
        Some(ToHttps { redirect, inner })
    }
}

impl Handler for ToHttps {
    #[inline]
    fn handle(&self, request: Request) -> Answer {
        match request.peer.scheme {
            Scheme::Http if !request.head.method.is_purge() => self.redirect.handle(request),
            _ => self.inner.handle(request),
        }
    }
}
