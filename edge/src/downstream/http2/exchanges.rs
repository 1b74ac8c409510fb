//! The exchanges of an HTTP/2 connection: begins them with requests, and passes on their responses.

use std::rc::Rc;
use std::task::{Context, Poll};

use crate::downstream::Refusal;
use crate::downstream::exchange::{Exchange, Extent, Intake, RefusedRequest, ResponseHead};
use crate::downstream::worker::Serving;
use crate::handler::{Body, Head, Peer, Response};
use crate::http2::request::{Expectation, Request};
use crate::http2::violation::{ErrorCode, Violation};
use crate::reason::Reason;

use super::connection::Http2;
use super::render;
use super::request::{self, Schemes};
use super::stream::{End, Stream};
use super::stream_box::StreamBox;
use super::tunnel;

/// While a worker has more stalled streams than this, connections with `STALLED_EACH` of their own get no further ones. A
/// stalled stream holds about a kilobyte.
const STALLED_MAX: u64 = 4 << 10;
const STALLED_EACH: usize = 16;

impl Http2 {
    /// Begins the exchange of a request.
    ///
    /// # Errors
    ///
    /// The request is refused, as too many were before.
    pub(super) fn begin(
        &mut self,
        slot: usize,
        ends: bool,
        is_over: bool,
        request: &mut Request,
    ) -> Result<(), Violation> {
        if self.gets_no_more() {
            let code = ErrorCode::REFUSED_STREAM;
            self.refuse_silently(request, code, "the client does not read other responses");
            let mut refused = Ok(());
            self.out
                .text(|text| refused = self.server.refuse_unprocessed(slot, text));
            return refused;
        }
        if slot >= self.streams.len() {
            self.streams.resize_with(slot + 1, || None);
        }
        self.requests += 1;
        self.connection.report_received();
        let serving = self.connection.worker.serving();
        let most = serving.options.keepalive_requests;
        if most > 0 && self.requests >= most {
            self.announce_shutdown();
        }
        let peer = serving.trust.peer(self.connection.peer, &request.fields);
        let head = match is_over {
            true => Err(Refusal::of(Reason::HeadersTooLarge)),
            false => self.head(ends, request, &serving, peer),
        };
        match head {
            Ok(head) => self.start(slot, ends, head, request, serving, peer),
            Err(refusal) => self.refuse(slot, serving, request, refusal),
        }
        Ok(())
    }

    /// Whether the client keeps windows closed for so many responses, while other clients do so as well, that it gets no
    /// further ones.
    fn gets_no_more(&self) -> bool {
        let counters = &self.connection.worker.counters;
        counters.http2_streams_stalled_now.get() > STALLED_MAX
            && self.server.stalled_streams() >= STALLED_EACH
    }

    fn head(
        &self,
        ends: bool,
        request: &mut Request,
        serving: &Serving,
        peer: Peer,
    ) -> Result<Head, Refusal> {
        let connection = &self.connection;
        let schemes = Schemes {
            of_connection: connection.peer.scheme,
            of_client: peer.scheme,
        };
        let mut head = request::head(request, ends, &schemes, &serving.options)?;
        if let Some((terms, certificate)) = connection.transport.handshake() {
            if !serving.permits(terms, &head.authority) {
                return Err(Refusal::of(Reason::Misdirected));
            }
            head.certificate = certificate.cloned();
        }
        let clock = &connection.worker.clock;
        head.id = serving.request_id(clock, &connection.peer, &head.fields);
        head.trace = serving.trace(&head.fields);
        Ok(head)
    }

    /// Passes a valid request to its handler.
    fn start(
        &mut self,
        slot: usize,
        ends: bool,
        head: Head,
        request: &Request,
        serving: Rc<Serving>,
        peer: Peer,
    ) {
        let is_tunnel = head.wants_tunnel;
        let limit = if is_tunnel { 0 } else { serving.options.body };
        let worker = &self.connection.worker;
        let mut exchange = Exchange::new(worker, serving, peer, &head, false);
        let (mut body, mut tunnel_content) = (Body::Empty, None);
        if is_tunnel {
            // The handler gets a request without content.
            tunnel_content = Some(Body::Empty);
        }
        if !ends {
            let (intake, stream) = Intake::new(request.content_length, limit);
            exchange.intake = Some(intake);
            match &mut tunnel_content {
                Some(content) => *content = Body::stream(stream),
                None => body = Body::stream(stream),
            }
        }
        let owes_continue = !ends && !is_tunnel && request.expectation == Expectation::Continue;
        let response = exchange.start(head, body, peer);
        let mut stream = Stream::new(exchange, owes_continue, request.takes_trailers);
        stream.number = self.requests;
        stream.tunnel_content = tunnel_content;
        if !ends {
            stream.count_unread(peer.client);
        }
        self.streams[slot] = Some(StreamBox::new(stream));
        match response {
            Some(mut response) => {
                if !ends {
                    // From now on, the reader of the request wakes the connection.
                    self.release_taken(slot);
                }
                self.respond(slot, &mut response);
            }
            None => self.poll_stream(slot),
        }
    }

