//! An HTTP/1 connection: one small future per client, which owns no buffer while it is idle.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::downstream::worker::{Serving, Worker};
use crate::downstream::{ConnectionSetup, Refusal};
use crate::handler::{Answer, Body, Peer, Request};
use crate::http::{Method, Version};
use crate::reason::Reason;
use crate::sys::net::Socket;

use super::account::{Account, Note};
use super::exchange::{Exchange, Next};
use super::head::{self, Framing, Limits, Parsed};
use super::render::Asked;
use super::upload::Upload;
use super::wire::{Budget, Wire, guarded, yield_turn};

/// A client's connection, from accept to close.
pub struct Connection {
    pub(super) wire: Wire,
    /// Where it came in, for as long as somebody has to introduce its client.
    pub(super) setup: Option<Arc<ConnectionSetup>>,
    /// The request being answered, once it has had to wait for something.
    exchange: Option<Box<Exchange>>,
    answered: u64,
    pub(super) waits_for: WaitsFor,
    /// Input bytes in which no complete head was found.
    looked_at: usize,
}

/// What an idle connection's deadline is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// None is set.
    Nothing,
    /// Who the client is.
    Introduction,
    /// The first byte of a request.
    Request,
    /// The rest of a head.
    Head,
}

impl Future for Connection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().turn(cx)
    }
}

impl Connection {
    /// Of a client that has just connected. `None` where it may not come in here: it has too many
    /// connections, or has to be introduced and this is nobody who may do that.
    pub fn through(
        setup: &Arc<ConnectionSetup>,
        worker: Rc<Worker>,
        socket: Socket,
        peer: Peer,
    ) -> Option<Connection> {
        let mut connection = Connection {
            wire: Wire::new(worker, socket, peer),
            setup: None,
            exchange: None,
            answered: 0,
            waits_for: WaitsFor::Nothing,
            looked_at: 0,
        };
        let may = match &setup.proxy {
            None => connection.wire.enter(),
            Some(proxy) => {
                connection.setup = Some(setup.clone());
                let may = proxy.trusted.iter().any(|from| from.contains(peer.client));
                let counters = &connection.wire.worker.counters;
                counters.connections_not_introduced.add(u64::from(!may));
                may
            }
        };
        may.then_some(connection)
    }

