//! Forwards one request: chooses a server, gets a connection, sends the request, and receives the
//! head of the response.

use std::rc::Rc;

use super::criteria::Criteria;
use super::inbound::{Failure, Received, SLOW_US};
use super::lease::{Grant, Lease, Opened, Opening};
use super::options::Limits;
use super::outbound::Outbound;
use super::redirect_names::Visited;
use super::retry::{self, Tries};
use super::route_headers::RouteHeaders;
use super::route_options::RouteOptions;
use super::sticky::Sticky;
use super::upgrade;
use super::upload::Upload;
use super::worker::UpstreamWorker;
use crate::balance::Outcome;
use crate::handler::template::RequestValues;
use crate::handler::{Fault, Head, Interim, Peer, Response, UpstreamTimings};
use crate::http::key::KeyHash;
use crate::http::{ClientId, FieldBlock, RequestId, Status};
use crate::reason::Reason;
use crate::sign;
use crate::sys::Address;

/// The head of a response with its connection, and the time at which the request was sent, in
/// microseconds of the upstream's clock.
pub(super) type Exchanged = (Lease, Received, u64);

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
    /// The URLs to which redirects led, if some were followed.
    pub(super) visited: Option<Rc<Visited>>,
}

impl Forward {
    /// Sends the request until a server responds or no further try is allowed. Returns the head of
    /// the response with its connection, and the time at which the request was sent, in microseconds
    /// of the upstream's clock.
    ///
    /// After a failure of a kind in `retry.on`, another server is tried, up to `retry.tries` in all,
    /// if that is safe (`may_move`). If the server turns out to have closed the reused connection,
    /// the request is first sent once more where that is safe (`may_repeat`): on a new connection,
    /// to the same server if it accepts one. A request that a server of HTTP/2 refused is sent on
    /// another connection that has room, which may be one to another server.
    pub(super) async fn exchange(&self, tries: &mut Tries) -> Result<Exchanged, Fault> {
        let mut opening = None;
        loop {
            let mut lease = self.reach(tries, opening.take()).await?;
            let server = lease.server();
            self.note_try(lease.stream.peer());
            self.upstream.count_request(self.options.counters(), &lease);
            let sent_us = self.upstream.clock.monotonic_us();
            tries.begin(sent_us);
            tries.note_sent(server, sent_us);
            lease.begin_recording(self.target(), sent_us);
            let outbound = self.outbound();
            let sent = lease.send(&outbound, self.limits(), |head| self.show(head));
            match sent.await {
                Ok(received) if self.may_replace(&received, server, tries) => {
                    self.note_head(&mut lease, received.status, sent_us);
                    self.count_failure(server, &Reason::RetriedStatus.into());
                    self.upstream.pool.discard(lease);
                }
                Ok(received) => {
                    self.upstream.count_status(server, received.status);
                    return Ok((lease, received, sent_us));
                }
                Err(failure)
                    if self.may_repeat(&failure) && tries.repeat(server, failure.refused) =>
                {
                    self.upstream.counters.upstream_retries.add(1);
                    opening = self.upstream.pool.reopen(lease);
                }
                Err(failure) => {
                    if self.is_clients_delay(&failure, sent_us) {
                        lease.note(Outcome::Cancelled);
                    }
                    drop(lease);
                    self.count_failure(server, &failure.fault);
                    let may_move = self.may_move(&failure);
                    self.move_on(failure.fault, server, may_move, tries)?;
                }
            }
        }
    }

    /// Returns a request with another head to the same resource, without content.
    pub(super) fn again(&self, head: Head) -> Forward {
        Forward {
            upstream: self.upstream.clone(),
            route: self.route.clone(),
            options: self.options.clone(),
            head,
            target: self.target.clone(),
            peer: self.peer,
            upload: Upload::default(),
            interim: None,
            record: self.record.clone(),
            visited: self.visited.clone(),
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.upstream.limits
    }

    pub(super) fn target(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.head.target)
    }

    /// Returns the value of Host.
    pub(super) fn host(&self) -> &str {
        let authority = match &self.visited {
            Some(visited) => &visited.url().authority,
            None => self.clients_host(),
        };
        self.upstream.host(authority)
    }

    /// Returns the host that the client has named, or nothing if the origin must not get the name.
    fn clients_host(&self) -> &str {
        match self.names_another_host() {
            true => "",
            false => &self.head.authority,
        }
    }

