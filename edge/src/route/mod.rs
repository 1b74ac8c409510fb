//! The router: finds the route for a host and path among the sites.

mod matcher;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::rc::Rc;

use crate::handler::{Answer, Cause, Handler, Request};

pub use matcher::{Matcher, PatternError};

/// Longest host name in bytes (RFC 1035 2.3.4). A longer host can't be configured.
const NAME_MAX: usize = 253;

/// Finds the route for a host and a target. `T` is the value of a route, such as its handler.
///
/// The host selects the site: an exact name, otherwise the longest matching `*.name`, otherwise the
/// site without names. Within the site the first matching route counts. No other site is tried.
pub struct Router<T> {
    sites: Vec<Vec<(Matcher, T)>>,
    exact: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    /// Sites by the part of their wildcard name after `*.`.
    wildcard: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    any: Option<usize>,
}

/// The configuration of a site.
pub struct Site<T> {
    /// Lower-case names, or `*.name`; if empty, the site handles all other hosts.
    pub hosts: Vec<String>,
    /// Routes with their matchers, tried in order.
    pub routes: Vec<(Matcher, T)>,
}

impl<T> Router<T> {
    /// Builds a router. If two sites have the same host, the first one gets it.
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

    /// Finds the route for this authority (host and optional port, lower case) and this target in
    /// origin-form, without allocating. With a single site for any host, the authority is ignored.
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
        // Suffixes are tried from the first dot on, so the longest matching name is found first.
        memchr::memchr_iter(b'.', host.as_bytes())
            .filter(|dot| *dot > 0)
            .find_map(|dot| self.wildcard.get(&host[dot + 1..]).copied())
    }
}

/// The host without its port and without a final dot.
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
            None => Answer::Ready(Err(Cause::NoRoute.into())),
        }
    }
}
