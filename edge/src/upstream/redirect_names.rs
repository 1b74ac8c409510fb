//! The URLs to which redirects led, and their meaning for the headers of the last response.

use std::rc::Rc;

use super::path_map::PathMap;
use super::worker::UpstreamWorker;
use super::write_back::{Names, unambiguous};
use crate::handler::Followed;
use crate::http::Fields;
use crate::http::location::Base;
use crate::http::reference::{self, Resolved};

/// The URLs that were requested for one request of a client, of which all but the last one responded
/// with a redirect.
pub(super) struct Visited {
    route: Rc<Route>,
    /// The URLs, at least one.
    urls: Vec<Resolved>,
    /// Whether a URL was one of another host than the route's upstream.
    elsewhere: bool,
    /// The values of Vary of the redirects.
    vary: Vec<Vec<u8>>,
}

/// The names of the first request.
struct Route {
    upstream: Rc<UpstreamWorker>,
    path: Option<PathMap>,
    host: String,
    client: String,
}

impl Visited {
    /// Creates the list after the first redirect, which led from one URL to the other. `host` is the
    /// Host that the origin received, `client` the authority that the client named.
    pub(super) fn new(
        upstream: Rc<UpstreamWorker>,
        path: Option<PathMap>,
        (host, client): (&str, &str),
        urls: [Resolved; 2],
        (elsewhere, redirect): (bool, &Fields),
    ) -> Visited {
        Visited {
            route: Rc::new(Route {
                upstream,
                path,
                host: host.to_owned(),
                client: client.to_owned(),
            }),
            urls: urls.into(),
            elsewhere,
            vary: vary(redirect).collect(),
        }
    }

    /// Returns the list after a further redirect.
    pub(super) fn and(&self, url: &Resolved, elsewhere: bool, redirect: &Fields) -> Visited {
        let urls = self.urls.iter().chain([url]);
        let earlier = self.vary.iter().cloned();
        Visited {
            route: self.route.clone(),
            urls: urls.cloned().collect(),
            elsewhere,
            vary: earlier.chain(vary(redirect)).collect(),
        }
    }

    /// Returns the number of redirects.
    pub(super) fn count(&self) -> usize {
        self.urls.len() - 1
    }

    pub(super) fn contains(&self, url: &Resolved) -> bool {
        self.urls.contains(url)
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Returns the upstream of the route.
    pub(super) fn route_upstream(&self) -> &Rc<UpstreamWorker> {
        &self.route.upstream
    }

    /// Returns the URL of the last request.
    pub(super) fn url(&self) -> &Resolved {
        &self.urls[self.urls.len() - 1]
    }

    /// Returns the names under which the route's origin and the client know resources.
    pub(super) fn names(&self) -> Names<'_> {
        let route = &*self.route;
        Names {
            path: route.path.as_ref(),
            servers: &route.upstream.options.servers,
            host: &route.host,
            client: &route.client,
        }
    }

    /// Changes headers of the last response, which are about its own URL, for the client, who asked
    /// for the first one.
    pub(super) fn apply(&self, followed: Followed, fields: &mut Fields) {
        if self.elsewhere {
            // The client would take the cookies of another host for those of its own (RFC 6265 5.3).
            fields.remove("set-cookie");
        }
        for name in ["location", "content-location"] {
            let new = fields.get(name).and_then(|value| self.absolute(value));
            if let Some(new) = new {
                fields.set(name, new);
            }
        }
        for value in &self.vary {
            fields.append("vary", value);
        }
        for directive in followed.directives() {
            fields.append("cache-control", directive);
        }
    }

    /// Returns a relative reference in absolute form, since the client would resolve it against
    /// another URL. `None` if it stays as it is.
    fn absolute(&self, value: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(value).ok()?.trim();
        let is_scheme = |start: &str| {
            text.len() > start.len()
                && text.is_char_boundary(start.len())
                && text[..start.len()].eq_ignore_ascii_case(start)
        };
        if is_scheme("http:") || is_scheme("https:") {
            return None;
        }
        let here = self.url();
        let base = Base {
            scheme: here.scheme,
            authority: &here.authority,
            target: &here.target,
        };
        let url = reference::resolve(base, text.as_bytes())?;
        let fragment = text.find('#').map_or("", |at| &text[at..]);
        let is_here = (url.scheme, &url.authority) == (here.scheme, &here.authority);
        Some(match is_here && !self.elsewhere {
            true => format!("{}{fragment}", unambiguous(url.target)),
            false => {
                let scheme = url.scheme.as_str();
                format!("{scheme}://{}{}{fragment}", url.authority, url.target)
            }
        })
    }
}

fn vary(redirect: &Fields) -> impl Iterator<Item = Vec<u8>> {
    redirect.get_all("vary").map(<[u8]>::to_vec)
}
