//! Makes a response from the head of a server's response, and reads its content from the same
//! connection.

use smallvec::smallvec;

use super::download::Download;
use super::forward::Forward;
use super::inbound::{Content, Received};
use super::lease::Lease;
use super::outbound;
use super::resume::Resume;
use super::upgrade;
use super::via;
use super::write_back::{self, Names};
use crate::handler::{Body, Fault, Response};
use crate::http::RequestId;
use crate::reason::Reason;

impl Forward {
    /// Sends the request, and returns the response of the server that answers it. The request is in a
    /// box, since it passes from the wait for the head to the download of the content.
    pub(super) async fn run(mut self: Box<Self>) -> Result<Response, Fault> {
        loop {
            // A request that cannot be sent takes no permit.
            outbound::check(&self.head, self.target())?;
            self.upstream.retries.add_request();
            let (lease, received, sent_us) = self.exchange_hedged().await?;
            let Some(next) = self.redirected(&lease, &received) else {
                return self.receive(lease, received, sent_us).await;
            };
            self.drain(lease, &received, sent_us);
            self = Box::new(next);
        }
    }

    /// Turns a received head into a response whose content is read from the same connection.
    async fn receive(
        self: Box<Self>,
        mut lease: Lease,
        received: Received,
        sent_us: u64,
    ) -> Result<Response, Fault> {
        let server = lease.server();
        let content = received.content;
        let now_us = self.note_head(&mut lease, received.status, sent_us);
        let mut response = match self.head(received) {
            Ok(response) => response,
            Err(fault) => {
                lease.note_failure(&fault);
                self.count_failure(server, &fault);
                return Err(fault);
            }
        };
        self.stick(&mut response, server);
        if response.status == 101 {
            let tunnel = Box::pin(lease.into_tunnel(self.limits())).await;
            let tunnel = tunnel.inspect_err(|fault| self.count_failure(server, fault))?;
            response.tunnel = Some(tunnel);
            return Ok(response);
        }
        let mut download = Download::new(self, lease, sent_us);
        match content {
            Content::None { declared } => {
                response.length = declared;
                download.finish(now_us);
            }
            Content::Sized(length) => {
                download.left = Some(length);
                response.body = match download.take_whole()? {
                    Some(bytes) => Body::Bytes(bytes),
                    None => {
                        download.resume = download.forward.resume(&response, length, server);
                        Body::stream(download)
                    }
                };
            }
            Content::Delimited => response.body = Body::stream(download),
            Content::UntilClose => {
                response.until_close = true;
                response.body = Body::stream(download);
            }
        }
        Ok(response)
    }

    /// Returns the ability to continue a response's content of `length` bytes, if `server` fails to
    /// send it, on another server.
    fn resume(&self, response: &Response, length: u64, server: usize) -> Option<Box<Resume>> {
        let may_retry = self.upstream.options.retry.tries > 1
            && self.upload.is_empty()
            && self.upstream.pool.has_other(&smallvec![server]);
        may_retry.then(|| Resume::of(&self.head, response, length))?
    }

    /// Returns the response without its content.
    fn head(&self, received: Received) -> Result<Response, Fault> {
        if received.status == 101 && !upgrade::may_switch(&self.head, &received) {
            return Err(Reason::UnexpectedStatus.into());
        }
        let mut response = Response::new(received.status);
        response.upstream = Some(self.record.clone());
        response.fields = received.fields;
        if self.options.request_ids.is_some() {
            // Each client gets the id of its own request, also if the response is stored.
            response.fields.remove(RequestId::HEADER);
        }
        if let Some(visited) = &self.visited {
            visited.apply(self.record.followed.get(), &mut response.fields);
        }
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
        if let Some(visited) = &self.visited {
            return visited.names();
        }
        Names {
            path: self.options.path.as_ref(),
            servers: &self.upstream.options.servers,
            host: self.host(),
            client: &self.head.authority,
        }
    }
}