    /// Counts and logs a request whose stream was reset with this code in place of a response.
    pub(super) fn refuse_silently(
        &self,
        request: &Request,
        code: ErrorCode,
        violation: &'static str,
    ) {
        let connection = &self.connection;
        let worker = &connection.worker;
        let (counter, reason) = match code {
            ErrorCode::REFUSED_STREAM => (
                &worker.counters.http2_streams_refused,
                Reason::TooManyStreams,
            ),
            _ => (&worker.counters.http2_malformed, Reason::MalformedRequest),
        };
        counter.add(1);
        tracing::debug!(
            client = %connection.peer.client,
            reason = reason.text(),
            cause = violation,
            "a request of HTTP/2 was refused"
        );
        let (serving, peer) = (worker.serving(), connection.peer);
        Exchange::refused_silently(worker, serving, peer, refused(request), reason);
    }

    /// Responds to a request that is refused.
    fn refuse(&mut self, slot: usize, serving: Rc<Serving>, request: &Request, refusal: Refusal) {
        let refused = refused(request);
        let connection = &self.connection;
        let (exchange, mut response) = Exchange::refused(
            &connection.worker,
            serving,
            connection.peer,
            refused,
            refusal,
        );
        self.streams[slot] = Some(StreamBox::new(Stream::new(exchange, false, false)));
        self.respond(slot, &mut response);
    }

    /// Polls the exchange of a stream, for which something has happened.
    pub(super) fn poll_stream(&mut self, slot: usize) {
        self.streams_changed = true;
        self.release_taken(slot);
        let waker = self.wakeups.waker(slot);
        let mut cx = Context::from_waker(&waker);
        let Some(Some(stream)) = self.streams.get_mut(slot) else {
            return;
        };
        if stream.responds {
            return self.fetch(slot);
        }
        if stream.owes_continue && stream.wants_content() {
            stream.owes_continue = false;
            let encode = |encoder: &mut crate::http2::hpack::Encoder, out: &mut Vec<u8>| {
                encoder.status(out, 100);
            };
            self.out
                .text(|text| self.server.head(slot, false, text, encode));
        }
        loop {
            let has_room = !self.out.is_full();
            match stream.exchange.poll_response(&mut cx, has_room) {
                Poll::Ready(ResponseHead::Interim(status, fields)) => self.out.text(|text| {
                    self.server.head(slot, false, text, |encoder, out| {
                        render::interim(encoder, out, status, &fields);
                    });
                }),
                Poll::Ready(ResponseHead::Final(mut response)) => {
                    return self.respond(slot, &mut response);
                }
                Poll::Pending => return,
            }
        }
    }

    /// Opens the windows by the content that the reader of a request has taken.
    pub(super) fn release_taken(&mut self, slot: usize) {
        let waker = self.wakeups.waker(slot);
        let mut cx = Context::from_waker(&waker);
        let Some(Some(stream)) = self.streams.get_mut(slot) else {
            return;
        };
        let (taken, begins) = stream.poll_taken(&mut cx);
        if taken == 0 && !begins {
            return;
        }
        let is_abandoned = stream.is_abandoned();
        self.out.text(|text| match is_abandoned {
            true => self.server.release(slot, taken, text),
            false => self.server.consume(slot, taken, text),
        });
    }

    /// Queues the head of a final response. The content follows as `gather` takes it.
    fn respond(&mut self, slot: usize, response: &mut Response) {
        let Some(Some(stream)) = self.streams.get_mut(slot) else {
            return;
        };
        let content = stream.tunnel_content.take();
        if content.is_some() || response.tunnel.is_some() {
            stream.tunnel = tunnel::accept(response, content);
            if stream.tunnel.is_some() {
                stream.exchange.begin_tunnel();
            }
        }
        let extent = stream.exchange.extent(response);
        let ends = matches!(extent, Extent::None | Extent::Exactly(0));
        let (out, server) = (&mut self.out, &mut self.server);
        self.connection.worker.with_date(|date| {
            out.text(|text| {
                server.head(slot, ends, text, |encoder, out| {
                    render::head(encoder, out, response, extent, date);
                });
            });
        });
        stream.exchange.respond(response, extent);
        stream.responds = true;
        stream.receipt = response.receipt.take();
        match ends {
            true => {
                if let Some(stream) = self.streams[slot].take() {
                    self.finish(stream);
                }
            }
            false => self.fetch(slot),
        }
    }

    /// Takes content from the exchange of a stream, unless there is some. An end without content is sent at once, since it
    /// needs no window.
    pub(super) fn fetch(&mut self, slot: usize) {
        let waker = self.wakeups.waker(slot);
        let mut cx = Context::from_waker(&waker);
        let Some(Some(stream)) = self.streams.get_mut(slot) else {
            return;
        };
        let has_content = stream.fetch(&mut cx);
        if !stream.is_at_end() {
            return self.server.set_content(slot, has_content);
        }
        if let (_, Some(end)) = stream.take(0) {
            self.end(slot, end, false);
        }
    }

    /// Ends a response that cannot be completed.
    pub(super) fn cut(&mut self, slot: usize, reason: Reason) {
        self.end(slot, End::Cut(reason), false);
    }
}

/// Returns the parts of a refused request that are logged, as far as they could be read.
fn refused(request: &Request) -> RefusedRequest<'_> {
    RefusedRequest {
        method: request.method.as_ref().map_or("", |method| method.as_str()),
        target: std::str::from_utf8(&request.path).unwrap_or_default(),
        version: crate::http::Version::Http2.as_str(),
        line: b"",
    }
}
