//! The options of a route that concern the exchange with its upstream.

use std::rc::Rc;
use std::sync::Arc;

use super::path_map::PathMap;
use super::redirect_rule::Redirects;
use crate::sys::Random;
use crate::telemetry::RouteCounters;

/// The options of a route that concern the exchange with its upstream.
#[derive(Clone)]
pub struct RouteOptions {
    /// The replacement of paths, if `proxy` has a path.
    pub path: Option<PathMap>,
    /// Whether clients stick to servers, if the upstream has a cookie for that.
    pub sticky: bool,
    /// Whether the origin's own URLs, paths and domains in headers of responses are replaced by
    /// those that the client knows.
    pub write_back: bool,
    /// Whether requests have X-Request-ID: the random numbers of ids for requests without one.
    pub request_ids: Option<Random>,
    /// The redirects that are followed. `None`: clients get all redirects.
    pub redirects: Option<Rc<Redirects>>,
    /// The counters of the route.
    pub counters: Option<Arc<RouteCounters>>,
}

impl RouteOptions {
    /// Returns the counters of the route.
    #[inline]
    pub(super) fn counters(&self) -> Option<&RouteCounters> {
        self.counters.as_deref()
    }
}

impl Default for RouteOptions {
    fn default() -> RouteOptions {
        RouteOptions {
            path: None,
            sticky: false,
            write_back: true,
            request_ids: None,
            redirects: None,
            counters: None,
        }
    }
}
