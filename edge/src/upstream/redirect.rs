//! Follows redirects of origins (RFC 9110 15.4) in place of the client, to the servers of the route's
//! own upstream and to those that the route names.

use std::rc::Rc;
use std::time::Duration;

use super::download::Download;
use super::forward::Forward;
use super::inbound::{Content, Received};
use super::lease::Lease;
use super::redirect_names::Visited;
use super::redirect_rule::Redirects;
use super::route_options::RouteOptions;
use super::upload::Upload;
use super::worker::UpstreamWorker;
use crate::handler::{BodyStream, Peer};
use crate::http::key::without_default_port;
use crate::http::location::Base;
use crate::http::reference::{self, Resolved};
use crate::http::{Method, Status, hop};

/// Most bytes of a redirect's content that are read so that its connection can be used again, and the
/// longest time for that.
const CONTENT_MAX: u64 = 16 << 10;
const CONTENT_TIME_MAX: Duration = Duration::from_secs(1);

/// Headers that are sent to other hosts. All others stay here: the client's credentials and names,
/// and headers that the configuration sets for the origin.
const SENT_ELSEWHERE: [&str; 14] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "cdn-loop",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "te",
    "user-agent",
    "via",
];

/// The request that a redirect leads to.
struct Next {
    url: Resolved,
    method: Method,
    upstream: Rc<UpstreamWorker>,
    /// Whether the request is for another host than the route's upstream, or an earlier one was.
    elsewhere: bool,
}

