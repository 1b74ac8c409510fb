//! An HTTP/1 connection: one small future per client, which holds no buffer while the connection is
//! idle.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::downstream::Refusal;
use crate::downstream::connection::Connection;
use crate::downstream::deadlines::ticks;
use crate::downstream::exchange::Exchange;
use crate::downstream::turn::{Turn, yield_turn};
use crate::downstream::worker::Serving;
use crate::reason::Reason;
use crate::sys::Clock;

use super::cycle::{Cycle, CycleOptions, Next};
use super::head::{self, Limits, Parsed};
use crate::downstream::outbox::Outbox;

/// Longest time from a TLS handshake to the client's first request while the worker drains.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// A client's HTTP/1 connection, from its first request to its close.
pub struct Http1 {
    connection: Connection,
    /// Whether the listener has HTTP/1. Otherwise the first request is refused.
    is_served: bool,
    /// The current request and response. `None` between requests, and while a request is served
    /// without waiting.
    cycle: Option<Box<Cycle>>,
    answered: u32,
    waits_for: WaitsFor,
    /// Bytes of the input that were searched for a complete head, without finding one.
    searched: u32,
}

/// The event for which the connection waits between two requests, until its deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// No deadline is set.
    Nothing,
    /// The first byte of a request.
    Request,
    /// The first byte of the connection's first request, while the worker drains.
    FirstRequest,
    /// The rest of a head.
    Head,
}

impl Future for Http1 {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().turn(cx)
    }
}

impl Http1 {
    /// Creates an HTTP/1 connection whose input may already begin with a request.
    /// `is_served`: the listener has HTTP/1; otherwise the client gets a response that says so (RFC 9110 15.6.6).
    pub fn new(connection: Connection, is_served: bool) -> Http1 {
        let counters = &connection.worker.counters;
        counters.http1_connections.add(1);
        counters.http1_connections_now.add(1);
        Http1 {
            connection,
            is_served,
            cycle: None,
            answered: 0,
            waits_for: WaitsFor::Nothing,
            searched: 0,
        }
    }

