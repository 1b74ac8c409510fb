//! Receives frames: the heads, content and ends of responses, and the server's announcements.

use std::task::{Context, Poll};

use bytes::Buf;
use tokio::time::Instant;

use super::exchange::Exchange;
use super::options::READ_MIN;
use super::response;
use super::state::State;
use crate::handler::Fault;
use crate::http2::client::Event;
use crate::http2::response::Response;
use crate::http2::violation::{ErrorCode, Violation};
use crate::reason::Reason;
use crate::sys::clock::timer_now;
use crate::upstream::error_detail::ErrorDetail;
use crate::upstream::inbound::{Content, Failure, LINES_MAX};

/// Largest read in bytes.
const READ_MAX: usize = 128 << 10;

impl State {
    /// Reads once and handles the frames that have arrived. Returns whether more may have arrived.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        if self.is_ending || self.is_choked() {
            return false;
        }
        let Some(transport) = &mut self.transport else {
            return false;
        };
        self.input.reserve(self.read_size);
        let room = self.input.capacity() - self.input.len();
        match transport.poll_read_buffer(cx, &mut self.input) {
            Poll::Pending => false,
            Poll::Ready(Ok(n @ 1..)) => {
                if n == room {
                    self.read_size = (self.read_size * 2).min(READ_MAX);
                } else if n < self.read_size / 4 {
                    self.read_size = (self.read_size / 2).max(READ_MIN);
                }
                self.activity.note_active(now);
                self.handle_input(self.activity.ms(now));
                true
            }
            Poll::Ready(_) => {
                self.close();
                false
            }
        }
    }

    fn handle_input(&mut self, now_ms: u64) {
        let mut response = Response::default();
        loop {
            match self.handle_frame(now_ms, &mut response) {
                Ok(0) => break,
                Ok(_) => {}
                Err(violation) => return self.violated(&violation),
            }
        }
        if self.client.has_begun() {
            let permitted = self.client.permitted_streams();
            if self.activity.permitted.replace(permitted) != Some(permitted)
                && let Some(permit) = &self.permit
            {
                permit.state().protocol().note_streams(permitted);
            }
        }
        self.note_room();
    }

    /// Handles a frame, or a part of one. Returns the number of bytes used.
    fn handle_frame(&mut self, now_ms: u64, response: &mut Response) -> Result<usize, Violation> {
        let out = &mut self.out.text;
        let (used, event) = self.client.take(&self.input, now_ms, response, out)?;
        let is_of_connection = matches!(event, None | Some(Event::Pong(_) | Event::GoAway { .. }));
        self.answers += u64::from(!is_of_connection);
        match event {
            Some(Event::Content {
                slot,
                content,
                ends,
            }) => {
                let start = content.as_ptr().addr() - self.input.as_ptr().addr();
                let length = content.len();
                self.content(slot, (start, length, used), ends);
                return Ok(used);
            }
            Some(Event::Head { slot, ends, .. }) => self.head(slot, ends, response),
            Some(Event::Trailers { slot, fields }) => {
                if let Some(exchange) = self.exchange(slot) {
                    let mut exchange = exchange.borrow_mut();
                    let fields = response::trailers(fields);
                    exchange.trailers = Some(fields).filter(|fields| !fields.is_empty());
                    self.end(slot, &mut exchange);
                }
            }
            Some(Event::Failed {
                slot,
                code,
                violation,
            }) => self.failed(slot, code, violation.is_some()),
            Some(Event::GoAway { code }) => self.go_away(code),
            Some(Event::Pong(_)) | None => {}
        }
        self.input.advance(used);
        Ok(used)
    }

    fn head(&mut self, slot: usize, ends: bool, head: &mut Response) {
        let Some(exchange) = self.exchange(slot) else {
            return;
        };
        let mut exchange = exchange.borrow_mut();
        let (bytes, lines) = (head.fields.text().len(), head.fields.len());
        let head = response::received(head, ends, exchange.head_only);
        exchange.is_sized = matches!(head.content, Content::Sized(_));
        if lines > LINES_MAX || !exchange.add_head(head, bytes, self.options.head) {
            let code = ErrorCode::ENHANCE_YOUR_CALM;
            self.client.reset(slot, code, &mut self.out.text);
            let fault = Fault::from(Reason::BadHead);
            return self.remove(slot, &mut exchange, Err(Failure::of(fault)));
        }
        match ends {
            true => self.end(slot, &mut exchange),
            false => self.wake(&mut exchange),
        }
    }

    /// Handles content at this start and of this length, and takes all `used` bytes out of the input.
    fn content(&mut self, slot: usize, (start, length, used): (usize, usize, usize), ends: bool) {
        let Some(exchange) = self.exchange(slot) else {
            return self.input.advance(used);
        };
        let mut exchange = exchange.borrow_mut();
        // The user takes content at another time, or without having waited for it.
        exchange.pace.arrived(length, timer_now);
        match length {
            0 => self.input.advance(used),
            _ if exchange.incoming.shares(length) => {
                let part = self.input.split_to(used).freeze();
                exchange.incoming.share(part.slice(start..start + length));
            }
            _ => {
                exchange.incoming.copy(&self.input[start..start + length]);
                self.input.advance(used);
            }
        }
        match ends {
            true => self.end(slot, &mut exchange),
            false => self.wake(&mut exchange),
        }
    }

    /// Handles the regular end of a response.
    fn end(&mut self, slot: usize, exchange: &mut Exchange) {
        self.client.end(slot, &mut self.out.text);
        self.remove(slot, exchange, Ok(()));
    }

    /// Handles the early end of a stream, by the server or because of its violation of the protocol.
    fn failed(&mut self, slot: usize, code: ErrorCode, is_violation: bool) {
        let Some(exchange) = self.exchange(slot) else {
            return;
        };
        if !is_violation {
            self.count_reset(code);
        }
        let mut exchange = exchange.borrow_mut();
        let upload = exchange.outgoing.upload();
        let failure = match (code, exchange.has_head) {
            (_, false) if is_violation => Failure::of(Reason::BadHead.into()),
            (_, true) if is_violation => Failure::of(Reason::BadBody.into()),
            (_, true) => Failure::of(Reason::BodyCut.into()),
            (ErrorCode::REFUSED_STREAM, false) => {
                Failure::refused(Reason::StreamRefused, upload.rewind())
            }
            (ErrorCode::HTTP_1_1_REQUIRED, false) => {
                let failure = Failure::refused(Reason::StreamRefused, upload.rewind());
                self.require_http1();
                failure
            }
            (_, false) => {
                let fault = upload.fault();
                Failure::of(fault.unwrap_or(Reason::ClosedBeforeHead.into()))
            }
        };
        self.remove(slot, &mut exchange, Err(failure));
    }

    fn count_reset(&self, code: ErrorCode) {
        if let Some(counts) = &self.counts {
            match code {
                ErrorCode::REFUSED_STREAM | ErrorCode::HTTP_1_1_REQUIRED => counts.refused(),
                _ => counts.reset(),
            }
        }
    }

    /// Uses the connection no further, and HTTP/1.1 for the next ones.
    fn require_http1(&mut self) {
        if let Some(permit) = &self.permit {
            permit.state().protocol().require_http1();
        }
        self.fail();
    }

    /// Handles that the server accepts no more streams. Those that it has not processed can be sent again.
    fn go_away(&mut self, code: ErrorCode) {
        if let Some(counts) = &mut self.counts {
            counts.go_away();
        }
        if let Some(transport) = &self.transport {
            transport.note_server_ends();
        }
        match code {
            ErrorCode::HTTP_1_1_REQUIRED => self.require_http1(),
            _ => self.fail(),
        }
        while let Some(slot) = self.client.take_unprocessed(&mut self.out.text) {
            if let Some(exchange) = self.exchange(slot) {
                self.count_reset(ErrorCode::REFUSED_STREAM);
                let mut exchange = exchange.borrow_mut();
                let is_whole = exchange.outgoing.upload().rewind();
                let failure = match exchange.has_head {
                    false => Failure::refused(Reason::StreamRefused, is_whole),
                    true => Failure::of(Reason::BodyCut.into()),
                };
                self.remove(slot, &mut exchange, Err(failure));
            }
        }
    }

    /// Ends a connection whose server violates the protocol.
    fn violated(&mut self, violation: &Violation) {
        let text = match violation {
            Violation::Connection(_, text) | Violation::Stream(_, _, text) => *text,
        };
        self.client
            .close(violation.code(), text, &mut self.out.text);
        if !self.client.has_begun()
            && self.input.starts_with(b"HTTP/1.")
            && let Some(permit) = &self.permit
        {
            permit.state().note_detail(ErrorDetail::Http1);
        }
        self.input.clear();
        for slot in 0..self.exchanges.len() {
            self.failed(slot, violation.code(), true);
        }
        self.fail();
        self.is_ending = true;
    }

    /// Closes the transport, and ends all exchanges.
    pub(super) fn close(&mut self) {
        for slot in 0..self.exchanges.len() {
            if let Some(exchange) = self.exchange(slot) {
                let mut exchange = exchange.borrow_mut();
                let failure = self.lost(&exchange);
                self.remove(slot, &mut exchange, Err(failure));
            }
        }
        self.fail();
        self.is_blocked = false;
        self.transport = None;
        self.counts = None;
    }

    /// Returns the failure of an exchange whose connection is closed.
    fn lost(&self, exchange: &Exchange) -> Failure {
        let outgoing = &exchange.outgoing;
        if exchange.has_head {
            return Failure::of(Reason::BodyCut.into());
        }
        let unsent = self.written < exchange.head_end && outgoing.upload().rewind();
        // Frames of the connection, such as SETTINGS, may have crossed the request, and answer none.
        let has_answered = self.answers > exchange.answers_before || !self.input.is_empty();
        let is_stale = exchange.is_reused && !has_answered;
        let mut fault = match outgoing.upload().fault() {
            Some(fault) => fault,
            None if let Some(error) = self.tls_error() => {
                if let Some(permit) = &self.permit {
                    permit.state().note_detail(error);
                }
                Reason::TlsFailed.into()
            }
            None if is_stale => Reason::StaleConnection.into(),
            None if !outgoing.has_taken_all() => Reason::SendFailed.into(),
            None => Reason::ClosedBeforeHead.into(),
        };
        fault.retryable &= unsent;
        Failure {
            fault,
            unsent,
            refused: false,
            awaited_client: !outgoing.has_taken_all()
                && !outgoing.has_content()
                && !self.is_blocked,
        }
    }

    fn tls_error(&self) -> Option<ErrorDetail> {
        let transport = self.transport.as_ref()?;
        transport.tls_error().map(ErrorDetail::Tls)
    }
}