impl Forward {
    /// Returns the request that this response leads to, if the response is a redirect that the route
    /// follows.
    pub(super) fn redirected(&self, lease: &Lease, received: &Received) -> Option<Forward> {
        let redirects = self.options.redirects.as_ref()?;
        if !matches!(received.status, 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let counters = &self.upstream.counters;
        match self.next(redirects, lease, received) {
            Some(next) => {
                counters.upstream_redirects.add(1);
                Some(self.follow(lease, received, next))
            }
            None => {
                counters.upstream_redirects_passed.add(1);
                None
            }
        }
    }

    /// Returns the request that a redirect leads to; `None` if the client gets the redirect.
    fn next(&self, redirects: &Redirects, lease: &Lease, received: &Received) -> Option<Next> {
        let method = method_after(received.status, &self.head.method, !self.upload.is_empty())?;
        let visited = self.visited.as_ref();
        let count = visited.map_or(0, |visited| visited.count());
        // A cookie in a redirect is for the client, which would not get it.
        let is_for_client = received.fields.contains("set-cookie") || self.head.wants_tunnel;
        if count >= redirects.times.into() || is_for_client {
            return None;
        }
        let mut locations = received.fields.get_all("location");
        let location = locations.next().filter(|_| locations.next().is_none())?;
        let here = self.url(lease);
        let mut url = reference::resolve(base(&here), location)?;
        let (upstream, elsewhere) = self.upstream_of(redirects, &here, &url)?;
        let signer = upstream.signer.as_ref();
        if signer.is_some_and(|signer| !signer.options().query) {
            // An object's owner may choose its redirect, and could have a bucket listed by this.
            let path = url.target.find('?').unwrap_or(url.target.len());
            url.target.truncate(path);
        }
        let is_seen = visited.is_some_and(|visited| visited.contains(&url)) || here == url;
        (!is_seen || method != self.head.method).then_some(Next {
            url,
            method,
            upstream,
            elsewhere,
        })
    }

    /// Returns the upstream that has this URL, if the route follows redirects to it, and whether the
    /// request leaves the route's upstream, or left it before.
    fn upstream_of(
        &self,
        redirects: &Redirects,
        here: &Resolved,
        url: &Resolved,
    ) -> Option<(Rc<UpstreamWorker>, bool)> {
        let has_left = self.visited.as_ref().is_some_and(|v| v.is_elsewhere());
        if (url.scheme, &url.authority) == (here.scheme, &here.authority) {
            return Some((self.upstream.clone(), has_left));
        }
        let own = match &self.visited {
            Some(visited) => visited.route_upstream(),
            None => &self.upstream,
        };
        if own.options.is_named(url.scheme, &url.authority) {
            return Some((own.clone(), has_left));
        }
        let mut others = redirects.to.iter();
        let other = others.find(|other| other.options.is_named(url.scheme, &url.authority))?;
        // An upstream may be named although it is the route's own.
        let elsewhere = has_left || !Rc::ptr_eq(other, own);
        Some((other.clone(), elsewhere))
    }

    /// Whether the client's Host may name another host to which redirects may lead. The origin
    /// must not get such a name, neither in Host nor in X-Forwarded-Host and Forwarded: the origin may
    /// repeat the name in a redirect, and so the client would choose where the redirect leads.
    pub(super) fn names_another_host(&self) -> bool {
        self.options.redirects.as_ref().is_some_and(|redirects| {
            redirects.to.iter().any(|other| {
                !Rc::ptr_eq(other, &self.upstream) && other.options.may_name(&self.head.authority)
            })
        })
    }

    /// Returns the URL of this request, as the server sees it.
    fn url(&self, lease: &Lease) -> Resolved {
        if let Some(visited) = &self.visited {
            return visited.url().clone();
        }
        let gauges = self.upstream.pool.gauges(lease.server());
        let scheme = gauges.server.server.server().scheme;
        Resolved {
            scheme,
            authority: without_default_port(scheme, self.host()).to_owned(),
            target: self.target().to_owned(),
        }
    }

    /// Returns the request to which a redirect leads.
    fn follow(&self, lease: &Lease, received: &Received, next: Next) -> Forward {
        let mut followed = self.record.followed.get();
        followed.add(&received.fields);
        self.record.followed.set(followed);
        // 0 is the time to connect on a connection that is used again.
        self.record.connect_us.set(0);
        // The log is about the last request.
        self.record.tries.set(0);
        let visited = match &self.visited {
            Some(visited) => visited.and(&next.url, next.elsewhere, &received.fields),
            None => Visited::new(
                self.upstream.clone(),
                self.options.path.clone(),
                (self.host(), &self.head.authority),
                [self.url(lease), next.url.clone()],
                (next.elsewhere, &received.fields),
            ),
        };
        let mut forward = Forward {
            upstream: next.upstream,
            route: self.route.clone(),
            options: self.options.clone(),
            head: self.head.clone(),
            target: Some(next.url.target.clone()),
            peer: self.peer,
            upload: Upload::default(),
            interim: self.interim.clone(),
            record: self.record.clone(),
            visited: Some(Rc::new(visited)),
        };
        if next.method != forward.head.method {
            forward.head.fields.retain(|name, _| !is_of_content(name));
            forward.head.method = next.method;
        }
        if next.elsewhere {
            forward.leave(&next.url);
        }
        forward
    }

    /// Removes everything from the request that is not for other hosts than the route's upstream.
    fn leave(&mut self, url: &Resolved) {
        let head = &mut self.head;
        head.fields
            .retain(|name, _| hop::is_in(&SENT_ELSEWHERE, name));
        head.authority.clone_from(&url.authority);
        head.target.clone_from(&url.target);
        (head.received_target, head.certificate) = (None, None);
        (head.id, head.trace) = (None, None);
        self.peer = Peer {
            // Neither the client's address nor the scheme of its request.
            shared: true,
            scheme: url.scheme,
            ..self.peer
        };
        self.route = Rc::default();
        // Hints for the page at the client's URL can't come from other hosts (RFC 8297 2).
        self.interim = None;
        self.options = Rc::new(RouteOptions {
            path: None,
            sticky: false,
            ..(*self.options).clone()
        });
    }

    /// Receives the content of a redirect in the background if it is short, so that its connection
    /// can be used again.
    pub(super) fn drain(mut self: Box<Self>, mut lease: Lease, received: &Received, sent_us: u64) {
        // The log is about the last response.
        self.record = Rc::default();
        let now_us = self.note_head(&mut lease, received.status, sent_us);
        let mut download = Download::new(self, lease, sent_us);
        match received.content {
            Content::None { .. } => return download.finish(now_us),
            Content::Sized(..=CONTENT_MAX) | Content::Delimited => {}
            Content::Sized(_) | Content::UntilClose => return,
        }
        if download.take_whole().is_ok() && download.lease.is_some() {
            let rest = read(download);
            tokio::task::spawn_local(tokio::time::timeout(CONTENT_TIME_MAX, rest));
        }
    }
}

/// Reads content up to `CONTENT_MAX`.
async fn read(mut download: Download) {
    let mut bytes = 0;
    while bytes <= CONTENT_MAX {
        let next = std::future::poll_fn(|cx| download.poll_frame(cx)).await;
        match next {
            Some(Ok(frame)) => bytes += frame.length(),
            Some(Err(_)) | None => return,
        }
    }
}

/// Returns the method of the request that a redirect with this status leads to; `None` if the redirect
/// of a request with this method is not followed.
fn method_after(status: Status, method: &Method, has_content: bool) -> Option<Method> {
    match (status, method) {
        (_, Method::Get | Method::Head) if !has_content => Some(method.clone()),
        (303, Method::Head) => Some(Method::Head),
        // RFC 9110 15.4.4: the response to any other request is at this URL, for GET.
        (303, _) => Some(Method::Get),
        // 301 and 302 may change POST to GET or not (RFC 9110 15.4.2), which is for the client to
        // decide. The content that 307 and 308 would need again has been sent.
        _ => None,
    }
}

/// Whether a header describes the content of a request, or is a condition about its target, and so
/// has no meaning in the GET that follows a 303.
fn is_of_content(name: &[u8]) -> bool {
    let begins = |prefix: &str| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    begins("content-") || begins("if-") || hop::is_in(&["digest", "range", "trailer"], name)
}

fn base(url: &Resolved) -> Base<'_> {
    Base {
        scheme: url.scheme,
        authority: &url.authority,
        target: &url.target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_without_content_keep_their_method() {
        let after = |status, method: &Method, has_content| {
            let next = method_after(status, method, has_content);
            next.map(|method| method.as_str().to_owned())
        };
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(after(status, &Method::Get, false).as_deref(), Some("GET"));
            assert_eq!(after(status, &Method::Head, false).as_deref(), Some("HEAD"));
        }
        for method in [Method::Post, Method::Put, Method::Delete] {
            assert_eq!(after(303, &method, true).as_deref(), Some("GET"));
            assert_eq!(after(303, &method, false).as_deref(), Some("GET"));
            for status in [301, 302, 307, 308] {
                assert_eq!(after(status, &method, false), None);
            }
        }
        assert_eq!(after(307, &Method::Get, true), None);
        assert_eq!(after(303, &Method::Head, true).as_deref(), Some("HEAD"));
    }
}
