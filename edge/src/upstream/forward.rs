//! Forwards one request: chooses a server, gets a connection, sends the request, receives the head,
//! passes on the content.

use std::rc::Rc;

use super::download::Download;
use super::inbound::{Content, Failure, Received};
use super::lease::{Grant, Lease, Opened, Opening};
use super::options::Limits;
use super::outbound::{self, Outbound};
use super::pool::Failed;
use super::route_headers::RouteHeaders;
use super::route_options::RouteOptions;
use super::upgrade;
use super::upload::Upload;
use super::via;
use super::worker::UpstreamWorker;
use super::write_back::{self, Names};
use crate::balance::Outcome;
use crate::handler::{Body, Fault, Head, Interim, Peer, Response, UpstreamTimings};
use crate::http::key::KeyHash;
use crate::http::{ClientId, FieldBlock, Status};
use crate::reason::Reason;

/// A request to be forwarded.
pub(super) struct Forward {
    pub(super) upstream: Rc<UpstreamWorker>,
    pub(super) route: Rc<RouteHeaders>,
    pub(super) options: Rc<RouteOptions>,
    pub(super) head: Head,
    /// The target for the servers, if it is not that of `head`.
    pub(super) target: Option<String>,
    pub(super) peer: Peer,
    pub(super) upload: Upload,
    pub(super) interim: Option<Interim>,
    pub(super) record: Rc<UpstreamTimings>,
}

impl Forward {
    /// Sends the request until a server responds or no further try is allowed.
    ///
    /// If a server can't be reached, another is tried, up to `retry.tries` in all. If the server
    /// turns out to have closed the reused connection, the request is sent once more where that is
    /// safe (`may_repeat`): on a new connection, to the same server if it accepts one.
    pub(super) async fn run(self) -> Result<Response, Fault> {
        // A request that cannot be sent takes no permit.
        outbound::check(&self.head, self.target())?;
        let mut lease = self.reach(None).await?;
        let mut may_retry = true;
        loop {
            let server = lease.server();
            self.record.server.set(lease.stream.peer());
            self.upstream.count_request(&lease);
            let sent_us = self.upstream.clock.monotonic_us();
            let outbound = self.outbound();
            let sent = lease.send(&outbound, self.limits(), |head| self.show(head));
            match sent.await {
                Ok(response) => return self.receive(lease, response, sent_us).await,
                Err(failure) if may_retry && self.may_repeat(&failure) => {
                    may_retry = false;
                    self.upstream.counters.upstream_retries.add(1);
                    lease = self.reach(Some(self.upstream.pool.reopen(lease))).await?;
                }
                Err(failure) => {
                    self.count_failure(server, &failure.fault);
                    return Err(failure.fault);
                }
            }
        }
    }

    fn limits(&self) -> &Limits {
        &self.upstream.limits
    }