    fn outbound(&self) -> Outbound<'_> {
        let host = self.host();
        let request = sign::Request {
            method: self.head.method.as_str(),
            target: self.target(),
            host,
            has_content: self.upload.length() != Some(0),
        };
        let signer = self.upstream.signer.as_ref();
        let unix_s = || self.upstream.clock.unix_ms() / 1000;
        Outbound {
            signature: signer.map(|signer| signer.sign(&request, unix_s())),
            head: &self.head,
            target: self.target(),
            peer: &self.peer,
            host,
            forwarded_host: self.clients_host(),
            route: &self.route,
            via: self.upstream.options.via,
            x_real_ip: self.upstream.options.x_real_ip,
            upload: &self.upload,
        }
    }

    /// Passes a 1xx head on to the client.
    fn show(&self, mut head: Received) {
        if let Some(interim) = &self.interim {
            if self.options.request_ids.is_some() {
                head.fields.remove(RequestId::HEADER);
            }
            interim.push(head.status, FieldBlock::from(&head.fields));
        }
    }

    /// Returns a lease on a connection to a server that accepts one. If `opening` is given, it is
    /// tried first.
    async fn reach(&self, tries: &mut Tries, mut opening: Option<Opening>) -> Result<Lease, Fault> {
        let criteria = Criteria {
            client: ClientId::of(self.peer.client),
            key: &|| self.key(),
            is_repeatable: self.is_repeatable(),
            needs_http1: upgrade::protocols(&self.head).next().is_some(),
            sticky: self
                .sticky()
                .and_then(|sticky| sticky.named(&self.head.fields)),
            record: self.record.clone(),
        };
        loop {
            let opening = match opening.take() {
                Some(opening) => opening,
                None => match self.upstream.pool.acquire(&tries.failed, &criteria).await {
                    Ok(Grant::Opening(opening)) => opening,
                    // A connection with unread bytes is not used, since they would be taken for the
                    // response to this request.
                    Ok(Grant::Lease(mut lease)) => match lease.stream.is_quiet() {
                        true => return Ok(lease),
                        false => match self.upstream.pool.reopen(lease) {
                            Some(opening) => opening,
                            None => continue,
                        },
                    },
                    Ok(Grant::Refused(server, reason)) => {
                        self.note_refused(server, &reason.into());
                        self.move_on(reason.into(), server, true, tries)?;
                        continue;
                    }
                    Err(fault) => return Err(self.unreached(fault)),
                },
            };
            let server = opening.server();
            // Boxed, since few requests open a connection and each carries its future.
            match Box::pin(self.open(opening, tries)).await {
                Ok(lease) => return Ok(lease),
                Err(fault) => self.move_on(fault, server, true, tries)?,
            }
        }
    }

    /// Whether a server, to which the request is being sent since `sent_us`, closed the connection after
    /// it had waited for the client's content. Servers limit this time, so the close says nothing about
    /// the server.
    fn is_clients_delay(&self, failure: &Failure, sent_us: u64) -> bool {
        let took_us = self.upstream.clock.monotonic_us().saturating_sub(sent_us);
        failure.awaited_client && took_us >= SLOW_US
    }

    /// Whether the request may be sent to another server after this failure: nothing was written, or
    /// the request asks for no change and none of its content has been consumed.
    fn may_move(&self, failure: &Failure) -> bool {
        failure.unsent || self.is_repeatable()
    }

    fn is_repeatable(&self) -> bool {
        retry::is_repeatable(&self.head.method) && self.upload.is_whole()
    }

    /// After a failure of this server: returns the fault unless another server may be tried.
    /// `may_move`: whether the request may be sent again.
    pub(super) fn move_on(
        &self,
        fault: Fault,
        server: usize,
        may_move: bool,
        tries: &mut Tries,
    ) -> Result<(), Fault> {
        tries.failed.push(server);
        let covered = self.upstream.options.retry.on.covers(fault.reason);
        match may_move && covered && self.upstream.may_retry(server, tries) {
            true => Ok(()),
            false => Err(fault),
        }
    }

    /// Whether another server gets the request because of the status of this server's response.
    fn may_replace(&self, received: &Received, server: usize, tries: &mut Tries) -> bool {
        let causes = &self.upstream.options.retry.on;
        if !causes.covers_status(received.status) || !self.is_repeatable() {
            return false;
        }
        tries.failed.push(server);
        // The response is better than a wait for room, and than a server that is known to fail.
        self.upstream.pool.has_ready(&tries.failed) && self.upstream.may_retry(server, tries)
    }

    /// Returns the hash of the requested URL, or of the text that the configuration names, for
    /// balancers that send a key to the same server each time.
    fn key(&self) -> u64 {
        let (head, scheme) = (&self.head, self.peer.scheme);
        if let Some(template) = &self.upstream.options.hash {
            let (values, mut text) = (RequestValues::of(head, &self.peer), Vec::new());
            // A template checked by the planner does not use the status.
            if template.expand(&values, 0, &mut text).is_some() {
                return KeyHash::of_bytes(&text).low();
            }
        }
        KeyHash::of(scheme, &head.authority, head.path(), head.query()).low()
    }

    pub(super) fn count_failure(&self, server: usize, fault: &Fault) {
        let (scheme, head) = (self.peer.scheme, &self.head);
        self.upstream
            .count_failure(server, fault.reason, scheme, head);
    }

    /// Counts that a server accepts no connections, as an attempt has shown that another request
    /// caused.
    fn note_refused(&self, server: usize, fault: &Fault) {
        let gauges = self.upstream.pool.gauges(server);
        self.note_try(gauges.server.server.known_address());
        self.count_failure(server, fault);
    }

    /// Notes for the log that the request is sent to the server with this address, or that the server
    /// could not be connected to.
    fn note_try(&self, address: Option<Address>) {
        self.record.server.set(address);
        let tries = self.record.tries.get();
        self.record.tries.set(tries.saturating_add(1));
    }

    fn unreached(&self, fault: Fault) -> Fault {
        let (scheme, head) = (self.peer.scheme, &self.head);
        self.upstream.count_unreached(fault.reason, scheme, head);
        fault
    }

    /// Opens a connection.
    async fn open(&self, opening: Opening, tries: &mut Tries) -> Result<Lease, Fault> {
        let index = opening.server();
        let began_us = self.upstream.clock.monotonic_us();
        tries.begin(began_us);
        let state = opening.state();
        let opened = opening.connect(self.limits()).await;
        let took_us = self.upstream.clock.monotonic_us().saturating_sub(began_us);
        self.record.connect_us.set(took_us.max(1));
        let result = opened.as_ref().map(|_| ()).map_err(|fault| fault.reason);
        self.upstream.pool.note_connect(index, result, began_us);
        match opened {
            Ok(Opened { lease, rest }) => {
                self.upstream
                    .count_connect(self.options.counters(), &lease, took_us);
                self.upstream.pool.keep(rest);
                Ok(lease)
            }
            Err(fault) => {
                self.note_try(state.known_address());
                self.count_failure(index, &fault);
                Err(fault)
            }
        }
    }

    /// Whether the request may be sent again: nothing was written, or the method is idempotent and
    /// none of the content has been consumed (RFC 9110 9.2.2, RFC 9112 9.3.1).
    fn may_repeat(&self, failure: &Failure) -> bool {
        let is_stale = matches!(
            failure.fault.reason,
            Reason::StaleConnection | Reason::StreamRefused
        );
        is_stale && (failure.unsent || (self.head.method.is_idempotent() && self.upload.is_whole()))
    }

    /// Returns the cookie by which clients of this route stick to a server.
    pub(super) fn sticky(&self) -> Option<&Sticky> {
        let sticky = self.upstream.options.sticky.as_ref();
        sticky.filter(|_| self.options.sticky)
    }

    /// Adds the cookie that names the server, unless the request has it.
    pub(super) fn stick(&self, response: &mut Response, server: usize) {
        let id = self.upstream.pool.sticky_id(server);
        if let Some(sticky) = self.sticky()
            && sticky.named(&self.head.fields) != Some(id)
        {
            let cookie = sticky.set_cookie(id, self.peer.scheme);
            response.fields.append("set-cookie", cookie);
        }
    }

    /// Notes the status of the response and the time to its head, for log and balancer. Returns the
    /// current time.
    pub(super) fn note_head(&self, lease: &mut Lease, status: Status, sent_us: u64) -> u64 {
        let now_us = self.note_outcome(lease, status, sent_us);
        self.record.status.set(Some(status));
        let head_us = now_us.saturating_sub(sent_us);
        self.record.header_us.set(Some(head_us));
        now_us
    }

    /// Notes the status of a response and the time to its head, for the balancer. Returns the current
    /// time, which the clock keeps as the recent one.
    pub(super) fn note_outcome(&self, lease: &mut Lease, status: Status, sent_us: u64) -> u64 {
        let now_us = self.upstream.clock.read_us();
        let head_us = now_us.saturating_sub(sent_us);
        self.upstream
            .count_head(self.options.counters(), lease.server(), head_us);
        lease.note(Outcome::Answered {
            status,
            head_us,
            total_us: None,
        });
        now_us
    }
}