    /// Serves requests until one has to wait, or others are to have their turn.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = &self.wire.worker;
        worker.deadlines.watch(self.wire.slot, cx);
        if worker.is_cut() {
            if let Some(exchange) = &mut self.exchange {
                exchange.cut_off();
            }
            self.wire.socket.reset_on_drop();
            return Poll::Ready(());
        }
        if self.setup.is_some() && ready!(self.introduce(cx)) == Next::Close {
            return Poll::Ready(());
        }
        let mut budget = Budget::new();
        loop {
            let next = match &mut self.exchange {
                Some(exchange) => ready!(exchange.poll(cx, &mut self.wire, &mut budget)),
                None => ready!(self.next_request(cx, &mut budget)),
            };
            if let Some(mut exchange) = self.exchange.take() {
                exchange.finish(&self.wire);
            }
            if next == Next::Close {
                return Poll::Ready(());
            }
            if budget.is_spent() {
                yield_turn(cx);
                return Poll::Pending;
            }
        }
    }

    /// Reads the next head and begins to answer it.
    fn next_request(&mut self, cx: &mut Context<'_>, budget: &mut Budget) -> Poll<Next> {
        loop {
            if !self.wire.input().is_empty() {
                let serving = self.wire.worker.serving();
                match self.head(&serving) {
                    Ok(Some(parsed)) => return self.begin(cx, serving, parsed, budget),
                    Ok(None) => {}
                    Err(refusal) => return self.refuse(cx, serving, refusal, budget),
                }
            }
            match self.wire.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                // The client is done, or gone.
                Poll::Ready(_) => return Poll::Ready(Next::Close),
                Poll::Pending => return self.idle(cx, budget),
            }
        }
    }

    /// The head at the front of the input. It is looked for only when a line has ended since the
    /// last time, so that a head that comes byte by byte is not read over and over.
    fn head(&mut self, serving: &Serving) -> Result<Option<Parsed>, Refusal> {
        let input = self.wire.input();
        let fresh = input.get(self.looked_at..).unwrap_or_default();
        let limits = Limits {
            request_line: serving.options.request_line,
            headers: serving.options.headers,
            body: serving.options.body,
        };
        let most = limits.request_line + limits.headers + 4;
        let worth_it =
            self.looked_at == 0 || input.len() > most || memchr::memchr(b'\n', fresh).is_some();
        let parsed = match worth_it {
            true => head::parse(input, &limits, self.wire.peer.scheme)?,
            false
                if input.len() > limits.request_line + 3
                    && memchr::memchr(b'\n', input).is_none() =>
            {
                return Err(Refusal::of(Reason::RequestLineTooLong));
            }
            false => None,
        };
        match parsed {
            Some(_) => self.looked_at = 0,
            None => {
                self.looked_at = input.len();
                if self.wire.is_full() {
                    self.wire.grow(most + 1);
                }
            }
        }
        Ok(parsed)
    }

    /// Nothing to read: waits, within the time there is.
    fn idle(&mut self, cx: &mut Context<'_>, budget: &mut Budget) -> Poll<Next> {
        let worker = self.wire.worker.clone();
        let waits_for = match self.wire.input().is_empty() {
            true => WaitsFor::Request,
            false => WaitsFor::Head,
        };
        if worker.is_draining() && waits_for == WaitsFor::Request {
            // A request may have come in this very moment: closing on it would lose it.
            return match self.wire.fill_now(cx) {
                true => self.next_request(cx, budget),
                false => Poll::Ready(Next::Close),
            };
        }
        if self.waits_for != waits_for {
            self.waits_for = waits_for;
            let options = &worker.serving().options;
            let (time, idle) = match waits_for {
                WaitsFor::Head => (options.header_timeout, false),
                _ if self.answered > 0 => (options.keepalive_timeout, true),
                _ => (options.header_timeout, true),
            };
            worker.deadlines.set_in(self.wire.slot, time, idle);
            self.wire.tuck();
            return Poll::Pending;
        }
        if !worker.deadlines.expired(self.wire.slot) {
            return Poll::Pending;
        }
        match waits_for {
            WaitsFor::Head => {
                worker.counters.client_timeouts.add(1);
                self.refuse(cx, worker.serving(), Refusal::HEADER_TIMEOUT, budget)
            }
            _ => Poll::Ready(Next::Close),
        }
    }

    /// Hands a request to the handler, and answers it as far as that goes without waiting.
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        serving: Rc<Serving>,
        parsed: Parsed,
        budget: &mut Budget,
    ) -> Poll<Next> {
        let peer = serving.trust.peer(self.wire.peer, &parsed.head.fields);
        let mut account = self.account(serving, &parsed, peer);
        self.waits_for = WaitsFor::Nothing;
        self.answered += 1;
        budget.request();
        self.wire.worker.counters.requests.add(1);
        self.wire.used(parsed.length);
        let (body, upload) = self.body(&account.serving, parsed.framing);
        let owes_continue = parsed.expects_continue && upload.is_some();
        let request = Request {
            head: parsed.head,
            body,
            peer,
            interim: None,
        };
        let handler = &account.serving.handler;
        let mut answer = Answer::Ready(Err(Reason::Panic.into()));
        // Its panic has been counted; the answer above stands then.
        let _ = guarded(&self.wire, || answer = handler.handle(request));
        account.handed_over();
        let mut exchange = Exchange::new(account, upload, owes_continue, &self.wire);
        exchange.answer(answer, &self.wire);
        self.run(cx, exchange, budget)
    }

    #[inline]
    fn account(&self, serving: Rc<Serving>, parsed: &Parsed, peer: Peer) -> Account {
        let head = &parsed.head;
        let asked = Asked {
            version: head.version,
            head: head.method == Method::Head,
            trailers: parsed.takes_trailers,
        };
        let worker = &self.wire.worker;
        let note = serving.log.as_ref().map(|log| {
            let target = &self.wire.input()[parsed.target.clone()];
            Note::of(worker, log, peer, head, target)
        });
        let options = &serving.options;
        let last = options.keepalive_timeout.is_zero()
            || (options.keepalive_requests > 0 && self.answered + 1 >= options.keepalive_requests);
        let mut account = Account::new(worker, serving, asked, note);
        account.keep = parsed.keep_alive && !last;
        // Who asked for the end sends nothing more; else requests may be under way already.
        account.lingers = parsed.keep_alive;
        account.upgrade = head.upgrade;
        account
    }

    /// The request's body: at hand if it came with the head, else as a stream.
    fn body(&mut self, serving: &Serving, framing: Framing) -> (Body, Option<Upload>) {
        if let Framing::Length(length) = framing
            && let Some(body) = usize::try_from(length)
                .ok()
                .and_then(|length| self.wire.input().get(..length))
        {
            let bytes = bytes::Bytes::copy_from_slice(body);
            self.wire.used(bytes.len());
            return (Body::Bytes(bytes), None);
        }
        match Upload::new(framing, serving.options.body, serving.options.headers) {
            None => (Body::Empty, None),
            Some((upload, stream)) => (Body::stream(stream), Some(upload)),
        }
    }

    fn refuse(
        &mut self,
        cx: &mut Context<'_>,
        serving: Rc<Serving>,
        refusal: Refusal,
        budget: &mut Budget,
    ) -> Poll<Next> {
        let worker = &self.wire.worker;
        worker.counters.requests_refused.add(1);
        let asked = Asked {
            version: Version::Http11,
            head: false,
            trailers: false,
        };
        let note = serving
            .log
            .is_some()
            .then(|| Note::of_refused(worker, self.wire.peer, self.wire.input()));
        let account = Account::new(worker, serving, asked, note);
        let mut exchange = Exchange::new(account, None, false, &self.wire);
        exchange.refuse(refusal, &self.wire);
        self.run(cx, exchange, budget)
    }

    /// As far as it goes now; the rest is kept for later.
    #[inline]
    fn run(
        &mut self,
        cx: &mut Context<'_>,
        mut exchange: Exchange,
        budget: &mut Budget,
    ) -> Poll<Next> {
        let polled = exchange.poll(cx, &mut self.wire, budget);
        match polled {
            Poll::Ready(_) => exchange.finish(&self.wire),
            Poll::Pending => self.exchange = Some(Box::new(exchange)),
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // There may be hundreds of thousands.
        assert!(size_of::<Connection>() <= 192);
    }
}
