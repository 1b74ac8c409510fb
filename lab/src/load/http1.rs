//! The connections of a load over HTTP/1.1, each of which has one request at a time.

use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use super::LoadPlan;
use super::engine::{Connections, Load};
use super::free::REST;
use super::response::Failure;
use super::schedule::Turn;
use super::slot::{Progress, Slot, State};
use super::socket::Sources;
use super::state::{Due, Good};
use super::tls::{Protocol, Secrets};

/// The connections, whose numbers are those of their places.
pub(super) struct Http1 {
    slots: Vec<Slot>,
    sources: Sources,
    secrets: Option<Secrets>,
}

impl Http1 {
    /// Returns the connections of one thread, none of which is open.
    ///
    /// Errors: unusable certificates.
    pub(super) fn new(plan: &LoadPlan, turn: Turn) -> anyhow::Result<Http1> {
        let now = Instant::now();
        let secrets = |tls| Secrets::of(tls, Protocol::Http1);
        Ok(Http1 {
            slots: (0..plan.connections).map(|_| Slot::new(now)).collect(),
            sources: Sources::new(plan, turn),
            secrets: plan.tls.as_ref().map(secrets).transpose()?,
        })
    }

    /// Sends the chosen request of a connection, which is opened first if necessary.
    fn begin_chosen(&mut self, load: &mut Load<'_>, slot: usize) {
        let outcome = match self.slots[slot].state {
            State::Idle => self.send(load, slot),
            _ => self.connect(load, slot),
        };
        if let Err(failure) = outcome {
            self.failed(load, slot, failure);
        }
    }

    fn connect(&mut self, load: &mut Load<'_>, slot: usize) -> Result<(), Failure> {
        let target = load.state.plan.target;
        self.slots[slot].connect(&target, &mut self.sources, self.secrets.as_ref())?;
        // On loopback a connect completes at once. Sending immediately saves waiting for an event and two system calls.
        self.send(load, slot)?;
        let interest = match self.slots[slot].state {
            State::Connecting => epoll::EventFlags::OUT,
            _ => epoll::EventFlags::IN,
        };
        let data = epoll::EventData::new_u64(slot as u64);
        let socket = self.slots[slot].socket.as_ref().ok_or(Failure::Closed)?;
        epoll::add(&load.epoll, socket, data, interest).map_err(Failure::Connect)
    }

    fn send(&mut self, load: &mut Load<'_>, slot: usize) -> Result<(), Failure> {
        let one = &mut self.slots[slot];
        let was_connecting = one.state == State::Connecting;
        one.send(load.state.targets.bytes(one.chosen))?;
        if was_connecting && one.state != State::Connecting {
            let took = one.connecting_since.elapsed();
            load.state.counts.connected(took);
        }
        Ok(())
    }

    fn connected(&mut self, load: &mut Load<'_>, slot: usize) -> Result<(), Failure> {
        self.send(load, slot)?;
        if self.slots[slot].state == State::Connecting {
            return Ok(());
        }
        let data = epoll::EventData::new_u64(slot as u64);
        let socket = self.slots[slot].socket.as_ref().ok_or(Failure::Closed)?;
        epoll::modify(&load.epoll, socket, data, epoll::EventFlags::IN).map_err(Failure::Connect)
    }

    /// Reads from a connection. Returns the time at which its response was complete.
    fn receive(
        &mut self,
        load: &mut Load<'_>,
        slot: usize,
        buffer: &mut [u8],
    ) -> Result<Option<Instant>, Failure> {
        let one = &mut self.slots[slot];
        let Progress::Whole { length, close } = one.receive(buffer, &load.state.expected)? else {
            return Ok(None);
        };
        let now = Instant::now();
        match one.failure.take() {
            Some(failure) => load.state.failed(failure),
            None => {
                let good = Good {
                    began: one.began,
                    chosen: one.chosen,
                    length,
                    whole: one.range.whole(),
                };
                load.state.good(good, now);
                one.good += 1;
            }
        }
        if close || !load.state.plan.keepalive {
            one.close();
        }
        load.free.give(slot);
        Ok(Some(now))
    }

    /// Handles the result of an event.
    fn received(
        &mut self,
        load: &mut Load<'_>,
        slot: usize,
        outcome: Result<Option<Instant>, Failure>,
    ) -> Option<Instant> {
        if self.slots[slot].has_more {
            load.unread.push(slot as u64);
        }
        match outcome {
            Ok(complete) => complete,
            Err(failure) => {
                self.failed(load, slot, failure);
                None
            }
        }
    }

    fn failed(&mut self, load: &mut Load<'_>, slot: usize, failure: Failure) {
        let was_busy = self.slots[slot].busy();
        self.slots[slot].close();
        match failure {
            // The server may close an idle connection. If that happens just when a request is sent, the request is
            // sent again and is not an error.
            Failure::Stale if was_busy => {
                load.state.counts.sent_again += 1;
                self.begin_chosen(load, slot);
            }
            Failure::Stale => {}
            Failure::Connect(_) | Failure::Tls => {
                load.state.failed(failure);
                load.free.rest(slot, Instant::now() + REST);
            }
            _ => {
                load.state.failed(failure);
                load.free.give(slot);
            }
        }
    }
}

impl Connections for Http1 {
    fn places(&self) -> usize {
        self.slots.len()
    }

    fn rests_until(&self, _place: usize) -> Option<Instant> {
        // The only place of a connection is not free while the connection rests.
        None
    }

    fn begin(&mut self, load: &mut Load<'_>, place: usize, due: Due) {
        self.slots[place].began = due.began;
        self.slots[place].chosen = load.state.choose(due, place);
        self.begin_chosen(load, place);
    }

    fn event(
        &mut self,
        load: &mut Load<'_>,
        number: u64,
        flags: epoll::EventFlags,
        buffer: &mut [u8],
    ) -> Option<Instant> {
        let slot = usize::try_from(number).ok()?;
        let outcome = match self.slots.get(slot)?.state {
            State::Absent => return None,
            State::Connecting if flags.contains(epoll::EventFlags::OUT) => {
                self.connected(load, slot).map(|()| None)
            }
            // An event of the slot's earlier socket may be in the same batch, so the new socket has to have an error.
            State::Connecting => Err(self.slots[slot].connect_failure()?),
            // The connection is read on in any case.
            _ if self.slots[slot].has_more => return None,
            _ => self.receive(load, slot, buffer),
        };
        self.received(load, slot, outcome)
    }

    fn read_on(&mut self, load: &mut Load<'_>, number: u64, buffer: &mut [u8]) -> Option<Instant> {
        let slot = usize::try_from(number).ok()?;
        if !self.slots.get(slot)?.has_more {
            return None;
        }
        let outcome = self.receive(load, slot, buffer);
        self.received(load, slot, outcome)
    }

    fn flush(&mut self, _load: &mut Load<'_>) {}

    fn sweep(&mut self, load: &mut Load<'_>, now: Instant) {
        let limit = load.state.time_limit;
        for slot in 0..self.slots.len() {
            let one = &self.slots[slot];
            if one.busy() && now.saturating_duration_since(one.began) > limit {
                if one.state == State::Connecting {
                    load.state.connect_failed(Errno::TIMEDOUT);
                }
                self.failed(load, slot, Failure::Timeout);
            }
        }
    }

    fn per_connection(&self) -> (u64, u64) {
        let good = || self.slots.iter().map(|slot| slot.good);
        (good().min().unwrap_or(0), good().max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
