//! Routing: chooses a handler by host and path.

mod glob;
mod matcher;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::rc::Rc;

use crate::handler::{Answer, Handler, Request};
use crate::reason::Reason;

pub use matcher::{Matcher, PatternError};

/// Longest DNS name (RFC 1035 2.3.4). A longer host matches no site.
const NAME_MAX: usize = 253;

/// Finds the handler for a host and a target. `T` is the type of handlers.
///
/// The host selects the site: the site with that name, else the site with the longest matching
/// `*.name`, else the site without names. Within the site the first matching route is used. No
/// other site is tried.
pub struct Router<T> {
    sites: Vec<Vec<(Matcher, T)>>,
    exact: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    /// Index of the site for each `*.name`, without the `*.`.
    wildcard: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    any: Option<usize>,
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
            exact: HashMap::default(),
            wildcard: HashMap::default(),
            any: None,
        };
        for (index, site) in sites.into_iter().enumerate() {
            if site.hosts.is_empty() {
                router.any.get_or_insert(index);
            }
            for host in &site.hosts {
                let (names, name) = match host.strip_prefix("*.") {
                    Some(name) => (&mut router.wildcard, name),
                    None => (&mut router.exact, host.as_str()),
                };
                names.entry(name.into()).or_insert(index);
            }
            router.sites.push(site.routes);
        }
        router
    }

    /// Returns the handler for an authority (host and optional port, in lower case) and a target in
    /// origin-form. Allocates nothing. If the only site is for any host, the authority is not
    /// parsed.
    #[inline]
    pub fn find(&self, authority: &str, target: &str) -> Option<&T> {
        let site = match self.exact.is_empty() && self.wildcard.is_empty() {
            true => self.any,
            false => self.site(host_of(authority)).or(self.any),
        };
        self.sites
            .get(site?)?
            .iter()
            .find(|(matcher, _)| matcher.matches(target))
            .map(|(_, found)| found)
    }

    fn site(&self, host: &str) -> Option<usize> {
        if host.len() > NAME_MAX {
            return None;
        }
        if let Some(site) = self.exact.get(host) {
            return Some(*site);
        }
        if self.wildcard.is_empty() {
            return None;
        }
        // Each suffix of the host is looked up from the first dot on, so that the longest name is
        // found first.
        memchr::memchr_iter(b'.', host.as_bytes())
            .filter(|dot| *dot > 0)
            .find_map(|dot| self.wildcard.get(&host[dot + 1..]).copied())
    }
}

/// Returns the host without port and trailing dot.
fn host_of(authority: &str) -> &str {
    let host = match authority.starts_with('[') {
        true => authority
            .find(']')
            .map_or(authority, |end| &authority[..=end]),
        false => authority
            .split_once(':')
            .map_or(authority, |(host, _)| host),
    };
    host.strip_suffix('.').unwrap_or(host)
}

impl Handler for Router<Rc<dyn Handler>> {
    fn handle(&self, request: Request) -> Answer {
        match self.find(&request.head.authority, &request.head.target) {
            Some(handler) => handler.handle(request),
            None => Answer::Ready(Err(Reason::NoRoute.into())),
        }
    }
}
