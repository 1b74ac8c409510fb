//! The path of one request: reach a server, send, receive the head, hand over the content.

use std::rc::Rc;

use super::download::Download;
use super::link::{Failure, Link, Message};
use super::pool::{Failed, Grant, Seat};
use super::request::{self, Source};
use super::response::{self, Content, Received};
use super::upload::Upload;
use super::{Inner, Limits};
use crate::handler::{Body, Cause, Fault, Head, Interim, Peer, Response, UpstreamTimings};
use crate::http::{Status, Version};
use crate::sys::connect::{ConnectError, connect};

/// A request on its way.
pub(super) struct Asking {
    pub(super) upstream: Rc<Inner>,
    pub(super) head: Head,
    pub(super) peer: Peer,
    pub(super) upload: Upload,
    pub(super) interim: Option<Interim>,
    pub(super) record: Rc<UpstreamTimings>,
}

impl Asking {
    /// Asks until there is a response or nothing more may be tried.
    ///
    /// Servers that cannot be reached are passed over, up to `retry.tries` in all. A request that met
    /// a connection which the server had closed meanwhile is sent once more if that is safe
    /// (`may_repeat`): on a new connection, to the same server if it accepts one.
    pub(super) async fn run(self) -> Result<Response, Fault> {
        // Built before a server is reached, so that a request which cannot be sent takes no place.
        let mut message = self.message()?;
        let mut link = self.reach(None).await?;
        let mut may_retry = true;
        loop {
            let server = link.seat.server;
            self.record.server.set(link.peer());
            self.upstream.count_request(&link);
            let sent_us = self.upstream.clock.monotonic_us();
            let mut spare = Vec::new();
            let sent = link.send(message, self.limits(), &mut spare, |head| self.show(head));
            let sent = sent.await;
            self.upstream.keep_head(spare);
            match sent {
                Ok(response) => return self.receive(link, response, sent_us).await,
                Err(failure) if may_retry && self.may_repeat(&failure) => {
                    may_retry = false;
                    self.upstream.counters.upstream_retries.add(1);
                    message = self.message()?;
                    link = self.reach(Some(link.abandon())).await?;
                }
                Err(failure) => {
                    self.upstream.count_failure(server);
                    return Err(failure.fault);
                }
            }
        }
    }

    fn limits(&self) -> &Limits {
        &self.upstream.limits
    }

    fn message(&self) -> Result<Message, Fault> {
        let source = Source {
            head: &self.head,
            peer: &self.peer,
            host: self.upstream.host.as_deref(),
            fallback_host: &self.upstream.fallback_host,
            length: self.upload.length(),
        };
        let mut head = self.upstream.spare_head();
        request::build(&source, &mut head)?;
        Ok(Message {
            head,
            upload: self.upload.clone(),
            method: self.head.method.clone(),
            upgrade: request::protocols(&self.head).next().is_some(),
        })
    }

    /// A 1xx head on its way to the client.
    fn show(&self, head: Received) {
        if let Some(interim) = &self.interim {
            interim.push(head.status, head.fields);
        }
    }

    /// A connection to a server that accepts one. With a seat: a new one, first in that place.
    async fn reach(&self, mut seat: Option<Seat>) -> Result<Box<Link>, Fault> {
        let mut failed = Failed::new();
        let anew = seat.is_some();
        loop {
            let seat = match seat.take() {
                Some(seat) => seat,
                None => match self.upstream.pool.acquire(&failed).await {
                    Ok(Grant::Seat(seat)) => seat,
                    // What came unasked would be taken for the answer to this request.
                    Ok(Grant::Link(link)) if !anew && link.is_quiet() => return Ok(link),
                    Ok(Grant::Link(link)) => link.abandon(),
                    Err(fault) => return Err(self.unreached(fault)),
                },
            };
            let server = seat.server;
            match self.open(seat).await {
                Ok(link) => return Ok(link),
                Err(fault) => {
                    failed.push(server);
                    let exhausted = failed.len() >= self.upstream.options.servers.len()
                        || failed.len() > self.upstream.options.retries as usize;
                    if exhausted || !fault.retryable {
                        return Err(fault);
                    }
                    self.upstream.counters.upstream_retries.add(1);
                }
            }
        }
    }