    /// Serves requests until one has to wait or the turn is over.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = &self.connection.worker;
        worker.watch(self.connection.slot, cx);
        if worker.is_cut() {
            if let Some(cycle) = &mut self.cycle {
                cycle.cut_off();
            }
            self.connection.transport.reset_on_drop();
            return Poll::Ready(());
        }
        if self.cycle.is_some() {
            // Sending content may take long, so the next request has to read the clock.
            Clock::forget();
        }
        let mut turn = Turn::new();
        loop {
            let next = match &mut self.cycle {
                Some(cycle) => ready!(cycle.poll(cx, &mut self.connection, &mut turn)),
                None => ready!(self.next_request(cx, &mut turn)),
            };
            if let Some(mut cycle) = self.cycle.take() {
                cycle.finish();
            }
            if next == Next::Close {
                return Poll::Ready(());
            }
            if turn.is_spent() {
                yield_turn(cx);
                return Poll::Pending;
            }
        }
    }

    /// Reads the next head and begins to respond.
    fn next_request(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<Next> {
        loop {
            if !self.connection.input().is_empty() {
                let serving = self.connection.worker.serving();
                match self.head(&serving) {
                    Ok(Some(_)) if !self.is_served => {
                        let refusal = Refusal::of(Reason::HttpVersion);
                        return self.refuse(cx, serving, refusal, turn);
                    }
                    Ok(Some(parsed)) => return self.begin(cx, serving, parsed, turn),
                    Ok(None) => {}
                    // A client of neither version (RFC 9113 3.4).
                    Err(_) if !self.is_served => {
                        let counters = &self.connection.worker.counters;
                        counters.http2_failed_protocol.add(1);
                        return Poll::Ready(Next::Close);
                    }
                    Err(refusal) => return self.refuse(cx, serving, refusal, turn),
                }
            }
            match self.connection.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                // The client has closed its sending direction, or the connection is broken.
                Poll::Ready(_) => return Poll::Ready(Next::Close),
                Poll::Pending => return self.idle(cx, turn),
            }
        }
    }

    /// Parses the head at the start of the input, if it is complete. The input is parsed only if a
    /// line has ended since the last call, so that a head that arrives byte by byte is not parsed
    /// for each byte.
    fn head(&mut self, serving: &Serving) -> Result<Option<Parsed>, Refusal> {
        let input = self.connection.input();
        let fresh = input.get(self.searched as usize..).unwrap_or_default();
        let limits = Limits {
            request_line: serving.options.request_line,
            headers: serving.options.headers,
            body: serving.options.body,
        };
        let most = limits.request_line + limits.headers + 4;
        let may_be_complete =
            self.searched == 0 || input.len() > most || memchr::memchr(b'\n', fresh).is_some();
        let parsed = match may_be_complete {
            true => head::parse(input, &limits)?,
            false
                if input.len() > limits.request_line + 3
                    && memchr::memchr(b'\n', input).is_none() =>
            {
                return Err(Refusal::of(Reason::RequestLineTooLong));
            }
            false => None,
        };
        match &parsed {
            Some(_) => self.searched = 0,
            None => {
                // An input is at most a few MiB long.
                self.searched = input.len() as u32;
                if self.connection.is_full() {
                    self.connection.grow_buffer(most + 1);
                }
            }
        }
        Ok(parsed)
    }

    /// Waits for input until the deadline.
    fn idle(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<Next> {
        let worker = self.connection.worker.clone();
        let waits_for = match self.connection.input().is_empty() {
            true => WaitsFor::Request,
            false => WaitsFor::Head,
        };
        if worker.is_draining() && waits_for == WaitsFor::Request {
            // A request may have arrived in this moment. Closing the connection now would lose it,
            // so input is read once more.
            return match self.connection.fill_now() {
                true => self.next_request(cx, turn),
                false => self.wait_for_first_request(),
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
            worker.deadlines.set_in(self.connection.slot, time, idle);
            self.connection.shrink_buffer();
            return Poll::Pending;
        }
        if !worker.deadlines.expired(self.connection.slot) {
            return Poll::Pending;
        }
        match waits_for {
            WaitsFor::Head => {
                worker.counters.client_timeouts.add(1);
                self.refuse(cx, worker.serving(), Refusal::HEADER_TIMEOUT, turn)
            }
            _ if self.connection.fill_now() => self.next_request(cx, turn),
            _ => Poll::Ready(Next::Close),
        }
    }

    /// Waits for the first request of a client whose TLS handshake has just ended, while the worker drains. In clear text,
    /// a client usually sends its first request with the connection; with TLS, it sends it after the handshake.
    fn wait_for_first_request(&mut self) -> Poll<Next> {
        let (worker, slot) = (&self.connection.worker, self.connection.slot);
        if self.answered > 0 || self.connection.transport.handshake().is_none() {
            return Poll::Ready(Next::Close);
        }
        let deadlines = &worker.deadlines;
        if self.waits_for != WaitsFor::FirstRequest {
            let since = match self.waits_for {
                WaitsFor::Request => deadlines.since(slot),
                _ => deadlines.now(),
            };
            self.waits_for = WaitsFor::FirstRequest;
            let most = FIRST_REQUEST.min(worker.serving().options.header_timeout);
            deadlines.set(slot, since.saturating_add(ticks(most)), true);
        }
        match deadlines.expired(slot) {
            true => Poll::Ready(Next::Close),
            false => Poll::Pending,
        }
    }

    /// Passes a request to its handler, and responds as far as that is possible without waiting.
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        serving: Rc<Serving>,
        mut parsed: Parsed,
        turn: &mut Turn,
    ) -> Poll<Next> {
        if let Some((terms, certificate)) = self.connection.transport.handshake() {
            if !serving.permits(terms, &parsed.head.authority) {
                return self.refuse(cx, serving, Refusal::of(Reason::Misdirected), turn);
            }
            parsed.head.certificate = certificate.cloned();
        }
        let connection = &mut self.connection;
        let peer = serving.trust.peer(connection.peer, &parsed.head.fields);
        parsed.head.id = serving.request_id(
            &connection.worker.clock,
            &connection.peer,
            &parsed.head.fields,
        );
        parsed.head.trace = serving.trace(&parsed.head.fields);
        // The scheme of the target is compared once it is known whether a trusted proxy reports TLS.
        if parsed
            .target_scheme
            .is_some_and(|scheme| scheme != peer.scheme)
        {
            let refusal = Refusal::of(Reason::TargetOfAnotherScheme);
            return self.refuse(cx, serving, refusal, turn);
        }
        parsed.head.normalize_authority(peer.scheme);
        let options = &serving.options;
        let last = options.keepalive_timeout.is_zero()
            || (options.keepalive_requests > 0
                && u64::from(self.answered) + 1 >= options.keepalive_requests);
        let cycle_options = CycleOptions {
            version: parsed.head.version,
            keep_alive: parsed.keep_alive && !last,
            // A client that requested `Connection: close` sends nothing more. Other clients may
            // have sent further requests, so the connection lingers before it is closed.
            lingers: parsed.keep_alive,
            takes_trailers: parsed.takes_trailers,
        };
        self.waits_for = WaitsFor::Nothing;
        self.answered = self.answered.saturating_add(1);
        connection.report_received();
        turn.request();
        let sends_files = connection.transport.sends_files();
        let out = Outbox::pooled();
        let exchange = Exchange::new(&connection.worker, serving, peer, &parsed.head, sends_files);
        let mut cycle = Cycle::new(exchange, out, &cycle_options);
        connection.consume(parsed.length);
        cycle.start(
            connection,
            parsed.head,
            peer,
            parsed.framing,
            parsed.expects_continue,
        );
        let polled = cycle.poll(cx, connection, turn);
        match polled {
            Poll::Ready(_) => cycle.finish(),
            Poll::Pending => {
                Clock::forget();
                self.cycle = Some(Box::new(cycle));
            }
        }
        polled
    }

    fn refuse(
        &mut self,
        cx: &mut Context<'_>,
        serving: Rc<Serving>,
        refusal: Refusal,
        turn: &mut Turn,
    ) -> Poll<Next> {
        let request = head::refused_request(self.connection.input());
        let cycle = Cycle::refuse(&self.connection, serving, request, refusal);
        // The cycle is stored, since `turn` polls it further and finishes it.
        let cycle = self.cycle.insert(Box::new(cycle));
        cycle.poll(cx, &mut self.connection, turn)
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        let counters = &self.connection.worker.counters;
        counters.http1_connections_now.sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // There may be hundreds of thousands of idle connections, so this type must stay small.
        assert!(size_of::<Http1>() <= 192);
    }
}
