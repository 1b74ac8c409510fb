//! Notices servers that are late: deadlines of exchanges, and a PING on a connection on which nothing arrives.

use tokio::time::Instant;

use super::exchange::{Awaits, Exchange};
use super::state::State;
use crate::reason::Reason;
use crate::sys::clock::timer_now;
use crate::upstream::options::Limits;

/// Content of a PING. Any byte that arrives after it answers it, so the content does not matter.
const PING: [u8; 8] = *b"  alive?";

impl State {
    /// Returns the timeout that the wait for the head or (`is_body`) the content of a response has exceeded, if any. Has to
    /// be called whenever nothing has arrived.
    ///
    /// While the client still sends, no timeout applies to the server, which may be waiting for the client. Content with a
    /// declared length must also arrive at the minimum rate. Without one, long pauses may be intended, as in server-sent
    /// events, unless `is_rated`.
    pub(super) fn watch(
        &mut self,
        exchange: &mut Exchange,
        is_body: bool,
        limits: &Limits,
    ) -> Option<Reason> {
        let now = timer_now();
        let (response, late) = match is_body {
            true => (Awaits::Body, Reason::BodyTimeout),
            false => (Awaits::Head, Reason::HeadTimeout),
        };
        let awaits_window = |slot| self.client.awaits_window(slot);
        let outgoing = &exchange.outgoing;
        let is_unwritten = self.written < exchange.head_end || outgoing.has_content();
        let (awaits, limit, reason) = if exchange.slot.is_some_and(awaits_window) {
            let window = Awaits::Window(outgoing.sent());
            (window, Some(limits.send), Reason::SendFailed)
        } else if self.is_blocked && is_unwritten {
            let room = Awaits::Room(self.written);
            (room, Some(limits.send), Reason::SendFailed)
        } else if !outgoing.has_taken_all() {
            (Awaits::Client, None, late)
        } else if is_body && (exchange.is_rated || exchange.is_sized) {
            let longest = exchange.pace.wait(limits.min_rate, limits.read, now);
            (response, Some(longest), late)
        } else {
            (response, Some(limits.read), late)
        };
        if exchange.awaits != awaits {
            exchange.awaits = awaits;
            exchange.deadline = limit.and_then(|limit| now.checked_add(limit));
        }
        let at = exchange.deadline?;
        if now < at {
            self.note_deadline(at);
            return None;
        }
        if now.duration_since(self.activity.active) >= self.options.ping_after {
            // Not even a PING was answered, so the connection is broken.
            self.fail();
        }
        Some(reason)
    }

    fn note_deadline(&mut self, at: Instant) {
        if self.activity.soonest.is_none_or(|soonest| at < soonest) {
            self.activity.soonest = Some(at);
            self.wake_task();
        }
    }

    /// Returns the time at which `tick` has to be called next.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let ping = match self.activity.pinged {
            _ if !self.is_pinged() => None,
            Some(pinged) => pinged.checked_add(self.options.answer),
            None => self.activity.active.checked_add(self.options.ping_after),
        };
        match (ping, self.activity.soonest) {
            (Some(ping), Some(soonest)) => Some(ping.min(soonest)),
            (ping, soonest) => ping.or(soonest),
        }
    }

    /// Whether the connection is tested when nothing arrives.
    fn is_pinged(&self) -> bool {
        !self.is_failing && self.client.open_streams() > 0
    }

    /// Wakes the exchanges that are late. Tests the connection if nothing has arrived for long, and uses it for no further
    /// exchange if the server does not answer the test.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.activity.soonest.is_some_and(|soonest| soonest <= now) {
            self.activity.soonest = None;
            for exchange in self.exchanges.clone().into_iter().flatten() {
                let mut exchange = exchange.borrow_mut();
                match exchange.deadline {
                    Some(at) if at <= now => self.wake(&mut exchange),
                    Some(at) => {
                        let soonest = self.activity.soonest.get_or_insert(at);
                        *soonest = at.min(*soonest);
                    }
                    None => {}
                }
            }
        }
        if !self.is_pinged() {
            return;
        }
        match self.activity.pinged {
            Some(pinged) if now.duration_since(pinged) >= self.options.answer => self.fail(),
            Some(_) => {}
            None if now.duration_since(self.activity.active) >= self.options.ping_after => {
                self.client.ping(PING, &mut self.out.text);
                self.activity.pinged = Some(now);
            }
            None => {}
        }
    }
}
