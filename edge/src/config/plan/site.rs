//! Sites and routes of a plan.

use std::sync::Arc;

use crate::cache::Rules;
use crate::route::Matcher;
use crate::spool::Buffered;
use crate::telemetry::LogRule;
use crate::tls::SiteTls;
use crate::upstream::PathMap;
use crate::{compress, edit, files, gate};

/// One site: its hosts and routes.
#[derive(Clone, Debug, PartialEq)]
pub struct SitePlan {
    /// Host names in lower case, or `*.name`. If empty, any host.
    pub hosts: Vec<String>,
    /// TLS of the site, if it has its own.
    pub tls: Option<SiteTls>,
    /// Routes, at least one. The first one that matches a request is used.
    pub routes: Vec<RoutePlan>,
}

/// A route (`[[site.route]]`).
#[derive(Clone, Debug, PartialEq)]
pub struct RoutePlan {
    /// Condition that requests must satisfy.
    pub matcher: Matcher,
    /// Compression of files and cached responses.
    pub compress: Option<compress::Options>,
    /// Edits of headers, and error pages.
    pub edit: Option<Arc<edit::Options>>,
    /// Access rules, rate limits and signed URLs.
    pub gate: Option<Box<gate::Options>>,
    /// Rule that selects the requests that are logged. `None`: all.
    pub log: Option<LogRule>,
    /// Handler of the route.
    pub handler: RouteHandler,
}

/// The handler of a route.
#[derive(Clone, Debug, PartialEq)]
pub enum RouteHandler {
    /// Forwards requests to an upstream, with or without a cache.
    Upstream(Box<Proxied>),
    /// Serves a folder of files.
    Files(Box<files::Options>),
    /// Responds with a redirect.
    Redirect(Box<edit::RedirectOptions>),
    /// Responds with a fixed response.
    Respond(Box<edit::RespondOptions>),
}

/// An upstream of a route, with or without a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxied {
    /// Name of the upstream.
    pub upstream: String,
    /// The replacement of paths, if `proxy` has a path.
    pub path: Option<PathMap>,
    /// Whether the origin's own URLs in responses are replaced by those that the client knows.
    pub write_back: bool,
    /// The redirects that are followed. `None`: clients get all redirects.
    pub follow_redirects: Option<FollowRedirects>,
    /// Choice of the bodies that are buffered.
    pub buffered: Buffered,
    /// Rules that change the target before the cache makes its key.
    pub rewrite: Option<Arc<edit::Rewrite>>,
    /// Name of the cache, if responses are cached.
    pub cache: Option<String>,
    /// Caching rules. Each rule is the route's, else its cache's, else the default.
    pub rules: Arc<Rules>,
}

impl Proxied {
    /// Whether requests are sent to the upstream with this name.
    pub fn uses(&self, upstream: &str) -> bool {
        let mut others = self.follow_redirects.iter().flat_map(|follow| &follow.to);
        self.upstream == upstream || others.any(|name| name == upstream)
    }
}

/// The redirects that a route follows.
#[derive(Clone, Debug, PartialEq)]
pub struct FollowRedirects {
    /// Most redirects that are followed for one request.
    pub times: u8,
    /// Names of the upstreams to which redirects may lead besides the route's own.
    pub to: Vec<String>,
}

impl RoutePlan {
    /// Returns the upstream, if the route has one.
    pub fn proxied(&self) -> Option<&Proxied> {
        match &self.handler {
            RouteHandler::Upstream(proxied) => Some(proxied),
            RouteHandler::Files(_) | RouteHandler::Redirect(_) | RouteHandler::Respond(_) => None,
        }
    }

    /// Returns the name of the cache, if the route has one.
    pub fn cache(&self) -> Option<&str> {
        self.proxied()?.cache.as_deref()
    }
}
