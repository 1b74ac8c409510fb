//! Sends requests: heads at once, content as far as windows and transport permit.

use std::task::Context;

use super::exchange::{self, Exchange};
use super::outgoing::{End, Outgoing};
use super::request;
use super::state::State;
use crate::handler::Fault;
use crate::http::Method;
use crate::http2::violation::ErrorCode;
use crate::reason::Reason;
use crate::sys::clock::timer_now;
use crate::upstream::inbound::Failure;
use crate::upstream::outbound::Outbound;

impl State {
    /// Begins the request of an exchange for which room was taken.
    pub(super) fn begin(
        &mut self,
        exchange: &exchange::Shared,
        outbound: &Outbound<'_>,
    ) -> Result<(), Failure> {
        let mut state = exchange.borrow_mut();
        state.has_begun = true;
        self.reserved -= 1;
        // The connection may have ended since it was chosen.
        let stale = Failure::refused(Reason::StaleConnection, outbound.upload.is_whole());
        if !self.may_begin() {
            return Err(stale);
        }
        let most = self.client.header_list_max();
        if most.is_some_and(|most| request::size(outbound) > most) {
            return Err(Failure::unsent(Reason::OriginHeaderLimit.into()));
        }
        if self.client.open_streams() == 0 {
            self.activity.note_active(timer_now());
        }
        state.head_only = outbound.head.method == Method::Head;
        let ends = outbound.upload.length() == Some(0);
        let (is_encrypted, out) = (self.is_encrypted, &mut self.out.text);
        let begun = self
            .client
            .begin(ends, state.head_only, out, |encoder, out| {
                request::head(encoder, out, outbound, is_encrypted);
            });
        let slot = begun.ok_or(stale)?;
        outbound.upload.keep();
        state.outgoing = Outgoing::new(outbound.upload.clone());
        state.head_end = self.written + self.out.len() as u64;
        state.answers_before = self.answers;
        state.slot = Some(slot);
        drop(state);
        if slot >= self.exchanges.len() {
            self.exchanges.resize(slot + 1, None);
        }
        self.exchanges[slot] = Some(exchange.clone());
        if !ends {
            self.fetch(slot);
        }
        self.wake_task();
        Ok(())
    }

    /// Returns the exchange in a slot.
    pub(super) fn exchange(&self, slot: usize) -> Option<exchange::Shared> {
        self.exchanges.get(slot)?.clone()
    }

    /// Takes content of a request from its client, unless there is some. An end without content is sent at once, since it
    /// needs no window.
    pub(super) fn fetch(&mut self, slot: usize) {
        let Some(exchange) = self.exchange(slot) else {
            return;
        };
        let waker = self.wakeups.waker(slot);
        let mut cx = Context::from_waker(&waker);
        let mut exchange = exchange.borrow_mut();
        if let Err(fault) = exchange.outgoing.fetch(&mut cx) {
            return self.abandon(slot, &mut exchange, fault);
        }
        match exchange.outgoing.take_end() {
            Some(end) => self.end_request(slot, end),
            None => self
                .client
                .set_content(slot, exchange.outgoing.has_content()),
        }
    }

    /// Ends an exchange whose request cannot be completed.
    fn abandon(&mut self, slot: usize, exchange: &mut Exchange, fault: Fault) {
        self.client
            .reset(slot, ErrorCode::CANCEL, &mut self.out.text);
        self.remove(slot, exchange, Err(Failure::of(fault)));
    }

    /// Notes the end of an exchange whose stream is closed.
    pub(super) fn remove(
        &mut self,
        slot: usize,
        exchange: &mut Exchange,
        end: Result<(), Failure>,
    ) {
        self.exchanges[slot] = None;
        exchange.outgoing = Outgoing::default();
        exchange.finish(end);
        exchange.kept = self.client.keep(exchange.incoming.len() as u32);
        self.wake(exchange);
        self.note_room();
        if !self.is_usable() {
            self.wake_task();
        }
    }

    fn end_request(&mut self, slot: usize, end: End) {
        let out = &mut self.out.text;
        match end {
            End::Plain => self.client.data(slot, 0, true, out),
            End::Trailers(fields) => self.client.trailers(slot, out, |encoder, out| {
                request::trailers(encoder, out, &fields);
            }),
        }
    }

    /// Queues content of all requests in turn, as far as the windows permit.
    pub(super) fn gather(&mut self) {
        while !self.out.is_full()
            && let Some((slot, most)) = self.client.next()
        {
            let exchange = self.exchange(slot);
            let Some(mut exchange) = exchange.as_ref().map(|exchange| exchange.borrow_mut()) else {
                self.client.set_content(slot, false);
                continue;
            };
            let content = exchange.outgoing.take(most as usize);
            let end = exchange.outgoing.take_end();
            drop(exchange);
            let ends = matches!(end, Some(End::Plain));
            if !content.is_empty() || ends {
                let length = content.len() as u32;
                self.client.data(slot, length, ends, &mut self.out.text);
                self.out.content(content);
            }
            match end {
                Some(End::Plain) => {}
                Some(trailers) => self.end_request(slot, trailers),
                None => self.fetch(slot),
            }
        }
    }

    /// Notes that content of a response was taken.
    pub(super) fn release(&mut self, slot: usize, bytes: usize) {
        let before = self.out.text.len();
        let now_ms = self.activity.ms(timer_now());
        self.client
            .consume(slot, bytes as u32, now_ms, &mut self.out.text);
        if self.out.text.len() > before {
            self.wake_task();
        }
    }
}
