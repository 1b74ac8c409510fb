//! Host and path to what answers: the sites and their routes.

mod glob;
mod matcher;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::rc::Rc;

use crate::handler::{Answer, Handler, Request};
use crate::reason::Reason;

pub use matcher::{Matcher, PatternError};

/// A DNS name is no longer (RFC 1035 2.3.4), so a longer host can't have been configured.
const NAME_MAX: usize = 253;

/// Finds what answers for a host and a target. `T` is whatever a route leads to.
///
/// A site is chosen by its host: an exact name, else the longest `*.name` that fits, else the site
/// without names. Within the site the first route that matches counts; no other site is tried.
pub struct Router<T> {
    sites: Vec<Vec<(Matcher, T)>>,
    exact: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    /// By what follows the `*.`.
    wildcard: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    any: Option<usize>,
}

/// What a site is made of.
pub struct Site<T> {
    /// Lower-case names, or `*.name`; none: any host.
    pub hosts: Vec<String>,
    /// Tried in order.
    pub routes: Vec<(Matcher, T)>,
}

impl<T> Router<T> {
    /// From sites. Where two claim the same host the first has it.
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

    /// What answers for this authority (host and optional port, lower case) and this target in
    /// origin-form. Allocates nothing; with one site for any host it does not look at the authority.
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
        // From the first dot on, so that the longest name is found first.
        memchr::memchr_iter(b'.', host.as_bytes())
            .filter(|dot| *dot > 0)
            .find_map(|dot| self.wildcard.get(&host[dot + 1..]).copied())
    }
}

/// The host without port and without the root's dot.
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
