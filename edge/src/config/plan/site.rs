//! Sites and routes of a plan.

use crate::cache::Rules;
use crate::route::Matcher;
use crate::telemetry::LogRule;
use crate::{compress, edit, files, gate};

/// One site: its hosts and routes.
#[derive(Clone, Debug, PartialEq)]
pub struct SitePlan {
    /// Host names in lower case, or `*.name`; if empty, any host.
    pub hosts: Vec<String>,
    /// Tried in order until one matches. At least one.
    pub routes: Vec<RoutePlan>,
}

/// `[[site.route]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutePlan {
    /// The condition on requests.
    pub matcher: Matcher,
    /// Compression of files and cached responses.
    pub compress: Option<compress::Options>,
    /// Edits of headers, and error pages.
    pub edit: Option<Box<edit::Options>>,
    /// Access rules, limits and signed URLs.
    pub gate: Option<Box<gate::Options>>,
    /// Which requests are logged; `None`: all.
    pub log: Option<LogRule>,
    /// The handler.
    pub leads_to: LeadsTo,
}

/// The handler of a route.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadsTo {
    /// An upstream, with or without a cache.
    Upstream(Box<Proxied>),
    /// A folder of files.
    Files(Box<files::Options>),
    /// A redirect.
    Redirect(Box<edit::RedirectOptions>),
    /// A fixed response.
    Respond(Box<edit::RespondOptions>),
}

/// An upstream, with or without a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxied {
    /// The upstream's name.
    pub upstream: String,
    /// The cache's name, if its responses are cached.
    pub cache: Option<String>,
    /// The caching rules: each is the route's, else its cache's, else the default.
    pub rules: Rules,
}

impl RoutePlan {
    /// The upstream, if the route has one.
    pub fn proxied(&self) -> Option<&Proxied> {
        match &self.leads_to {
            LeadsTo::Upstream(proxied) => Some(proxied),
            LeadsTo::Files(_) | LeadsTo::Redirect(_) | LeadsTo::Respond(_) => None,
        }
    }

    /// The cache's name, if the route has one.
    pub fn cache(&self) -> Option<&str> {
        self.proxied()?.cache.as_deref()
    }
}
