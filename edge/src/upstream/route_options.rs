//! The options of a route that concern the exchange with its upstream.

use super::path_map::PathMap;

/// The options of a route that concern the exchange with its upstream.
#[derive(Clone, Debug)]
pub struct RouteOptions {
    /// The replacement of paths, if `proxy` has a path.
    pub path: Option<PathMap>,
    /// Whether the origin's own URLs, paths and domains in headers of responses are replaced by
    /// those that the client knows.
    pub write_back: bool,
}

impl Default for RouteOptions {
    fn default() -> RouteOptions {
        RouteOptions {
            path: None,
            write_back: true,
        }
    }
}