    fn target(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.head.target)
    }

    fn outbound(&self) -> Outbound<'_> {
        Outbound {
            head: &self.head,
            target: self.target(),
            peer: &self.peer,
            host: self.upstream.host(&self.head.authority),
            route: &self.route,
            via: self.upstream.options.via,
            x_real_ip: self.upstream.options.x_real_ip,
            upload: &self.upload,
        }
    }

    /// Passes a 1xx head on to the client.
    fn show(&self, head: Received) {
        if let Some(interim) = &self.interim {
            interim.push(head.status, FieldBlock::from(&head.fields));
        }
    }

    /// Returns a lease on a connection to a server that accepts one. If `opening` is given, only a
    /// connection newly opened with it is used.
    async fn reach(&self, mut opening: Option<Opening>) -> Result<Lease, Fault> {
        let client = ClientId::of(self.peer.client);
        let mut failed = Failed::new();
        let must_open = opening.is_some();
        loop {
            let opening = match opening.take() {
                Some(opening) => opening,
                None => match self
                    .upstream
                    .pool
                    .acquire(&failed, client, &|| self.key())
                    .await
                {
                    Ok(Grant::Opening(opening)) => opening,
                    // A connection with unread bytes is not used, since they would be taken for the
                    // response to this request.
                    Ok(Grant::Lease(lease)) if !must_open && lease.stream.is_quiet() => {
                        return Ok(lease);
                    }
                    Ok(Grant::Lease(lease)) => self.upstream.pool.reopen(lease),
                    Err(fault) => return Err(self.unreached(fault)),
                },
            };
            let server = opening.server();
            match self.open(opening).await {
                Ok(lease) => return Ok(lease),
                Err(fault) => {
                    failed.push(server);
                    let exhausted = failed.len() >= self.upstream.options.servers.len()
                        || failed.len() >= self.upstream.options.tries as usize;
                    if exhausted || !fault.retryable {
                        return Err(fault);
                    }
                    self.upstream.counters.upstream_retries.add(1);
                }
            }
        }
    }

    /// Returns the hash of the requested URL, for balancers that send a URL to the same server each
    /// time.
    fn key(&self) -> u64 {
        let (head, scheme) = (&self.head, self.peer.scheme);
        KeyHash::of(scheme, &head.authority, head.path(), head.query()).low()
    }

    fn count_failure(&self, server: usize, fault: &Fault) {
        let (scheme, head) = (self.peer.scheme, &self.head);
        self.upstream
            .count_failure(server, fault.reason, scheme, head);
    }

    fn unreached(&self, fault: Fault) -> Fault {
        self.upstream.counters.upstream_failures.add(1);
        fault
    }

    /// Opens a connection.
    async fn open(&self, opening: Opening) -> Result<Lease, Fault> {
        let index = opening.server();
        let began_us = self.upstream.clock.monotonic_us();
        let options = &self.upstream.options;
        let opened = opening.connect(&options.servers[index], options.connect_timeout);
        let opened = opened.await;
        let took_us = self.upstream.clock.monotonic_us().saturating_sub(began_us);
        self.record.connect_us.set(took_us.max(1));
        let result = opened.as_ref().map(|_| ()).map_err(|fault| fault.reason);
        self.upstream.pool.note_connect(index, result);
        match opened {
            Ok(Opened { lease, rest }) => {
                self.upstream.count_connect(index);
                self.upstream.pool.keep(rest);
                Ok(lease)
            }
            Err(fault) => {
                self.record.server.set(options.servers[index].literal());
                self.count_failure(index, &fault);
                Err(fault)
            }
        }
    }

    /// Whether the request may be sent again: nothing was written, or the method is idempotent and
    /// none of the content has been consumed (RFC 9110 9.2.2, RFC 9112 9.3.1).
    fn may_repeat(&self, failure: &Failure) -> bool {
        failure.fault.reason == Reason::StaleConnection
            && (failure.unsent || (self.head.method.is_idempotent() && self.upload.is_whole()))
    }

    /// Turns a received head into a response whose content is read from the same connection.
    async fn receive(
        self,
        mut lease: Lease,
        received: Received,
        sent_us: u64,
    ) -> Result<Response, Fault> {
        let server = lease.server();
        let content = received.content;
        self.note_head(&mut lease, received.status, sent_us);
        let mut response = match self.head(received) {
            Ok(response) => response,
            Err(fault) => {
                lease.note_failure(&fault);
                self.count_failure(server, &fault);
                return Err(fault);
            }
        };
        if response.status == 101 {
            let tunnel = lease.into_tunnel(self.limits()).await;
            let tunnel = tunnel.inspect_err(|fault| self.count_failure(server, fault))?;
            response.tunnel = Some(tunnel);
            return Ok(response);
        }
        let mut download = Download {
            upstream: self.upstream,
            lease: Some(lease),
            first: None,
            left: None,
            record: self.record,
            request: (self.peer.scheme, self.head),
            sent_us,
        };
        match content {
            Content::None { declared } => {
                response.length = declared;
                download.finish();
            }
            Content::Sized(length) => {
                download.left = Some(length);
                response.body = download.into_body()?;
            }
            Content::Delimited => response.body = Body::stream(download),
            Content::UntilClose => {
                response.until_close = true;
                response.body = Body::stream(download);
            }
        }
        Ok(response)
    }

    /// Returns the response without its content.
    fn head(&self, received: Received) -> Result<Response, Fault> {
        if received.status == 101 && !upgrade::may_switch(&self.head, &received) {
            return Err(Reason::UnexpectedStatus.into());
        }
        let mut response = Response::new(received.status);
        response.upstream = Some(self.record.clone());
        response.fields = received.fields;
        if self.options.write_back {
            write_back::apply(&mut response.fields, &self.names());
        }
        via::add(&mut response.fields, received.version);
        for protocol in received.protocols {
            response.fields.append("upgrade", protocol);
        }
        Ok(response)
    }

    /// Returns the names under which origin and client know the resource.
    fn names(&self) -> Names<'_> {
        Names {
            path: self.options.path.as_ref(),
            servers: &self.upstream.options.servers,
            host: self.upstream.host(&self.head.authority),
            client: &self.head.authority,
        }
    }

    fn note_head(&self, lease: &mut Lease, status: Status, sent_us: u64) {
        let now_us = self.upstream.clock.monotonic_us();
        let head_us = now_us.saturating_sub(sent_us);
        self.record.status.set(Some(status));
        self.record.header_us.set(Some(head_us));
        lease.note(Outcome::Answered { status, head_us });
    }
}
