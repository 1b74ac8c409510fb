//! The options of a route that concern the exchange with its upstream.

use super::path_map::PathMap;
use crate::sys::Random;

/// The options of a route that concern the exchange with its upstream.
#[derive(Clone, Debug)]
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
}

impl Default for RouteOptions {
    fn default() -> RouteOptions {
        RouteOptions {
            path: None,
            sticky: false,
            write_back: true,
            request_ids: None,
        }
    }
}