    fn unreached(&self, fault: Fault) -> Fault {
        self.upstream.counters.upstream_failures.add(1);
        fault
    }

    /// Opens a connection in a place we hold.
    async fn open(&self, seat: Seat) -> Result<Box<Link>, Fault> {
        let server = seat.server;
        let began_us = self.upstream.clock.monotonic_us();
        let opened = self.connect(seat).await;
        let took_us = self.upstream.clock.monotonic_us().saturating_sub(began_us);
        self.record.connect_us.set(took_us.max(1));
        self.upstream.pool.note_connect(server, opened.is_ok());
        match opened {
            Ok(_) => self.upstream.count_connect(server),
            Err(_) => self.upstream.count_failure(server),
        }
        opened
    }

    async fn connect(&self, seat: Seat) -> Result<Box<Link>, Fault> {
        let server = &self.upstream.options.servers[seat.server];
        let timeout = self.upstream.options.connect_timeout;
        let stream = connect(&server.host, server.port, timeout)
            .await
            .map_err(|e| match e {
                ConnectError::Unresolved => Cause::Unresolved,
                ConnectError::Failed => Cause::ConnectFailed,
                ConnectError::Timeout => Cause::ConnectTimeout,
            })?;
        Ok(Link::new(stream, seat))
    }

    /// Sending again is safe if nothing was written, or if doing it twice is like doing it once
    /// and all of the content is still there (RFC 9110 9.2.2, RFC 9112 9.3.1).
    fn may_repeat(&self, failure: &Failure) -> bool {
        failure.fault.cause == Cause::StaleConnection
            && (failure.unsent || (self.head.method.is_idempotent() && self.upload.is_whole()))
    }

    async fn receive(
        &self,
        link: Box<Link>,
        received: Received,
        sent_us: u64,
    ) -> Result<Response, Fault> {
        let server = link.seat.server;
        let failed = |_: &Fault| self.upstream.count_failure(server);
        let content = received.content;
        self.note_head(received.status, sent_us);
        let mut response = self.head(received).inspect_err(failed)?;
        if response.status == 101 {
            let tunnel = link.into_tunnel(self.limits()).await;
            response.upgrade = Some(Box::new(tunnel.inspect_err(failed)?));
            return Ok(response);
        }
        let mut download = Download {
            upstream: self.upstream.clone(),
            link: Some(link),
            first: None,
            left: None,
            record: self.record.clone(),
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
            Content::Chunked => response.body = Body::stream(download),
            Content::UntilClose => {
                response.until_close = true;
                response.body = Body::stream(download);
            }
        }
        Ok(response)
    }

    /// The response without its content.
    fn head(&self, received: Received) -> Result<Response, Fault> {
        if received.status == 101 && !self.may_switch(&received) {
            return Err(Cause::UnexpectedStatus.into());
        }
        let mut response = Response::new(received.status);
        response.upstream = Some(self.record.clone());
        response.fields = received.fields;
        response::add_via(&mut response.fields, received.version);
        for protocol in received.protocols {
            response.fields.append("upgrade", protocol);
        }
        Ok(response)
    }

    /// Whether a 101 answers what was asked: by a server of HTTP/1.1, and for nothing but protocols
    /// that the request named (RFC 9110 7.8, 15.2.2).
    fn may_switch(&self, received: &Received) -> bool {
        let asked = |chosen: &[u8]| {
            request::protocols(&self.head).any(|name| name.eq_ignore_ascii_case(chosen))
        };
        let chosen = received.protocols.iter();
        let mut chosen = chosen
            .flat_map(|value| value.split(|&b| b == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty())
            .peekable();
        received.version == Version::Http11 && chosen.peek().is_some() && chosen.all(asked)
    }

    fn note_head(&self, status: Status, sent_us: u64) {
        let now_us = self.upstream.clock.monotonic_us();
        self.record.status.set(Some(status));
        self.record
            .header_us
            .set(Some(now_us.saturating_sub(sent_us)));
    }
}
