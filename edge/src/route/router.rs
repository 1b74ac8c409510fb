//! The router: finds what belongs to a host and a target.

use super::index::Index;
use super::matcher::Matcher;
use crate::http::hosts::Hosts;
use crate::http::target::host_of;

/// Finds the handler for a host and a target. `T` is the type of handlers.
///
/// The host selects the site: the site with that name, else the site with the longest matching
/// `*.name`, else the site without names. Within the site the first matching route is used. No
/// other site is tried.
pub struct Router<T> {
    sites: Vec<SiteRoutes<T>>,
    /// The index of the site for each host.
    hosts: Hosts<usize>,
}

/// The routes of one site.
struct SiteRoutes<T> {
    routes: Box<[(Matcher, T)]>,
    /// The index of the routes, if there are many.
    index: Option<Index>,
}

impl<T> SiteRoutes<T> {
    fn new(routes: Vec<(Matcher, T)>) -> SiteRoutes<T> {
        SiteRoutes {
            index: Index::new(&routes),
            routes: routes.into(),
        }
    }

    /// Returns what belongs to the first route that matches the target.
    #[inline]
    fn find(&self, target: &str) -> Option<&T> {
        let found = match &self.index {
            None => {
                let mut routes = self.routes.iter();
                routes.find(|(matcher, _)| matcher.matches(target))
            }
            Some(index) => index
                .find(&self.routes, target)
                .and_then(|at| self.routes.get(at)),
        };
        found.map(|(_, found)| found)
    }
}

/// A site: its hosts, and its routes.
pub struct Site<T> {
    /// Lower-case names, or `*.name`. If empty, the site is for any host.
    pub hosts: Vec<String>,
    /// Routes with their conditions. The first that matches is used.
    pub routes: Vec<(Matcher, T)>,
}

impl<T> Router<T> {
    /// Creates a router for these sites. If two sites have the same host, the first one gets its
    /// requests.
    pub fn new(sites: impl IntoIterator<Item = Site<T>>) -> Router<T> {
        let mut router = Router {
            sites: Vec::new(),
            hosts: Hosts::default(),
        };
        for (index, site) in sites.into_iter().enumerate() {
            router.hosts.add(&site.hosts, &index);
            router.sites.push(SiteRoutes::new(site.routes));
        }
        router
    }

    /// Returns the handler for an authority (host and optional port, in lower case) and a target in
    /// origin-form. Allocates nothing. If the only site is for any host, the authority is not
    /// parsed.
    #[inline]
    pub fn find(&self, authority: &str, target: &str) -> Option<&T> {
        let site = match self.hosts.is_unnamed() {
            true => self.hosts.any(),
            false => self.hosts.find(host_of(authority)),
        };
        self.sites.get(*site?)?.find(target)
    }
}
